//! The ledger of a simulation, which records each request of a caller and each call to the server.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use tidegate_core::{Call, Decision, Error, ErrorKind, Operation, OwnedCall};

use super::admissions::{Admission, Admissions};
use super::time::lock;

/// The result of a request or a call, in the form that the ledger records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The store admitted the call. For an operation that is always allowed, such as a refund, the
    /// store executed the call.
    Admitted,
    /// The call was refused by the decision.
    Refused,
    /// The call failed with an error of this kind.
    Failed(ErrorKind),
}

impl Reply {
    pub(super) fn from_answer(answer: &Result<Decision, Error>) -> Self {
        match answer {
            Ok(decision) if decision.is_allowed() => Self::Admitted,
            Ok(_) => Self::Refused,
            Err(error) => Self::Failed(error.kind()),
        }
    }
}

/// A request that a caller makes to the store of a node. All times are in microseconds of true time
/// since the simulation began.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The number of the node that received the request.
    pub node: usize,
    /// The operation of the request.
    pub operation: Operation,
    /// The number of the subject of the first charge. `Ledger::subject` returns the subject.
    pub subject: u32,
    /// The cost of the first charge. For an "acquire up to", this is the amount that was acquired.
    pub cost: u64,
    /// The time at which the request was made.
    pub made_at: u64,
    /// The time and the result of the answer, or `None` if no answer arrived before the node was
    /// killed or the simulation ended.
    pub reply: Option<(u64, Reply)>,
    /// Whether the node's store answered immediately, without waiting for anything.
    pub is_immediate: bool,
    /// The time of the admission, or `None` if the request was not admitted. If the server admitted
    /// the request, this is the time of the execution on the server. If the node admitted the
    /// request by itself, this is the time of the node's answer.
    pub admitted_at: Option<u64>,
}

/// A call that a node has sent to the server. Times are in microseconds of true time since the
/// simulation began.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentCall {
    /// The number of the node that sent the call.
    pub node: usize,
    /// The number of the message that contains the call. A message contains one call, or all calls
    /// of a batch.
    pub message: usize,
    /// The operation of the call.
    pub operation: Operation,
    /// The number of the subject of the first charge. `Ledger::subject` returns the subject.
    pub subject: u32,
    /// The cost of the first charge of the call.
    pub cost: u64,
    /// The time at which the call was sent.
    pub sent_at: u64,
    /// The execution of the call by the server, or `None` if the server has not executed the call.
    pub executed: Option<Executed>,
    /// The fate of the call, as the node that sent the call sees it.
    pub fate: Fate,
}

/// The execution of a call by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Executed {
    /// The true time of the execution, in microseconds since the simulation began.
    pub at: u64,
    /// The time that the server's clock showed at the execution, in microseconds since 1970.
    pub server_time: u64,
    /// The answer of the server.
    pub reply: Reply,
    /// The charged or refunded amount of the first charge, or `None` if the answer has no amounts.
    pub amount: Option<u64>,
}

/// The fate of a call, as the node that sent the call sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// No answer has arrived so far.
    Pending,
    /// An answer arrived at this time, possibly with the error of an unavailable server.
    Answered(u64),
    /// No answer will arrive: the call or its answer was lost, the answer was too late, or the node
    /// was killed.
    Lost,
}

/// The history of a simulation: all requests and all calls.
///
/// The text of a ledger, which its `Display` writes, has one line for each request and one line for
/// each call. All runs of a simulation with the same seed produce the same text, byte for byte.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    requests: Vec<Request>,
    calls: Vec<SentCall>,
    subjects: Vec<Vec<u8>>,
    messages: usize,
}

impl Ledger {
    /// Returns all requests of callers, in the order of their time.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns all calls to the server, in the order of sending.
    #[must_use]
    pub fn calls(&self) -> &[SentCall] {
        &self.calls
    }

    /// Returns the subject with this number.
    #[must_use]
    pub fn subject(&self, number: u32) -> &[u8] {
        self.subjects.get(number as usize).map_or(&[], |subject| subject)
    }

    /// Returns the number of requests that were admitted.
    #[must_use]
    pub fn admitted(&self) -> usize {
        self.count_requests(|request| request.admitted_at.is_some())
    }

    /// Returns the number of requests that a node's store admitted immediately, without waiting.
    #[must_use]
    pub fn admitted_at_once(&self) -> usize {
        self.count_requests(|request| request.is_immediate && request.admitted_at.is_some())
    }

    /// Returns the number of requests that were refused.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.count_requests(|request| matches!(request.reply, Some((_, Reply::Refused))))
    }

    /// Returns the number of requests that ended with an error.
    #[must_use]
    pub fn failed(&self) -> usize {
        self.count_requests(|request| matches!(request.reply, Some((_, Reply::Failed(_)))))
    }

    /// Returns the number of requests that were not answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.count_requests(|request| request.reply.is_none())
    }

    /// Returns the number of calls that nodes have sent to the server.
    #[must_use]
    pub fn sent(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of messages with calls. Each message is one round trip to the server.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages
    }

    /// Returns the number of calls that the server has executed.
    #[must_use]
    pub fn executed(&self) -> usize {
        self.count_calls(|call| call.executed.is_some())
    }

    /// Returns the number of calls whose answer arrived at the node.
    #[must_use]
    pub fn answered(&self) -> usize {
        self.count_calls(|call| matches!(call.fate, Fate::Answered(_)))
    }

    /// Returns the number of calls that were lost, including the calls whose answer was lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.count_calls(|call| call.fate == Fate::Lost)
    }

    /// Returns the number of calls that had no answer when the simulation ended.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.count_calls(|call| call.fate == Fate::Pending)
    }

    /// Returns the admissions of all subjects.
    #[must_use]
    pub fn admissions(&self) -> Admissions {
        self.admissions_if(|_| true)
    }

    /// Returns the admissions of one subject.
    #[must_use]
    pub fn admissions_of(&self, subject: impl AsRef<[u8]>) -> Admissions {
        self.admissions_if(|request| self.subject(request.subject) == subject.as_ref())
    }

    fn admissions_if(&self, filter: impl Fn(&Request) -> bool) -> Admissions {
        let admission =
            |request: &Request| Some(Admission { at: request.admitted_at?, cost: request.cost });
        let requests = self.requests.iter().filter(|request| filter(request));
        Admissions::new(requests.filter_map(admission))
    }

    fn count_requests(&self, filter: impl Fn(&Request) -> bool) -> usize {
        self.requests.iter().filter(|request| filter(request)).count()
    }

    fn count_calls(&self, filter: impl Fn(&SentCall) -> bool) -> usize {
        self.calls.iter().filter(|call| filter(call)).count()
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |subject| String::from_utf8_lossy(self.subject(subject));
        for request in &self.requests {
            let Request { node, operation, subject, cost, made_at, reply, .. } = request;
            write!(f, "{made_at} node {node} {operation:?} {cost} of {}", shown(*subject))?;
            writeln!(f, ": {reply:?}, {:?}, {}", request.admitted_at, request.is_immediate)?;
        }
        for call in &self.calls {
            let SentCall { node, message, operation, subject, cost, sent_at, executed, fate } =
                call;
            write!(f, "{sent_at} node {node} message {message} {operation:?} {cost}")?;
            writeln!(f, " of {}: {executed:?}, {fate:?}", shown(*subject))?;
        }
        Ok(())
    }
}

/// The ledger of a simulation that is still running. Clones share the ledger.
#[derive(Clone, Default)]
pub(super) struct Book(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    ledger: Ledger,
    numbers: HashMap<Vec<u8>, u32>,
    /// The calls of each message, as a range of indices into the calls of the ledger.
    messages: Vec<Range<usize>>,
    /// The admissions by the server whose answers have arrived at a node, and which are not yet
    /// matched with a request. An admission has the time of its execution and a number that
    /// identifies its call.
    admitted: HashMap<RequestKey, BTreeSet<(u64, usize)>>,
}

/// The node, operation, subject and cost of a request. The ledger cannot distinguish requests with
/// the same key. It therefore matches an admission by the server with any waiting request that has
/// the same key.
type RequestKey = (usize, Operation, u32, u64);

impl Entries {
    /// Returns the operation of a call, and the subject's number and the cost of its first charge.
    fn first_charge(&mut self, call: &Call<'_>) -> (Operation, u32, u64) {
        let (subject, cost) =
            call.charges.get(0).map_or((&[][..], 0), |charge| (charge.subject, charge.cost));
        if let Some(number) = self.numbers.get(subject) {
            return (call.operation, *number, cost);
        }
        let number = u32::try_from(self.ledger.subjects.len()).unwrap_or(u32::MAX);
        self.ledger.subjects.push(subject.to_vec());
        self.numbers.insert(subject.to_vec(), number);
        (call.operation, number, cost)
    }

    fn message_calls(&mut self, message: usize) -> &mut [SentCall] {
        let calls = self.messages.get(message).cloned().unwrap_or_default();
        self.ledger.calls.get_mut(calls).unwrap_or_default()
    }
}

impl Book {
    /// Records a request that is made at `now`. Returns the number of the request.
    pub(super) fn made(&self, node: usize, call: &Call<'_>, now: u64) -> usize {
        let mut entries = lock(&self.0);
        let (operation, subject, cost) = entries.first_charge(call);
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
        let Some(request) = ledger.requests.get_mut(number) else { return };
        let reply = Reply::from_answer(answer);
        request.reply = Some((now, reply));
        request.is_immediate = is_immediate;
        if reply != Reply::Admitted || !asks_admission(request.operation) {
            return;
        }
        let key = (request.node, request.operation, request.subject, request.cost);
        let waiting = admitted.get_mut(&key).filter(|_| !is_immediate);
        let by_server = waiting.and_then(|all| {
            let first = all.range((request.made_at, 0)..).next().copied()?;
            all.remove(&first);
            Some(first.0)
        });
        request.admitted_at = Some(by_server.unwrap_or(now));
        if let Some(amount) = amount(answer) {
            request.cost = amount;
        }
    }

    /// Records a message that a node sends at `now`. Returns the number of the message.
    pub(super) fn sent(&self, node: usize, calls: &[OwnedCall], now: u64) -> usize {
        let mut entries = lock(&self.0);
        let (message, first) = (entries.messages.len(), entries.ledger.calls.len());
        for call in calls {
            let (operation, subject, cost) = entries.first_charge(&call.as_call());
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
        for (call, answer) in lock(&self.0).message_calls(message).iter_mut().zip(answers) {
            let (reply, amount) = (Reply::from_answer(answer), amount(answer));
            call.executed = Some(Executed { at, server_time, reply, amount });
        }
    }

    pub(super) fn answered(&self, message: usize, now: u64) {
        let mut entries = lock(&self.0);
        let mut admitted = vec![];
        for (index, call) in entries.message_calls(message).iter_mut().enumerate() {
            call.fate = Fate::Answered(now);
            if let Some(executed) =
                call.executed.filter(|executed| executed.reply == Reply::Admitted)
                && asks_admission(call.operation)
            {
                let key = (call.node, call.operation, call.subject, call.cost);
                admitted.push((key, (executed.at, (message << 16) + index)));
            }
        }
        for (key, admission) in admitted {
            entries.admitted.entry(key).or_default().insert(admission);
        }
    }

    pub(super) fn lost(&self, message: usize) {
        lock(&self.0).message_calls(message).iter_mut().for_each(|call| call.fate = Fate::Lost);
    }

    /// Records that a node will receive no answer to any of its pending calls.
    pub(super) fn lose_pending_calls(&self, node: usize) {
        let mut entries = lock(&self.0);
        let pending = |call: &&mut SentCall| call.node == node && call.fate == Fate::Pending;
        entries.ledger.calls.iter_mut().filter(pending).for_each(|call| call.fate = Fate::Lost);
    }

    pub(super) fn take(&self) -> Ledger {
        std::mem::take(&mut lock(&self.0).ledger)
    }
}

/// Returns `true` if the operation is an acquire, which the store admits or refuses. Holds are not
/// included.
fn asks_admission(operation: Operation) -> bool {
    operation.is_acquire() && !operation.is_of_hold()
}

fn amount(answer: &Result<Decision, Error>) -> Option<u64> {
    answer.as_ref().ok()?.amounts().first().copied()
}
