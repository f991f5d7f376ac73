//! Fixed windows by plain commands in MULTI and EXEC, for servers without scripts.
//!
//! Each window has a key of its own, a decimal count. A call reads first, and adds only if all charges fit;
//! it is admitted only if the returned sum is within the limit, else it subtracts again. So the sum is
//! never less than what was admitted, and what was admitted never more than the limit.
//!
//! Adding and subtracting run to their end in a task of their own: a caller that is dropped between the two,
//! as by a timeout, would leave a denied cost charged.

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
use crate::wire::NormalizedCall;

/// A count lives so much longer than its window, as a slow call may still add to it.
const GRACE: Duration = Duration::from_secs(10);

/// The same in tests: real time must not expire a count that virtual time keeps.
const GRACE_IN_TESTS: Duration = Duration::from_secs(3600);

pub(crate) fn supports(policy: &Policy) -> Result<(), Error> {
    keeps_lapsed(policy)?;
    let is_plain =
        matches!(policy.rule().shape(), StateShape::FixedWindow(Start::Aligned | Start::Phased, _));
    if is_plain && policy.block_duration().is_none() {
        return Ok(());
    }
    Err(unsupported(format!(
        "`{policy}` needs scripts: without them there are only fixed windows, aligned or phased, that \
         do not block"
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
    if !matches!(normalized.operation, Operation::Acquire | Operation::Peek | Operation::Reset) {
        return Err(unsupported(format!("{:?} needs scripts", normalized.operation)));
    }
    let now = store.now().await?.as_micros();
    let windows =
        normalized.charges.iter().map(|(charge, cost)| Window::of(store, charge, *cost, now));
    let windows = windows.collect::<Result<Vec<_>, _>>()?;
    let mut windows = Windows { store, session: Session::new(store).await?, windows, now };
    match normalized.operation {
        Operation::Acquire => windows.acquire().await?,
        Operation::Reset => windows.reset().await?,
        _ => windows.read().await?,
    }
    Ok(normalized.answer(&windows.verdicts()))
}

/// The window that a charge is made to.
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
    fn of(store: &Inner, charge: &Charge<'a>, cost: u64, now: u64) -> Result<Self, Error> {
        supports(charge.policy)?;
        let Rule::FixedWindow(rule) = charge.policy.rule() else {
            return Err(unsupported(format!("`{}` needs scripts", charge.policy)));
        };
        let window = rule.window_micros();
        let State { ends, .. } = rule.take(None, 0, now, || charge.phase());
        let mut key = store.keys.of(charge);
        // An escaped subject has no `%w` in it, so no other key is like this.
        key.extend_from_slice(format!("%w{window}:{ends}").as_bytes());
        let (charge, rule, outcome) = (*charge, *rule, Outcome::Allowed);
        Ok(Self { charge, rule, cost, key, ends, count: 0, outcome })
    }

    fn is_in_force(&self) -> bool {
        !self.charge.policy.is_shadow()
    }

    fn refuses(&self) -> bool {
        self.is_in_force() && self.outcome != Outcome::Allowed
    }

    /// Whether this charge is to be taken, if all are.
    fn takes(&self) -> bool {
        self.cost > 0 && self.outcome == Outcome::Allowed
    }

    fn state(&self) -> Option<State> {
        (self.count > 0).then_some(State::new(self.ends, self.count))
    }

    fn owned(&self, store: &Inner, now: u64) -> Taking {
        let grace = if store.clock.is_some() { GRACE_IN_TESTS } else { GRACE };
        Taking {
            key: self.key.clone(),
            cost: self.cost,
            life: Duration::from_micros(self.ends - now) + grace,
            limit: self.charge.policy.limit(),
            is_in_force: self.is_in_force(),
        }
    }

    fn weigh(&mut self, now: u64) {
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
            now,
        };
        input.verdict(self.charge.policy)
    }
}

/// One connection, as long as a call needs it.
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

/// What a call looks at, and what it has found.
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
        let windows: Vec<_> = self.windows.iter_mut().filter(|window| window.takes()).collect();
        if windows.is_empty() {
            return Ok(());
        }
        let charges = windows.iter().map(|window| window.owned(store, now)).collect();
        for (window, taken) in windows.into_iter().zip(take(store, charges).await?) {
            window.count = taken.count;
            if taken.is_too_much {
                window.outcome = Outcome::Denied;
            }
        }
        Ok(())
    }

    async fn reset(&mut self) -> Result<(), Error> {
        // What is no count of ours is not deleted either.
        self.read().await?;
        let mut commands = pipe();
        commands.atomic();
        for window in &mut self.windows {
            commands.cmd("DEL").arg(&window.key[..]).ignore();
            (window.count, window.cost) = (0, 0);
            window.weigh(self.now);
        }
        self.session.send(&commands).await
    }

    /// Reads all counts, and weighs the charges.
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
                        "under the key of `{}` for this subject lies something that is no count; it \
                         was left as it is",
                        window.charge.policy.name()
                    ),
                )
            })?;
            window.weigh(self.now);
        }
        Ok(())
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.windows.iter().map(|window| window.verdict(self.now)).collect()
    }
}

/// A charge that is being taken, and that borrows nothing.
struct Taking {
    key: Vec<u8>,
    cost: u64,
    /// How long the count is to be kept.
    life: Duration,
    limit: u64,
    is_in_force: bool,
}

/// What came of it.
struct Taken {
    count: u64,
    /// Others have added since this call looked, and so it was taken off again.
    is_too_much: bool,
}

/// Adds all costs, and takes off again what does not fit, to the end, even if the caller goes away.
async fn take(store: &Arc<Inner>, charges: Vec<Taking>) -> Result<Vec<Taken>, Error> {
    let store = Arc::clone(store);
    let task = tokio::spawn(async move { take_here(&store, &charges).await });
    task.await.unwrap_or_else(|ended| {
        let message = format!("a call was not carried to its end: {ended}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}

async fn take_here(store: &Inner, charges: &[Taking]) -> Result<Vec<Taken>, Error> {
    let mut session = Session::new(store).await?;
    let all: Vec<_> = charges.iter().collect();
    let sums = add(&mut session, &all, 1).await?;
    let mut taken: Vec<_> = charges.iter().zip(sums).map(Taken::new).collect();
    let all_go =
        charges.iter().zip(&taken).any(|(charge, it)| charge.is_in_force && it.is_too_much);
    let undone = charges.iter().zip(&mut taken).filter(|(_, taken)| all_go || taken.is_too_much);
    let (undone, counts): (Vec<_>, Vec<_>) =
        undone.map(|(it, taken)| (it, &mut taken.count)).unzip();
    if !undone.is_empty() {
        let sums = add(&mut session, &undone, -1).await?;
        counts.into_iter().zip(sums).for_each(|(count, sum)| *count = sum);
    }
    Ok(taken)
}

/// Adds the costs, or takes them off, and returns the sums.
async fn add(session: &mut Session<'_>, charges: &[&Taking], sign: i64) -> Result<Vec<u64>, Error> {
    let mut commands = pipe();
    commands.atomic();
    for charge in charges {
        // What is admitted is at most the limit, and so at most 2^52.
        let cost = i64::try_from(charge.cost).unwrap_or(i64::MAX);
        commands.cmd("INCRBY").arg(&charge.key[..]).arg(sign * cost);
        commands.cmd("PEXPIRE").arg(&charge.key[..]).arg(millis(charge.life)).ignore();
    }
    let sums: Vec<i64> = session.send(&commands).await?;
    Ok(sums.into_iter().map(|sum| u64::try_from(sum).unwrap_or(0)).collect())
}

impl Taken {
    fn new((charge, count): (&Taking, u64)) -> Self {
        Self { count, is_too_much: count > charge.limit }
    }
}

/// A count, as INCRBY writes it; what was taken off again may have left less than none.
fn parse(count: &[u8]) -> Option<u64> {
    let count: i64 = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some(u64::try_from(count).unwrap_or(0))
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
