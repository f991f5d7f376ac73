//! Tests the settings of the program: the file, the variables, the flags, and the log.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::program::{program, serving, settings};

const LIMIT: &str = "domain: d\ndescriptors: [{key: a, policy: fixed-window 1/365d}]";

async fn run(program: &mut Command) -> (Option<i32>, String, String) {
    let output = timeout(Duration::from_secs(60), program.output()).await.unwrap().unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn variables() -> Vec<(&'static str, &'static str)> {
    let lines = include_str!("../ratelimit_variables.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap()).collect()
}

#[tokio::test]
async fn each_variable_of_envoyproxy_ratelimit_takes_effect_is_refused_or_is_named() {
    let variables = variables();
    assert_eq!(variables.len(), 114);
    for (name, value) in &variables {
        let (code, stdout, stderr) = run(program().arg("--print-settings").env(name, value)).await;
        let has_effect = stdout.lines().any(|line| line.ends_with(&format!("# variable {name}")));
        let is_named =
            stderr.contains(&format!("{name} is ")) || stderr.contains(&format!("{name} needs "));
        assert!(has_effect || is_named, "{name}: {stdout}{stderr}");
        assert_eq!(code != Some(0), stderr.starts_with("tidegate-server: "), "{name}: {stderr}");
        assert!(is_named || stderr.is_empty(), "{name}: {stderr}");
    }
    let (_, list, _) = run(program().arg("variables")).await;
    let listed = list.lines().map(|line| line.split(' ').next().unwrap());
    let listed: Vec<_> = listed.filter(|name| !name.starts_with("TIDEGATE_")).collect();
    assert_eq!(listed, variables.iter().map(|(name, _)| *name).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_variable_that_turns_off_what_is_missing_here_causes_no_warning() {
    let mut program = program();
    for name in ["USE_STATSD", "USE_DOG_STATSD", "TRACING_ENABLED", "MEMCACHE_TLS"] {
        program.env(name, "false");
    }
    program.env("RUNTIME_IGNOREDOTFILES", "true").env("BACKEND_TYPE", "redis");
    let (code, _, stderr) = run(program.arg("--print-settings")).await;
    assert_eq!((code, &*stderr), (Some(0), ""));
}

/// Calls `visit` with each Rust file in a directory and its subdirectories.
fn sources(directory: &Path, visit: &mut dyn FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, visit);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            visit(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn one_source_file_has_the_names_of_the_variables_of_envoyproxy_ratelimit() {
    // Names without an underscore, such as `HOST` and `PORT`, have other meanings in the sources
    // too.
    let names: Vec<_> = variables().into_iter().map(|(name, _)| name).collect();
    let names: Vec<_> = names.into_iter().filter(|name| name.contains('_')).collect();
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut |path, text| {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        if text.split(|letter| !is_letter(letter)).any(|word| names.contains(&word)) {
            files.push(path.file_name().unwrap().to_owned());
        }
    });
    assert_eq!(files, ["ratelimit_env.rs"]);
}

async fn printed(program: &mut Command, key: &str) -> String {
    let (code, stdout, stderr) = run(program.arg("--print-settings")).await;
    assert_eq!(code, Some(0), "{stderr}");
    let line = stdout.lines().find(|line| line.starts_with(&format!("{key} = ")));
    line.unwrap_or_else(|| panic!("{key} is not in {stdout}")).to_owned()
}

#[tokio::test]
async fn a_flag_takes_precedence_over_a_variable_over_the_file_over_the_default() {
    let text = "[store]\nurl = 'redis://file'\n[grpc]\naddress = '10.0.0.1:1'\ndrain = '1s'";
    let mut all = [program(), program(), program(), program()];
    for program in &mut all[1..] {
        settings(program, text);
    }
    for program in &mut all[2..] {
        program.env("TIDEGATE_DRAIN", "2s").env("GRPC_PORT", "2");
        program.env("TIDEGATE_STORE", "redis://variable").env("REDIS_SOCKET_TYPE", "tcp");
        program.env("REDIS_URL", "envoy:1");
    }
    all[3].args(["--drain", "3s", "--store", "redis://flag", "--grpc", "127.0.0.1:3"]);
    let mut lines = Vec::new();
    for program in &mut all {
        let (_, stdout, _) = run(program.arg("--print-settings")).await;
        let keys = ["store.url = ", "grpc.address = ", "grpc.drain = "];
        lines.extend(keys.map(|key| {
            let line = stdout.lines().find(|line| line.starts_with(key)).unwrap();
            let (value, origin) = line[key.len()..].split_once("  # ").unwrap();
            let origin = origin.rsplit('/').next().unwrap();
            let origin = origin.split_once(".toml").map_or(origin, |(_, place)| place);
            format!("{value} {origin}")
        }));
    }
    let expected = [
        "\"memory\" default",
        "\"0.0.0.0:8081\" default",
        "\"0s\" default",
        "\"redis://file\" :2:7",
        "\"10.0.0.1:1\" :4:11",
        "\"1s\" :5:9",
        "\"redis://variable\" variable TIDEGATE_STORE",
        "\"10.0.0.1:2\" variable GRPC_PORT",
        "\"2s\" variable TIDEGATE_DRAIN",
        "\"redis://flag\" flag --store",
        "\"127.0.0.1:3\" flag --grpc",
        "\"3s\" flag --drain",
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn secrets_are_not_printed() {
    let mut program = program();
    program.env("TIDEGATE_RESP_PASSWORD", "S3CRET").env("REDIS_SENTINEL_AUTH", "u:S3CRET");
    program.env("TIDEGATE_STORE", "redis://u:S3CRET@a/?password=S3CRET");
    program.env("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:S3CRET");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "S3CRET\n").unwrap();
    let path = file.path().display();
    let text = format!("[http]\npassword = 'S3CRET'\n[page]\npassword_file = '{path}'");
    settings(&mut program, &text);
    let (code, stdout, stderr) = run(program.arg("--print-settings")).await;
    assert_eq!((code, &*stderr), (Some(0), ""));
    assert!(!stdout.contains("S3CRET"), "{stdout}");
    for line in [
        "http.password = \"***\"  # ",
        "resp.password = \"***\"  # variable TIDEGATE_RESP_PASSWORD",
        "page.password = \"\"  # default",
        "store.sentinel_login = \"***\"  # variable REDIS_SENTINEL_AUTH",
        "store.url = \"redis://a/\"  # variable TIDEGATE_STORE",
        "xds.headers = \"***\"  # ",
    ] {
        assert!(stdout.contains(line), "{line}: {stdout}");
    }
}

#[tokio::test]
async fn init_writes_a_file_with_the_defaults_and_overwrites_none() {
    let directory = tempfile::tempdir().unwrap();
    let init = || {
        let mut program = program();
        program.arg("init").current_dir(directory.path());
        program
    };
    let (code, stdout, _) = run(&mut init()).await;
    assert_eq!((code, &*stdout), (Some(0), "tidegate.toml has all settings with their defaults\n"));
    let file = directory.path().join("tidegate.toml");
    let written = fs::read_to_string(&file).unwrap();
    let (_, defaults, _) = run(program().arg("--print-settings")).await;
    let (code, stdout, stderr) =
        run(program().arg("--print-settings").env("TIDEGATE_SETTINGS", &file)).await;
    assert_eq!((code, &*stderr), (Some(0), ""));
    let read = stdout.replace(&format!("# {}:", file.display()), "# place ");
    assert_eq!(read.lines().count(), defaults.lines().count());
    for (line, default) in read.lines().zip(defaults.lines()) {
        let (value, origin) = line.split_once("  # ").unwrap();
        assert!(origin.starts_with("place "), "{line}");
        assert_eq!(format!("{value}  # default"), default);
    }

    let (code, _, stderr) = run(&mut init()).await;
    assert_eq!(code, Some(1));
    let expected = "tidegate-server: tidegate.toml: the file cannot be written: ";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
}

#[tokio::test]
async fn a_mistake_in_the_file_is_an_error_with_its_place_and_a_suggestion() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "").unwrap();
    let empty = format!("[resp]\npassword_file = '{}'", file.path().display());
    for (text, why, exit_code) in [
        (
            "[grpc]\n  adress = ''",
            ":2:3: unknown setting `grpc.adress`; did you mean `grpc.address`?",
            2,
        ),
        ("[gprc]\naddress = ''", ":1:2: unknown section `gprc`; did you mean `grpc`?", 2),
        (
            "[http]\nmax_streams = 1",
            ":2:1: unknown setting `http.max_streams`; did you mean `grpc.max_streams`?",
            2,
        ),
        ("url = 'memory'", ":1:1: unknown setting `url`; did you mean `store.url`?", 2),
        ("[log]\nzzzzzzzz = 1", ":2:1: unknown setting `log.zzzzzzzz`\n", 2),
        ("grpc = 1", ":1:1: `grpc` is a section; it must be written [grpc]", 2),
        (
            "[grpc]\nmax_streams = [1]",
            ":2:15: grpc.max_streams is of the type array; it must be a number",
            2,
        ),
        (
            "[grpc]\naddress = 8081",
            ":2:11: grpc.address is of the type integer; it must be a text in quotation marks",
            2,
        ),
        (
            "[grpc]\nmax_streams = 0",
            ":2:15: grpc.max_streams is `0`; it must be a whole number from 1 to 4294967295",
            2,
        ),
        (
            "[resp]\npassword = 1",
            ":2:12: resp.password is of the type integer; it must be a text",
            2,
        ),
        ("[grpc]\ndrain = '1s'\ndrain = '2s'", ":3:1: duplicate key", 2),
        ("[grpc", ":1:6: ", 2),
        (
            "[store]\non_error = 'pass'",
            ":2:12: store.on_error is `pass`; it must be error, allow, deny, or share: with a share",
            2,
        ),
        ("[http]\naddress = ''", "http.address is empty; it must be HOST:PORT", 1),
        (
            "[answers]\nlimit_header = 'a b:'",
            ":2:16: answers.limit_header is `a b:`; it must be the name of a header field",
            2,
        ),
        (
            "[resp]\npassword = 'a'\npassword_file = 'b'",
            "resp.password and resp.password_file are set",
            1,
        ),
        (
            "[resp]\npassword_file = '/nowhere'",
            "resp.password_file: /nowhere: the file cannot be read",
            1,
        ),
        (&*empty, "the file has 0 bytes; it must have 1 to 4096", 1),
        (
            "[limits]\nsource = 'xds'\ndirectory = '/a'",
            "limits.directory is set, and has no effect with limits.source",
            1,
        ),
        (
            "[limits]\nsource = 'xds'\n[xds]\ntls_ca = '/a'",
            "xds.tls_ca is set, and has no effect without xds.tls",
            1,
        ),
    ] {
        let mut program = program();
        settings(&mut program, text);
        let (code, stdout, stderr) = run(program.arg("--print-settings")).await;
        assert_eq!((code, &*stdout), (Some(exit_code), ""), "{text}: {stderr}");
        assert!(stderr.contains(why), "{text}: {stderr}");
    }
    let (code, _, stderr) = run(program().args(["--settings", "/nowhere.toml"])).await;
    assert_eq!(code, Some(2));
    assert!(
        stderr.starts_with("tidegate-server: /nowhere.toml: the file cannot be read: "),
        "{stderr}"
    );
    // `check` reads the settings too.
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let directory_setting = format!("[limits]\ndirectory = '{}'", directory.path().display());
    for (text, expected) in [(&*directory_setting, Some(0)), ("[store]\nulr = ''", Some(2))] {
        let mut program = program();
        program.arg("check");
        settings(&mut program, text);
        let (code, stdout, stderr) = run(&mut program).await;
        assert_eq!(code, expected, "{stderr}");
        assert_eq!(stdout == "1 limits in 1 domains\n", code == Some(0), "{stdout}");
    }
}

/// `check` refuses what the server refuses at its start, although it neither connects to a store
/// nor binds an address. Without a log, the server writes the reason to stderr.
#[tokio::test]
async fn check_refuses_settings_with_which_the_server_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.yaml"), LIMIT).unwrap();
    let limits = format!("[limits]\ndirectory = '{}'\n", directory.path().display());
    for (text, expected) in [
        ("[store]\nurl = 'memory://'", "`memory:"),
        ("[store]\nurl = 'redis://'", "redis://"),
        ("limit_set = 'store'", "limits.limit_set is `store`, but store.url is `memory`"),
        ("[page]\nlimits_read_token = 'x'", "page.limits_read_token and page.limits_write_token"),
        ("[resp]\naddress = '0.0.0.0:0'", "RESP on 0.0.0.0:"),
        ("[grpc]\ntls_certificate = '/no.pem'\ntls_key = '/no.key'", "/no.pem"),
        ("[store]\nurl = 'rediss://a'\ntls_ca = '/no.pem'", "/no.pem"),
    ] {
        for arguments in [&["check"][..], &["--log", "off"]] {
            let mut program = program();
            program.args(arguments).env("GRPC_PORT", "0").env("PORT", "0");
            settings(&mut program, &format!("{limits}{text}"));
            let (code, _, stderr) = run(&mut program).await;
            assert!(matches!(code, Some(1 | 2)), "{text} {arguments:?}");
            assert!(stderr.contains(expected), "{text} {arguments:?}: {stderr}");
        }
    }
    let token = "[store]\nurl = 'redis://127.0.0.1:1'\n[page]\nlimits_write_token = 'x'";
    let mut program = program();
    settings(program.arg("check"), &format!("{limits}{token}"));
    let (code, _, stderr) = run(&mut program).await;
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("limits.limit_set must be \"store\""), "{stderr}");
}

#[tokio::test]
async fn an_unknown_variable_of_this_server_is_named_with_the_setting_that_is_meant() {
    let mut program = program();
    program.env("TIDEGATE_STROE", "redis://a").env("TIDEGATE_RESP_IDLE_TIMEOUT", "1h");
    program.env("TIDEGATE_QQQQ", "1").env("TIDEGATE_EMPTY", "");
    let (code, _, stderr) = run(program.arg("--print-settings")).await;
    assert_eq!(code, Some(0));
    let expected = "\
        warning: TIDEGATE_QQQQ is set, and has no effect: there is no such variable\n\
        warning: TIDEGATE_RESP_IDLE_TIMEOUT is set, and has no effect: there is no such variable; did you mean \
        resp.idle_timeout in the settings file?\n\
        warning: TIDEGATE_STROE is set, and has no effect: there is no such variable; did you mean TIDEGATE_STORE?\n";
    assert_eq!(stderr, expected);
}

#[tokio::test]
async fn without_the_switch_of_the_environment_the_certificate_of_the_file_counts() {
    let text = "[grpc]\ntls_certificate = '/file.crt'\ntls_key = '/file.key'";
    let with = |name: &str, value: &str| {
        let mut program = program();
        settings(&mut program, text);
        program.env(name, value);
        program
    };
    let line = printed(&mut with("GRPC_SERVER_TLS_CERT", "/env.crt"), "grpc.tls_certificate").await;
    assert!(line.contains("\"/file.crt\""), "{line}");
    let line = printed(&mut with("GRPC_SERVER_USE_TLS", "false"), "grpc.tls_certificate").await;
    assert_eq!(line, "grpc.tls_certificate = \"\"  # variable GRPC_SERVER_USE_TLS");
    let line = printed(&mut with("GRPC_SERVER_USE_TLS", "true"), "grpc.tls_certificate").await;
    assert!(line.contains("\"/file.crt\""), "{line}");
}

#[tokio::test]
async fn the_log_has_the_set_level_and_format() {
    let directory = tempfile::tempdir().unwrap();
    let config = "domain: d\ndescriptors: [{key: a, unit: day, policy: gcra 1/s}]";
    fs::write(directory.path().join("a.yaml"), config).unwrap();
    // The key `unit` causes a warning, which the server logs before it prints its addresses.
    let first_line = async |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut program = program();
        program.arg("--config").arg(directory.path()).args(arguments);
        program.envs(variables.iter().copied());
        let (mut child, _) = serving(program).await;
        child.start_kill().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap()
    };
    let line = first_line(&[], &[]).await.unwrap();
    assert!(line.contains("Z  INFO the store is the memory of this process"), "{line}");
    let line = first_line(&[("LOG_LEVEL", "WARNING"), ("LOG_FORMAT", "json")], &[]).await.unwrap();
    let object: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(object["level"], "warn");
    assert!(
        object["@message"].as_str().unwrap().contains("the key 'unit' has no effect"),
        "{line}"
    );
    assert!(object["@timestamp"].as_str().unwrap().ends_with('Z'), "{line}");
    let line = first_line(&[("LOG_LEVEL", "debug")], &["--log", "error"]).await;
    assert_eq!(line, None);
}
