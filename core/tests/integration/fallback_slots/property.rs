//! Random holders on several nodes, whose connections to the store fail at random times.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate_core::{
    Call, CallId, Charge, Clock, Error, ErrorKind, ManualClock, Operation, Policy, Store,
};
use tidegate_testkit::ModelStore;

use super::{LEASE, Link, MINUTE, Node, free, half, policy};
use crate::run;

#[derive(Debug, Clone, Copy)]
enum Action {
    Hold,
    /// Sends the hold with the last place that the holder got.
    HoldInTurn,
    Extend,
    Settle {
        tokens: u64,
    },
    SettleSoFar {
        tokens: u64,
    },
    Leave,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Act { holder: usize, action: Action, in_batch: bool },
    Pause(Duration),
    Link { node: usize, link: Link },
}

const NODES: usize = 2;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = prop_oneof![
        4 => Just(Action::Hold),
        2 => Just(Action::HoldInTurn),
        4 => Just(Action::Extend),
        2 => (0..9_u64).prop_map(|tokens| Action::Settle { tokens }),
        1 => (0..9_u64).prop_map(|tokens| Action::SettleSoFar { tokens }),
        1 => Just(Action::Leave),
    ];
    let act = (0..8_usize, action, any::<bool>())
        .prop_map(|(holder, action, in_batch)| Step::Act { holder, action, in_batch });
    let link = prop::sample::select(vec![Link::Up, Link::Up, Link::Down, Link::Deaf]);
    let step = prop_oneof![
        8 => act,
        2 => (1..20_000_u64).prop_map(|millis| Step::Pause(Duration::from_millis(millis))),
        2 => (0..NODES, link).prop_map(|(node, link)| Step::Link { node, link }),
    ];
    prop::collection::vec(step, 1..80)
}

/// A holder that works until the end of its lease, counted from its last admission or extension.
#[derive(Debug, Clone, Default)]
struct Holder {
    /// The number of settled holds of this holder, which is a part of the id of its hold.
    settled: usize,
    works_until: u64,
    is_on_fallback: bool,
    place: u64,
}

struct World {
    clock: ManualClock,
    main: Arc<ModelStore>,
    nodes: Vec<Node>,
    links: Vec<Link>,
    slots: Policy,
    tokens: Policy,
    holders: Vec<Holder>,
    ids: BTreeSet<(usize, String)>,
}

impl World {
    fn new(limit: u64, tokens: &str) -> Self {
        let clock = ManualClock::default();
        let main = Arc::new(ModelStore::new(clock.clone()));
        Self {
            nodes: (0..NODES).map(|_| Node::new(&main, &clock)).collect(),
            links: vec![Link::Up; NODES],
            slots: policy(&format!("slots: concurrent {limit} lease 30s")),
            tokens: policy(&format!("{tokens}: fixed-window 100000/1h")),
            holders: vec![Holder::default(); 8],
            ids: BTreeSet::new(),
            clock,
            main,
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    async fn act(
        &mut self,
        holder: usize,
        action: Action,
        in_batch: bool,
    ) -> Result<(), TestCaseError> {
        let (node, now) = (holder % NODES, self.now());
        let mut state = self.holders[holder].clone();
        let id = format!("{holder} {}", state.settled);
        self.ids.insert((node, id.clone()));
        let (operation, slots, tokens) = match action {
            Action::Hold => (Operation::Hold, weight(holder), 5),
            Action::HoldInTurn => (Operation::HoldInTurn { place: state.place }, weight(holder), 5),
            Action::Extend => (Operation::Extend, 0, 0),
            Action::Settle { tokens } => (Operation::Settle, 0, tokens),
            Action::SettleSoFar { tokens } => (Operation::SettleSoFar, 0, tokens),
            Action::Leave => (Operation::Leave { place: state.place }, 0, 0),
        };
        let charges = [
            Charge::new(&self.slots, "a").cost(slots),
            Charge::new(&self.tokens, "a").cost(tokens),
        ];
        let call = Call::new(operation, &charges);
        let call =
            if operation.is_of_hold() { call.with_id(CallId::new(&id, MINUTE)) } else { call };
        let store = &self.nodes[node].store;
        let answer = match in_batch {
            true => store.decide_many(&[call]).await.remove(0),
            false => store.decide(call).await,
        };
        let is_degraded = answer.as_ref().is_ok_and(|decision| decision.degraded().is_some());
        if let Ok(decision) = &answer {
            prop_assert_eq!(decision.verdicts().len(), 2);
            prop_assert!(self.links[node] == Link::Up || is_degraded);
        }
        match (action, &answer) {
            (Action::Hold | Action::HoldInTurn, Ok(decision)) if decision.is_allowed() => {
                let is_held = decision.degraded().is_none_or(|degraded| degraded.is_held);
                prop_assert!(is_held);
                prop_assert_eq!(decision.fences().is_empty(), is_degraded);
                state.works_until = now + micros(LEASE);
                state.is_on_fallback = is_degraded;
                state.place = 0;
            }
            (Action::Hold | Action::HoldInTurn, Ok(decision)) => {
                state.place = decision.place().map_or(0, |place| place.number);
            }
            // The store has answered a hold under the id before, so the error is for the caller.
            (Action::Hold | Action::HoldInTurn, Err(error)) => {
                prop_assert_eq!(error.kind(), ErrorKind::HoldLapsed, "{}", error);
            }
            (Action::Extend, answer) => {
                let is_reachable = state.is_on_fallback || self.links[node] == Link::Up;
                let error = answer.as_ref().err().map(Error::kind);
                if now < state.works_until {
                    // A holder must not lose its slots before its deadline.
                    let is_lost = error.is_some_and(ErrorKind::is_invalid_request);
                    prop_assert!(!is_lost && (error.is_none() || !is_reachable), "{:?}", error);
                }
                if answer.is_ok() {
                    state.works_until = now + micros(LEASE);
                    state.is_on_fallback = is_degraded;
                }
            }
            (Action::Settle { .. }, answer) => {
                if now < state.works_until && state.is_on_fallback {
                    prop_assert!(answer.is_ok(), "{:?}", answer);
                }
                state = Holder { settled: state.settled + 1, ..Holder::default() };
            }
            (Action::SettleSoFar { .. }, answer) => {
                if now < state.works_until && state.is_on_fallback {
                    prop_assert!(answer.is_ok(), "{:?}", answer);
                }
            }
            (Action::Leave, _) => state.place = 0,
        }
        self.holders[holder] = state;
        Ok(())
    }

    /// Checks that the holders that work have at most the slots of the main store, and in addition
    /// at most the share of each node.
    fn check(&self) -> Result<(), TestCaseError> {
        let working = |is_meant: &dyn Fn(usize, &Holder) -> bool| -> u64 {
            let holders = self.holders.iter().enumerate();
            let working = holders.filter(|(_, holder)| self.now() < holder.works_until);
            working.filter(|(index, of)| is_meant(*index, of)).map(|(index, _)| weight(index)).sum()
        };
        let limit = self.slots.limit();
        prop_assert!(working(&|_, holder| !holder.is_on_fallback) <= limit);
        for node in 0..NODES {
            let on_fallback = working(&|index, of| of.is_on_fallback && index % NODES == node);
            prop_assert!(on_fallback <= half().apply(limit), "{} on {}", on_fallback, node);
        }
        Ok(())
    }

    /// Settles all holds, and checks that all slots are free immediately.
    async fn end(&mut self) -> Result<(), TestCaseError> {
        for (node, id) in &self.ids {
            self.nodes[*node].set(Link::Up);
            let charges =
                [Charge::new(&self.slots, "a").cost(0), Charge::new(&self.tokens, "a").cost(0)];
            let settle = Call::new(Operation::Settle, &charges);
            // The hold possibly does not exist, or was settled at another cost.
            let _ = self.nodes[*node].store.decide(settle.with_id(CallId::new(id, MINUTE))).await;
        }
        prop_assert_eq!(free(&self.main, &self.slots).await, self.slots.limit());
        let share = self.slots.scaled_to(half()).unwrap();
        for (node, share) in self.nodes.iter().zip(share.iter().cycle()) {
            prop_assert_eq!(free(&node.spare, share).await, share.limit());
        }
        Ok(())
    }
}

/// Returns the number of slots that a holder takes.
fn weight(holder: usize) -> u64 {
    if holder == 5 { 2 } else { 1 }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Holders that stop at their deadlines never exceed the slots of the store and the shares of
    /// the nodes, no holder loses its slots before its deadline, and settlements free all slots.
    #[test]
    fn holders_never_exceed_the_slots_and_the_shares(
        limit in 1..7_u64,
        tokens in prop::sample::select(vec!["open", "tokens"]),
        steps in steps(),
    ) {
        run(async {
            let mut world = World::new(limit, tokens);
            for step in steps {
                match step {
                    Step::Act { holder, action, in_batch } => {
                        world.act(holder, action, in_batch).await?;
                    }
                    Step::Pause(pause) => world.clock.advance(pause),
                    Step::Link { node, link } => {
                        world.links[node] = link;
                        world.nodes[node].set(link);
                    }
                }
                world.check()?;
            }
            world.end().await
        })?;
    }
}
