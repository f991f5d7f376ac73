//! The command `CLUSTER SLOTS`, to which a node replies with the assignment of slots to nodes.

use redis::cluster::NodeAddress;
use redis::cluster_routing::Slot;
use redis::{Cmd, FromRedisValue, Value, from_redis_value};
use tidegate_core::{Error, ErrorKind};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: NodeAddress,
    pub(crate) replicas: Vec<NodeAddress>,
}

pub(crate) fn command() -> Cmd {
    let mut command = Cmd::new();
    command.arg("CLUSTER").arg("SLOTS");
    command
}

/// Parses the reply of a node to `CLUSTER SLOTS`. Returns [`ErrorKind::Protocol`] if the reply is
/// malformed. Returns [`ErrorKind::Unavailable`] if the node knows no slots, for example because it
/// has not joined the cluster yet.
pub(crate) fn parse(answer: Value, node: &NodeAddress) -> Result<Vec<Range>, Error> {
    let entries: Option<Vec<Vec<Value>>> = from_redis_value(answer).ok();
    let ranges = entries.and_then(|entries| {
        entries.into_iter().map(|entry| range(entry, node)).collect::<Option<Vec<_>>>()
    });
    let ranges = ranges.ok_or_else(|| {
        Error::new(
            ErrorKind::Protocol,
            format!("the reply of node {node} to CLUSTER SLOTS is not a list of slots"),
        )
    })?;
    // A range of slots is ignored if the address of its primary is not known.
    let ranges: Vec<Range> = ranges.into_iter().flatten().collect();
    if ranges.is_empty() {
        return Err(Error::new(
            ErrorKind::Unavailable,
            format!(
                "node {node} knows no slots: it has not joined a cluster, or no slot is served"
            ),
        ));
    }
    Ok(ranges)
}

/// Parses a range of slots in the reply to `CLUSTER SLOTS`. Returns `None` if the range is
/// malformed, and `Some(None)` if its primary has no address.
fn range(entry: Vec<Value>, node: &NodeAddress) -> Option<Option<Range>> {
    let mut entry = entry.into_iter();
    let mut slot = || number(entry.next()?).filter(|slot| Slot::new(*slot).is_some());
    let (first, last) = (slot()?, slot()?);
    let mut nodes = entry.map(|served_by| address(served_by, node));
    let primary = nodes.next()??;
    // The reply contains a lost replica without an address. Such a replica is ignored.
    let replicas = nodes.filter_map(Option::flatten).collect();
    let range = primary.map(|primary| Range { first, last, primary, replicas });
    (first <= last).then_some(range)
}

/// Parses the address of a node in the reply of the node `reporter` to `CLUSTER SLOTS`. Returns
/// `None` if the address is malformed, and `Some(None)` if the address is not known.
fn address(node: Value, reporter: &NodeAddress) -> Option<Option<NodeAddress>> {
    let mut parts = Vec::<Value>::from_redis_value(node).ok()?.into_iter();
    let host: Option<String> = from_redis_value(parts.next()?).ok()?;
    let port = number(parts.next()?)?;
    let host = host.unwrap_or_default();
    if host == "?" {
        return Some(None);
    }
    // A node that does not know its own address reports an empty address for itself. It never
    // reports an empty address for another node.
    let is_own = host.is_empty() || host == "0.0.0.0" || host == "::";
    Some(Some(NodeAddress::new(if is_own { reporter.host() } else { &*host }, port)))
}

fn number(value: Value) -> Option<u16> {
    // A direct conversion to `u16` would truncate a number that is too large, instead of rejecting
    // it.
    u16::try_from(from_redis_value::<i64>(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])])
    }

    fn entry(first: i64, last: i64, nodes: impl IntoIterator<Item = Value>) -> Value {
        let mut entry = vec![Value::Int(first), Value::Int(last)];
        entry.extend(nodes);
        Value::Array(entry)
    }

    fn reporter() -> NodeAddress {
        NodeAddress::new("reporter", 7000)
    }

    #[test]
    fn ranges_are_read_with_their_primary_and_replicas() {
        let nodes = [node(text("10.0.0.1"), 7001), node(text("two.example.com"), 7002)];
        let view = Value::Array(vec![entry(0, 5460, nodes)]);
        let expected = Range {
            first: 0,
            last: 5460,
            primary: NodeAddress::new("10.0.0.1", 7001),
            replicas: vec![NodeAddress::new("two.example.com", 7002)],
        };
        assert_eq!(parse(view, &reporter()).unwrap(), [expected]);
    }

    #[test]
    fn a_node_without_a_host_has_the_host_of_the_reporter() {
        for host in [Value::Nil, text(""), text("0.0.0.0"), text("::")] {
            let view = Value::Array(vec![entry(5, 5, [node(host, 7009)])]);
            let ranges = parse(view, &reporter()).unwrap();
            assert_eq!(ranges[0].primary, NodeAddress::new("reporter", 7009));
        }
    }

    #[test]
    fn a_primary_without_a_known_address_serves_nothing() {
        let known = entry(6, 7, [node(text("b"), 2), node(text("?"), 3)]);
        let view = Value::Array(vec![entry(0, 5, [node(text("?"), 1)]), known]);
        let ranges = parse(view, &reporter()).unwrap();
        assert_eq!(ranges.len(), 1);
        assert_eq!((ranges[0].first, &ranges[0].replicas[..]), (6, &[][..]));
    }

    #[test]
    fn a_malformed_reply_is_an_error() {
        for wrong in [
            Value::Okay,
            Value::Array(vec![Value::Int(5)]),
            Value::Array(vec![entry(0, 16_384, [node(text("a"), 1)])]),
            Value::Array(vec![entry(-1, 5, [node(text("a"), 1)])]),
            Value::Array(vec![entry(7, 6, [node(text("a"), 1)])]),
            Value::Array(vec![entry(0, 5, [node(text("a"), 70_000)])]),
            Value::Array(vec![entry(0, 5, [])]),
        ] {
            assert_eq!(
                parse(wrong.clone(), &reporter()).unwrap_err().kind(),
                ErrorKind::Protocol,
                "{wrong:?}"
            );
        }
        let nothing = parse(Value::Array(vec![]), &reporter()).unwrap_err();
        assert_eq!(nothing.kind(), ErrorKind::Unavailable);
    }
}
