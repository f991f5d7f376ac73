use std::collections::HashMap;
use std::time::Duration;

use redis::Cmd;
use smallvec::SmallVec;
use tidegate_core::algorithm::fixed_window::Start;
use tidegate_core::engine::StateShape;
use tidegate_core::{
    Call, CallId, Charge, Decision, Error, ErrorKind, MAX_SPAN, Operation, Policy, Timestamp,
};

use super::answer::{self, ScriptReply};
use super::bytes::put;
use super::key::Keys;
use super::layout::{
    ACQUIRE, ACQUIRE_UP_TO, BLOCK, BLOCK_AT_LEAST, CHARGE, CHECK_ONLY, EXTEND, HOLD, ID, PEEK,
    REFUND, RESET, SETTLE, SETTLE_SO_FAR, SHADOW, UNDO,
};
use super::normalized::NormalizedCall;
use super::numbers::{MAX_STRING_RECORDS, is_long, numbers};
use super::scripts::{self, RecordKind, Rule, Script, StateKind};
use super::single_charges::{self, Parts, SingleCharges};

/// Minimum time to live of the key of an id, if a test sets the time: an hour, as of other keys.
const MIN_MILLIS_IN_TESTS: u64 = 3_600_000;

/// One script call: the decisions on one call, or on several.
#[derive(Debug)]
pub struct Request<'a> {
    script: &'static Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<u8>,
    /// Of a call with an id, whose key is the last one.
    id: Option<IdArguments<'a>>,
    /// The time of a test.
    time: Option<Vec<u8>>,
    calls: SmallVec<[NormalizedCall<'a>; 1]>,
    /// Of a batch of single charges.
    single_charges: Option<SingleCharges>,
    states: StateKind,
}

/// Checks that scripts can keep the states of a policy.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for a log that gives back what has lapsed and may need more than 128 records.
pub fn supports(policy: &Policy) -> Result<(), Error> {
    if !policy.refunds_lapsed() || !is_long(policy) {
        return Ok(());
    }
    let message = format!(
        "`{policy}` gives back what has lapsed, which Redis can for a log of at most {} records, and this may need {}; \
         a coarser grain has fewer",
        MAX_STRING_RECORDS,
        policy.rule().max_records()
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

impl<'a> Request<'a> {
    /// A request for one call.
    ///
    /// # Errors
    ///
    /// As [`Call::check`]; and of a hold as [`supports`].
    pub fn new(keys: &Keys, call: &Call<'a>) -> Result<Self, Error> {
        Self::with_states(keys, call, state_kind_of(call))
    }

    /// The same request, if states have holds although no policy of the call says that these are given back when they lapse:
    /// another setting of the same policies did. The script of [`new`](Self::new) takes these states for foreign values.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_holds(keys: &Keys, call: &Call<'a>) -> Result<Self, Error> {
        Self::with_states(keys, call, StateKind::WithHolds)
    }

    fn with_states(keys: &Keys, call: &Call<'a>, states: StateKind) -> Result<Self, Error> {
        let normalized = NormalizedCall::new(call)?;
        if call.operation.is_of_hold() {
            // A limiter is not built with such a policy, but a call can have one.
            call.charges.iter().try_for_each(|charge| supports(charge.policy))?;
        }
        let id = match (call.id, call.charges.get(0)) {
            (Some(id), Some(first)) => {
                Some((keys.of_id(&first, id.id), IdArguments::new(call, &normalized, id, states)))
            }
            _ => None,
        };
        let record = match id {
            None => RecordKind::None,
            Some(_) if call.operation.is_of_hold() => RecordKind::Hold,
            Some(_) => RecordKind::Id,
        };
        let single = match states {
            StateKind::Plain => Self::single(keys, &normalized, record)?,
            StateKind::WithHolds => None,
        };
        let request = match single {
            Some(single) => Self { calls: SmallVec::from_buf([normalized]), ..single },
            None => {
                let script = match normalized.is_on_a_hold() {
                    true => scripts::settle(states),
                    false => scripts::batch(record, states),
                };
                let mut batch = Batch::new(keys);
                batch.add(normalized)?;
                Self { script, states, ..batch.finish() }
            }
        };
        Ok(match id {
            Some((key, arguments)) => {
                let epochs = request.epochs(keys);
                request.with_id(epochs, key, arguments)
            }
            None => request,
        })
    }

    /// A request for the first of several calls, as many as fit in it, if each of them acquires a single charge, with
    /// nothing unusual about it. [`read_some`](Self::read_some) tells which of them were decided.
    #[must_use]
    pub fn of_single_charges(keys: &Keys, calls: &[Call<'a>]) -> Option<Self> {
        let Parts { keys, arguments, calls, charges } = single_charges::parts(keys, calls)?;
        let (script, single_charges) = (scripts::batch_single(), Some(charges));
        let (id, time, states) = (None, None, StateKind::Plain);
        Some(Self { script, keys, arguments, id, time, calls, single_charges, states })
    }

    /// Returns the keys of the epochs of a call of a hold.
    fn epochs(&self, keys: &Keys) -> Vec<Vec<u8>> {
        let calls = self.calls.iter().filter(|call| call.operation.is_of_hold());
        calls
            .flat_map(|call| call.charges.iter().map(|(charge, _)| keys.epoch_key(charge)))
            .collect()
    }

    fn with_id(mut self, epochs: Vec<Vec<u8>>, key: Vec<u8>, arguments: IdArguments<'a>) -> Self {
        self.keys.extend(epochs);
        self.keys.push(key);
        Self { id: Some(arguments), ..self }
    }

    /// A request for the script of a single charge, if the call is one.
    fn single(
        keys: &Keys,
        normalized: &NormalizedCall<'a>,
        record: RecordKind,
    ) -> Result<Option<Self>, Error> {
        let (op, argument) = number_and_argument(normalized.operation)?;
        let [(charge, cost)] = &normalized.charges[..] else { return Ok(None) };
        let (rule, numbers) = known(charge)?;
        let start = start_of(charge);
        let script = match op {
            ACQUIRE if charge.is_check_only => None,
            ACQUIRE | PEEK => Some(scripts::single(rule, start, numbers[3] == 1, record)),
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
            keys: vec![keys.of(charge)],
            arguments,
            id: None,
            time: None,
            calls: SmallVec::new(),
            single_charges: None,
            states: StateKind::Plain,
        }))
    }

    /// The same request, decided as if the server's clock showed this time. For tests: what is
    /// written lives an hour longer than the states matter.
    #[must_use]
    pub fn at(mut self, time: Timestamp) -> Self {
        let mut bytes = vec![];
        put(&mut bytes, time.as_micros());
        self.time = Some(bytes);
        if let Some(IdArguments { millis: Some(millis), .. }) = &mut self.id {
            *millis = MIN_MILLIS_IN_TESTS.max(*millis);
        }
        self
    }

    /// The keys, none of them twice.
    #[must_use]
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// ARGV[1]: what is to be decided, in binary.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// The script that will be called.
    #[must_use]
    pub fn script(&self) -> &'static Script {
        self.script
    }

    /// Whether the reply may be that a state has holds, of which the script knows nothing: one to the call is a foreign
    /// value. [`with_holds`](Self::with_holds) decides it then, or says the same.
    #[must_use]
    pub fn may_have_holds(&self, error: &Error) -> bool {
        self.states == StateKind::Plain && error.kind() == ErrorKind::ForeignValue
    }

    /// Command that calls the script by its SHA-1: the one to send first.
    #[must_use]
    pub fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", self.script.sha())
    }

    /// Command that contains the script: the one to send if the server answers NOSCRIPT. Nothing has been
    /// charged then.
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
        if let Some(time) = &self.time {
            command.arg(&time[..]);
        }
        command
    }

    /// Parses the script's reply into a decision for each call.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Protocol`] if the reply is not valid; per call,
    /// [`ErrorKind::ForeignValue`].
    pub fn read(&self, answer: &[u8]) -> Result<Vec<Result<Decision, Error>>, Error> {
        let replies = self.parse_reply(answer)?;
        Ok(replies.into_iter().map(|reply| reply.map(|reply| reply.decision)).collect())
    }

    /// The same, and when each charge was taken.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse_reply(&self, answer: &[u8]) -> Result<Vec<Result<ScriptReply, Error>>, Error> {
        if let Some(id) = &self.id
            && let Some(error) = answer::id_error(id.id, &self.calls, answer)
        {
            return Ok(vec![Err(error)]);
        }
        answer::read(&self.calls, answer).ok_or_else(|| no_sense(answer))
    }

    /// The number of calls.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there is no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Parses the reply to a request [of single charges](Self::of_single_charges). `None` stands for a call that the
    /// script did not decide, as there is something unusual under its key. Nothing was written for it; a [`Batch`]
    /// decides it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn read_some(
        &self,
        answer: &[u8],
    ) -> Result<Vec<Option<Result<ScriptReply, Error>>>, Error> {
        match &self.single_charges {
            Some(charges) => charges.read(&self.calls, answer).ok_or_else(|| no_sense(answer)),
            None => Ok(self.parse_reply(answer)?.into_iter().map(Some).collect()),
        }
    }
}

fn no_sense(answer: &[u8]) -> Error {
    let message = format!("the script answered {} bytes that make no sense", answer.len());
    Error::new(ErrorKind::Protocol, message)
}

/// Builder of a request for any number of calls.
#[derive(Debug)]
pub struct Batch<'a, 'k> {
    names: &'k Keys,
    numbers: HashMap<Vec<u8>, u16>,
    keys: Vec<Vec<u8>>,
    key_bytes: usize,
    charges: usize,
    arguments: Vec<u8>,
    calls: SmallVec<[NormalizedCall<'a>; 1]>,
    states: StateKind,
}

impl<'a, 'k> Batch<'a, 'k> {
    /// Maximum number of charges in a request, however few keys they have. A server runs nothing else
    /// while a script runs, and cannot stop one that has written: 1,024 charges take about 10 ms. (It also
    /// bounds the keys, of which Lua can unpack a few thousand.)
    pub const MAX_CHARGES: usize = 1024;
    /// The maximum number of bytes of keys in a request of several calls.
    pub const MAX_KEY_BYTES: usize = 1 << 20;

    /// An empty batch.
    #[must_use]
    pub fn new(names: &'k Keys) -> Self {
        Self {
            names,
            numbers: HashMap::new(),
            keys: vec![],
            key_bytes: 0,
            charges: 0,
            arguments: vec![],
            calls: SmallVec::new(),
            states: StateKind::Plain,
        }
    }

    /// An empty batch of calls to states that may have holds: see [`Request::with_holds`].
    #[must_use]
    pub fn with_holds(names: &'k Keys) -> Self {
        Self { states: StateKind::WithHolds, ..Self::new(names) }
    }

    /// Adds a call.
    ///
    /// # Errors
    ///
    /// As [`Call::check`], and [`ErrorKind::Unsupported`] for a call with an id, which takes a [`Request`] of its own.
    /// Nothing was added then.
    pub fn add_call(&mut self, call: &Call<'a>) -> Result<(), Error> {
        if call.id.is_some() {
            let message = "a call with an id takes a request of its own";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        self.add(NormalizedCall::new(call)?)
    }

    /// Adds a call that is only looked at: the answer is that of the call, and nothing is written. (Unlike
    /// that of a peek, the reply tells whether a reservation would be granted.)
    ///
    /// # Errors
    ///
    /// As [`Call::check`]. Nothing was added then.
    pub fn add_reserve_peek(&mut self, call: &Call<'a>) -> Result<(), Error> {
        let normalized = NormalizedCall::new(call)?;
        let (_, argument) = number_and_argument(normalized.operation)?;
        self.put(normalized, PEEK, argument)
    }

    /// Whether another call would make the request too large for one script call.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.charges + tidegate_core::MAX_CHARGES > Self::MAX_CHARGES
            || self.key_bytes > Self::MAX_KEY_BYTES
    }

    /// Whether there is no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn add(&mut self, normalized: NormalizedCall<'a>) -> Result<(), Error> {
        let (op, argument) = number_and_argument(normalized.operation)?;
        self.put(normalized, op, argument)
    }

    fn put(&mut self, normalized: NormalizedCall<'a>, op: u8, argument: u64) -> Result<(), Error> {
        let known: SmallVec<[_; 4]> =
            normalized.charges.iter().map(|(charge, _)| known(charge)).collect::<Result<_, _>>()?;
        // A call has at most 64 charges.
        let count = u8::try_from(normalized.charges.len()).unwrap_or(u8::MAX);
        self.arguments.extend_from_slice(&[op, count]);
        put(&mut self.arguments, argument);
        self.charges += normalized.charges.len();
        for ((charge, cost), (rule, numbers)) in normalized.charges.iter().zip(known) {
            let number = self.number_of(self.names.of(charge));
            let penalty = match op {
                // These end or change the epoch of the holds on a state, whose key has this number.
                RESET | REFUND => self.number_of(self.names.epoch_key(charge)).into(),
                _ => penalty(charge),
            };
            self.arguments.extend_from_slice(&number.to_le_bytes());
            self.arguments.extend_from_slice(&[rule as u8, flags(charge)]);
            put(&mut self.arguments, *cost);
            put(&mut self.arguments, penalty);
            numbers.iter().for_each(|&number| put(&mut self.arguments, number));
        }
        if normalized.refunds_lapsed() {
            self.states = StateKind::WithHolds;
        }
        self.calls.push(normalized);
        Ok(())
    }

    /// Number of a key among the keys, from 1 as in Lua.
    fn number_of(&mut self, key: Vec<u8>) -> u16 {
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        self.key_bytes += key.len();
        self.keys.push(key.clone());
        // There are at most `MAX_CHARGES`.
        let number = u16::try_from(self.keys.len()).unwrap_or(u16::MAX);
        self.numbers.insert(key, number);
        number
    }

    /// The request.
    #[must_use]
    pub fn finish(self) -> Request<'a> {
        let Self { keys, arguments, calls, states, .. } = self;
        Request {
            script: scripts::batch(RecordKind::None, states),
            keys,
            arguments,
            id: None,
            time: None,
            calls,
            single_charges: None,
            states,
        }
    }
}

/// Arguments of a script about the id of a call.
#[derive(Debug)]
struct IdArguments<'a> {
    id: &'a [u8],
    /// ARGV[2]: the head of the record.
    request: Vec<u8>,
    /// ARGV[3]: the time to live of the key, if it is the same whatever the key has now.
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
        let ttl = micros(id.ttl, 999);
        // A hold can be settled for as long again as it can be extended.
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
                let max = if policy.refunds_lapsed() { policy.max_open_holds() } else { 0 };
                request.extend_from_slice(&max.to_le_bytes());
            }
        }
        // The server counts from the millisecond in which the script began.
        let millis = (!normalized.is_on_a_hold()).then(|| life.div_ceil(1_000) + 1);
        Self { id: id.id, request, millis }
    }
}

fn state_kind_of(call: &Call<'_>) -> StateKind {
    match call.charges.iter().any(|charge| charge.policy.refunds_lapsed()) {
        true => StateKind::WithHolds,
        false => StateKind::Plain,
    }
}

/// Number of the operation, and its argument: the maximum wait, the minimum amount, the length of a block, or the
/// time of the take that is to be undone.
fn number_and_argument(operation: Operation) -> Result<(u8, u64), Error> {
    Ok(match operation {
        Operation::Acquire | Operation::Hold => (ACQUIRE, 0),
        Operation::Reserve { max_wait } => (ACQUIRE, micros(max_wait, 0)),
        Operation::AcquireUpTo { min } | Operation::HoldUpTo { min } => (ACQUIRE_UP_TO, min),
        Operation::Peek => (PEEK, 0),
        Operation::Charge => (CHARGE, 0),
        Operation::Refund => (REFUND, 0),
        Operation::Undo { at } => (UNDO, at.as_micros()),
        Operation::Settle => (SETTLE, 0),
        Operation::SettleSoFar => (SETTLE_SO_FAR, 0),
        Operation::Extend => (EXTEND, 0),
        Operation::Reset => (RESET, 0),
        Operation::Block { span } => (BLOCK, micros(span, 999)),
        Operation::BlockAtLeast { span } => (BLOCK_AT_LEAST, micros(span, 999)),
        other => {
            let message = format!("{other:?} is an operation that this version has no script for");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    })
}

fn flags(charge: &Charge<'_>) -> u8 {
    let shadow = if charge.policy.is_shadow() { SHADOW } else { 0 };
    let check_only = if charge.is_check_only { CHECK_ONLY } else { 0 };
    shadow | check_only
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

fn known(charge: &Charge<'_>) -> Result<(Rule, [u64; 4]), Error> {
    numbers(charge).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            format!("`{}` is of an algorithm that this version has no script for", charge.policy),
        )
    })
}

/// Block that follows a denial.
fn penalty(charge: &Charge<'_>) -> u64 {
    micros(charge.policy.block_duration().unwrap_or_default(), 0)
}
