//! Subjects other than addresses.

use http::{HeaderName, HeaderValue, Request};
use tidegate_core::{ErrorKind, Subject};
use tidegate_http::subject::{ApiKey, Authenticated, Everybody, ExtractSubject, HashKey, from_fn};

fn key() -> HashKey {
    HashKey::new(b"0123456789abcdef").unwrap()
}

fn subject_of_lines(
    source: &impl ExtractSubject,
    field: &'static str,
    lines: &[&[u8]],
) -> Option<Vec<u8>> {
    let (mut request, ()) = Request::new(()).into_parts();
    for line in lines {
        request.headers.append(field, HeaderValue::from_bytes(line).unwrap());
    }
    source.extract(&request).map(|subject| subject.as_bytes().to_vec())
}

#[test]
fn an_api_key_is_kept_as_its_keyed_hash_only() {
    let by_key = ApiKey::header("X-API-Key", key()).unwrap();
    let subject_of = |value: &[u8]| subject_of_lines(&by_key, "x-api-key", &[value]).unwrap();
    // The expected HMAC-SHA-256 is the output of another program: `printf %s sk_live_7 | openssl
    // sha256 -hmac 0123456789abcdef`.
    assert_eq!(subject_of(b"sk_live_7"), b"c80d51d569ed3554bf5eed47b25efcfa");
    assert_ne!(subject_of(b"sk_live_7"), subject_of(b"sk_live_8"));
    assert_eq!(subject_of(b" sk_live_7\t"), subject_of(b"sk_live_7"));
    assert_eq!(subject_of(b"\xff\xfe").len(), 32);
    let field = HeaderName::from_static("x-api-key");
    let other = ApiKey::header(field, HashKey::new(b"0123456789abcdeg").unwrap()).unwrap();
    assert_ne!(
        subject_of_lines(&other, "x-api-key", &[b"sk_live_7"]).unwrap(),
        subject_of(b"sk_live_7")
    );
}

#[test]
fn b95_header_fields_that_are_not_utf8_are_subjects_by_their_bytes() {
    let (by_key, by_token) = (ApiKey::header("x-api-key", key()).unwrap(), ApiKey::bearer(key()));
    let by_field =
        from_fn(|request| Some(Subject::from(request.headers.get("x-account")?.as_bytes())));
    // The fourth value ends with U+FFFD, which lossy decoders insert for invalid bytes. The last
    // value ends with a lone surrogate.
    let values = [&b"dave"[..], b"dave\xff", b"dave\xfe", b"dave\xef\xbf\xbd", b"dave\xed\xa0\x80"];
    let mut seen = std::collections::HashSet::new();
    for value in values {
        let hashed = subject_of_lines(&by_key, "x-api-key", &[value]).unwrap();
        let token = [b"Bearer ", value].concat();
        assert_eq!(subject_of_lines(&by_token, "authorization", &[&token]), Some(hashed.clone()));
        assert_eq!(subject_of_lines(&by_field, "x-account", &[value]).as_deref(), Some(value));
        assert!(seen.insert(hashed), "{}", value.escape_ascii());
    }
}

#[test]
fn an_api_key_that_is_absent_empty_twice_or_too_long_is_no_subject() {
    let by_key = ApiKey::header("X-API-Key", key()).unwrap();
    let long = [b'a'; 4097];
    let none: [&[&[u8]]; 6] = [&[], &[b""], &[b"  "], &[b"a", b"a"], &[b"a", b""], &[&long]];
    for lines in none {
        assert_eq!(subject_of_lines(&by_key, "x-api-key", lines), None);
    }
    assert!(subject_of_lines(&by_key, "x-api-key", &[&long[1..]]).is_some());
    let error = ApiKey::header("x api key", key()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.to_string().contains("the name of the field is `x api key`"), "{error}");
}

#[test]
fn a_bearer_token_is_the_same_subject_in_any_case_of_its_scheme() {
    let by_token = ApiKey::bearer(key());
    let subject_of = |value: &[u8]| subject_of_lines(&by_token, "authorization", &[value]);
    assert_eq!(subject_of(b"Bearer sk_live_7"), subject_of(b"bEARER   sk_live_7 "));
    let by_key = ApiKey::header("X-API-Key", key()).unwrap();
    assert_eq!(
        subject_of(b"Bearer sk_live_7"),
        subject_of_lines(&by_key, "x-api-key", &[b"sk_live_7"])
    );
    for value in
        [&b""[..], b"Bearer", b"Bearer ", b"Basic sk_live_7", b"sk_live_7", b"Bearersk_live_7"]
    {
        assert_eq!(subject_of(value), None, "{value:?}");
    }
}

#[test]
fn a_secret_that_is_short_is_refused_and_none_is_shown() {
    let error = HashKey::new(b"fifteen bytes..").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert_eq!(
        error.to_string(),
        "invalid-config: the secret of a hash key has 15 bytes; it needs at least 16"
    );
    assert!(HashKey::new([7; 500]).is_ok());
    assert!(!format!("{:?}", ApiKey::bearer(key())).contains("0123456789"));
}

#[test]
fn an_authenticated_user_comes_from_extensions_only() {
    #[derive(Clone)]
    struct User(String);
    let by_user = Authenticated::new(|user: &User| Subject::from(&user.0));
    let (mut request, ()) = Request::get("/").header("user", "7").body(()).unwrap().into_parts();
    assert_eq!(by_user.extract(&request), None);
    request.extensions.insert(User("alice".into()));
    assert_eq!(by_user.extract(&request), Some(Subject::from("alice")));
    assert!(format!("{by_user:?}").contains("User"));
}

#[test]
fn a_function_and_everybody_are_subjects_too() {
    let (request, ()) = Request::get("/items").body(()).unwrap().into_parts();
    let by_path = from_fn(|request| Some(Subject::from(request.uri.path())));
    assert_eq!(by_path.extract(&request), Some(Subject::from("/items")));
    assert_eq!(Everybody.extract(&request), Some(Subject::from(())));
}
