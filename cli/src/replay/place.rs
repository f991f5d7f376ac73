use std::str::FromStr;

use tidegate_cluster::ClusterStore;
use tidegate_redis::RedisStore;

/// What keeps the states of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Place {
    /// This process's memory.
    #[default]
    Memory,
    /// The Redis at this URL.
    Redis(String),
    /// The Redis Cluster that the nodes at these URLs belong to.
    Cluster(Vec<String>),
}

/// What the URL of a server begins with.
const SERVER: [&str; 5] = ["redis://", "rediss://", "redis+unix://", "unix://", "valkey://"];

/// What the URL of a cluster begins with, and then those of its nodes.
const CLUSTER: [(&str, &str); 2] =
    [("redis-cluster://", "redis://"), ("rediss-cluster://", "rediss://")];

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "memory" {
            return Ok(Self::Memory);
        }
        let of_cluster = CLUSTER
            .iter()
            .find_map(|(scheme, its_nodes)| Some(nodes(text.strip_prefix(scheme)?, its_nodes)));
        if let Some(urls) = of_cluster {
            ClusterStore::connect(&urls).map_err(|error| error.to_string())?;
            return Ok(Self::Cluster(urls));
        }
        if SERVER.iter().any(|scheme| text.starts_with(scheme)) {
            RedisStore::connect(text).map_err(|error| error.to_string())?;
            return Ok(Self::Redis(text.to_owned()));
        }
        Err("a store is `memory`, the URL of a Redis such as redis://127.0.0.1, or that of a Redis \
             Cluster such as redis-cluster://10.0.0.1:7000,10.0.0.2:7000"
            .into())
    }
}

/// The URLs of nodes that stand in one, as `user:password@host:port,host:port`: the login is that of all.
fn nodes(authority: &str, scheme: &str) -> Vec<String> {
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (format!("{login}@"), hosts),
        None => (String::new(), authority),
    };
    hosts.split(',').map(|host| format!("{scheme}{login}{host}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(urls: &[&str]) -> Result<Place, String> {
        Ok(Place::Cluster(urls.iter().map(|&url| url.to_owned()).collect()))
    }

    #[test]
    fn the_nodes_of_a_cluster_stand_in_one_url() {
        assert_eq!("redis-cluster://a".parse(), cluster(&["redis://a"]));
        assert_eq!(
            "redis-cluster://a:7000,b,[::1]:7001".parse(),
            cluster(&["redis://a:7000", "redis://b", "redis://[::1]:7001"])
        );
        assert_eq!(
            "redis-cluster://user:p,a@ss@a:1,b:2".parse(),
            cluster(&["redis://user:p,a@ss@a:1", "redis://user:p,a@ss@b:2"])
        );
    }

    #[test]
    fn what_is_no_store_is_told_with_what_would_be_one() {
        for text in ["", "redis", "http://127.0.0.1", "memcached://127.0.0.1", "redis-cluster:a"] {
            let told = text.parse::<Place>().unwrap_err();
            assert!(told.contains("redis://127.0.0.1"), "{text}: {told}");
        }
        for text in ["redis-cluster://", "redis-cluster://a,", "redis-cluster://a/3"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
