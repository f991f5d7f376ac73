use std::collections::HashMap;
use std::time::Duration;

use redis::Cmd;
use smallvec::SmallVec;
use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::algorithm::quota::FOREVER;
use tidegate_core::engine::StateShape;
use tidegate_core::{
    Call, CallId, Charge, Error, ErrorKind, MAX_SPAN, Operation, Policy, Timestamp,
};

use super::answer::{self, ScriptReply};
use super::bounds;
use super::bytes::{MAX_NUMBER, NUMBER, put};
use super::key::Keys;
use super::layout::{
    ACQUIRE, ACQUIRE_IN_TURN, ACQUIRE_UP_TO, BLOCK, BLOCK_AT_LEAST, CHARGE, CHECK_ONLY, EXTEND,
    GRANT, HOLD, HOLD_REPEATED, ID, LEAVE, LIST_UNIT, PEEK, REFUND, RESET, RESTARTS, SETTLE,
    SETTLE_SO_FAR, SHADOW, UNDO,
};
use super::normalized::NormalizedCall;
use super::numbers::{Edges, MAX_STRING_RECORDS, is_long, numbers};
use super::scripts::{self, RecordKind, Rule, Script, StateKind};
use super::single_charges::{self, Parts, SingleCharges};

/// The minimum time to live of a record under an id, in milliseconds, in a test that sets the time.
/// The scripts give all other keys the same minimum.
const MIN_MILLIS_IN_TESTS: u64 = 3_600_000;

/// A script call that decides one call or several calls.
#[derive(Debug)]
pub struct Request<'a> {
    script: &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<u8>,
    /// The arguments for a call with an id. The last key in `keys` is the key of the id.
    id: Option<IdArguments<'a>>,
    /// The times for which the numbers in the arguments are valid.
    edges: Edges,
    /// The time that the script uses instead of the server's clock, in tests.
    time: Option<Timestamp>,
    calls: SmallVec<[NormalizedCall<'a>; 1]>,
    /// The groups of charges, if the request is a usual batch. The charges of a group differ only
    /// in their keys.
    single_charges: Option<SingleCharges>,
    tier: Tier,
}

/// A tier of scripts. Each tier decides more calls than the previous tier, and costs the server
/// more time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// The script for usual batches. It leaves a call undecided if the value of the state contains
    /// more than the numbers of the rule, such as a block.
    Usual,
    /// The scripts for any call, which treat a state with holds as a foreign value.
    General,
    /// The scripts that can read the holds on states.
    WithHolds,
}

impl Tier {
    /// Returns the next tier, which decides the calls that are undecided in this tier.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self {
            Self::Usual => Some(Self::General),
            Self::General => Some(Self::WithHolds),
            Self::WithHolds => None,
        }
    }

    fn states(self) -> StateKind {
        if self == Self::WithHolds { StateKind::WithHolds } else { StateKind::Plain }
    }
}

/// The part of a script's reply for one call.
#[derive(Debug)]
pub enum Reply {
    /// The script decided the call, or returned an error for it.
    Decided(Result<ScriptReply, Error>),
    /// The script wrote nothing for the call. A request of the [next tier](Tier::next) must decide
    /// the call.
    Undecided,
    /// The script wrote nothing, because a quota of the request has another window at the time of
    /// the server. This is the time of the server.
    OtherWindow(Timestamp),
}

/// Added to the maximum number of open holds of a policy that counts failures.
const IS_FAILURE: u32 = 1 << 31;

/// Returns [`ErrorKind::Unsupported`] if the scripts cannot store the states of a policy. The
/// policy is then a log that stores its holds and possibly needs more than 128 records.
pub fn supports(policy: &Policy) -> Result<(), Error> {
    if !policy.stores_holds() || !is_long(policy) {
        return Ok(());
    }
    let message = format!(
        "`{policy}` stores its holds and may need {} records; such a log may have at most \
         {MAX_STRING_RECORDS} records on Redis; a coarser grain needs fewer",
        policy.rule().max_records()
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

impl<'a> Request<'a> {
    /// Creates a request for one call. Returns the error of [`Call::check`] and, for a hold, the
    /// error of [`supports`].
    ///
    /// `at` is the probable time of the server, see [`probable_time`](super::probable_time). If a
    /// quota has another window at the time of the server, the reply is [`Reply::OtherWindow`].
    pub fn new(keys: &Keys, call: &Call<'a>, at: Timestamp) -> Result<Self, Error> {
        Self::with_tier(keys, call, general_tier(call), at)
    }

    /// Creates a request for one call that uses a script of [`Tier::WithHolds`].
    ///
    /// A state can have holds although no policy of the call refunds lapsed holds, because an
    /// earlier policy of the same name refunded them. The script of [`new`](Self::new) treats such
    /// a state as a foreign value.
    pub fn with_holds(keys: &Keys, call: &Call<'a>, at: Timestamp) -> Result<Self, Error> {
        Self::with_tier(keys, call, Tier::WithHolds, at)
    }

    fn with_tier(keys: &Keys, call: &Call<'a>, tier: Tier, at: Timestamp) -> Result<Self, Error> {
        let (states, normalized) = (tier.states(), NormalizedCall::new(call)?);
        if call.operation.is_of_hold() {
            // A limiter refuses a policy that the scripts do not support. But a caller can also
            // create a call without a limiter, so this function checks the policies again.
            call.charges.iter().try_for_each(|charge| supports(charge.policy))?;
        }
        let id = match (call.id, call.charges.get(0)) {
            (Some(id), Some(first)) => {
                Some((keys.id_key(&first, id.id), IdArguments::new(call, &normalized, id, states)))
            }
            _ => None,
        };
        let record = match id {
            None => RecordKind::None,
            Some(_) if call.operation.is_of_hold() => RecordKind::Hold,
            Some(_) => RecordKind::Id,
        };
        let single = match states {
            StateKind::Plain => Self::single(keys, &normalized, record, at)?,
            StateKind::WithHolds => None,
        };
        let request = match single {
            Some(single) => Self { calls: SmallVec::from_buf([normalized]), ..single },
            None => {
                let script = match normalized.is_on_a_hold() {
                    true => scripts::settle(states),
                    false => scripts::batch(record, states),
                };
                let mut batch = Batch::new(keys, tier, at);
                batch.add(normalized)?;
                Self { script, ..batch.finish() }
            }
        };
        Ok(match id {
            Some((key, arguments)) => {
                let epochs = request.epochs(keys, &key);
                request.with_id(epochs, key, arguments)
            }
            None => request,
        })
    }

    /// Creates a request of [`Tier::Usual`] for as many of the first calls as fit. Returns `None`
    /// if one of these calls does not belong in a usual batch.
    #[must_use]
    pub fn usual_batch<'c>(
        keys: &Keys,
        calls: impl IntoIterator<Item = &'c Call<'a>, IntoIter: ExactSizeIterator>,
        at: Timestamp,
    ) -> Option<Self>
    where
        'a: 'c,
    {
        let Parts { keys, arguments, calls, charges, edges } =
            single_charges::parts(keys, calls.into_iter(), at)?;
        let (script, single_charges) = (scripts::batch_single(), Some(charges));
        let (id, time, tier) = (None, None, Tier::Usual);
        Some(Self { script, keys, arguments, id, edges, time, calls, single_charges, tier })
    }

    /// Returns the keys of the epochs of all charges, for an operation on a hold. Slots have no
    /// epoch, so their charges have the key of the id: while a cluster moves a slot, it refuses a
    /// call with a key that does not exist and other keys that do.
    fn epochs(&self, keys: &Keys, id_key: &[u8]) -> Vec<Vec<u8>> {
        let epoch_or_id = |charge: &Charge<'_>| match charge.policy.is_concurrent() {
            true => id_key.to_vec(),
            false => keys.epoch_key(charge),
        };
        let calls = self.calls.iter().filter(|call| call.operation.is_of_hold());
        calls.flat_map(|call| call.charges.iter().map(|(charge, _)| epoch_or_id(charge))).collect()
    }

    fn with_id(mut self, epochs: Vec<Vec<u8>>, key: Vec<u8>, arguments: IdArguments<'a>) -> Self {
        self.keys.extend(epochs);
        self.keys.push(key);
        Self { id: Some(arguments), ..self }
    }

    /// Creates a request for the script of a single charge. Returns `None` if no such script
    /// decides the call.
    fn single(
        keys: &Keys,
        normalized: &NormalizedCall<'a>,
        record: RecordKind,
        at: Timestamp,
    ) -> Result<Option<Self>, Error> {
        let (op, argument) = number_and_argument(normalized.operation)?;
        let [(charge, cost)] = &normalized.charges[..] else { return Ok(None) };
        if charge.policy.block().is_some_and(|block| block.factor() > 1 || block.restarts()) {
            return Ok(None);
        }
        let (rule, numbers) = rule_and_numbers(charge, at)?;
        let mut edges = Edges::NONE;
        edges.add(rule, numbers);
        let start = start_of(charge);
        let script = match op {
            ACQUIRE if charge.is_check_only => None,
            ACQUIRE | PEEK => scripts::single(rule, start, numbers[3] == 1, record),
            SETTLE | SETTLE_SO_FAR | EXTEND => scripts::settle_single(rule, start),
            _ => None,
        };
        let Some(script) = script else { return Ok(None) };
        let mut arguments = Vec::with_capacity(50);
        put(&mut arguments, *cost);
        numbers.iter().for_each(|&number| put(&mut arguments, number));
        let penalty = penalty(charge);
        if (op, argument, penalty) != (ACQUIRE, 0, 0) {
            arguments.push(op);
            put(&mut arguments, argument);
            put(&mut arguments, penalty);
        }
        Ok(Some(Self {
            script,
            keys: vec![keys.key(charge)],
            arguments,
            id: None,
            edges,
            time: None,
            calls: SmallVec::new(),
            single_charges: None,
            tier: Tier::General,
        }))
    }

    /// Sets a time that the script uses instead of the server's clock, in tests. The keys live for
    /// at least an hour of real time, so that no state is lost while virtual time stands still.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        self.time = Some(time);
        if let Some(IdArguments { millis: Some(millis), .. }) = &mut self.id {
            *millis = MIN_MILLIS_IN_TESTS.max(*millis);
        }
        self
    }

    /// Returns the keys, without duplicates.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// Returns the charges in binary form, which the script gets as ARGV\[1\].
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// Returns `true` if a test has set the time.
    pub(super) fn has_time_of_a_test(&self) -> bool {
        self.time.is_some()
    }

    #[must_use]
    pub fn script(&self) -> &'static Script {
        self.script
    }

    #[must_use]
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns the command EVALSHA, which a store sends first. The command names the script by its
    /// SHA-1.
    #[must_use]
    pub fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", self.script.sha())
    }

    /// Returns the command EVAL, which contains the whole script. A store sends this command if the
    /// server replied NOSCRIPT to the command of [`evalsha`](Self::evalsha). In that case nothing
    /// was charged.
    #[must_use]
    pub fn eval(&self) -> Cmd {
        self.command("EVAL", self.script.code())
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = Cmd::with_capacity(
            7 + self.keys.len(),
            script.len()
                + self.arguments.len()
                + self.keys.iter().map(Vec::len).sum::<usize>()
                + self.id.as_ref().map_or(0, |id| id.request.len() + 16)
                + 48,
        );
        command.arg(name).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(&key[..]);
        }
        command.arg(&self.arguments[..]);
        if let Some(id) = &self.id {
            command.arg(&id.request[..]).arg(id.millis);
        }
        let mut times = self.edges.bytes();
        if let Some(time) = self.time {
            put(&mut times, time.as_micros());
        }
        if !times.is_empty() {
            command.arg(times);
        }
        command
    }

    /// Parses the script's reply, with one entry per call, in order. Returns
    /// [`ErrorKind::Protocol`] if the reply is not valid. If a single call of a batch fails, its
    /// entry contains the error, such as [`ErrorKind::ForeignValue`].
    pub fn read(&self, reply: &[u8]) -> Result<Vec<Reply>, Error> {
        if self.edges != Edges::NONE
            && let Some(now) = answer::other_window(reply)
        {
            return Ok(self.calls.iter().map(|_| Reply::OtherWindow(now)).collect());
        }
        if let Some(charges) = &self.single_charges {
            let replies = charges.read(&self.calls, reply).ok_or_else(|| invalid_reply(reply))?;
            let replies = replies.into_iter();
            return Ok(replies
                .map(|reply| reply.map_or(Reply::Undecided, |reply| Reply::Decided(Ok(reply))))
                .collect());
        }
        if let Some(id) = &self.id
            && let Some(error) = answer::id_error(id.id, &self.calls, reply)
        {
            return Ok(vec![self.reply(Err(error))]);
        }
        let (first_reply, is_repetition) = match reply {
            [HOLD_REPEATED, first_reply @ ..] if self.id.is_some() => (first_reply, true),
            _ => (reply, false),
        };
        let replies = answer::read(&self.calls, first_reply).ok_or_else(|| invalid_reply(reply))?;
        let replies = replies
            .into_iter()
            .map(|reply| reply.map(|reply| ScriptReply { is_repetition, ..reply }));
        Ok(replies.map(|reply| self.reply(reply)).collect())
    }

    fn reply(&self, reply: Result<ScriptReply, Error>) -> Reply {
        match reply {
            // The value is possibly a state with holds, which the script treats as a foreign value.
            // A script of the next tier can read it.
            Err(error) if error.kind() == ErrorKind::ForeignValue && self.tier == Tier::General => {
                Reply::Undecided
            }
            reply => Reply::Decided(reply),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }
}

fn invalid_reply(reply: &[u8]) -> Error {
    let message = format!("the script's reply of {} bytes is not valid", reply.len());
    Error::new(ErrorKind::Protocol, message)
}

/// A builder of a request for several calls.
#[derive(Debug)]
pub struct Batch<'a, 'k> {
    names: &'k Keys,
    numbers: HashMap<Vec<u8>, u16>,
    keys: Vec<Vec<u8>>,
    key_bytes: usize,
    charges: usize,
    arguments: Vec<u8>,
    calls: SmallVec<[NormalizedCall<'a>; 1]>,
    tier: Tier,
    /// The probable time of the server.
    at: Timestamp,
    edges: Edges,
}

impl<'a, 'k> Batch<'a, 'k> {
    /// The maximum number of charges in a request for several calls, regardless of the number of
    /// keys.
    pub const MAX_CHARGES: usize = bounds::MAX_CHARGES;

    /// Creates an empty batch for a script of the tier `tier`. If a call needs a later tier, the
    /// batch changes to the later tier. `at` is the probable time of the server.
    #[must_use]
    pub fn new(names: &'k Keys, tier: Tier, at: Timestamp) -> Self {
        Self {
            names,
            numbers: HashMap::new(),
            keys: vec![],
            key_bytes: 0,
            charges: 0,
            arguments: vec![],
            calls: SmallVec::new(),
            tier: tier.max(Tier::General),
            at,
            edges: Edges::NONE,
        }
    }

    /// Adds a call. Returns the error of [`Call::check`], or [`ErrorKind::Unsupported`] for a call
    /// with an id, which needs its own [`Request`]. After an error, the batch is unchanged.
    pub fn add_call(&mut self, call: &Call<'a>) -> Result<(), Error> {
        if call.id.is_some() {
            let message = "a call with an id cannot be added to a batch; it needs its own request";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.add(NormalizedCall::new(call)?)
    }

    /// Adds a peek that reports whether a reservation would be granted. A normal peek does not
    /// report this. Returns the error of [`Call::check`]. After an error, the batch is unchanged.
    pub(super) fn add_reserve_peek(&mut self, call: &Call<'a>) -> Result<(), Error> {
        let normalized = NormalizedCall::new(call)?;
        let (_, argument) = number_and_argument(normalized.operation)?;
        self.put(normalized, PEEK, argument)
    }

    /// Returns `true` if the request stays within its bounds when `call` is added. A request of
    /// only one call is always within its bounds.
    pub(super) fn has_room_for(&self, call: &Call<'_>) -> bool {
        let charges = self.charges + call.charges.len();
        let is_within = charges <= Self::MAX_CHARGES && self.key_bytes <= bounds::MAX_KEY_BYTES;
        is_within || self.calls.is_empty()
    }

    fn add(&mut self, normalized: NormalizedCall<'a>) -> Result<(), Error> {
        let (op, argument) = number_and_argument(normalized.operation)?;
        self.put(normalized, op, argument)
    }

    fn put(&mut self, normalized: NormalizedCall<'a>, op: u8, argument: u64) -> Result<(), Error> {
        let rules: SmallVec<[_; 4]> = normalized
            .charges
            .iter()
            .map(|(charge, _)| rule_and_numbers(charge, self.at))
            .collect::<Result<_, _>>()?;
        let count = u8::try_from(normalized.charges.len()).unwrap_or(u8::MAX);
        self.arguments.extend_from_slice(&[op, count]);
        put(&mut self.arguments, argument);
        self.charges += normalized.charges.len();
        let mut lists = Lists::default();
        for ((charge, cost), (rule, numbers)) in normalized.charges.iter().zip(rules) {
            self.edges.add(rule, numbers);
            let number = self.number_of(self.names.key(charge));
            let penalty = match op {
                // A reset or a refund changes the epoch of the holds on a state and causes no
                // penalty. So its charge has the number of the epoch's key instead of the penalty.
                RESET | REFUND => self.number_of(self.names.epoch_key(charge)).into(),
                _ => penalty(charge),
            };
            self.arguments.extend_from_slice(&number.to_le_bytes());
            let list = lists.number_of(charge, &normalized);
            self.arguments.extend_from_slice(&[rule as u8, flags(charge, list)]);
            put(&mut self.arguments, *cost);
            put(&mut self.arguments, penalty);
            numbers.iter().for_each(|&number| put(&mut self.arguments, number));
            put_growth(&mut self.arguments, charge.policy);
        }
        if normalized.stores_holds() {
            self.tier = Tier::WithHolds;
        }
        self.calls.push(normalized);
        Ok(())
    }

    /// Returns the number of a key in the list of keys. Numbers begin at 1, as in Lua.
    fn number_of(&mut self, key: Vec<u8>) -> u16 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.key_bytes += key.len();
        self.keys.push(key.clone());
        // A charge has at most two keys: the key of the state and the key of the epoch of its
        // holds. So the number of keys fits into a `u16`.
        let number = u16::try_from(self.keys.len()).unwrap_or(u16::MAX);
        self.numbers.insert(key, number);
        number
    }

    #[must_use]
    pub fn finish(self) -> Request<'a> {
        let Self { keys, arguments, calls, tier, edges, .. } = self;
        Request {
            script: scripts::batch(RecordKind::None, tier.states()),
            keys,
            arguments,
            id: None,
            edges,
            time: None,
            calls,
            single_charges: None,
            tier,
        }
    }
}

/// The additional arguments of a script for a call with an id.
#[derive(Debug)]
struct IdArguments<'a> {
    id: &'a [u8],
    /// ARGV[2]: the first part of the record under the id, as in `id.lua` and `hold.lua`.
    request: Vec<u8>,
    /// ARGV[3]: the time to live of the record's key in milliseconds. It is `None` for a settlement
    /// and an extension, because their script computes this time.
    millis: Option<u64>,
}

impl<'a> IdArguments<'a> {
    fn new(
        call: &Call<'_>,
        normalized: &NormalizedCall<'_>,
        id: CallId<'a>,
        states: StateKind,
    ) -> Self {
        let is_of_hold = call.operation.is_of_hold();
        let ttl = micros(if is_of_hold { call.life_of_hold(id.ttl) } else { id.ttl }, 999);
        // After a hold of one minute has lapsed, it can still be settled for another minute. So the
        // record of a hold lives twice as long as the hold.
        let life = if is_of_hold { 2 * ttl } else { ttl };
        let is_of_shadow = call.charges.iter().all(|charge| charge.policy.is_shadow());
        let mut request = Vec::with_capacity(64);
        request.push(if is_of_hold { HOLD } else { ID });
        request.extend_from_slice(&call.fingerprint());
        put(&mut request, life);
        request.push(if is_of_shadow { SHADOW } else { 0 });
        if is_of_hold {
            put(&mut request, call.operation.min_amount().unwrap_or(0));
            normalized.charges.iter().for_each(|(_, cost)| put(&mut request, *cost));
        }
        if is_of_hold && !normalized.is_on_a_hold() && states == StateKind::WithHolds {
            for (charge, _) in &normalized.charges {
                let policy = charge.policy;
                let max = policy.max_open_holds().min(IS_FAILURE - 1);
                let max = match (policy.stores_holds(), policy.counts_failures()) {
                    (false, _) => 0,
                    (true, false) => max,
                    (true, true) => IS_FAILURE + max,
                };
                request.extend_from_slice(&max.to_le_bytes());
            }
        }
        // Redis counts the time to live from the millisecond in which the script began, so add 1
        // ms.
        let millis = (!normalized.is_on_a_hold()).then(|| life.div_ceil(1_000) + 1);
        Self { id: id.id, request, millis }
    }
}

fn general_tier(call: &Call<'_>) -> Tier {
    match call.charges.iter().any(|charge| charge.policy.stores_holds()) {
        true => Tier::WithHolds,
        false => Tier::General,
    }
}

/// Returns the number of an operation, and its argument: the maximum wait, the minimum amount, the
/// end of a grant, the length of a block, or the time of the charge that an undo undoes.
fn number_and_argument(operation: Operation) -> Result<(u8, u64), Error> {
    Ok(match operation {
        Operation::Acquire | Operation::Hold => (ACQUIRE, 0),
        Operation::Reserve { max_wait } => (ACQUIRE, micros(max_wait, 0)),
        Operation::AcquireUpTo { min } | Operation::HoldUpTo { min } => (ACQUIRE_UP_TO, min),
        Operation::HoldInTurn { place } => (ACQUIRE_IN_TURN, place.min(MAX_NUMBER - 1)),
        Operation::Leave { place } => (LEAVE, place.min(MAX_NUMBER - 1)),
        Operation::Peek => (PEEK, 0),
        Operation::Charge => (CHARGE, 0),
        Operation::Refund => (REFUND, 0),
        Operation::Undo { at } => (UNDO, at.as_micros()),
        Operation::Settle => (SETTLE, 0),
        Operation::SettleSoFar => (SETTLE_SO_FAR, 0),
        Operation::Extend => (EXTEND, 0),
        Operation::Grant { ends_at } => (GRANT, ends_at.map_or(FOREVER, Timestamp::as_micros)),
        Operation::Reset => (RESET, 0),
        Operation::Block { span } => (BLOCK, micros(span, 999)),
        Operation::BlockAtLeast { span } => (BLOCK_AT_LEAST, micros(span, 999)),
        other => {
            let message = format!("{other:?} is an operation for which this version has no script");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    })
}

/// The lists of alternatives of a call, in the order of their first charges. A call has at most 64
/// charges, and each of its lists has at least two, so the numbers from 1 to 32 are sufficient.
#[derive(Default)]
struct Lists(SmallVec<[u8; 4]>);

impl Lists {
    /// Returns the number of the list of a charge. Returns 0 for a charge without alternatives.
    fn number_of(&mut self, charge: &Charge<'_>, call: &NormalizedCall<'_>) -> u8 {
        if !call.has_alternatives(charge) {
            return 0;
        }
        let place = self.0.iter().position(|list| *list == charge.list);
        let place = place.unwrap_or_else(|| {
            self.0.push(charge.list);
            self.0.len() - 1
        });
        u8::try_from(place + 1).unwrap_or(u8::MAX)
    }
}

/// Returns the flags of a charge. `list` is the number of its list of alternatives, or 0.
fn flags(charge: &Charge<'_>, list: u8) -> u8 {
    let shadow = if charge.policy.is_shadow() { SHADOW } else { 0 };
    let check_only = if charge.is_check_only { CHECK_ONLY } else { 0 };
    shadow | check_only | (list * LIST_UNIT)
}

fn start_of(charge: &Charge<'_>) -> Start {
    match charge.policy.rule().shape() {
        StateShape::FixedWindow(start, _) => start,
        _ => Start::Aligned,
    }
}

fn micros(span: Duration, round_up: u128) -> u64 {
    u64::try_from((span.min(MAX_SPAN).as_nanos() + round_up) / 1_000).unwrap_or(u64::MAX)
}

fn rule_and_numbers(charge: &Charge<'_>, at: Timestamp) -> Result<(Rule, [u64; 4]), Error> {
    numbers(charge, at).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("`{}` has an algorithm for which this version has no script", charge.policy),
        )
    })
}

/// Adds the growth of the policy's blocks: the factor, the maximum length of a block, and the time
/// from the end of a block until the offenses are forgotten.
fn put_growth(arguments: &mut Vec<u8>, policy: &Policy) {
    let Some(block) = policy.block() else {
        return arguments.extend_from_slice(&[0; 1 + 2 * NUMBER]);
    };
    // A factor is at most `Block::MAX_FACTOR`, which is less than `RESTARTS`.
    let factor = u8::try_from(block.factor()).unwrap_or(u8::MAX);
    arguments.push(factor.saturating_add(if block.restarts() { RESTARTS } else { 0 }));
    put(arguments, micros(block.max_span(), 0));
    put(arguments, micros(block.forget_after().unwrap_or_default(), 0));
}

/// Returns the length of the first block after a denial, in microseconds, or 0 for no block.
fn penalty(charge: &Charge<'_>) -> u64 {
    micros(charge.policy.block_duration().unwrap_or_default(), 0)
}
