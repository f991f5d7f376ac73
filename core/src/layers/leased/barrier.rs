//! The barrier before a call for which the whole remaining amount must be in the store, such as a
//! refund or a reset. Before the node sends the call, it returns its chunks of the call's states.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::in_flight::Pause;
use super::keeper::Keeper;
use super::key::state_keys;
use super::todo::Todo;
use crate::store::send_all;
use crate::sync::task::Handle;
use crate::sync::time::timeout;
use crate::{Call, Clock, Decision, Error, Operation, OwnedCall, Policy, Store};

/// The maximum time for which a task awaits the answers to the calls of a cancelled caller.
const MAX_COMPLETION: Duration = Duration::from_secs(10);

pub(super) type Answers = Vec<Result<Decision, Error>>;

/// The treatment of this node's chunks before the node sends a call on the same states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Barrier {
    /// The chunks stay on this node.
    None,
    /// If a peek shows that the store admits the call without these chunks, the chunks stay on this
    /// node. If not, the node returns the chunks before it sends the call.
    UnlessEnough,
    /// The node returns the chunks before it sends the call, and fetches no chunk until the call is
    /// answered.
    Always,
}

impl Barrier {
    /// Returns the barrier for a call whose states possibly have chunks on this node.
    pub(super) fn before(call: &Call<'_>) -> Self {
        match call.operation {
            // If a policy has `block`, a refusal blocks the subject. The barrier prevents a refusal
            // that only the chunks of this node would cause.
            operation if operation.is_acquire() && may_block(call) => Self::Always,
            Operation::Acquire | Operation::Hold | Operation::HoldInTurn { .. } => Self::None,
            Operation::Peek | Operation::Charge | Operation::Leave { .. } => Self::None,
            Operation::Settle | Operation::SettleSoFar | Operation::Extend => Self::None,
            Operation::AcquireUpTo { .. } | Operation::HoldUpTo { .. } => Self::UnlessEnough,
            Operation::Reserve { .. } => Self::UnlessEnough,
            Operation::Refund | Operation::Undo { .. } | Operation::Reset => Self::Always,
            Operation::Grant { .. } => Self::Always,
            Operation::Block { .. } | Operation::BlockAtLeast { .. } => Self::Always,
        }
    }
}

fn may_block(call: &Call<'_>) -> bool {
    call.charges.any_policy(Policy::blocks)
}

/// Returns this node's chunks of a call's states to the store. Waits for the settlements of these
/// chunks and for fetches in flight.
///
/// Until the returned guard is dropped, this node has and fetches no chunk of the call's states. So
/// the whole remaining amount is in the store, and a refund or a reset does not remove the charge
/// of a chunk.
pub(super) async fn return_chunks<S: Store + 'static, C: Clock + 'static>(
    keeper: &Arc<Keeper<S, C>>,
    call: &Call<'_>,
) -> Pause {
    let (table, in_flight) = (&keeper.table, &keeper.table.in_flight);
    let states = state_keys(call.charges, &table.hasher);
    let pause = in_flight.pause(&states);
    if table.is_closed() {
        // `close` has removed the leases, but a fetch in flight can still charge a chunk. So the
        // function waits for the end of all calls of tasks.
        in_flight.all_calls_ended().await;
    }
    loop {
        // `next_end` is created before the loop reads the leases, so that it also reports a call
        // that ends during the loop.
        let next_end = in_flight.next_end();
        let (mut todo, mut is_fetching, now) = (Todo::default(), false, keeper.now());
        for state in &states {
            // The closure runs under the lock of the lease. So if a chunk arrives at the same time,
            // the closure either takes the chunk, or finds that the lease is still fetching.
            table.visit_leases(*state, |entry| {
                entry.interrupt(now, &table.settings);
                entry.take_chunks(&mut todo);
                is_fetching |= entry.is_fetching;
            });
        }
        keeper.run(todo);
        if !is_fetching && !states.iter().any(|state| in_flight.is_settling(*state)) {
            return pause;
        }
        next_end.await;
    }
}

/// Sends calls to the store. Then drops `pauses`, during which the node fetches no chunk of the
/// calls' states.
///
/// If the caller is cancelled, the store possibly still executes the calls. So a task then awaits
/// the answers and drops `pauses`.
pub(super) async fn send_paused<S: Store + 'static, C: Clock + 'static>(
    keeper: &Arc<Keeper<S, C>>,
    calls: &[Call<'_>],
    pauses: Vec<Pause>,
) -> Answers {
    let keeper = Arc::clone(keeper);
    let calls: Vec<_> = calls.iter().map(|call| OwnedCall::from(*call)).collect();
    let answers = async move {
        let calls: Vec<_> = calls.iter().map(OwnedCall::as_call).collect();
        let answers = send_all(keeper.store(), &calls).await;
        drop(pauses);
        answers
    };
    PausedCalls(Some(Box::pin(answers))).await
}

/// A future that awaits the answers to calls. Until then, the node fetches no chunk of the calls'
/// states. If the future is dropped before the answers arrive, a task awaits them.
struct PausedCalls(Option<Pin<Box<dyn Future<Output = Answers> + Send>>>);

impl Future for PausedCalls {
    type Output = Answers;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answers> {
        let answers = match &mut self.0 {
            Some(calls) => ready!(calls.as_mut().poll(context)),
            None => Vec::new(),
        };
        self.0 = None;
        Poll::Ready(answers)
    }
}

impl Drop for PausedCalls {
    fn drop(&mut self) {
        if let Some(calls) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(timeout(MAX_COMPLETION, calls));
        }
    }
}
