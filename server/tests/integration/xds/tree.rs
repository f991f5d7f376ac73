//! Checks that the same limits have the same effect as YAML and as xDS messages.

use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value as JsonValue};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tidegate_server::limits::config::{Config, ConfigError, ConfigFile, SameDomain};
use tidegate_server::limits::xds::messages::RateLimitReplace;

use super::*;
use crate::scene::block_on;

const UNITS: [&str; 8] = ["UNKNOWN", "second", "minute", "hour", "day", "month", "year", "week"];

fn file(config: &RateLimitConfig) -> ConfigFile {
    // JSON is valid YAML.
    let text = json!({"domain": config.domain, "descriptors": list(&config.descriptors)});
    ConfigFile { name: config.name.clone(), text: text.to_string() }
}

fn list(descriptors: &[RateLimitDescriptor]) -> Vec<Value> {
    descriptors.iter().map(descriptor_json).collect()
}

fn descriptor_json(descriptor: &RateLimitDescriptor) -> Value {
    let mut fields = Map::new();
    fields.insert("key".into(), json!(descriptor.key));
    fields.insert("value".into(), json!(descriptor.value));
    fields.insert("shadow_mode".into(), json!(descriptor.shadow_mode));
    fields.insert("quota_mode".into(), json!(descriptor.quota_mode));
    fields.insert("detailed_metric".into(), json!(descriptor.detailed_metric));
    if !descriptor.descriptors.is_empty() {
        fields.insert("descriptors".into(), json!(list(&descriptor.descriptors)));
    }
    if let Some(limit) = &descriptor.rate_limit {
        let replaces: Vec<_> =
            limit.replaces.iter().map(|replaced| json!({"name": replaced.name})).collect();
        let unit = usize::try_from(limit.unit).ok().and_then(|unit| UNITS.get(unit));
        let limit = json!({
            "unit": unit.map_or(limit.unit.to_string(), |unit| (*unit).to_owned()),
            "requests_per_unit": limit.requests_per_unit,
            "unlimited": limit.unlimited,
            "name": limit.name,
            "replaces": (!replaces.is_empty()).then_some(replaces),
        });
        fields.insert("rate_limit".into(), limit);
    }
    if let Some(metadata) = &descriptor.metadata {
        fields.insert("metadata".into(), struct_json(metadata));
    }
    Value::Object(fields)
}

fn struct_json(object: &Struct) -> Value {
    Value::Object(
        object.fields.iter().map(|(key, value)| (key.clone(), value_json(value))).collect(),
    )
}

fn value_json(value: &JsonValue) -> Value {
    match value.kind.as_ref() {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(value)) => json!(value),
        Some(Kind::NumberValue(value)) => json!(value),
        Some(Kind::StringValue(value)) => json!(value),
        Some(Kind::ListValue(list)) => list.values.iter().map(value_json).collect(),
        Some(Kind::StructValue(object)) => struct_json(object),
    }
}

fn values() -> impl Strategy<Value = JsonValue> {
    let leaf = prop_oneof![
        Just(Kind::NullValue(0)),
        any::<bool>().prop_map(Kind::BoolValue),
        // Whole numbers are generated separately, because random fractions are almost never whole.
        prop_oneof![(-99..99).prop_map(f64::from), -1e9..1e9].prop_map(Kind::NumberValue),
        "(|null|1|1\\.5|true|[a-c]{1,3})".prop_map(Kind::StringValue),
    ];
    leaf.prop_map(value).prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|values| value(Kind::ListValue(ListValue { values }))),
            structs(inner).prop_map(|object| value(Kind::StructValue(object))),
        ]
    })
}

fn value(kind: Kind) -> JsonValue {
    JsonValue { kind: Some(kind) }
}

fn structs(values: impl Strategy<Value = JsonValue>) -> impl Strategy<Value = Struct> {
    prop::collection::hash_map("[a-c]|1", values, 0..3).prop_map(|fields| Struct { fields })
}

fn limits() -> impl Strategy<Value = RateLimitPolicy> {
    // Most limits are valid, so that most trees are valid.
    let unit = prop_oneof![20 => 1..8, 1 => Just(0), 1 => Just(99)];
    let counted = (unit, 0..4_u32).prop_map(|(unit, requests_per_unit)| RateLimitPolicy {
        unit,
        requests_per_unit,
        ..RateLimitPolicy::default()
    });
    let unlimited = prop_oneof![10 => Just(0), 1 => Just(1)].prop_map(|unit| RateLimitPolicy {
        unit,
        unlimited: true,
        ..RateLimitPolicy::default()
    });
    let replaces =
        prop_oneof![8 => Just(None), 1 => "[l-n]".prop_map(Some), 1 => Just(Some(String::new()))];
    (prop_oneof![5 => counted, 1 => unlimited], "[l-n]|", replaces).prop_map(
        |(limit, name, replaces)| RateLimitPolicy {
            name,
            replaces: replaces.into_iter().map(|name| RateLimitReplace { name }).collect(),
            ..limit
        },
    )
}

fn descriptors() -> impl Strategy<Value = Vec<RateLimitDescriptor>> {
    let one = |next: BoxedStrategy<Vec<RateLimitDescriptor>>| {
        let key = prop_oneof![20 => "[a-c]", 1 => Just(String::new()), 1 => Just("1".to_owned())];
        let value = prop_oneof![Just(""), Just("x"), Just("x*"), Just("*y"), Just("null")];
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        let limit = prop::option::weighted(0.7, limits());
        let metadata = prop::option::weighted(0.3, structs(values()));
        (key, value, limit, next, flags, metadata).prop_map(
            |(key, value, rate_limit, descriptors, flags, metadata)| RateLimitDescriptor {
                key,
                value: value.into(),
                rate_limit,
                descriptors,
                shadow_mode: flags.0,
                detailed_metric: flags.1,
                quota_mode: flags.2,
                metadata,
            },
        )
    };
    let last = prop::collection::vec(one(Just(vec![]).boxed()), 0..3).boxed();
    prop::collection::vec(one(last), 0..4)
}

fn resources() -> impl Strategy<Value = Vec<RateLimitConfig>> {
    let domain = prop_oneof![20 => "[de]", 1 => Just(String::new())];
    let one = ("r[0-9]", domain, descriptors())
        .prop_map(|(name, domain, descriptors)| RateLimitConfig { name, domain, descriptors });
    prop::collection::vec(one, 1..3)
}

type Entries = Vec<(String, String)>;

fn requests() -> impl Strategy<Value = Vec<Vec<Entries>>> {
    let entry = ("[a-c]", "|x|xz|y|null").prop_map(|(key, value)| (key, value));
    let entries = prop::collection::vec(entry, 1..3);
    prop::collection::vec(prop::collection::vec(entries, 1..3), 1..8)
}

/// Sends the same requests to each domain. Returns the domains, the limits and the answers.
fn outcome(config: Config, requests: &[Vec<Entries>]) -> impl PartialEq + std::fmt::Debug {
    let domains: Vec<String> = config.domains().into_iter().map(str::to_owned).collect();
    let list: Vec<_> = config.list().into_iter().map(|listed| (listed.key, listed.limit)).collect();
    let mut behaviour = Behaviour::default();
    behaviour.has_metadata = true;
    let (decider, _clock) = decider(behaviour);
    decider.set_config(config).unwrap();
    let mut answers = Vec::new();
    for domain in &domains {
        for asked in requests {
            let descriptors = asked.iter().map(|entries| {
                let entries: Vec<_> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
                descriptor(&entries)
            });
            answers.push(block_on(decider.decide(&request(domain, descriptors.collect()))));
        }
    }
    let answers: Vec<_> =
        answers.into_iter().map(|answer| answer.map_err(|error| error.to_string())).collect();
    (domains, list, answers)
}

proptest! {
    #[test]
    fn a_tree_decides_the_same_as_yaml_and_as_messages(
        resources in resources(),
        merge in any::<bool>(),
        requests in requests(),
    ) {
        let same = if merge { SameDomain::Merge } else { SameDomain::Refuse };
        let files: Vec<_> = resources.iter().map(file).collect();
        match (Config::from_files(&files, same), Config::from_resources(&resources, same)) {
            (Ok(files), Ok(resources)) => {
                prop_assert_eq!(outcome(files, &requests), outcome(resources, &requests));
            }
            (Err(file), Err(resource)) => {
                prop_assert_eq!(file.message(), resource.message());
                prop_assert_eq!((file.file(), None), (resource.file(), resource.line()));
                let text = format!("{}: {}", resource.file(), resource.message());
                prop_assert_eq!(resource.to_string(), text);
            }
            (file, resource) => prop_assert!(false, "{file:?}\n{resource:?}"),
        }
    }

    #[test]
    fn bytes_are_limits_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(resource) = RateLimitConfig::decode(&*bytes) {
            let _ = Config::from_resources(&[resource], SameDomain::Refuse);
        }
    }
}

fn read(resource: RateLimitConfig) -> Result<Config, ConfigError> {
    Config::from_resources(&[resource], SameDomain::Refuse)
}

#[test]
fn errors_are_those_of_files() {
    let replaced = |name: &str| {
        let mut descriptor = limited("a", 1, DAY);
        let limit = descriptor.rate_limit.as_mut().unwrap();
        limit.name = "n".into();
        limit.replaces = vec![RateLimitReplace { name: name.into() }];
        descriptor
    };
    let unlimited = |unit| {
        let mut descriptor = limited("a", 0, unit);
        descriptor.rate_limit.as_mut().unwrap().unlimited = true;
        descriptor
    };
    for (descriptors, message) in [
        (vec![limited("a", 1, 0)], "invalid rate limit unit 'UNKNOWN'"),
        (vec![limited("a", 1, 8)], "invalid rate limit unit '8'"),
        (vec![limited("a", 1, -1)], "invalid rate limit unit '-1'"),
        (vec![unlimited(MINUTE)], "should not specify rate limit unit when unlimited"),
        (vec![limited("", 1, DAY)], "descriptor has empty key"),
        (
            vec![limited("a", 1, DAY), limited("a", 2, DAY)],
            "duplicate descriptor composite key 'd.a'",
        ),
        (vec![replaced("")], "should not have an empty replaces entry"),
        (vec![replaced("n")], "replaces should not contain name of same descriptor"),
    ] {
        let error = read(config("d", descriptors)).unwrap_err();
        assert_eq!(error.to_string(), format!("d-limits: {message}"));
    }
    read(config("d", vec![unlimited(0)])).unwrap();
    let error = read(config("", vec![])).unwrap_err();
    assert_eq!(error.to_string(), "-limits: config file cannot have empty domain");

    let twice = [per_day(1), RateLimitConfig { name: "second".into(), ..per_day(2) }];
    let error = Config::from_resources(&twice, SameDomain::Refuse).unwrap_err();
    assert_eq!(error.to_string(), "second: duplicate domain 'd' in config file");
    let error = Config::from_resources(&twice, SameDomain::Merge).unwrap_err();
    assert_eq!(error.to_string(), "second: duplicate descriptor composite key 'd.a'");
}

fn nested(levels: usize) -> RateLimitConfig {
    let descriptor = (1..levels).fold(limited("a", 1, DAY), |inner, _| RateLimitDescriptor {
        key: "a".into(),
        descriptors: vec![inner],
        ..RateLimitDescriptor::default()
    });
    config("d", vec![descriptor])
}

#[test]
fn depth_and_size_are_bounded_as_those_of_files() {
    // The maximum depth is 64 lists and maps. Each level of descriptors is a list and a map, and
    // the file and the limit are maps too, so 31 levels are possible.
    for (levels, is_possible) in [(31, true), (32, false)] {
        let (file, resource) = (file(&nested(levels)), nested(levels));
        let file = Config::from_files(&[file], SameDomain::Refuse);
        let resource = read(resource);
        assert_eq!((file.is_ok(), resource.is_ok()), (is_possible, is_possible), "{levels}");
        if let (Err(file), Err(resource)) = (file, resource) {
            assert_eq!(file.message(), resource.message());
        }
    }
    // The decoder of Protocol Buffers refuses messages that are nested this deep.
    let bytes = nested(200).encode_to_vec();
    assert!(RateLimitConfig::decode(&*bytes).is_err());

    // Each descriptor counts as one value, a map. The resource has five other values: a map, two
    // keys, the domain and the list.
    for (descriptors, message) in [
        (499_995, "descriptor has empty key"),
        (499_996, "error loading config file: the resource has more than 500000 values"),
    ] {
        let many = config("d", vec![RateLimitDescriptor::default(); descriptors]);
        assert_eq!(read(many).unwrap_err().message(), message);
    }
}
