//! Fixed windows by plain commands in MULTI and EXEC, for where scripts are not to be had.
//!
//! Each window has a key of its own, which counts in decimal digits. A call looks first, and adds
//! only if all charges fit; what was added counts only if the sum that comes back is within the
//! limit, else it is taken off again. So the sum is never less than what was admitted, and never
//! more than the limit is.

use std::time::Duration;

use redis::{Pipeline, RedisResult, pipe};
use tidegate_core::algorithm::fixed_window::{FixedWindow, Start, State};
use tidegate_core::policy::{Rule, Shape};
use tidegate_core::{
    Call, Charge, Decision, Error, ErrorKind, Operation, Outcome, Policy, Verdict, Wait,
};

use crate::net::{Link, Live, error};
use crate::redis_store::Inner;
use crate::wire::Asked;

/// Who was slow may still add to a window that has ended: its count is kept so much longer.
const GRACE: Duration = Duration::from_secs(10);

/// Real time must not end what virtual time does not.
const GRACE_IN_TESTS: Duration = Duration::from_secs(3600);

pub(crate) fn supports(policy: &Policy) -> Result<(), Error> {
    let is_plain =
        matches!(policy.rule().shape(), Shape::FixedWindow(Start::Aligned | Start::Phased, _));
    if is_plain && policy.blocks_for().is_none() {
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

pub(crate) async fn decide(store: &Inner, call: &Call<'_>) -> Result<Decision, Error> {
    let asked = Asked::new(call)?;
    if !matches!(asked.operation, Operation::Acquire | Operation::Peek | Operation::Reset) {
        return Err(unsupported(format!("{:?} needs scripts", asked.operation)));
    }
    let now = store.now().await?.as_micros();
    let windows = asked.charges.iter().map(|(charge, cost)| Window::of(store, charge, *cost, now));
    let windows = windows.collect::<Result<Vec<_>, _>>()?;
    let link = store.link();
    let grace = if store.clock.is_some() { GRACE_IN_TESTS } else { GRACE };
    let mut session = Session { link, live: link.connection().await?, windows, now, grace };
    let verdicts = match asked.operation {
        Operation::Acquire => session.acquire().await,
        Operation::Reset => session.reset().await,
        _ => session.look().await,
    };
    let verdicts = verdicts.map_err(error::of_call)??;
    Ok(asked.answer(&verdicts))
}

/// The window that a charge is made to.
struct Window<'a> {
    charge: Charge<'a>,
    rule: FixedWindow,
    cost: u64,
    key: Vec<u8>,
    ends: u64,
    count: u64,
    outcome: Outcome,
}

impl<'a> Window<'a> {
    fn of(store: &Inner, charge: &Charge<'a>, cost: u64, now: u64) -> Result<Self, Error> {
        supports(charge.policy)?;
        let (Rule::FixedWindow(rule), Shape::FixedWindow(start, window)) =
            (charge.policy.rule(), charge.policy.rule().shape())
        else {
            return Err(unsupported(format!("`{}` needs scripts", charge.policy)));
        };
        let phase = if start == Start::Phased { charge.phase() } else { 0 };
        let State { ends, .. } = rule.take(None, 0, now, phase);
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
        (self.count > 0).then_some(State { ends: self.ends, count: self.count })
    }

    fn weigh(&mut self, now: u64) {
        let admits = self.rule.wait(self.state(), self.cost, now).is_now();
        self.outcome = if admits { Outcome::Allowed } else { Outcome::Denied };
    }

    fn verdict(&self, now: u64) -> Verdict {
        let wait = self.rule.wait(self.state(), self.cost, now);
        let level = self.rule.level(self.state(), now);
        let retry = if self.outcome == Outcome::Allowed { Wait::NOW } else { wait };
        let reset = level.recovers_at.saturating_sub(now);
        let limit = self.charge.policy.limit();
        Verdict::new(self.outcome, limit, level.remaining, retry, reset)
            .in_shadow(self.charge.policy.is_shadow())
    }
}

/// One call on one connection.
struct Session<'s, 'a> {
    link: &'s Link,
    live: Live,
    windows: Vec<Window<'a>>,
    now: u64,
    grace: Duration,
}

/// The verdicts, or what lies under a key and is no count; or Redis failed.
type Answer = RedisResult<Result<Vec<Verdict>, Error>>;

impl Session<'_, '_> {
    async fn acquire(&mut self) -> Answer {
        if let Err(error) = self.read().await? {
            return Ok(Err(error));
        }
        if self.windows.iter().any(Window::refuses) {
            return Ok(Ok(self.verdicts()));
        }
        let places = self.places(|window| window.takes());
        if !places.is_empty() {
            self.add(&places, 1).await?;
            // Others may have added since this call looked.
            for &place in &places {
                let window = &mut self.windows[place];
                if window.count > window.rule_limit() {
                    window.outcome = Outcome::Denied;
                }
            }
            let all_go = self.windows.iter().any(Window::refuses);
            let undone = self
                .places(|window| window.cost > 0 && (all_go || window.outcome != Outcome::Allowed));
            let undone: Vec<_> =
                undone.into_iter().filter(|place| places.contains(place)).collect();
            if !undone.is_empty() {
                self.add(&undone, -1).await?;
            }
        }
        Ok(Ok(self.verdicts()))
    }

    async fn look(&mut self) -> Answer {
        Ok(self.read().await?.map(|()| self.verdicts()))
    }

    async fn reset(&mut self) -> Answer {
        // What is no count of ours is not deleted either.
        if let Err(error) = self.read().await? {
            return Ok(Err(error));
        }
        let mut commands = pipe();
        commands.atomic();
        for window in &mut self.windows {
            commands.cmd("DEL").arg(&window.key[..]).ignore();
            (window.count, window.cost) = (0, 0);
            window.weigh(self.now);
        }
        self.link.send_all::<()>(&mut self.live, &commands).await?;
        Ok(Ok(self.verdicts()))
    }

    /// Reads all counts, and weighs the charges.
    async fn read(&mut self) -> RedisResult<Result<(), Error>> {
        let mut commands = pipe();
        for window in &self.windows {
            commands.cmd("GET").arg(&window.key[..]);
        }
        let counts: Vec<Option<Vec<u8>>> = self.send(&commands).await?;
        for (window, count) in self.windows.iter_mut().zip(counts) {
            let count = count.as_deref().map_or(Some(0), parse);
            match count {
                Some(count) => window.count = count,
                None => {
                    return Ok(Err(Error::new(
                        ErrorKind::ForeignValue,
                        format!(
                            "under the key of `{}` for this subject lies something that is no \
                             count; it was left as it is",
                            window.charge.policy.name()
                        ),
                    )));
                }
            }
            window.weigh(self.now);
        }
        Ok(Ok(()))
    }

    /// Adds the costs at these places, or takes them off, and notes the sums.
    async fn add(&mut self, places: &[usize], sign: i64) -> RedisResult<()> {
        let mut commands = pipe();
        commands.atomic();
        for window in places.iter().map(|&place| &self.windows[place]) {
            // What is admitted is at most the limit, and so at most 2^52.
            let cost = i64::try_from(window.cost).unwrap_or(i64::MAX);
            commands.cmd("INCRBY").arg(&window.key[..]).arg(sign * cost);
            let life = Duration::from_micros(window.ends - self.now) + self.grace;
            commands.cmd("PEXPIRE").arg(&window.key[..]).arg(millis(life)).ignore();
        }
        let sums: Vec<i64> = self.send(&commands).await?;
        for (&place, sum) in places.iter().zip(sums) {
            self.windows[place].count = u64::try_from(sum).unwrap_or(0);
        }
        Ok(())
    }

    async fn send<T: redis::FromRedisValue>(&mut self, commands: &Pipeline) -> RedisResult<T> {
        self.link.send_all(&mut self.live, commands).await
    }

    fn places(&self, which: impl Fn(&Window<'_>) -> bool) -> Vec<usize> {
        (0..self.windows.len()).filter(|&place| which(&self.windows[place])).collect()
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.windows.iter().map(|window| window.verdict(self.now)).collect()
    }
}

impl Window<'_> {
    fn rule_limit(&self) -> u64 {
        self.charge.policy.limit()
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
