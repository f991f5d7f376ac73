//! Directories with files of limits.

use std::fs;
use std::path::Path;

use allocation_counter::measure;
use tidegate_server::limits::config::{Config, MAX_FILE_BYTES, MAX_FILES, SameDomain, left_out};

fn load(directory: &Path) -> Result<Vec<String>, String> {
    let config = Config::from_directory(directory, SameDomain::Refuse);
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.domains().into_iter().map(str::to_owned).collect())
}

#[test]
fn yaml_files_are_read_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("a.yaml", "domain: a");
    write("b.yml", "domain: b");
    write(".c.yaml", "domain: c");
    write("d.yaml~", "domain: d");
    write("README.md", "# no YAML: [");
    fs::create_dir(directory.path().join("e.yaml")).unwrap();
    assert_eq!(load(directory.path()).unwrap(), ["a", "b"]);

    // envoyproxy/ratelimit would read these three files, so the server warns that it ignores them.
    let at = |name: &str| directory.path().join(name).display().to_string();
    let why = "the file is not read: its name does not end in .yaml or .yml";
    let within = "the directory is not read; move its files into the parent directory";
    let expected = [
        format!("{}: {why}", at("README.md")),
        format!("{}: {why}", at("d.yaml~")),
        format!("{}: {within}", at("e.yaml")),
    ];
    assert_eq!(left_out(directory.path()), expected);
    (0..10).for_each(|number| write(&format!("{number}"), ""));
    let many = left_out(directory.path());
    assert_eq!(many.len(), 11);
    assert_eq!(many[10], format!("{}: 3 more are not read", directory.path().display()));
    assert_eq!(left_out(Path::new("/nowhere")), [""; 0]);
}

#[test]
#[cfg(unix)]
fn links_of_a_config_map_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("..2024")).unwrap();
    fs::write(at("..2024/a.yaml"), "domain: a").unwrap();
    std::os::unix::fs::symlink("..2024", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/a.yaml", at("a.yaml")).unwrap();
    assert_eq!(load(directory.path()).unwrap(), ["a"]);
    fs::remove_file(at("..data")).unwrap();
    let error = load(directory.path()).unwrap_err();
    assert!(error.contains("a.yaml: the file cannot be read"), "{error}");
}

#[test]
#[cfg(unix)]
fn a_pipe_is_an_error_and_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("a.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let error = load(directory.path()).unwrap_err();
    assert!(
        error.ends_with("a.yaml: it is not a file, but a pipe, a socket or a device"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    assert!(load(&file).unwrap_err().contains("the directory cannot be read"));
    fs::write(&file, b"domain: \xff").unwrap();
    let error = load(directory.path()).unwrap_err();
    assert!(
        error.ends_with("a.yaml: the file is not UTF-8; the byte at 8 is not valid"),
        "{error}"
    );
    fs::File::create(&file).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
    let error = load(directory.path()).unwrap_err();
    assert!(error.ends_with("a.yaml: the file has more than 4194304 bytes"), "{error}");
}

#[test]
fn files_are_bounded_in_size_and_number() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    let begin = "domain: a\n#";
    let rest = usize::try_from(MAX_FILE_BYTES).unwrap() - begin.len();
    fs::write(&file, begin.to_owned() + &"x".repeat(rest)).unwrap();
    assert_eq!(load(directory.path()).unwrap(), ["a"]);

    // The file is 64 times as large as the maximum, at which the server must stop reading.
    fs::File::create(&file).unwrap().set_len(64 * MAX_FILE_BYTES).unwrap();
    let memory = measure(|| drop(load(directory.path()).unwrap_err()));
    assert!(memory.bytes_max < 8 * MAX_FILE_BYTES, "{}", memory.bytes_max);
    fs::remove_file(file).unwrap();

    let add = |number: usize| {
        let name = format!("{number}.yaml");
        fs::write(directory.path().join(&name), format!("domain: d{number}")).unwrap();
    };
    (0..MAX_FILES).for_each(add);
    assert_eq!(load(directory.path()).unwrap().len(), MAX_FILES);
    add(MAX_FILES);
    let error = load(directory.path()).unwrap_err();
    assert!(error.ends_with("the directory has more than 1000 files"), "{error}");
}
