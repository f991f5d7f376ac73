//! Compares the document `/openapi.json` with the routes.

use std::collections::BTreeSet;

use serde_json::Map;
use tidegate_core::{ErrorKind, StoreExt};
use tidegate_server::calls::Verb;
use tidegate_server::envoy::decide::Decider;
use tidegate_server::envoy::json;
use tidegate_server::envoy::service::Service;
use tidegate_server::net::login::Login;
use tidegate_testkit::faults::{Fault, Faults};

use super::schema::{check, resolve, validate};
use super::*;
use crate::http::client::request;
use crate::scene::Scene;

fn routes_described() -> BTreeSet<(String, String)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap().clone();
    let methods = |(path, methods): (String, Value)| {
        let methods: Vec<String> = methods.as_object().unwrap().keys().cloned().collect();
        methods.into_iter().map(move |method| (path.clone(), method))
    };
    paths.into_iter().flat_map(methods).collect()
}

#[test]
fn each_route_is_described_and_no_other() {
    let own = [
        "/json post",
        "/json/{call} post",
        "/healthcheck get",
        "/config get",
        "/metrics get",
        "/openapi.json get",
    ];
    let own = own.iter().map(|route| route.split_once(' ').unwrap());
    let own = own.map(|(path, method)| (path.to_owned(), method.to_owned()));
    let calls = Verb::ALL.map(|verb| (format!("/v1/{}", verb.as_str()), "post".to_owned()));
    assert_eq!(routes_described(), own.chain(calls).collect());
}

#[test]
fn each_reference_has_what_it_refers_to_and_all_of_that_is_used() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let (document, mut found) = (document(), BTreeSet::new());
    references(&document, &mut found);
    let components = document["components"].as_object().unwrap();
    let kinds = components.iter().filter(|(kind, _)| *kind != "securitySchemes");
    let known = kinds.flat_map(|(kind, named)| {
        let names = named.as_object().unwrap().keys();
        names.map(move |name| format!("#/components/{kind}/{name}"))
    });
    assert_eq!(found, known.collect());
}

/// Returns the example requests of a path: their names, their bodies, and the example answers that
/// the document has for them.
fn examples(path: &str) -> Vec<(String, Value, Option<Value>)> {
    let document = document();
    let post = &document["paths"][path]["post"];
    let requests = &post["requestBody"]["content"]["application/json"]["examples"];
    let answers = &post["responses"]["200"]["content"]["application/json"]["examples"];
    let example = |(name, example): (&String, &Value)| {
        let answer = answers.get(name).map(|answer| answer["value"].clone());
        (name.clone(), example["value"].clone(), answer)
    };
    requests.as_object().unwrap().iter().map(example).collect()
}

#[tokio::test]
async fn the_examples_are_answered_as_they_say() {
    let document = document();
    for verb in Verb::ALL {
        let path = format!("/v1/{}", verb.as_str());
        let schema = &document["paths"][&path]["post"]["requestBody"]["content"]["application/json"]
            ["schema"];
        for (name, body, expected) in examples(&path) {
            validate(&document, schema, &body, "").unwrap();
            let server = Server::start().await;
            if matches!(verb, Verb::Settle | Verb::Cancel | Verb::Extend) {
                let (_, hold, _) = examples("/v1/hold").remove(0);
                assert_eq!(server.ask("hold", hold).await.0, 200);
            }
            let (status, answer) = server.ask(verb.as_str(), body).await;
            assert_eq!(status, 200, "{path}, {name}: {answer}");
            assert_eq!(Some(answer), expected, "{path}, {name}");
        }
    }
}

fn sample(field: &str) -> Value {
    match field {
        // A grant needs a quota, and the other calls need any policy.
        "policy" => json!("quota 1/day in UTC"),
        "subject_base64" | "tenant_base64" => json!("/w=="),
        "cost" | "min" | "ttl_ms" | "block_ms" | "place" | "ends_at_ms" => json!(1),
        "check" | "at_least" | "so_far" => json!(false),
        "charges" => json!([{"policy": "quota 1/day in UTC", "subject": "a"}]),
        _ => json!("x"),
    }
}

/// Sends a body with an unknown field. Returns the known fields, which the error message lists.
async fn fields_known(server: &Server, verb: Verb, body: Value) -> BTreeSet<String> {
    let (_, answer) = server.ask(verb.as_str(), body).await;
    let message = answer["message"].as_str().unwrap();
    let (_, known) = message.split_once("; the known fields are ").unwrap();
    known.split(", ").map(str::to_owned).collect()
}

#[tokio::test]
async fn each_field_of_a_call_is_described_and_no_other() {
    let (document, server) = (document(), Server::start().await);
    for verb in Verb::ALL {
        let path = format!("/v1/{}", verb.as_str());
        let content = &document["paths"][&path]["post"]["requestBody"]["content"];
        let schema = resolve(&document, &content["application/json"]["schema"]);
        let described = |schema: &Value| -> BTreeSet<String> {
            schema["properties"].as_object().unwrap().keys().cloned().collect()
        };
        let call_fields = fields_known(&server, verb, json!({"nothing": 1})).await;
        assert_eq!(described(schema), call_fields, "{path}");
        let charge = resolve(&document, &schema["properties"]["charges"]["items"]);
        let charge_fields = fields_known(&server, verb, json!({"charges": [{"nothing": 1}]})).await;
        assert_eq!(described(charge), charge_fields, "{path}");
        // The server accepts a request if and only if it matches the schema.
        for body in bodies(&call_fields) {
            let is_described = validate(&document, schema, &body, "").is_ok();
            let (status, answer) = server.ask(verb.as_str(), body.clone()).await;
            assert_eq!(is_described, status != 400, "{path} {body}: {answer}");
        }
    }
}

/// Returns bodies of two kinds: some have most of the fields, and some have `charges` and few other
/// fields. Each field is missing in some bodies.
fn bodies(fields: &BTreeSet<String>) -> Vec<Value> {
    let with = |chosen: &dyn Fn(&str) -> bool| {
        let chosen = fields.iter().filter(|field| chosen(field));
        Value::Object(chosen.map(|field| (field.clone(), sample(field))).collect::<Map<_, _>>())
    };
    let texts = ["subject", "tenant"];
    let mut bodies = vec![with(&|field| field != "charges" && !field.ends_with("_base64"))];
    bodies.push(with(&|field| field != "charges" && !texts.contains(&field)));
    for out in fields {
        let is_in = |field: &str| field != out && field != "charges";
        bodies.push(with(&|field| is_in(field) && !field.ends_with("_base64")));
        bodies.push(with(&|field| is_in(field) && !texts.contains(&field)));
        bodies.push(with(&is_in));
        let charge_fields =
            ["policy", "subject", "subject_base64", "tenant", "tenant_base64", "cost", "check"];
        bodies.push(with(&|field| field != out && !charge_fields.contains(&field)));
    }
    bodies
}

#[tokio::test]
async fn each_status_of_a_call_occurs() {
    let store = || -> Arc<dyn Store> { Arc::new(MemoryStore::new()) };
    let failing =
        MemoryStore::new().layer(Faults::new(vec![Fault::Before(ErrorKind::Timeout); 99]));
    let failing = Server::with(Arc::new(failing), Access::Open, HttpSettings::default()).await;
    let closed = Server::with(store(), Access::Closed, HttpSettings::default()).await;
    let login = Access::Login(Login { user: "default".into(), password: "x".into() });
    let login = Server::with(store(), login, HttpSettings::default()).await;
    let mut settings = HttpSettings::default();
    settings.max_body_bytes = 400;
    settings.request_timeout = Duration::from_millis(300);
    let bounded = Server::with(store(), Access::Open, settings).await;
    let server = Server::start().await;
    for verb in Verb::ALL {
        let (name, path) = (verb.as_str(), format!("/v1/{}", verb.as_str()));
        let (_, example, _) = examples(&path).remove(0);
        let subject = json!({"policy": example["policy"], "subject": example["subject"]});
        server.ask("reset", subject.clone()).await;
        let with = |more: Value| {
            let mut body = subject.clone();
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let hold =
            |id: &str| with(json!({"cost": 1, "id": format!("{id} {name}"), "ttl_ms": 1000}));
        assert_eq!(server.ask("hold", hold("lapsed")).await.0, 200);
        server.advance(1_500);
        assert_eq!(server.ask("hold", hold("settled")).await.0, 200);
        // A settlement gives no cost for slots.
        let cost = u64::from(verb != Verb::Leave);
        let settle = with(json!({"cost": cost, "id": format!("settled {name}")}));
        assert_eq!(server.ask("settle", settle).await.0, 200);
        let body = example.to_string();
        let with_id = |id: &str| {
            let mut body = example.clone();
            body["id"] = json!(format!("{id} {name}"));
            if !matches!(verb, Verb::Settle | Verb::Cancel | Verb::Leave) {
                body["ttl_ms"] = json!(1000);
            }
            body.to_string()
        };
        let mut seen: BTreeSet<u16> = BTreeSet::new();
        for (server, fields, body) in [
            (&server, JSON, body.clone()),
            (&server, JSON, with_id("settled")),
            (&server, JSON, with_id("lapsed")),
            (&server, JSON, with_id("none")),
            (&server, JSON, "{}".to_owned()),
            (&server, JSON, example_beyond(verb, &example)),
            (&server, "", body.clone()),
            (&failing, JSON, body.clone()),
            (&closed, JSON, body.clone()),
            (&login, JSON, body.clone()),
            (&bounded, JSON, " ".repeat(401)),
        ] {
            seen.insert(server.post_with(name, fields, &body).await.status);
        }
        let mut slow = bounded.client().await;
        let (all, fields) = (request("POST", &path, JSON, &body), JSON.len());
        slow.send(&all[..all.len() - fields]).await;
        let answer = slow.answer().await.unwrap();
        check(&path, "post", &answer);
        seen.insert(answer.status);
        seen.insert(200);
        let document = document();
        let described = document["paths"][&path]["post"]["responses"].as_object().unwrap();
        let described: BTreeSet<u16> =
            described.keys().map(|status| status.parse().unwrap()).collect();
        assert_eq!(seen, described, "{path}");
    }
}

/// Returns the example request. If the verb can be refused, the cost is above the limit.
fn example_beyond(verb: Verb, example: &Value) -> String {
    let mut body = example.clone();
    if verb == Verb::Hold {
        body["id"] = json!("beyond");
    }
    if matches!(verb, Verb::Acquire | Verb::Peek | Verb::Hold) {
        body["cost"] = json!(1_000_000);
    }
    body.to_string()
}

#[tokio::test]
async fn the_other_routes_are_answered_as_described() {
    let config = "domain: shop\ndescriptors:\n\
        - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}\n\
        - {key: other, rate_limit: {unit: hour, requests_per_unit: 1, name: one}}\n";
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let listen = async |decider, settings| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = json::routes(Arc::new(Service::new(decider)), Some(recorder.handle()));
        tokio::spawn(serve(listener, routes, settings, std::future::pending()));
        address
    };
    let mut settings = HttpSettings::default();
    (settings.request_timeout, settings.max_body_bytes) = (Duration::from_millis(300), 400);
    let with = listen(Scene::new(config).decider, settings).await;
    let without = Decider::new(Arc::new(MemoryStore::new()), Default::default());
    let without = listen(without, HttpSettings::default()).await;
    let document = document();
    let content = &document["paths"]["/json"]["post"]["requestBody"]["content"]["application/json"];
    validate(&document, &content["schema"], &content["example"], "").unwrap();
    let (example, long) = (content["example"].to_string(), " ".repeat(401));
    let other = r#"{"domain": "shop", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "other"}], "hitsAddend":
        "2", "limit": {"requestsPerUnit": 9, "unit": "WEEK"}, "isNegativeHits": false}]}"#;
    let mut seen = BTreeSet::new();
    for (address, method, path, body) in [
        (with, "post", "/json", &*example),
        (with, "post", "/json", &*example),
        (with, "post", "/json", other),
        (with, "post", "/json", "{}"),
        (with, "post", "/json", &*long),
        (with, "get", "/healthcheck", ""),
        (without, "get", "/healthcheck", ""),
        (with, "get", "/config", ""),
        (with, "get", "/metrics", ""),
    ] {
        let method_sent = method.to_ascii_uppercase();
        let answer = Client::connect(address).await.call(&method_sent, path, "", body).await;
        check(path, method, &answer);
        seen.insert((path.to_owned(), answer.status.to_string()));
    }
    let mut slow = Client::connect(with).await;
    slow.send("POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{").await;
    let answer = slow.answer().await.unwrap();
    check("/json", "post", &answer);
    seen.insert(("/json".to_owned(), answer.status.to_string()));
    let routes = routes_described().into_iter();
    // The tests of operators check `/json/{call}`.
    let others = ["/openapi.json", "/json/{call}"];
    let described =
        routes.filter(|(path, _)| !path.starts_with("/v1/") && !others.contains(&&**path));
    let described = described.flat_map(|(path, method)| {
        let responses = document["paths"][&path][&method]["responses"].as_object().unwrap();
        let statuses: Vec<String> = responses.keys().cloned().collect();
        statuses.into_iter().map(move |status| (path.clone(), status))
    });
    assert_eq!(seen, described.collect());
}
