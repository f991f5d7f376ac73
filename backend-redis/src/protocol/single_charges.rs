//! The usual batch, which consists of acquires of single charges. Numbers that several charges
//! share occur only once in the request. The script writes each state once.

use std::collections::HashMap;

use smallvec::SmallVec;
use tidegate_core::{Call, Charge, Operation, Timestamp};

use super::answer::{ChargeReply, ScriptReply, decide};
use super::bounds::{MAX_CHARGES, MAX_KEY_BYTES};
use super::bytes::{Reader, put};
use super::key::Keys;
use super::layout;
use super::normalized::NormalizedCall;
use super::numbers::{Edges, numbers};
use super::scripts::Rule;

/// The maximum number of groups in a usual batch. The general script decides a batch with more
/// groups, because a group in a usual batch costs about as much as a charge in the general script.
const MAX_GROUPS: usize = 16;

#[derive(Debug)]
pub(super) struct SingleCharges {
    /// For each key, the indices of its calls in the batch.
    keys: Vec<Places>,
    groups: Vec<Group>,
}

type Places = SmallVec<[usize; 1]>;

/// A group of charges that differ only in their keys.
#[derive(Debug)]
struct Group {
    rule: Rule,
    cost: u64,
    numbers: [u64; 4],
    /// The keys of the group, as indices into [`SingleCharges::keys`].
    keys: Vec<usize>,
    /// Whether a key of the group has several charges.
    repeats: bool,
}

#[derive(Debug)]
pub(super) struct Parts<'a> {
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) arguments: Vec<u8>,
    pub(super) calls: SmallVec<[NormalizedCall<'a>; 1]>,
    pub(super) charges: SingleCharges,
    pub(super) edges: Edges,
}

/// Creates the parts of a request for as many of the first calls as fit. Returns `None` if one of
/// these calls does not belong in a usual batch, or if a key has charges in two groups. `at` is the
/// probable time of the server.
pub(super) fn parts<'c, 'a: 'c>(
    names: &Keys,
    calls: impl ExactSizeIterator<Item = &'c Call<'a>>,
    at: Timestamp,
) -> Option<Parts<'a>> {
    let mut groups: Vec<Group> = vec![];
    // The group of each key as an index into `groups`, and the index of the key in `keys`.
    let mut known: HashMap<Vec<u8>, (usize, usize)> =
        HashMap::with_capacity(calls.len().min(MAX_CHARGES));
    let mut keys: Vec<Places> = vec![];
    let mut normalized = SmallVec::with_capacity(calls.len().min(MAX_CHARGES));
    let (mut bytes, mut edges) = (0, Edges::NONE);
    for (place, call) in calls.enumerate() {
        if place == MAX_CHARGES || bytes > MAX_KEY_BYTES {
            break;
        }
        let charge = usual_charge(call)?;
        let has_fixed_size =
            |(rule, _): &(Rule, _)| !matches!(rule, Rule::SlidingLog | Rule::FairPool);
        let (rule, numbers) = numbers(&charge, at).filter(has_fixed_size)?;
        edges.add(rule, numbers);
        let has_charge =
            |group: &Group| (group.rule, group.cost, group.numbers) == (rule, charge.cost, numbers);
        let group = match groups.iter().position(has_charge) {
            Some(group) => group,
            None if groups.len() == MAX_GROUPS => return None,
            None => {
                let keys = vec![];
                groups.push(Group { rule, cost: charge.cost, numbers, keys, repeats: false });
                groups.len() - 1
            }
        };
        let key = names.key(&charge);
        bytes += key.len();
        let number = keys.len();
        let (group_of_key, number) = *known.entry(key).or_insert((group, number));
        if group_of_key != group {
            return None;
        }
        match keys.get_mut(number) {
            Some(places) => {
                places.push(place);
                groups[group].repeats = true;
            }
            None => {
                keys.push(Places::from_buf([place]));
                groups[group].keys.push(number);
            }
        }
        normalized.push(NormalizedCall::new(call).ok()?);
    }
    let charges = SingleCharges { keys, groups };
    let mut names = vec![vec![]; charges.keys.len()];
    for (key, (_, number)) in known {
        names[number] = key;
    }
    let in_order = charges.groups.iter().flat_map(|group| &group.keys);
    let keys = in_order.map(|&number| std::mem::take(&mut names[number])).collect();
    let arguments = charges.arguments();
    Some(Parts { keys, arguments, calls: normalized, charges, edges })
}

fn usual_charge<'a>(call: &Call<'a>) -> Option<Charge<'a>> {
    let (Operation::Acquire, 1, None) = (call.operation, call.charges.len(), call.id) else {
        return None;
    };
    let charge = call.charges.get(0)?;
    let policy = charge.policy;
    let is_usual = charge.cost > 0
        && !charge.is_check_only
        && policy.block_duration().is_none()
        && !policy.stores_holds();
    is_usual.then_some(charge)
}

impl SingleCharges {
    /// Returns the request's groups in binary form, which are ARGV\[1\].
    fn arguments(&self) -> Vec<u8> {
        let mut arguments = Vec::with_capacity(40 * self.groups.len());
        for group in &self.groups {
            arguments.push(group.rule as u8);
            put(&mut arguments, group.cost);
            group.numbers.iter().for_each(|&number| put(&mut arguments, number));
            put_count(&mut arguments, group.keys.len());
            arguments.push(u8::from(group.repeats));
            if group.repeats {
                group.keys.iter().for_each(|&key| put_count(&mut arguments, self.keys[key].len()));
            }
        }
        arguments
    }

    /// Parses the script's reply. Returns an inner `None` for a call that the general script must
    /// decide. Returns `None` if the reply is not valid.
    ///
    /// The script decides all charges of a key or none of them.
    pub(super) fn read(
        &self,
        calls: &[NormalizedCall<'_>],
        answer: &[u8],
    ) -> Option<Vec<Option<ScriptReply>>> {
        let mut reader = Reader(answer);
        if reader.byte()? != layout::VERDICTS {
            return None;
        }
        let now = reader.number()?;
        let mut replies: Vec<_> = calls.iter().map(|_| None).collect();
        for places in self.groups.iter().flat_map(|group| &group.keys).map(|&key| &self.keys[key]) {
            if reader.0.first() == Some(&layout::UNUSUAL) {
                reader.byte()?;
                continue;
            }
            for &place in places {
                let call = calls.get(place)?;
                let (charge, _) = call.charges.first()?;
                if let Some(reply) = ChargeReply::read_usual(&mut reader, charge)? {
                    replies[place] = Some(decide(call, &[reply], now)?);
                }
            }
        }
        reader.0.is_empty().then_some(replies)
    }
}

fn put_count(arguments: &mut Vec<u8>, count: usize) {
    // A count is at most `MAX_CHARGES`, so it fits into a `u16`.
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    arguments.extend_from_slice(&count.to_le_bytes());
}
