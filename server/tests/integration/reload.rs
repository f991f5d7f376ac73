//! Tests that limits are loaded again when their files change.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidegate_memory::MemoryStore;
use tidegate_server::envoy::decide::{Behaviour, Decider};
use tidegate_server::envoy::service::Service;
use tidegate_server::limits::config::read_directory;
use tidegate_server::limits::reload::follow;
use tidegate_server::net::watch::INTERVAL;
use tokio::task::JoinHandle;

use crate::scene::{descriptor, limit, request};

struct Follower {
    directory: tempfile::TempDir,
    service: Arc<Service>,
    reports: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

const ONE: &str =
    "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]";
const TWO: &str =
    "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 2}}]";

impl Follower {
    /// Writes files with `fill`, loads their limits, and then follows the directory.
    async fn new(fill: impl Fn(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fill(directory.path());
        let decider = Decider::new(Arc::new(MemoryStore::new()), Behaviour::default());
        let service = Arc::new(Service::new(decider));
        let files = read_directory(directory.path()).unwrap();
        service.load(Ok(&files)).unwrap();
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let task = tokio::spawn(follow(directory.path().to_owned(), files, {
            let (service, reports) = (Arc::clone(&service), Arc::clone(&reports));
            move |files| {
                let loaded = service.load(files);
                let text = loaded.map_or_else(|error| error.to_string(), |()| "loaded".into());
                reports.lock().unwrap().push(text);
            }
        }));
        let follower = Self { directory, service, reports, task };
        follower.settle().await;
        assert_eq!(follower.reports(), [""; 0], "what is in force is not loaded again");
        follower
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    /// Waits until the server has loaded all changes. Four intervals are enough, because the paused
    /// clock stops while the server reads the directory.
    async fn settle(&self) {
        tokio::time::sleep(4 * INTERVAL).await;
    }

    fn reports(&self) -> Vec<String> {
        std::mem::take(&mut *self.reports.lock().unwrap())
    }

    async fn limit(&self) -> String {
        let request = request("d", vec![descriptor(&[("a", "")])]);
        limit(&self.service.should_rate_limit(&request).await.unwrap().statuses[0])
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn g06_limits_follow_their_files_and_a_bad_one_changes_nothing() {
    let follower = Follower::new(|_| {}).await;
    assert_eq!(follower.limit().await, "");
    fs::write(follower.path("a.yaml"), ONE).unwrap();
    follower.settle().await;
    assert_eq!(
        (follower.reports(), &*follower.limit().await),
        (vec!["loaded".to_owned()], "1/DAY")
    );

    fs::write(follower.path("a.yaml"), "domain: d\ndescriptors: [{kye: a}]").unwrap();
    follower.settle().await;
    follower.settle().await;
    let reports = follower.reports();
    assert_eq!(reports.len(), 1, "once: {reports:?}");
    assert!(reports[0].ends_with("a.yaml:2:16: config error, unknown key 'kye'"), "{reports:?}");
    assert_eq!(follower.limit().await, "1/DAY");

    // The limits in `b.yaml` are valid, but are not loaded because `a.yaml` is invalid.
    fs::write(follower.path("b.yaml"), "domain: e").unwrap();
    follower.settle().await;
    assert_eq!((follower.reports().len(), &*follower.limit().await), (1, "1/DAY"));

    fs::write(follower.path("a.yaml"), TWO).unwrap();
    follower.settle().await;
    assert_eq!(
        (follower.reports(), &*follower.limit().await),
        (vec!["loaded".to_owned()], "2/DAY")
    );
    fs::remove_file(follower.path("a.yaml")).unwrap();
    follower.settle().await;
    assert_eq!((follower.reports(), &*follower.limit().await), (vec!["loaded".to_owned()], ""));
}

#[tokio::test(start_paused = true)]
#[cfg(unix)]
async fn the_swapped_link_of_a_config_map_is_seen() {
    use std::os::unix::fs::symlink;
    let follower = Follower::new(|directory| {
        for (name, text) in [("..1", ONE), ("..2", TWO)] {
            fs::create_dir(directory.join(name)).unwrap();
            fs::write(directory.join(name).join("a.yaml"), text).unwrap();
        }
        symlink("..1", directory.join("..data")).unwrap();
        symlink("..data/a.yaml", directory.join("a.yaml")).unwrap();
    })
    .await;
    assert_eq!(follower.limit().await, "1/DAY");
    symlink("..2", follower.path("..new")).unwrap();
    fs::rename(follower.path("..new"), follower.path("..data")).unwrap();
    follower.settle().await;
    assert_eq!(
        (follower.reports(), &*follower.limit().await),
        (vec!["loaded".to_owned()], "2/DAY")
    );
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_gone_changes_nothing() {
    let follower =
        Follower::new(|directory| fs::write(directory.join("a.yaml"), ONE).unwrap()).await;
    fs::remove_dir_all(follower.directory.path()).unwrap();
    follower.settle().await;
    let reports = follower.reports();
    assert!(
        reports.len() == 1 && reports[0].contains("the directory cannot be read"),
        "{reports:?}"
    );
    assert_eq!(follower.limit().await, "1/DAY");
}
