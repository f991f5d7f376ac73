//! What happened in a simulation: each request of a caller, and each call to the server.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tidegate_core::{Call, Decision, Error, ErrorKind, Operation, OwnedCall};

use super::admissions::{Admission, Admissions};
use super::time::lock;

/// An answer, as far as the ledger keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// Admitted; of an operation that does not ask for admission, carried out.
    Admitted,
    /// Refused.
    Refused,
    /// An error.
    Failed(ErrorKind),
}

impl Reply {
    pub(super) fn of(answer: &Result<Decision, Error>) -> Self {
        match answer {
            Ok(decision) if decision.is_allowed() => Self::Admitted,
            Ok(_) => Self::Refused,
            Err(error) => Self::Failed(error.kind()),
        }
    }
}

/// A request of a caller to the store of its node. Times are microseconds since the simulation began, in true time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The number of the node.
    pub node: usize,
    /// The operation.
    pub operation: Operation,
    /// The subject of the first charge, by its number.
    pub subject: u32,
    /// The cost of the first charge; if up to a cost was acquired, what was.
    pub cost: u64,
    /// When it was made.
    pub made_at: u64,
    /// When it was answered, and how; `None` if it was not, as its node was killed or the simulation ended.
    pub reply: Option<(u64, Reply)>,
    /// Whether it was answered without waiting.
    pub is_immediate: bool,
    /// When it was admitted, if it was: when the server did, or at the reply if the node did by itself.
    pub admitted_at: Option<u64>,
}

/// A call that was sent to the server. Times are microseconds since the simulation began, in true time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentCall {
    /// The number of the node.
    pub node: usize,
    /// The number of the message, which has one call, or all of a batch.
    pub message: usize,
    /// The operation.
    pub operation: Operation,
    /// The subject of the first charge, by its number.
    pub subject: u32,
    /// The cost of the first charge.
    pub cost: u64,
    /// When it was sent.
    pub sent_at: u64,
    /// What the server did, if the call arrived.
    pub executed: Option<Executed>,
    /// What became of it for its sender.
    pub fate: Fate,
}

/// A call that the server has carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// In true time.
    pub at: u64,
    /// By the server's clock, in microseconds since 1970.
    pub server_time: u64,
    /// The answer.
    pub reply: Reply,
    /// What was taken or given back of the first charge, where the answer says so.
    pub amount: Option<u64>,
}

/// What became of a call for its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No answer so far.
    Pending,
    /// Answered at this time, if only that the server is away.
    Answered(u64),
    /// The call or its answer was lost or too late, or its node was killed.
    Lost,
}

/// What happened in a simulation.
///
/// As text, it is one line for each request and each call: the same, byte for byte, in each run with the same seed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    requests: Vec<Request>,
    calls: Vec<SentCall>,
    subjects: Vec<Vec<u8>>,
    messages: usize,
}

impl Ledger {
    /// All requests, in the order in which they were made.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// All calls to the server, in the order in which they were sent.
    #[must_use]
    pub fn calls(&self) -> &[SentCall] {
        &self.calls
    }

    /// The subject of a number.
    #[must_use]
    pub fn subject(&self, number: u32) -> &[u8] {
        self.subjects.get(number as usize).map_or(&[], |subject| subject)
    }

    /// How many requests were admitted.
    #[must_use]
    pub fn admitted(&self) -> usize {
        self.count_requests(|it| it.admitted_at.is_some())
    }

    /// How many requests were admitted without waiting.
    #[must_use]
    pub fn admitted_at_once(&self) -> usize {
        self.count_requests(|it| it.is_immediate && it.admitted_at.is_some())
    }

    /// How many requests were refused.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.count_requests(|it| matches!(it.reply, Some((_, Reply::Refused))))
    }

    /// How many requests ended with an error.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count_requests(|it| matches!(it.reply, Some((_, Reply::Failed(_)))))
    }

    /// How many requests were not answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.count_requests(|it| it.reply.is_none())
    }

    /// How many calls were sent.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.calls.len()
    }

    /// How many messages they were sent in: round trips.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// How many calls the server has carried out.
    #[must_use]
    pub fn executed(&self) -> usize {
        self.count_calls(|it| it.executed.is_some())
    }

    /// How many calls were answered.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.count_calls(|it| matches!(it.fate, Fate::Answered(_)))
    }

    /// How many calls, or their answers, were lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.count_calls(|it| it.fate == Fate::Lost)
    }

    /// How many calls had no answer when the simulation ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.count_calls(|it| it.fate == Fate::Pending)
    }

    /// What was admitted, of all subjects.
    #[must_use]
    pub fn admissions(&self) -> Admissions {
        self.admissions_if(|_| true)
    }

    /// What was admitted of a subject.
    #[must_use]
    pub fn admissions_of(&self, subject: impl AsRef<[u8]>) -> Admissions {
        self.admissions_if(|it| self.subject(it.subject) == subject.as_ref())
    }

    fn admissions_if(&self, is_of: impl Fn(&Request) -> bool) -> Admissions {
        let admission = |it: &Request| Some(Admission { at: it.admitted_at?, cost: it.cost });
        Admissions::new(self.requests.iter().filter(|it| is_of(it)).filter_map(admission))
    }

    fn count_requests(&self, is_it: impl Fn(&Request) -> bool) -> usize {
        self.requests.iter().filter(|it| is_it(it)).count()
    }

    fn count_calls(&self, is_it: impl Fn(&SentCall) -> bool) -> usize {
        self.calls.iter().filter(|it| is_it(it)).count()
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |subject| String::from_utf8_lossy(self.subject(subject));
        for it in &self.requests {
            let Request { node, operation, subject, cost, made_at, reply, .. } = it;
            write!(f, "{made_at} node {node} {operation:?} {cost} of {}", shown(*subject))?;
            writeln!(f, ": {reply:?}, {:?}, {}", it.admitted_at, it.is_immediate)?;
        }
        for it in &self.calls {
            let SentCall { node, message, operation, subject, cost, sent_at, executed, fate } = it;
            write!(f, "{sent_at} node {node} message {message} {operation:?} {cost}")?;
            writeln!(f, " of {}: {executed:?}, {fate:?}", shown(*subject))?;
        }
        Ok(())
    }
}

/// The ledger while the simulation runs. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct Book(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    ledger: Ledger,
    numbers: HashMap<Vec<u8>, u32>,
    /// The calls of each message.
    messages: Vec<Range<usize>>,
    admitted: HashMap<Alike, BTreeSet<(u64, usize)>>,
}

/// Requests that cannot be told from each other: of one node, operation, subject and cost. Of those, admissions by the server
/// that were answered, as time and number, are matched with requests that waited.
type Alike = (usize, Operation, u32, u64);

impl Entries {
    /// Operation, subject and cost of the first charge.
    fn of_call(&mut self, call: &Call<'_>) -> (Operation, u32, u64) {
        let (subject, cost) = call.charges.get(0).map_or((&[][..], 0), |it| (it.subject, it.cost));
        if let Some(number) = self.numbers.get(subject) {
            return (call.operation, *number, cost);
        }
        let number = u32::try_from(self.ledger.subjects.len()).unwrap_or(u32::MAX);
        self.ledger.subjects.push(subject.to_vec());
        self.numbers.insert(subject.to_vec(), number);
        (call.operation, number, cost)
    }

    fn of_message(&mut self, message: usize) -> &mut [SentCall] {
        let calls = self.messages.get(message).cloned().unwrap_or_default();
        self.ledger.calls.get_mut(calls).unwrap_or_default()
    }
}

impl Book {
    /// The number of a request that is made now.
    pub(super) fn made(&self, node: usize, call: &Call<'_>, now: u64) -> usize {
        let mut entries = lock(&self.0);
        let (operation, subject, cost) = entries.of_call(call);
        let (made_at, reply, is_immediate, admitted_at) = (now, None, false, None);
        entries.ledger.requests.push(Request {
            node,
            operation,
            subject,
            cost,
            made_at,
            reply,
            is_immediate,
            admitted_at,
        });
        entries.ledger.requests.len() - 1
    }

    pub(super) fn replied(
        &self,
        number: usize,
        answer: &Result<Decision, Error>,
        now: u64,
        is_immediate: bool,
    ) {
        let mut entries = lock(&self.0);
        let Entries { ledger, admitted, .. } = &mut *entries;
        let Some(it) = ledger.requests.get_mut(number) else { return };
        let reply = Reply::of(answer);
        it.reply = Some((now, reply));
        it.is_immediate = is_immediate;
        if reply != Reply::Admitted || !takes(it.operation) {
            return;
        }
        let alike = admitted.get_mut(&(it.node, it.operation, it.subject, it.cost));
        let by_server = alike.filter(|_| !is_immediate).and_then(|all| {
            let first = all.range((it.made_at, 0)..).next().copied()?;
            all.remove(&first);
            Some(first.0)
        });
        it.admitted_at = Some(by_server.unwrap_or(now));
        if let Some(amount) = amount(answer) {
            it.cost = amount;
        }
    }

    /// The number of a message that is sent now.
    pub(super) fn sent(&self, node: usize, calls: &[OwnedCall], now: u64) -> usize {
        let mut entries = lock(&self.0);
        let (message, first) = (entries.messages.len(), entries.ledger.calls.len());
        for call in calls {
            let (operation, subject, cost) = entries.of_call(&call.as_call());
            let (sent_at, executed, fate) = (now, None, Fate::Pending);
            entries.ledger.calls.push(SentCall {
                node,
                message,
                operation,
                subject,
                cost,
                sent_at,
                executed,
                fate,
            });
        }
        entries.messages.push(first..first + calls.len());
        entries.ledger.messages += 1;
        message
    }

    pub(super) fn executed(
        &self,
        message: usize,
        answers: &[Result<Decision, Error>],
        at: u64,
        server_time: u64,
    ) {
        for (call, answer) in lock(&self.0).of_message(message).iter_mut().zip(answers) {
            let (reply, amount) = (Reply::of(answer), amount(answer));
            call.executed = Some(Executed { at, server_time, reply, amount });
        }
    }

    pub(super) fn answered(&self, message: usize, now: u64) {
        let mut entries = lock(&self.0);
        let mut admitted = vec![];
        for (place, it) in entries.of_message(message).iter_mut().enumerate() {
            it.fate = Fate::Answered(now);
            if let Some(executed) = it.executed.filter(|it| it.reply == Reply::Admitted)
                && takes(it.operation)
            {
                let alike = (it.node, it.operation, it.subject, it.cost);
                admitted.push((alike, (executed.at, (message << 16) + place)));
            }
        }
        for (alike, admission) in admitted {
            entries.admitted.entry(alike).or_default().insert(admission);
        }
    }

    pub(super) fn lost(&self, message: usize) {
        lock(&self.0).of_message(message).iter_mut().for_each(|it| it.fate = Fate::Lost);
    }

    pub(super) fn lose_pending_of(&self, node: usize) {
        let mut entries = lock(&self.0);
        let pending = |it: &&mut SentCall| it.node == node && it.fate == Fate::Pending;
        entries.ledger.calls.iter_mut().filter(pending).for_each(|it| it.fate = Fate::Lost);
    }

    pub(super) fn take(&self) -> Ledger {
        std::mem::take(&mut lock(&self.0).ledger)
    }
}

/// Returns `true` if the operation acquires without a hold.
fn takes(operation: Operation) -> bool {
    operation.is_acquire() && !operation.is_of_hold()
}

fn amount(answer: &Result<Decision, Error>) -> Option<u64> {
    answer.as_ref().ok()?.amounts().first().copied()
}
