//! The data that all clones of a cluster store share: the slot map, the connections and the
//! settings.

use std::sync::Arc;

use smallvec::smallvec;
use tidegate_core::{Call, Clock, Error, ErrorKind, Timestamp};
use tidegate_redis::connection::{ScriptTimes, check_runtime, first_success};
use tidegate_redis::protocol::{Keys, Plan};

use crate::dispatch::request::SlotDecision;
use crate::dispatch::wait_replicas::Replicas;
use crate::routing::node::Node;
use crate::routing::refresh::TopologyRefresh;
use crate::routing::slot_map::SlotMap;

pub(crate) struct Inner {
    pub(crate) keys: Keys,
    pub(crate) slot_map: Arc<SlotMap>,
    pub(crate) topology: Arc<TopologyRefresh>,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) script_times: ScriptTimes,
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl Inner {
    pub(crate) async fn decide_in_slot(&self, call: Call<'_>) -> Result<SlotDecision, Error> {
        let completed = self.dispatch([Plan::for_all(&self.keys, &[call])]).await;
        completed.into_iter().next().map_or_else(|| Err(no_answer()), |(_, decided)| decided)
    }

    /// Decides several calls. All keys of each call must be in one slot, and different calls can be
    /// in different slots. The calls of one slot are sent in the order of `calls`.
    pub(crate) async fn decide_in_slots(
        &self,
        calls: &[Call<'_>],
    ) -> Vec<Result<SlotDecision, Error>> {
        let plan = |place| Plan::new(&self.keys, calls, smallvec![place]);
        self.dispatch_each(calls.len(), plan).await
    }

    /// Returns the decisions that calls would get, and writes nothing.
    pub(crate) async fn peek_in_slots(
        &self,
        calls: &[Call<'_>],
    ) -> Vec<Result<SlotDecision, Error>> {
        self.dispatch_each(calls.len(), |place| Plan::peek(&self.keys, calls, place)).await
    }

    async fn dispatch_each<'c, 'a: 'c>(
        &self,
        calls: usize,
        plan: impl Fn(usize) -> Plan<'c, 'a>,
    ) -> Vec<Result<SlotDecision, Error>> {
        let mut answers: Vec<_> = (0..calls).map(|_| None).collect();
        for (place, decided) in self.dispatch((0..calls).map(plan)).await {
            answers[place] = Some(decided);
        }
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(no_answer()))).collect()
    }

    /// Returns the time of the test clock, or `None` if a test has not set a clock. Scripts use
    /// this time instead of the clock of their node.
    pub(crate) fn time(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Returns the current time of the test clock. If a test has not set a clock, returns the
    /// current time of the clock of any node.
    pub(crate) async fn now(&self) -> Result<Timestamp, Error> {
        check_runtime()?;
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let query = |node: Arc<Node>| async move { node.connections.next().time().await };
        let time = first_success(self.slot_map.nodes().into_iter().map(query)).await;
        time.unwrap_or_else(|| Err(no_answer()))
    }
}

pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "no node replied to the call")
}
