//! Tests limit sets that are only partly in memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test that fails panics, as the test does"
)]

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Answer, Call, CallId, Charge, CurrentLimits, Error, ErrorKind, LimitSet, Limiter, ManualClock,
    Operation, OverrideSource, Policy, Store, StoreExt,
};
use tidegate_memory::MemoryStore;

const HOUR: Duration = Duration::from_secs(3600);

/// Keeps the overrides of one version, and records the keys of each read.
#[derive(Default)]
struct Source {
    lines: BTreeMap<String, String>,
    reads: Mutex<Vec<Vec<String>>>,
    is_away: AtomicBool,
    /// A function that is called while overrides are read.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl OverrideSource for Source {
    fn read<'a>(&'a self, keys: &'a [String]) -> Answer<'a, Result<Vec<String>, Error>> {
        self.reads.lock().unwrap().push(keys.to_vec());
        let lines = keys.iter().filter_map(|key| self.lines.get(key).cloned()).collect();
        Answer::later(async move {
            tokio::task::yield_now().await;
            let meanwhile = self.meanwhile.lock().unwrap().take();
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
            match self.is_away.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Unavailable, "away")),
                false => Ok(lines),
            }
        })
    }
}

impl Source {
    fn new(text: &str) -> Arc<Self> {
        let lines = text.parse::<LimitSet>().unwrap().lines();
        Arc::new(Self { lines, ..Self::default() })
    }

    fn reads(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.reads.lock().unwrap())
    }
}

/// Returns a set with at most `max` overrides in memory.
fn partial(text: &str, max: usize) -> LimitSet {
    let mut set = LimitSet::new().with_max_loaded(NonZeroUsize::new(max).unwrap());
    text.lines().for_each(|line| drop(set.set_line(line).unwrap()));
    set
}

fn policy() -> Policy {
    "p: fixed-window 1/1h".parse().unwrap()
}

async fn limit(store: &impl Store, tenant: &str, subject: &str) -> u64 {
    let policy = policy();
    let charges = [Charge::new(&policy, subject).tenant(tenant)];
    store.decide(Call::new(Operation::Peek, &charges)).await.unwrap().verdicts()[0].limit()
}

const TEXT: &str = "p: fixed-window 2/1h\n\
    p: fixed-window 3/1h for subject a\n\
    p: fixed-window 4/1h for subject b\n\
    p: fixed-window 5/1h for tenant t\n\
    p: fixed-window 6/1h for tenant t subject a\n\
    p: fixed-window 7/1h for tenant u subject a";

#[tokio::test]
async fn a_call_loads_the_overrides_that_it_needs_once() {
    let (limits, source) = (CurrentLimits::default(), Source::new(TEXT));
    limits.replace_partly(partial(TEXT, 1), source.clone());
    let set = limits.set();
    assert_eq!((set.policies().count(), set.overrides(), set.lines().len()), (1, 5, 2));
    assert!(limits.is_partial());
    let store = MemoryStore::new().adjusted(limits.clone());
    assert!(!store.answers_immediately());
    // The first override is in memory, and the store knows that others do not exist.
    for (tenant, subject, expected) in [("", "a", 3), ("", "c", 2), ("v", "a", 2)] {
        assert_eq!(limit(&store, tenant, subject).await, expected);
    }
    assert_eq!(source.reads(), Vec::<Vec<String>>::new());
    assert_eq!(limit(&store, "", "b").await, 4);
    assert_eq!(source.reads(), [["p for subject b"]]);
    // It replaces the first override in memory.
    assert_eq!(limit(&store, "", "b").await, 4);
    assert_eq!(source.reads(), Vec::<Vec<String>>::new());
    assert_eq!(limit(&store, "", "a").await, 3);
    assert_eq!(source.reads(), [["p for subject a"]]);
    assert_eq!((limits.set().overrides(), limits.set().lines().len()), (5, 2));
}

#[tokio::test]
async fn a_batch_loads_its_overrides_together() {
    let (limits, source) = (CurrentLimits::default(), Source::new(TEXT));
    limits.replace_partly(partial(TEXT, 9), source.clone());
    assert!(!limits.is_partial());
    assert!(MemoryStore::new().adjusted(limits.clone()).answers_immediately());
    // An override of another policy fills the memory of this policy only.
    let text =
        TEXT.replace("p: fixed-window 2/1h", "p: fixed-window 2/1h\np: gcra 1/s for subject z");
    limits.replace_partly(partial(&text, 1), source.clone());
    let store = MemoryStore::new().adjusted(limits);
    let policy = policy();
    let charges = [("", "a"), ("", "c"), ("t", "a"), ("t", "b"), ("", "a")]
        .map(|(tenant, subject)| [Charge::new(&policy, subject).tenant(tenant)]);
    let calls = charges.each_ref().map(|charges| Call::new(Operation::Peek, charges));
    let found = store.decide_many(&calls).await;
    let found: Vec<_> = found.into_iter().map(|d| d.unwrap().verdicts()[0].limit()).collect();
    // All are applied, although at most one stays in memory.
    assert_eq!(source.reads(), [["p for subject a", "p for tenant t", "p for tenant t subject a"]]);
    assert_eq!(found, [3, 2, 6, 5, 3]);
}

#[tokio::test]
async fn a_version_that_is_replaced_during_a_load_decides_nothing() {
    let (limits, source) = (CurrentLimits::default(), Source::new(TEXT));
    limits.replace_partly(partial(TEXT, 1), source.clone());
    let text = TEXT.replace("4/1h", "40/1h");
    let next = Source::new(&text);
    let (current, version) = (limits.clone(), (partial(&text, 1), next.clone()));
    let replace = move || current.replace_partly(version.0, version.1);
    *source.meanwhile.lock().unwrap() = Some(Box::new(replace));
    let store = MemoryStore::new().adjusted(limits);
    assert_eq!(limit(&store, "", "b").await, 40);
    assert_eq!((source.reads().len(), next.reads().len()), (1, 1));
}

#[tokio::test]
async fn a_call_keeps_its_overrides_while_others_are_loaded() {
    let (limits, source) = (CurrentLimits::default(), Source::new(TEXT));
    limits.replace_partly(partial(TEXT, 1), source.clone());
    let store = MemoryStore::new().adjusted(limits.clone());
    // While this call loads an override, another call removes the first override from memory.
    let current = limits.clone();
    *source.meanwhile.lock().unwrap() = Some(Box::new(move || {
        let needed = [("p", &b"t"[..], &b"a"[..])];
        let loaded = current.load(&needed);
        let mut loaded = std::pin::pin!(loaded);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        while loaded.as_mut().poll(&mut context).is_pending() {}
        assert!(!current.set().lines().contains_key("p for subject a"));
    }));
    let policy = policy();
    let charges = ["a", "b"].map(|subject| Charge::new(&policy, subject));
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    assert_eq!(peek.verdicts().iter().map(|verdict| verdict.limit()).collect::<Vec<_>>(), [3, 4]);
    // The set in force has one override in memory again.
    assert_eq!((limits.set().overrides(), limits.set().lines().len()), (5, 2));
}

#[tokio::test]
async fn a_source_that_fails_delays_one_call_per_second() {
    let (clock, source) = (ManualClock::default(), Source::new(TEXT));
    let limits = CurrentLimits::with_clock(LimitSet::new(), clock.clone());
    limits.replace_partly(partial(TEXT, 1), source.clone());
    let store = MemoryStore::new().adjusted(limits);
    source.is_away.store(true, Ordering::Relaxed);
    for (subject, reads) in [("b", 1), ("b", 0), ("a", 0)] {
        assert_eq!(limit(&store, "", subject).await, if subject == "a" { 3 } else { 2 });
        assert_eq!(source.reads().len(), reads);
    }
    clock.advance(Duration::from_secs(1));
    let all = tokio::join!(limit(&store, "", "b"), limit(&store, "t", "b"), limit(&store, "", "b"));
    assert_eq!((all, source.reads().len()), ((2, 2, 2), 1));
    source.is_away.store(false, Ordering::Relaxed);
    assert_eq!((limit(&store, "", "b").await, source.reads().len()), (2, 0));
    clock.advance(Duration::from_secs(1));
    assert_eq!((limit(&store, "", "b").await, source.reads().len()), (4, 1));
    assert_eq!((limit(&store, "t", "b").await, source.reads().len()), (5, 1));
}

#[tokio::test]
async fn an_override_that_the_source_has_lost_is_not_applied() {
    let limits = CurrentLimits::default();
    let mut source =
        Source { lines: TEXT.parse::<LimitSet>().unwrap().lines(), ..Source::default() };
    source.lines.insert("p for subject b".to_owned(), "nonsense".to_owned());
    source.lines.remove("p for tenant t");
    let source = Arc::new(source);
    limits.replace_partly(partial(TEXT, 1), source.clone());
    let store = MemoryStore::new().adjusted(limits);
    assert_eq!((limit(&store, "", "b").await, limit(&store, "t", "b").await), (2, 2));
    assert_eq!(source.reads().len(), 2);
    assert_eq!(limit(&store, "t", "a").await, 6);
}

#[tokio::test]
async fn the_maximum_hold_of_an_override_is_loaded_before_the_hold() {
    let text = "p: fixed-window 9/1h for subject a\n\
        p: fixed-window 100/1h max-hold 1/10 for subject b\n\
        p: fixed-window 100/1h max-hold 1/10 for subject c";
    let (limits, source) = (CurrentLimits::default(), Source::new(text));
    limits.replace_partly(partial(text, 1), source.clone());
    let store = MemoryStore::new().adjusted(limits);
    let limiter = Limiter::new(store, ["p: fixed-window 100/1h".parse().unwrap()]).unwrap();
    let refused = limiter.subject("b").cost(11).hold("one", HOUR).await.unwrap();
    assert!(refused.ticket().is_none());
    let up_to = limiter.subject("c").cost(50).hold_up_to(1, "two", HOUR).await.unwrap();
    assert_eq!(up_to.into_ticket().unwrap().held().collect::<Vec<_>>(), [("p", 10)]);
}

/// Another process has made the hold, so this process has never loaded the override.
#[tokio::test]
async fn a_settlement_finds_a_hold_of_an_override_that_has_changed() {
    let (text, after) = (TEXT, TEXT.replace("4/1h", "40/1h"));
    let limits = CurrentLimits::default();
    limits.replace_partly(partial(text, 1), Source::new(text));
    let memory = Arc::new(MemoryStore::new());
    let other = Arc::clone(&memory).adjusted(CurrentLimits::new(text.parse().unwrap()));
    let (policy, id) = (policy(), CallId::new(b"job", HOUR));
    let charges = [Charge::new(&policy, "b").cost(3)];
    let call = |operation| Call::new(operation, &charges).with_id(id);
    assert!(other.decide(call(Operation::Hold)).await.unwrap().is_allowed());

    limits.add_loaded(&["p: fixed-window 4/1h for subject b".to_owned()]);
    limits.replace_partly(partial(&after, 1), Source::new(&after));
    let store = memory.adjusted(limits);
    let charges = [Charge::new(&policy, "b").cost(1)];
    let settle = Call::new(Operation::Settle, &charges).with_id(id);
    drop(store.decide(settle).await.unwrap());
    let peek = store.decide(Call::new(Operation::Peek, &charges)).await.unwrap();
    assert_eq!((peek.verdicts()[0].limit(), peek.verdicts()[0].remaining()), (40, 39));
}

#[derive(Debug, Clone)]
enum Step {
    Set(&'static str, u64),
    Remove(&'static str),
    Load(&'static str, &'static str),
}

fn step() -> impl Strategy<Value = Step> {
    let target = prop::sample::select(vec![
        "subject a",
        "subject b",
        "subject c",
        "tenant t",
        "tenant t subject a",
        "tenant t subject b",
        "tenant u",
        "tenant u subject a",
    ]);
    let (tenant, subject) =
        (prop::sample::select(vec!["", "t", "u"]), prop::sample::select(vec!["a", "b", "c"]));
    prop_oneof![
        3 => (target.clone(), 1_u64..9).prop_map(|(target, limit)| Step::Set(target, limit)),
        1 => target.prop_map(Step::Remove),
        3 => (tenant, subject).prop_map(|(tenant, subject)| Step::Load(tenant, subject)),
    ]
}

proptest! {
    #[test]
    fn a_partial_set_decides_as_the_whole_set(
        max in 1_usize..4,
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (limits, mut whole) = (CurrentLimits::default(), LimitSet::new());
        let store = MemoryStore::new().adjusted(limits.clone());
        limits.replace(partial("", max));
        for step in steps {
            let mut set = LimitSet::clone(&limits.set());
            match step {
                Step::Set(target, limit) => {
                    let line = format!("p: fixed-window {limit}/1h for {target}");
                    set.set_line(&line).unwrap();
                    whole.set_line(&line).unwrap();
                }
                Step::Remove(target) => {
                    let line = format!("p: fixed-window 1/1h for {target}");
                    prop_assert_eq!(
                        set.remove_line(&line).unwrap(),
                        whole.remove_line(&line).unwrap()
                    );
                }
                Step::Load(tenant, subject) => {
                    let found = runtime.block_on(limit(&store, tenant, subject));
                    let now = limits.now();
                    let expected = whole.find("p", tenant.as_bytes(), subject.as_bytes(), now);
                    prop_assert_eq!(found, expected.map_or(1, |policy| policy.limit()));
                    set = LimitSet::clone(&limits.set());
                }
            }
            prop_assert_eq!(set.overrides(), whole.overrides());
            let (loaded, all) = (set.lines(), whole.lines());
            // A call needs at most two overrides.
            prop_assert!(loaded.len() <= max.max(2));
            prop_assert!(loaded.iter().all(|(key, line)| all.get(key) == Some(line)));
            limits.replace_partly(set, Arc::new(Source { lines: all, ..Source::default() }));
        }
    }
}
