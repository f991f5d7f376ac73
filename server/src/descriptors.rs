//! The limit of file descriptors, of which each connection needs one.

/// What is open beside the connections of clients: files, listeners, connections to stores.
#[cfg(unix)]
const OTHERS: u64 = 200;

/// Raises the limit as far as the system permits, as many systems have a low one to begin with. Warns if there are not
/// enough for this number of connections: those beyond them would wait without an answer.
#[cfg(unix)]
pub(crate) fn raise(max_connections: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let mut limit = current;
    if current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok()
    {
        limit = maximum;
    }
    let needed = max_connections.saturating_add(OTHERS);
    if let Some(limit) = limit.filter(|limit| *limit < needed) {
        stderr!(
            "warning: the process may open {limit} files, and needs {needed} for the maximum numbers of connections \
             (GRPC, HTTP, RESP); raise the limit (ulimit -n, LimitNOFILE), or lower those"
        );
    }
}

#[cfg(not(unix))]
pub(crate) fn raise(_: u64) {}
