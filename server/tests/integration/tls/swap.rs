//! Tests certificates that are replaced while the server runs.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_server::net::tls::TlsError;
use tidegate_server::net::watch::INTERVAL;

use super::*;

/// A task that follows the certificate files, and its reports.
struct Follower {
    reports: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Follower {
    fn new(tls: &Tls) -> Self {
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        let (tls, all) = (tls.clone(), Arc::clone(&reports));
        let task = tokio::spawn(async move {
            let report = |loaded: Result<(), _>| {
                let text =
                    loaded.map_or_else(|error: TlsError| error.to_string(), |()| "loaded".into());
                all.lock().unwrap().push(text);
            };
            tls.follow(report).await;
        });
        Self { reports, task }
    }

    /// Waits until there are reports, and takes them.
    async fn reports(&self) -> Vec<String> {
        until(async || !self.reports.lock().unwrap().is_empty()).await;
        std::mem::take(&mut *self.reports.lock().unwrap())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn certificates_are_swapped_under_load_and_no_call_fails() {
    let root = Root::new();
    let mut issued = root.issue("localhost");
    let files = Files::issued(&issued, "");
    let server = Server::start(settings(&files)).await;
    let follower = Follower::new(&server.tls);

    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let channel = channel(server.address, root.client(None)).await.unwrap();
    let load: Vec<_> = (0..4)
        .map(|index| {
            let (stop, calls) = (Arc::clone(&stop), Arc::clone(&calls));
            let (address, client) = (server.address, root.client(None));
            let mut kept = RateLimitServiceClient::new(channel.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    if index % 2 == 0 {
                        // Half of the tasks make all calls on one connection, which stays open
                        // during the swaps.
                        call(&mut kept).await.unwrap();
                    } else {
                        // The other tasks open a new connection for each call.
                        let channel = super::channel(address, client.clone()).await.unwrap();
                        call(&mut RateLimitServiceClient::new(channel)).await.unwrap();
                    }
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(certificate(server.address, root.client(None)).await, issued.der());
        issued = root.issue("localhost");
        let before = calls.load(Ordering::Relaxed);
        files.swap(&issued.certificate, &issued.key, "");
        assert_eq!(follower.reports().await, ["loaded"]);
        assert_eq!(certificate(server.address, root.client(None)).await, issued.der());
        until(async || calls.load(Ordering::Relaxed) > before + 8).await;
    }
    stop.store(true, Ordering::Relaxed);
    for load in load {
        load.await.unwrap();
    }
}

#[tokio::test]
async fn files_that_are_not_valid_change_nothing_and_are_reported_once() {
    let root = Root::new();
    let (issued, other, new) =
        (root.issue("localhost"), root.issue("localhost"), root.issue("localhost"));
    let files = Files::issued(&issued, "");
    let server = Server::start(settings(&files)).await;
    let follower = Follower::new(&server.tls);
    for (certificate_pem, key, why) in [
        (&*new.certificate, &*other.key, "does not belong to the certificate in"),
        ("", &*other.key, "there is no certificate in it"),
        (&*new.certificate, "", "there is no private key in it"),
    ] {
        files.swap(certificate_pem, key, "");
        let reports = follower.reports().await;
        assert!(reports.len() == 1 && reports[0].contains(why), "{reports:?}");
        // The server reports nothing when the same contents are written again, so the next report
        // is about the next swap.
        files.swap(certificate_pem, key, "");
        assert_eq!(certificate(server.address, root.client(None)).await, issued.der());
    }
    std::fs::remove_file(files.path("tls.key")).unwrap();
    let reports = follower.reports().await;
    assert!(reports.len() == 1 && reports[0].contains("cannot be read"), "{reports:?}");
    server.call(root.client(None)).await.unwrap();

    // A file replaces the link.
    files.swap(&new.certificate, "", "");
    std::fs::write(files.path("tls.key"), &new.key).unwrap();
    until(async || certificate(server.address, root.client(None)).await == new.der()).await;
    assert_eq!(follower.reports().await.last().unwrap(), "loaded");
}

#[tokio::test]
async fn roots_of_clients_are_swapped_too_and_old_sessions_do_not_outlive_them() {
    let root = Root::new();
    let (old, new) = (Root::new(), Root::new());
    let issued = root.issue("localhost");
    let files = Files::issued(&issued, &old.pem());
    let server = Server::start(with_clients(&files)).await;
    let follower = Follower::new(&server.tls);
    // The client resumes its sessions.
    let client = root.client(Some(&old.issue("envoy")));
    for _ in 0..3 {
        server.call(client.clone()).await.unwrap();
    }
    files.swap(&issued.certificate, &issued.key, &new.pem());
    assert_eq!(follower.reports().await, ["loaded"]);
    assert!(server.call(client).await.is_err());
    server.call(root.client(Some(&new.issue("envoy")))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_change_is_loaded_within_a_second_and_what_is_loaded_is_not_loaded_again() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let tls = Tls::open(Protocol::Http, settings(&files)).unwrap();
    let follower = Follower::new(&tls);
    let reports = || std::mem::take(&mut *follower.reports.lock().unwrap());
    let second = Duration::from_secs(1);
    tokio::time::sleep(second).await;
    assert_eq!(reports(), [""; 0]);
    let new = root.issue("localhost");
    files.swap(&new.certificate, &new.key, "");
    tokio::time::sleep(second).await;
    assert_eq!(reports(), ["loaded"]);
    tokio::time::sleep(3 * second).await;
    assert_eq!(reports(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn files_that_are_written_one_after_the_other_are_loaded_together() {
    let root = Root::new();
    let files = Files::issued(&root.issue("localhost"), "");
    let tls = Tls::open(Protocol::Http, settings(&files)).unwrap();
    let follower = Follower::new(&tls);
    // The server reads the files once per interval, and the test writes between two reads.
    tokio::time::sleep(INTERVAL / 2).await;
    let new = root.issue("localhost");
    for (name, text) in [("tls.crt", &new.certificate), ("tls.key", &new.key)] {
        std::fs::remove_file(files.path(name)).unwrap();
        std::fs::write(files.path(name), text).unwrap();
        tokio::time::sleep(INTERVAL).await;
    }
    tokio::time::sleep(3 * INTERVAL).await;
    assert_eq!(*follower.reports.lock().unwrap(), ["loaded"]);
}
