//! Checks that the manifests in `ops/kubernetes` and the unit in `ops/systemd` fit the program.

use std::fs;
use std::path::{Path, PathBuf};

use saphyr_parser::{Event, Parser, StrInput};
use serde_json::{Map, Value};
use tidegate_core::parse_duration;
use tidegate_server::envoy::health;
use tidegate_server::limits::config::{Config, ConfigFile, SameDomain};

use crate::program::{program, settings};

const README: &str = include_str!("../../README.md");

fn ops(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ops").join(path)
}

/// Parses the documents of a YAML file. All scalars, such as numbers, become strings.
fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let mut events = Parser::new_from_str(&text);
    let mut documents = Vec::new();
    while let Some(event) = events.next_event() {
        if matches!(event.unwrap().0, Event::DocumentStart(_)) {
            let first = events.next_event().unwrap().unwrap().0;
            documents.push(value(first, &mut events));
        }
    }
    documents
}

fn value<'a>(event: Event<'a>, events: &mut Parser<'a, StrInput<'a>>) -> Value {
    match event {
        Event::Scalar(text, ..) => Value::String(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                match events.next_event().unwrap().unwrap().0 {
                    Event::SequenceEnd => return Value::Array(items),
                    event => items.push(value(event, events)),
                }
            }
        }
        Event::MappingStart(..) => {
            let mut map = Map::new();
            loop {
                match events.next_event().unwrap().unwrap().0 {
                    Event::MappingEnd => return Value::Object(map),
                    Event::Scalar(key, ..) => {
                        let event = events.next_event().unwrap().unwrap().0;
                        let before = map.insert(key.to_string(), value(event, events));
                        assert_eq!(before, None, "{key} occurs twice");
                    }
                    event => panic!("a key is {event:?}"),
                }
            }
        }
        event => panic!("{event:?}"),
    }
}

fn manifests() -> Vec<Value> {
    let folder = ops("kubernetes");
    let [kustomization] = &documents(&folder.join("kustomization.yaml"))[..] else { panic!() };
    let listed = kustomization["resources"].as_array().unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), listed.len() + 1, "all files are listed");
    listed.iter().flat_map(|file| documents(&folder.join(file.as_str().unwrap()))).collect()
}

fn manifest_of_kind<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    let mut found = manifests.iter().filter(|manifest| manifest["kind"] == kind);
    found.next().filter(|_| found.next().is_none()).unwrap_or_else(|| panic!("one {kind}"))
}

fn config_map<'a>(manifests: &'a [Value], name: &str) -> &'a Value {
    let is_named =
        |manifest: &&Value| manifest["kind"] == "ConfigMap" && manifest["metadata"]["name"] == name;
    &manifests.iter().find(is_named).unwrap_or_else(|| panic!("no ConfigMap {name}"))["data"]
}

fn by_name<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap()
}

#[test]
fn the_limits_are_valid() {
    let manifests = manifests();
    let files = config_map(&manifests, "tidegate-limits").as_object().unwrap();
    let file = |(name, text): (&String, &Value)| ConfigFile {
        name: name.into(),
        text: text.as_str().unwrap().into(),
    };
    let files: Vec<_> = files.iter().map(file).collect();
    let config = Config::from_files(&files, SameDomain::Refuse).unwrap();
    assert_eq!(config.warnings(), []);
    assert_eq!(config.limits(), 2);
}

#[test]
fn the_settings_are_those_of_the_program() {
    let manifests = manifests();
    let pod = &manifest_of_kind(&manifests, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let unit = fs::read_to_string(ops("systemd/tidegate-server.service")).unwrap();
    let unit_lines = unit.lines().filter_map(|line| line.strip_prefix("Environment="));
    let unit_lines = unit_lines.map(|line| line.split_once('=').unwrap().0);
    let pod_entries = container["env"].as_array().unwrap().iter();
    for name in pod_entries.map(|entry| entry["name"].as_str().unwrap()).chain(unit_lines) {
        assert!(README.contains(&format!("`{name}`")), "{name} is not in the table of settings");
    }

    let seconds = |text: &Value| text.as_str().unwrap().parse::<u64>().unwrap();
    let drain = by_name(&container["env"], "TIDEGATE_DRAIN")["value"].as_str().unwrap();
    let drain = parse_duration(drain).unwrap().as_secs();
    assert!(drain < seconds(&pod["terminationGracePeriodSeconds"]));
    assert!(drain > seconds(&container["readinessProbe"]["periodSeconds"]));

    let mounted = by_name(&container["volumeMounts"], "limits")["mountPath"].as_str().unwrap();
    assert_eq!(container["args"][1], mounted);
    for (volume, name) in [("limits", "tidegate-limits"), ("settings", "tidegate-settings")] {
        assert_eq!(by_name(&pod["volumes"], volume)["configMap"]["name"], name);
    }
    let mounted = by_name(&container["volumeMounts"], "settings")["mountPath"].as_str().unwrap();
    let file = by_name(&container["env"], "TIDEGATE_SETTINGS")["value"].as_str().unwrap();
    assert_eq!(file, format!("{mounted}/tidegate.toml"));
}

#[tokio::test]
async fn the_settings_file_is_valid() {
    let manifests = manifests();
    let text = config_map(&manifests, "tidegate-settings")["tidegate.toml"].as_str().unwrap();
    let mut program = program();
    settings(program.arg("--print-settings"), text);
    let output = program.output().await.unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{:?}", output.stderr);
    assert!(stdout.contains("\nhttp.max_connections = 200  # "), "{stdout}");
}

#[test]
fn ports_and_names_agree() {
    let manifests = manifests();
    let deployment = manifest_of_kind(&manifests, "Deployment");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    for (name, number, variable) in [("grpc", "8081", "GRPC_PORT"), ("http", "8080", "PORT")] {
        assert_eq!(by_name(&container["ports"], name)["containerPort"], number);
        assert!(README.contains(&format!("`{variable}` ({number})")), "the default of {variable}");
        let service = by_name(&manifest_of_kind(&manifests, "Service")["spec"]["ports"], name);
        assert_eq!((&service["port"], &service["targetPort"]), (&number.into(), &name.into()));
    }
    for probe in ["startupProbe", "readinessProbe"] {
        let probe = &container[probe]["grpc"];
        assert_eq!((&probe["port"], &probe["service"]), (&"8081".into(), &health::NAME.into()));
    }
    assert_eq!(container["livenessProbe"]["tcpSocket"]["port"], "grpc");

    let labels = &pod["metadata"]["labels"];
    let selectors = [
        &deployment["spec"]["selector"]["matchLabels"],
        &manifest_of_kind(&manifests, "Service")["spec"]["selector"],
        &manifest_of_kind(&manifests, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ];
    assert_eq!(selectors, [labels; 3]);
    let monitor = &manifest_of_kind(&manifests, "ServiceMonitor")["spec"];
    let service = &manifest_of_kind(&manifests, "Service")["metadata"]["labels"];
    assert_eq!(&monitor["selector"]["matchLabels"], service);
    assert_eq!(monitor["endpoints"][0]["port"], "http");
    let scaled = &manifest_of_kind(&manifests, "HorizontalPodAutoscaler")["spec"]["scaleTargetRef"];
    assert_eq!(
        (&scaled["kind"], &scaled["name"]),
        (&deployment["kind"], &deployment["metadata"]["name"])
    );
}
