//! The reply to `INFO`.

use std::time::Duration;

/// The version of Redis that the server reports. Some clients choose their commands by this
/// version.
const REDIS_VERSION: &str = "7.2.0";

pub(super) struct Info {
    pub(super) uptime: Duration,
    pub(super) clients: usize,
    pub(super) max_clients: usize,
}

impl Info {
    /// Returns the sections of `INFO` that `names` contains. Returns all sections if there are no
    /// names, or if a name is `all`, `default` or `everything`.
    pub(super) fn text(&self, names: &[impl AsRef<[u8]>]) -> String {
        let is_wanted = |section: &str| {
            let means = |name: &[u8]| {
                [section, "all", "default", "everything"]
                    .iter()
                    .any(|known| known.as_bytes().eq_ignore_ascii_case(name))
            };
            names.is_empty() || names.iter().any(|name| means(name.as_ref()))
        };
        let server = format!(
            "redis_version:{REDIS_VERSION}\r\ntidegate_version:{}\r\nredis_mode:standalone\r\n\
             process_id:{}\r\nuptime_in_seconds:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            std::process::id(),
            self.uptime.as_secs(),
        );
        let clients =
            format!("connected_clients:{}\r\nmaxclients:{}\r\n", self.clients, self.max_clients);
        let sections = [
            ("Server", server),
            ("Clients", clients),
            // Some clients wait until `loading` is 0, because Redis then has loaded its data.
            ("Persistence", "loading:0\r\n".to_owned()),
            ("Replication", "role:master\r\nconnected_slaves:0\r\n".to_owned()),
            ("Cluster", "cluster_enabled:0\r\n".to_owned()),
        ];
        let wanted = sections.iter().filter(|(name, _)| is_wanted(name));
        let text: Vec<String> =
            wanted.map(|(name, lines)| format!("# {name}\r\n{lines}")).collect();
        text.join("\r\n")
    }
}
