//! Views of a cluster. A view is the cluster as one node knows it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::error::Error;
use crate::redis::Redis;

/// The nodes of a cluster, as one node of the cluster knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View(Vec<Member>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) port: u16,
    /// The port of the node's cluster bus.
    pub(super) bus: u16,
    flags: Vec<String>,
    /// The id of the node's primary, if the node is a replica.
    pub(super) primary: Option<String>,
    /// The cluster epoch in which the node got its slots. If two nodes claim the same slot, the
    /// claim with the greater epoch is newer.
    pub(super) epoch: u64,
    is_linked: bool,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl View {
    pub(super) async fn query(node: &Redis) -> Result<Self, Error> {
        let text = node.command(&["CLUSTER", "NODES"]).await?.text();
        Self::parse(&text).ok_or_else(|| {
            Error::new(format!(
                "the reply to CLUSTER NODES is {text:?}; it must be a list of nodes"
            ))
        })
    }

    /// Parses lines such as `ID 127.0.0.1:7000@17000 master - 0 0 1 connected 0-99 200 [300->-ID]`.
    fn parse(text: &str) -> Option<Self> {
        text.lines()
            .filter(|line| !line.is_empty())
            .map(Member::parse)
            .collect::<Option<_>>()
            .map(Self)
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.0
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.0.iter().find(|member| member.id == id)
    }

    pub(super) fn myself(&self) -> Option<&Member> {
        self.0.iter().find(|member| member.is("myself"))
    }

    pub(super) fn at_port(&self, port: u16) -> Option<&Member> {
        self.0.iter().find(|member| member.port == port && !member.is("handshake"))
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Member> {
        self.0.iter().find(|member| member.slots.iter().any(|range| range.contains(&slot)))
    }

    /// Returns the epoch and the slots of each node that owns slots, by the id of the node.
    pub(super) fn claims(&self) -> BTreeMap<&str, (u64, &[RangeInclusive<u16>])> {
        let owners = self.0.iter().filter(|member| !member.slots.is_empty());
        owners.map(|owner| (owner.id.as_str(), (owner.epoch, owner.slots.as_slice()))).collect()
    }
}

impl Member {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let mut next = || words.next();
        let (id, address, flags, primary) = (next()?, next()?, next()?, next()?);
        let (_ping, _pong, epoch, link) = (next()?, next()?, next()?, next()?);
        // A host name can follow the address, as in `127.0.0.1:7000@17000,name`.
        let (port, bus) = address.split(',').next()?.rsplit_once(':')?.1.split_once('@')?;
        Some(Self {
            id: id.to_owned(),
            port: port.parse().ok()?,
            bus: bus.parse().ok()?,
            flags: flags.split(',').map(str::to_owned).collect(),
            primary: (primary != "-").then(|| primary.to_owned()),
            epoch: epoch.parse().ok()?,
            is_linked: link == "connected",
            // A word in square brackets describes a slot that is being moved, and is ignored.
            slots: words.filter(|word| !word.starts_with('[')).map(range).collect::<Option<_>>()?,
        })
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|own| own == flag)
    }

    /// Returns `true` if the node is connected to the reporting node, and the reporting node does
    /// not suspect that the node is dead.
    pub(super) fn is_well(&self) -> bool {
        let is_doubtful = ["fail", "fail?", "handshake", "noaddr"].iter().any(|flag| self.is(flag));
        !is_doubtful && (self.is_linked || self.is("myself"))
    }

    pub(super) fn is_primary(&self) -> bool {
        self.is("master")
    }
}

/// Parses one slot, such as `5`, or a range of slots, such as `5-9`.
fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nodes_is_read() {
        let view = View::parse(
            "aa 127.0.0.1:7000@17000,name,shard-id=x myself,master - 0 0 3 connected 0-99 200 [300->-bb]\n\
             bb 127.0.0.1:7001@17001 master,fail? - 0 0 2 disconnected 100-199\n\
             cc :0@0 slave,noaddr aa 0 0 3 connected\n",
        )
        .unwrap();
        let [aa, bb, cc] = view.members() else { panic!("{view:?}") };
        assert_eq!((aa.port, aa.bus, aa.epoch, aa.primary.as_deref()), (7000, 17_000, 3, None));
        assert_eq!(aa.slots, [0..=99, 200..=200]);
        assert_eq!(cc.primary.as_deref(), Some("aa"));
        assert_eq!([aa, bb, cc].map(Member::is_well), [true, false, false]);
        assert_eq!([aa, bb, cc].map(Member::is_primary), [true, true, false]);
        assert_eq!(view.myself(), Some(aa));
        assert_eq!(view.owner(150), Some(bb));
        assert_eq!(view.owner(300), None);
        assert_eq!(view.at_port(7001), view.member("bb"));
        assert_eq!(view.claims().into_keys().collect::<Vec<_>>(), ["aa", "bb"]);
        assert_eq!(View::parse("ERR no"), None);
    }
}
