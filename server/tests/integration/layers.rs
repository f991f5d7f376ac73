//! Checks the layers of the source code: each module imports only modules below it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The modules of `server/src` from top to bottom, each with the modules that it imports. A module
/// may only import modules further down, so that there is no cycle.
const LAYERS: [(&str, &[&str]); 10] = [
    ("main", &["app", "log", "settings"]),
    ("app", &["settings", "envoy", "calls", "observe", "limits", "net", "store", "log"]),
    ("settings", &["envoy", "calls", "observe", "limits", "net", "store", "log"]),
    ("envoy", &["observe", "limits", "net", "store"]),
    ("calls", &["observe", "net"]),
    ("observe", &["limits", "net", "store"]),
    ("limits", &["net"]),
    ("net", &[]),
    ("store", &[]),
    ("log", &[]),
];

/// The maximum number of imports in `LAYERS`.
const MAX_IMPORTS: usize = 35;

/// A module, and a module that it imports.
type Import = (String, String);

/// Returns the code of a file without comments. Paths from the root, such as `super::super::net` or
/// `tidegate_server::net`, begin with `crate::`.
fn from_root(modules: &[&str], text: &str) -> String {
    let mut code = String::new();
    let mut inline_modules: Vec<usize> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if trimmed.starts_with("//") {
            continue;
        }
        if trimmed.contains("mod ") && trimmed.ends_with('{') {
            inline_modules.push(indent);
        } else if trimmed == "}" && inline_modules.last() == Some(&indent) {
            inline_modules.pop();
        }
        let root = "super::".repeat(modules.len() + inline_modules.len());
        code += &line.replace(&root, "crate::").replace("tidegate_server::", "crate::");
        code.push('\n');
    }
    if modules == ["main"] {
        // In `main.rs`, a path from the root can begin with the name of a module, without
        // `crate::`.
        for (module, _) in LAYERS {
            code = code.replace(&format!(" {module}::"), &format!(" crate::{module}::"));
        }
    }
    code
}

/// Returns the first name of a path such as `net::http`, or of each path of a list in braces.
fn first_names(paths: &str) -> Vec<&str> {
    let Some(list) = paths.strip_prefix('{') else { return vec![first_name(paths)] };
    let (mut names, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, char) in list.char_indices() {
        match char {
            ',' | '}' if depth == 0 => {
                names.push(first_name(&list[start..at]));
                start = at + 1;
            }
            _ => {}
        }
        match char {
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            '{' => depth += 1,
            _ => {}
        }
    }
    names
}

fn first_name(path: &str) -> &str {
    path.trim()
        .split(|char: char| !char.is_alphanumeric() && char != '_')
        .next()
        .unwrap_or_default()
}

/// Returns the imports in a file of `server/src`, except imports within the same top module.
fn imports_of(path: &str, text: &str) -> BTreeSet<Import> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let modules: Vec<&str> = path.split('/').collect();
    let code = from_root(&modules, text);
    let names = code.split("crate::").skip(1).flat_map(first_names);
    let others = names.filter(|name| !name.is_empty() && *name != modules[0]);
    others.map(|name| (modules[0].to_owned(), name.to_owned())).collect()
}

fn sources(directory: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

fn permitted() -> BTreeSet<Import> {
    let pair = |from: &str, to: &&str| (from.to_owned(), (*to).to_owned());
    LAYERS.iter().flat_map(|(from, to)| to.iter().map(|to| pair(from, to))).collect()
}

#[test]
fn each_module_imports_the_modules_of_its_list_and_no_others() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut modules) = (BTreeSet::new(), BTreeSet::new());
    for path in sources(&src) {
        let text = fs::read_to_string(&path).unwrap();
        let path = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
        let imports = imports_of(&path, &text);
        assert!(
            imports.is_subset(&permitted()),
            "{path} has an import that LAYERS does not permit: {:?}",
            imports.difference(&permitted()).collect::<Vec<_>>()
        );
        found.extend(imports);
        modules.insert(first_name(&path).to_owned());
    }
    let unused: Vec<_> = permitted().difference(&found).cloned().collect();
    assert!(unused.is_empty(), "LAYERS permits imports that no file has: {unused:?}");
    modules.remove("lib");
    assert_eq!(modules, LAYERS.map(|(module, _)| module.to_owned()).into());
    let count = found.len();
    assert!(
        count <= MAX_IMPORTS,
        "{count} imports between modules; at most {MAX_IMPORTS}: {found:?}"
    );
}

#[test]
fn no_module_may_import_a_module_above_it() {
    for (index, (module, imported)) in LAYERS.iter().enumerate() {
        let below: Vec<&str> = LAYERS[index + 1..].iter().map(|(module, _)| *module).collect();
        assert!(imported.iter().all(|imported| below.contains(imported)), "{module}");
    }
}

#[test]
fn an_import_is_found_in_each_way_to_write_it() {
    let nested = "mod tests {\n    use super::super::super::calls;\n    use super::super::a;\n}\nuse super::super::envoy;";
    for (path, text, expected) in [
        ("net/access.rs", "use crate::limits::config::shown;", "limits"),
        ("net/tls/mod.rs", "    let limits = super::super::limits::read();", "limits"),
        ("net/tls/error.rs", "use super::super::text;\nuse super::super::super::calls;", "calls"),
        ("net/text.rs", nested, "calls envoy"),
        (
            "store.rs",
            "use super::{\n    calls::{self, resp::{A, B}},\n    envoy,\n};",
            "calls envoy",
        ),
        ("app/mod.rs", "use tidegate_server::{net::http, store};", "net store"),
        (
            "main.rs",
            "mod settings;\nuse app::App;\n    let cli = settings::read();",
            "app settings",
        ),
        (
            "net/mod.rs",
            "/// As [limits](crate::limits).\nuse self::text;\npub use crate::net::a;",
            "",
        ),
    ] {
        let imports = imports_of(path, text);
        let found: Vec<&str> = imports.iter().map(|(_, to)| &**to).collect();
        assert_eq!(found.join(" "), expected, "{path}: {text}");
    }
}
