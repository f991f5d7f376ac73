//! What a store and its clones share: the slot map, the connections, and how calls get to slots.

use std::sync::Arc;

use tidegate_core::{Call, Clock, Error, ErrorKind, Timestamp};
use tidegate_redis::connection::{ScriptTimes, check_runtime, first_success};
use tidegate_redis::wire::Keys;

use crate::dispatch::request::{Calls, SlotDecision, SlotRequest};
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
    /// Replaces the nodes' clocks, in tests.
    pub(crate) clock: Option<Arc<dyn Clock>>,
}

impl Inner {
    /// Decides on a call within one slot.
    pub(crate) async fn decide_in_slot(&self, call: Call<'_>) -> Result<SlotDecision, Error> {
        let request = self.request(Calls::from_buf([(0, call)]))?;
        let ended = self.dispatch(vec![request]).await;
        ended.into_iter().next().map_or_else(|| Err(no_answer()), |(_, decided)| decided)
    }

    /// Decides on calls that lie in one slot each. Calls of one slot keep their order.
    pub(crate) async fn decide_in_slots(
        &self,
        calls: &[Call<'_>],
    ) -> Vec<Result<SlotDecision, Error>> {
        self.send_to_slots(calls, |place, call| self.request(Calls::from_buf([(place, call)])))
            .await
    }

    /// What each of these calls would be answered. Writes nothing.
    pub(crate) async fn peek_in_slots(
        &self,
        calls: &[Call<'_>],
    ) -> Vec<Result<SlotDecision, Error>> {
        let look = |place, call| SlotRequest::look(&self.keys, self.time(), place, call);
        self.send_to_slots(calls, look).await
    }

    async fn send_to_slots<'a>(
        &self,
        calls: &[Call<'a>],
        request: impl Fn(usize, Call<'a>) -> Result<SlotRequest<'a>, Error>,
    ) -> Vec<Result<SlotDecision, Error>> {
        let mut answers: Vec<_> = calls.iter().map(|_| Err(no_answer())).collect();
        let mut sent = Vec::with_capacity(calls.len());
        for (place, call) in calls.iter().enumerate() {
            match request(place, *call) {
                Ok(request) => sent.push(request),
                Err(error) => answers[place] = Err(error),
            }
        }
        for (place, decided) in self.dispatch(sent).await {
            answers[place] = decided;
        }
        answers
    }

    /// A script call, not sent yet.
    pub(crate) fn request<'a>(&self, calls: Calls<'a>) -> Result<SlotRequest<'a>, Error> {
        SlotRequest::new(&self.keys, self.time(), calls)
    }

    /// The request for one of the calls of a request, if the states of that call may have holds.
    pub(crate) fn request_with_holds<'a>(
        &self,
        request: &SlotRequest<'a>,
        call: (usize, Call<'a>),
    ) -> Result<SlotRequest<'a>, Error> {
        request.with_holds(&self.keys, self.time(), call)
    }

    /// The time that scripts use instead of the node's clock, if set.
    fn time(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// The time by the clock of one of the nodes.
    pub(crate) async fn now(&self) -> Result<Timestamp, Error> {
        check_runtime()?;
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let ask = |node: Arc<Node>| async move { node.connections.next().time().await };
        let time = first_success(self.slot_map.nodes().into_iter().map(ask)).await;
        time.unwrap_or_else(|| Err(no_answer()))
    }
}

pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Protocol, "the call has no answer")
}
