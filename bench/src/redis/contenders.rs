//! Builds the contenders: the algorithms of Tidegate, and the commands and scripts of other
//! projects.

use std::sync::Arc;

use tidegate_redis::{Policy, StoreExt};

use super::contender::{Answers, Contender, Form, Id, Name, Way};
use super::peer::Peer;
use super::warmup::Warmup;
use super::{BATCH, Options};
use crate::Outcome;
use crate::harness::Server;

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

/// The time between two calls at 50,000 calls per second, in microseconds. The requests of a warmup
/// have the same intervals, so that about one record of a full log expires for each new record.
const BETWEEN_CALLS: u64 = 20;

struct Contenders<'s> {
    server: &'s Server,
    subjects: usize,
    calls: usize,
    all: Vec<Arc<Contender>>,
}

/// Returns the contenders with one decision in each call.
///
/// If calls are allowed, no limit is reached. If calls are denied, the first call of each subject
/// uses the whole limit of a day.
pub(crate) fn singles(server: &Server, options: &Options) -> Outcome<Vec<Arc<Contender>>> {
    let mut contenders = Contenders::new(server, options)?;
    contenders.peer(Name::Incr, Answers::Allowed, Peer::incr(), Warmup::Nothing)?;
    contenders.peer(Name::ReturnOne, Answers::Allowed, Peer::return_one(), Warmup::Nothing)?;
    contenders.peer(Name::Floor, Answers::Allowed, Peer::floor(), Warmup::Nothing)?;
    for answers in [Answers::Allowed, Answers::Denied] {
        for (name, more) in [(Name::Quota, ""), (Name::RollingQuota, " rollover 1/2")] {
            let rule = format!("{}{more}", quota(answers));
            contenders.ours(name, answers, &rule, Warmup::Nothing)?;
        }
        contenders.counters(answers)?;
        contenders.buckets(answers)?;
        contenders.logs(answers, 100, (Name::Log100, Name::SortedSet100))?;
    }
    // The large logs have fewer subjects, because their states are large.
    contenders.subjects = options.subjects.div_ceil(50);
    for answers in [Answers::Allowed, Answers::Denied] {
        contenders.logs(answers, 10_000, (Name::Log10000, Name::SortedSet10000))?;
    }
    Ok(contenders.all)
}

/// Returns the contenders with many decisions in each call.
pub(crate) fn batches(server: &Server, options: &Options) -> Outcome<Vec<Arc<Contender>>> {
    let mut contenders = Contenders::new(server, options)?;
    for answers in [Answers::Allowed, Answers::Denied] {
        for (name, rule) in [
            (Name::FixedWindow, fixed_window(answers)),
            (Name::SlidingCounter, sliding_counter(answers)),
            (Name::TokenBucket, token_bucket(answers)),
        ] {
            contenders.batch(name, answers, rule)?;
            contenders.general_batch(name, answers, rule)?;
        }
    }
    Ok(contenders.all)
}

fn fixed_window(answers: Answers) -> &'static str {
    match answers {
        Answers::Allowed => "fixed-window 1000000/24h",
        Answers::Denied => "fixed-window 1/24h",
    }
}

fn quota(answers: Answers) -> &'static str {
    match answers {
        Answers::Allowed => "quota 1000000/month in UTC",
        Answers::Denied => "quota 1/month in UTC",
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

impl<'s> Contenders<'s> {
    fn new(server: &'s Server, options: &Options) -> Outcome<Self> {
        let Options { subjects, calls, .. } = *options;
        if calls > subjects * 90 {
            let max = subjects * 90;
            return Err(format!("{calls} calls: at most {max} keep within a log of 100").into());
        }
        Ok(Self { server, subjects, calls, all: vec![] })
    }

    fn counters(&mut self, answers: Answers) -> Outcome<()> {
        self.ours(Name::FixedWindow, answers, fixed_window(answers), Warmup::Nothing)?;
        self.coalesced(Name::FixedWindow, answers, fixed_window(answers), Warmup::Nothing)?;
        let (limit, warmup) = match answers {
            Answers::Allowed => ("1000000", Warmup::Before { window: DAY, cost: 1_000 }),
            Answers::Denied => ("1", Warmup::Nothing),
        };
        self.ours(Name::SlidingCounter, answers, sliding_counter(answers), warmup)?;
        self.coalesced(Name::SlidingCounter, answers, sliding_counter(answers), warmup)?;
        let peer = Peer::hash_sliding_counter(limit, "86400");
        self.peer(Name::HashSlidingCounter, answers, peer, warmup)
    }

    fn buckets(&mut self, answers: Answers) -> Outcome<()> {
        let rule = token_bucket(answers);
        let by_interval = format!("{rule} by-interval");
        self.ours(Name::IntervalBucket, answers, &by_interval, Warmup::Nothing)?;
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
        self.peer(Name::HashTokenBucket, answers, hash, Warmup::Nothing)?;
        self.ours(Name::TokenBucket, answers, rule, Warmup::Nothing)?;
        self.coalesced(Name::TokenBucket, answers, rule, Warmup::Nothing)?;
        self.peer(Name::Gcra, answers, gcra, Warmup::Nothing)
    }

    fn logs(&mut self, answers: Answers, limit: usize, (log, set): (Name, Name)) -> Outcome<()> {
        let apart = BETWEEN_CALLS * u64::try_from(self.subjects)?;
        let (count, first_leaves_in) = match answers {
            // The warmup leaves room in the log for all calls of the measurement.
            Answers::Allowed => (limit - 1 - self.calls.div_ceil(self.subjects), apart),
            Answers::Denied => (limit, HOUR / 6),
        };
        let warmup =
            Warmup::Requests { window: HOUR, count: u64::try_from(count)?, first_leaves_in, apart };
        self.ours(log, answers, &format!("sliding-log {limit}/1h"), warmup)?;
        let peer = Peer::sorted_set_log(&limit.to_string(), &HOUR.to_string());
        self.peer(set, answers, peer, warmup)
    }

    fn ours(&mut self, name: Name, answers: Answers, rule: &str, warmup: Warmup) -> Outcome<()> {
        let form = Form::Store(self.server.store.clone());
        self.add(Id { name, answers, way: Way::Single }, form, rule, warmup)
    }

    fn coalesced(
        &mut self,
        name: Name,
        answers: Answers,
        rule: &str,
        warmup: Warmup,
    ) -> Outcome<()> {
        let form = Form::Coalesced(self.server.store.clone().coalesced());
        self.add(Id { name, answers, way: Way::Coalesced }, form, rule, warmup)
    }

    fn general_batch(&mut self, name: Name, answers: Answers, rule: &str) -> Outcome<()> {
        let form = Form::GeneralBatch(self.server.connection.clone(), BATCH);
        self.add(Id { name, answers, way: Way::GeneralBatch }, form, rule, Warmup::Nothing)
    }

    fn batch(&mut self, name: Name, answers: Answers, rule: &str) -> Outcome<()> {
        let form = Form::Batch(self.server.store.clone(), BATCH);
        self.add(Id { name, answers, way: Way::Batch }, form, rule, Warmup::Nothing)
    }

    fn peer(&mut self, name: Name, answers: Answers, peer: Peer, warmup: Warmup) -> Outcome<()> {
        let form = Form::Peer(peer, self.server.connection.clone());
        // The script uses only the name of this policy, in its keys.
        self.add(Id { name, answers, way: Way::Single }, form, "fixed-window 1/1s", warmup)
    }

    fn add(&mut self, id: Id, form: Form, rule: &str, warmup: Warmup) -> Outcome<()> {
        let kind = if id.way.is_batch() { 'b' } else { 's' };
        let policy: Policy = format!("{kind}{:02}: {rule}", self.all.len()).parse()?;
        let subjects = self.subjects;
        self.all.push(Arc::new(Contender { id, form, policy, subjects, warmup }));
        Ok(())
    }
}
