//! Who is measured.

use std::sync::Arc;

use tidegate_redis::Policy;

use super::contender::{Answers, Contender, Form, Id, Name};
use super::load::Server;
use super::past::Past;
use super::peer::Peer;
use super::{BATCH, Options, Outcome};

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

/// Of a log that is being called on, about one record leaves for each that comes: at 50,000 calls a
/// second one call comes every 20 µs.
const BETWEEN_CALLS: u64 = 20;

/// Puts contenders together.
struct Field<'s> {
    server: &'s Server,
    subjects: usize,
    calls: usize,
    contenders: Vec<Arc<Contender>>,
}

/// Those that decide one thing in each call, ours next to the others that they are compared with.
///
/// Where calls are allowed, limits are out of reach; where they are denied, the first call of each
/// subject has used up all there is for a day.
pub(crate) fn singles(server: &Server, options: &Options) -> Outcome<Vec<Arc<Contender>>> {
    let mut field = Field::new(server, options)?;
    field.peer(Name::Incr, Answers::Allowed, Peer::incr(), Past::Nothing)?;
    field.peer(Name::ReturnOne, Answers::Allowed, Peer::return_one(), Past::Nothing)?;
    for answers in [Answers::Allowed, Answers::Denied] {
        field.counters(answers)?;
        field.buckets(answers)?;
        field.logs(answers, 100, (Name::Log100, Name::SortedSet100))?;
    }
    // Fewer subjects: their states are large.
    field.subjects = options.subjects.div_ceil(50);
    for answers in [Answers::Allowed, Answers::Denied] {
        field.logs(answers, 10_000, (Name::Log10000, Name::SortedSet10000))?;
    }
    Ok(field.contenders)
}

/// Ours, many decisions in each call.
pub(crate) fn batches(server: &Server, options: &Options) -> Outcome<Vec<Arc<Contender>>> {
    let mut field = Field::new(server, options)?;
    for answers in [Answers::Allowed, Answers::Denied] {
        for (name, rule) in [
            (Name::FixedWindow, fixed_window(answers)),
            (Name::SlidingCounter, sliding_counter(answers)),
            (Name::TokenBucket, token_bucket(answers)),
        ] {
            field.batch(name, answers, rule)?;
        }
    }
    Ok(field.contenders)
}

fn fixed_window(answers: Answers) -> &'static str {
    match answers {
        Answers::Allowed => "fixed-window 1000000/24h",
        Answers::Denied => "fixed-window 1/24h",
    }
}

fn sliding_counter(answers: Answers) -> &'static str {
    match answers {
        Answers::Allowed => "sliding-counter 1000000/24h",
        Answers::Denied => "sliding-counter 1/24h",
    }
}

fn token_bucket(answers: Answers) -> &'static str {
    match answers {
        Answers::Allowed => "token-bucket 100/1m burst 10000",
        Answers::Denied => "token-bucket 1/24h burst 1",
    }
}

impl<'s> Field<'s> {
    fn new(server: &'s Server, options: &Options) -> Outcome<Self> {
        let Options { subjects, calls, .. } = *options;
        if calls > subjects * 90 {
            let most = subjects * 90;
            return Err(format!("{calls} calls: at most {most} keep within a log of 100").into());
        }
        Ok(Self { server, subjects, calls, contenders: vec![] })
    }

    fn counters(&mut self, answers: Answers) -> Outcome<()> {
        self.ours(Name::FixedWindow, answers, fixed_window(answers), Past::Nothing)?;
        let (limit, past) = match answers {
            Answers::Allowed => ("1000000", Past::Before { window: DAY, cost: 1_000 }),
            Answers::Denied => ("1", Past::Nothing),
        };
        self.ours(Name::SlidingCounter, answers, sliding_counter(answers), past)?;
        let peer = Peer::hash_sliding_counter(limit, "86400");
        self.peer(Name::HashSlidingCounter, answers, peer, past)
    }

    fn buckets(&mut self, answers: Answers) -> Outcome<()> {
        let rule = token_bucket(answers);
        let by_interval = format!("{rule} by-interval");
        self.ours(Name::IntervalBucket, answers, &by_interval, Past::Nothing)?;
        let (hash, gcra) = match answers {
            Answers::Allowed => (
                Peer::hash_token_bucket("10000", "1.6666666666666667"),
                Peer::gcra("10000", "100", "60"),
            ),
            Answers::Denied => (
                Peer::hash_token_bucket("1", "0.000011574074074074073"),
                Peer::gcra("1", "1", "86400"),
            ),
        };
        self.peer(Name::HashTokenBucket, answers, hash, Past::Nothing)?;
        self.ours(Name::TokenBucket, answers, rule, Past::Nothing)?;
        self.peer(Name::Gcra, answers, gcra, Past::Nothing)
    }

    fn logs(&mut self, answers: Answers, limit: usize, (log, set): (Name, Name)) -> Outcome<()> {
        let apart = BETWEEN_CALLS * u64::try_from(self.subjects)?;
        let (count, first_leaves_in) = match answers {
            // With room for all that will come, and that which warms up.
            Answers::Allowed => (limit - 1 - self.calls.div_ceil(self.subjects), apart),
            Answers::Denied => (limit, HOUR / 6),
        };
        let past =
            Past::Requests { window: HOUR, count: u64::try_from(count)?, first_leaves_in, apart };
        self.ours(log, answers, &format!("sliding-log {limit}/1h"), past)?;
        let peer = Peer::sorted_set_log(&limit.to_string(), &HOUR.to_string());
        self.peer(set, answers, peer, past)
    }

    fn ours(&mut self, name: Name, answers: Answers, rule: &str, past: Past) -> Outcome<()> {
        let form = Form::Store(self.server.store.clone());
        self.add(Id { name, answers, is_batch: false }, form, rule, past)
    }

    fn batch(&mut self, name: Name, answers: Answers, rule: &str) -> Outcome<()> {
        let form = Form::Batch(self.server.store.clone(), BATCH);
        self.add(Id { name, answers, is_batch: true }, form, rule, Past::Nothing)
    }

    fn peer(&mut self, name: Name, answers: Answers, peer: Peer, past: Past) -> Outcome<()> {
        let form = Form::Peer(peer, self.server.connection.clone());
        // Only the name of the policy matters, for the keys.
        self.add(Id { name, answers, is_batch: false }, form, "fixed-window 1/1s", past)
    }

    fn add(&mut self, id: Id, form: Form, rule: &str, past: Past) -> Outcome<()> {
        let kind = if id.is_batch { 'b' } else { 's' };
        let policy: Policy = format!("{kind}{:02}: {rule}", self.contenders.len()).parse()?;
        let subjects = self.subjects;
        self.contenders.push(Arc::new(Contender { id, form, policy, subjects, past }));
        Ok(())
    }
}
