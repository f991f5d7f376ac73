//! Checks that `.ci/random-tests.txt`, the list of the tests that `.ci/explore` runs, has exactly
//! the tests with random input in the sources.
#![allow(clippy::unwrap_used, reason = "a helper of a test that fails panics, as the test does")]

use std::path::{Path, PathBuf};

/// A source file with one of these texts has tests with random input.
const RANDOM: [&str; 6] =
    ["proptest! {", "proptest!(", "TestRunner::", "TestRng", "conformance!(", "differential!("];

/// The paths that the search skips: code that `./test` does not run, tests that choose their seeds,
/// macros that create tests in other packages, and this file.
const LEFT_OUT: [&str; 8] = [
    ".git",
    "target",
    "fuzz",
    "schedules",
    "testkit/src",
    "testkit/tests/integration/printed.rs",
    "testkit/tests/integration/seeds.rs",
    "ops/tests/integration/random_tests.rs",
];

/// A line of the list.
struct Entry {
    folder: String,
    program: String,
    filters: Vec<String>,
}

/// The tests of one source file.
#[derive(Debug)]
struct Module {
    folder: String,
    program: String,
    /// The prefix of the names of the tests in the file, such as `table::`.
    prefix: String,
}

impl Entry {
    fn read(line: &str) -> Self {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap();
        Self { folder: next(), program: next(), filters: words.collect() }
    }

    /// Returns `true` if this line of `.ci/random-tests.txt` selects tests of `module`.
    fn has(&self, module: &Module) -> bool {
        let is_part = |filter: &String| self.has_under(filter, module);
        self.is_of_program(module) && (self.filters.is_empty() || self.filters.iter().any(is_part))
    }

    /// Returns `true` if `filter`, one of the filters of this line, selects tests of `module`.
    fn has_under(&self, filter: &str, module: &Module) -> bool {
        let prefix = &module.prefix;
        self.is_of_program(module) && (prefix.starts_with(filter) || filter.starts_with(prefix))
    }

    fn is_of_program(&self, module: &Module) -> bool {
        self.folder == module.folder && self.program == module.program
    }
}

impl Module {
    /// Returns the module of a source file, or `None` if no test program contains the file.
    fn from_file(file: &Path) -> Option<Self> {
        let path = file.with_extension("");
        let words: Vec<&str> = path.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
        let place = words.iter().position(|word| ["src", "tests"].contains(word))?;
        let (program, modules) = match words[place] {
            "src" => ("lib", &words[place + 1..]),
            _ => (*words.get(place + 1)?, &words[place + 2..]),
        };
        let is_module = |word: &&&str| !["mod", "lib", "main"].contains(*word);
        let prefix = modules.iter().filter(is_module).map(|word| format!("{word}::")).collect();
        let mut folder = words[..place].join("/");
        if words[place] == "tests" && root().join(&folder).join("tests/Cargo.toml").exists() {
            folder.push_str("/tests");
        }
        Some(Self { folder, program: program.to_owned(), prefix })
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Adds the modules in `folder` that have tests with random input to `found`.
fn find(folder: &Path, found: &mut Vec<Module>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        if LEFT_OUT.iter().any(|name| path.ends_with(name)) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && is_random(&std::fs::read_to_string(entry.path()).unwrap())
        {
            found.extend(Module::from_file(&path));
        }
    }
}

fn is_random(source: &str) -> bool {
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let is_random = |line: &str| {
        RANDOM.iter().any(|beginning| line.contains(beginning)) && !line.contains("deterministic()")
    };
    source.lines().filter(is_code).any(is_random)
}

#[test]
fn the_list_of_random_tests_is_complete_and_has_nothing_else() {
    let list = std::fs::read_to_string(root().join(".ci/random-tests.txt")).unwrap();
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries: Vec<Entry> = lines.map(Entry::read).collect();
    let mut modules = vec![];
    find(Path::new(""), &mut modules);
    assert!(modules.len() > 50, "the sources were not found: {modules:?}");

    let is_listed = |module: &&Module| entries.iter().any(|entry| entry.has(module));
    let missing: Vec<_> = modules.iter().filter(|module| !is_listed(module)).collect();
    assert!(missing.is_empty(), "`.ci/random-tests.txt` lacks {missing:#?}");

    for entry in &entries {
        for filter in &entry.filters {
            let is_random = modules.iter().any(|module| entry.has_under(filter, module));
            assert!(
                is_random,
                "`{filter}` of `.ci/random-tests.txt` names no test with random input"
            );
        }
    }
}
