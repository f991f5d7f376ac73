//! Decides charges on fixed windows for servers without scripts, by plain commands in MULTI and
//! EXEC.
//!
//! Each window has its own key, which contains a decimal count. A call first reads the counts, and
//! adds its costs only if all charges fit. The call is admitted only if the sums that the server
//! returns are within the limits. If a sum exceeds its limit, the store subtracts the costs again.
//! So a count is never less than the admitted total, and the admitted total never exceeds the
//! limit.
//!
//! A caller can be cancelled after the addition of its costs, for example by a timeout. So a
//! separate task adds and subtracts the costs. The task subtracts a denied cost even if the caller
//! is cancelled.

use std::sync::Arc;
use std::time::Duration;

use redis::{FromRedisValue, Pipeline, pipe};
use tidegate_core::algorithm::fixed_window::{FixedWindowRule, Start, State};
use tidegate_core::engine::{Rule, StateShape};
use tidegate_core::no_semver::{Algorithm, VerdictInput, keeps_lapsed};
use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, Policy, Verdict,
};

use crate::connection::{Connection, LiveConnection};
use crate::inner::Inner;
use crate::protocol::NormalizedCall;

/// The time for which the key of a count exists after the end of its window, because a slow call
/// can still add to the count.
const GRACE: Duration = Duration::from_secs(10);

/// The time that replaces `GRACE` if a test sets the time, so that no count is lost while virtual
/// time stands still.
const GRACE_IN_TESTS: Duration = Duration::from_secs(3600);

pub(crate) fn supports(policy: &Policy) -> Result<(), Error> {
    keeps_lapsed(policy)?;
    let is_plain =
        matches!(policy.rule().shape(), StateShape::FixedWindow(Start::Aligned | Start::Phased, _));
    if is_plain && policy.block_duration().is_none() {
        return Ok(());
    }
    Err(unsupported(format!(
        "`{policy}` needs scripts; without scripts, a policy must be a fixed window that is aligned or phased and \
         does not block"
    )))
}

fn unsupported(message: String) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

pub(crate) async fn decide(store: &Arc<Inner>, call: &Call<'_>) -> Result<Decision, Error> {
    let normalized = NormalizedCall::new(call)?;
    if call.id.is_some() {
        return Err(unsupported("a call with an id needs scripts".to_owned()));
    }
    if call.charges.iter().any(|charge| charge.is_check_only) {
        return Err(unsupported("a check-only charge needs scripts".to_owned()));
    }
    if call.charges.has_lists() {
        return Err(unsupported("a list of alternatives needs scripts".to_owned()));
    }
    if !matches!(normalized.operation, Operation::Acquire | Operation::Peek | Operation::Reset) {
        return Err(unsupported(format!("{:?} needs scripts", normalized.operation)));
    }
    let now = store.now().await?.as_micros();
    let windows =
        normalized.charges.iter().map(|(charge, cost)| Window::new(store, charge, *cost, now));
    let windows = windows.collect::<Result<Vec<_>, _>>()?;
    let mut windows = Windows { store, session: Session::new(store).await?, windows, now };
    match normalized.operation {
        Operation::Acquire => windows.acquire().await?,
        Operation::Reset => windows.reset().await?,
        _ => windows.read().await?,
    }
    Ok(normalized.answer(&windows.verdicts()))
}

/// A charge, and the window in which the charge counts.
struct Window<'a> {
    charge: Charge<'a>,
    rule: FixedWindowRule,
    cost: u64,
    key: Vec<u8>,
    ends: u64,
    count: u64,
    outcome: Outcome,
}

impl<'a> Window<'a> {
    fn new(store: &Inner, charge: &Charge<'a>, cost: u64, now: u64) -> Result<Self, Error> {
        supports(charge.policy)?;
        let Rule::FixedWindow(rule) = charge.policy.rule() else {
            return Err(unsupported(format!("`{}` needs scripts", charge.policy)));
        };
        let window = rule.window_micros();
        let State { ends, .. } = rule.take(None, 0, now, || charge.phase());
        let mut key = store.keys.key(charge);
        // No other key ends in `%w` and two numbers, because an escaped subject does not contain
        // `%w`.
        key.extend_from_slice(format!("%w{window}:{ends}").as_bytes());
        let (charge, rule, outcome) = (*charge, *rule, Outcome::Allowed);
        Ok(Self { charge, rule, cost, key, ends, count: 0, outcome })
    }

    fn is_enforced(&self) -> bool {
        !self.charge.policy.is_shadow()
    }

    fn refuses(&self) -> bool {
        self.is_enforced() && self.outcome != Outcome::Allowed
    }

    /// Returns `true` if the call adds the cost of the charge to the count.
    fn is_charged(&self) -> bool {
        self.cost > 0 && self.outcome == Outcome::Allowed
    }

    fn state(&self) -> Option<State> {
        (self.count > 0).then_some(State::new(self.ends, self.count))
    }

    fn addition(&self, store: &Inner, now: u64) -> Addition {
        let grace = if store.clock.is_some() { GRACE_IN_TESTS } else { GRACE };
        Addition {
            key: self.key.clone(),
            cost: self.cost,
            life: Duration::from_micros(self.ends - now) + grace,
            limit: self.charge.policy.limit(),
            is_enforced: self.is_enforced(),
        }
    }

    fn decide(&mut self, now: u64) {
        let admits = self.rule.wait(self.state().as_ref(), self.cost, now).is_zero();
        self.outcome = if admits { Outcome::Allowed } else { Outcome::Denied };
    }

    fn verdict(&self, now: u64) -> Verdict {
        let state = self.state();
        let input = VerdictInput {
            outcome: self.outcome,
            wait: self.rule.wait(state.as_ref(), self.cost, now),
            level: self.rule.level(state.as_ref(), now),
            ends_at: None,
            blocked_until: 0,
            block_level: 0,
            now,
        };
        input.verdict(self.charge.policy)
    }
}

/// The connection on which a single call is decided.
struct Session<'s> {
    connection: &'s Connection,
    live: LiveConnection,
}

impl<'s> Session<'s> {
    async fn new(store: &'s Inner) -> Result<Self, Error> {
        let connection = store.connection();
        Ok(Self { connection, live: connection.live().await? })
    }

    async fn send<T: FromRedisValue>(&mut self, commands: &Pipeline) -> Result<T, Error> {
        self.connection.send_all(&mut self.live, commands).await
    }
}

/// The windows of the charges of a call, and the connection for the call.
struct Windows<'s, 'a> {
    store: &'s Arc<Inner>,
    session: Session<'s>,
    windows: Vec<Window<'a>>,
    now: u64,
}

impl Windows<'_, '_> {
    async fn acquire(&mut self) -> Result<(), Error> {
        self.read().await?;
        if self.windows.iter().any(Window::refuses) {
            return Ok(());
        }
        let (store, now) = (self.store, self.now);
        let windows: Vec<_> =
            self.windows.iter_mut().filter(|window| window.is_charged()).collect();
        if windows.is_empty() {
            return Ok(());
        }
        let additions = windows.iter().map(|window| window.addition(store, now)).collect();
        for (window, sum) in windows.into_iter().zip(add_if_admitted(store, additions).await?) {
            window.count = sum.count;
            if sum.is_above_limit {
                window.outcome = Outcome::Denied;
            }
        }
        Ok(())
    }

    async fn reset(&mut self) -> Result<(), Error> {
        // The read fails on a foreign value, so a reset does not delete a foreign value.
        self.read().await?;
        let mut commands = pipe();
        commands.atomic();
        for window in &mut self.windows {
            commands.cmd("DEL").arg(&window.key[..]).ignore();
            (window.count, window.cost) = (0, 0);
            window.decide(self.now);
        }
        self.session.send(&commands).await
    }

    async fn read(&mut self) -> Result<(), Error> {
        let mut commands = pipe();
        for window in &self.windows {
            commands.cmd("GET").arg(&window.key[..]);
        }
        let counts: Vec<Option<Vec<u8>>> = self.session.send(&commands).await?;
        for (window, count) in self.windows.iter_mut().zip(counts) {
            window.count = count.as_deref().map_or(Some(0), parse).ok_or_else(|| {
                Error::new(
                    ErrorKind::ForeignValue,
                    format!(
                        "the key of `{}` for this subject has a value that is not a count; it was not changed",
                        window.charge.policy.name()
                    ),
                )
            })?;
            window.decide(self.now);
        }
        Ok(())
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.windows.iter().map(|window| window.verdict(self.now)).collect()
    }
}

/// A cost that a task adds to a count. The value owns all its data, because the task outlives the
/// caller.
struct Addition {
    key: Vec<u8>,
    cost: u64,
    life: Duration,
    limit: u64,
    is_enforced: bool,
}

struct Sum {
    count: u64,
    /// Whether the sum of the count and the cost was above the limit, so that the cost was
    /// subtracted again. This happens if another call has added its cost after this call has read
    /// the count.
    is_above_limit: bool,
}

/// Adds all costs, and subtracts the costs that do not fit. A task executes both steps, even if the
/// caller is cancelled.
async fn add_if_admitted(store: &Arc<Inner>, additions: Vec<Addition>) -> Result<Vec<Sum>, Error> {
    let store = Arc::clone(store);
    let task = tokio::spawn(async move { add_then_undo(&store, &additions).await });
    task.await.unwrap_or_else(|ended| {
        let message = format!("the task of a call ended early: {ended}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

async fn add_then_undo(store: &Inner, additions: &[Addition]) -> Result<Vec<Sum>, Error> {
    let mut session = Session::new(store).await?;
    let all: Vec<_> = additions.iter().collect();
    let counts = add(&mut session, &all, 1).await?;
    let mut sums: Vec<_> = additions.iter().zip(counts).map(Sum::new).collect();
    let is_refused = additions
        .iter()
        .zip(&sums)
        .any(|(addition, sum)| addition.is_enforced && sum.is_above_limit);
    let (undone, counts): (Vec<_>, Vec<_>) = additions
        .iter()
        .zip(&mut sums)
        .filter(|(_, sum)| is_refused || sum.is_above_limit)
        .map(|(addition, sum)| (addition, &mut sum.count))
        .unzip();
    if !undone.is_empty() {
        let rest = add(&mut session, &undone, -1).await?;
        counts.into_iter().zip(rest).for_each(|(count, rest)| *count = rest);
    }
    Ok(sums)
}

/// Adds the costs, or subtracts them if `sign` is -1. Returns the new counts.
async fn add(
    session: &mut Session<'_>,
    additions: &[&Addition],
    sign: i64,
) -> Result<Vec<u64>, Error> {
    let mut commands = pipe();
    commands.atomic();
    for addition in additions {
        // An admitted cost is at most the limit, which is at most 2^52. So the cost fits into an
        // `i64`.
        let cost = i64::try_from(addition.cost).unwrap_or(i64::MAX);
        commands.cmd("INCRBY").arg(&addition.key[..]).arg(sign * cost);
        commands.cmd("PEXPIRE").arg(&addition.key[..]).arg(millis(addition.life)).ignore();
    }
    let sums: Vec<i64> = session.send(&commands).await?;
    Ok(sums.into_iter().map(|sum| u64::try_from(sum).unwrap_or(0)).collect())
}

impl Sum {
    fn new((addition, count): (&Addition, u64)) -> Self {
        Self { count, is_above_limit: count > addition.limit }
    }
}

/// Parses a count that INCRBY has written. A subtraction possibly leaves a negative count, which is
/// returned as 0.
fn parse(count: &[u8]) -> Option<u64> {
    let count: i64 = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some(u64::try_from(count).unwrap_or(0))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
