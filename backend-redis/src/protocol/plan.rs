//! The plan of a list of calls. A plan creates the requests that decide the calls, and does no I/O.
//!
//! A request decides its calls, or leaves some undecided for a later [tier](Tier) of scripts. A
//! store sends the request that [`next_request`](Plan::next_request) returns, and passes the
//! replies to [`take_replies`](Plan::take_replies), until there is no further request. The plan
//! requests the undecided calls of a request before all later calls, so that the calls on one state
//! stay in order.

use smallvec::{IntoIter, SmallVec, smallvec};
use tidegate_core::{Call, Error, ErrorKind, Operation, Timestamp};

use super::answer::ScriptReply;
use super::key::Keys;
use super::probable_time::{self, probable_time};
use super::request::{Batch, Reply, Request, Tier};

/// The indices of calls in the list of the plan.
pub type Places = SmallVec<[usize; 1]>;

/// A plan of the requests for a list of calls. For a single call, a plan allocates no list on the
/// heap.
#[derive(Debug)]
pub struct Plan<'c, 'a> {
    keys: &'c Keys,
    calls: &'c [Call<'a>],
    /// Whether the plan reports decisions without writing anything.
    is_peek: bool,
    /// The steps with the calls that are in no request yet. All calls of a step have the same tier.
    /// The plan takes the calls of the last step first.
    steps: SmallVec<[Step; 1]>,
}

/// Calls for a request of one tier.
#[derive(Debug)]
struct Step {
    places: IntoIter<[usize; 1]>,
    /// The fastest tier whose scripts possibly decide the calls.
    tier: Tier,
    /// The reply to the single call of the step, if the call repeated a hold of slots. The step
    /// then extends the hold: see [`Call::must_renew`].
    repeated: Option<Box<ScriptReply>>,
    /// The last time of the server, if the requests for these calls had the windows of another
    /// time, and the number of these requests.
    other_window: Option<(Timestamp, u8)>,
}

/// The maximum number of requests for a call that have the windows of another time. A second such
/// request is necessary only if a window ends between two requests.
const MAX_OTHER_WINDOWS: u8 = 3;

impl Step {
    fn new(places: Places, tier: Tier) -> Self {
        Self { places: places.into_iter(), tier, repeated: None, other_window: None }
    }
}

#[derive(Debug)]
pub struct PlannedRequest<'a> {
    pub request: Request<'a>,
    /// The calls of the request, in order, as indices into the list of the plan.
    pub places: Places,
    /// The answer to the call if this request, which extends the hold of the call, succeeds.
    repeated: Option<Box<ScriptReply>>,
    /// The number of earlier requests for these calls that had the windows of another time.
    other_windows: u8,
}

impl<'c, 'a> Plan<'c, 'a> {
    /// Creates a plan for the calls at `places`, in this order.
    #[must_use]
    pub fn new(keys: &'c Keys, calls: &'c [Call<'a>], places: Places) -> Self {
        let steps = SmallVec::from_buf([Step::new(places, Tier::Usual)]);
        Self { keys, calls, is_peek: false, steps }
    }

    #[must_use]
    pub fn for_all(keys: &'c Keys, calls: &'c [Call<'a>]) -> Self {
        Self::new(keys, calls, (0..calls.len()).collect())
    }

    /// Creates a plan that reports the decision on the call at `place`, and writes nothing.
    ///
    /// If the call is a reservation, the plan reports whether the store would grant the
    /// reservation. A peek of the same charges does not report this.
    #[must_use]
    pub fn peek(keys: &'c Keys, calls: &'c [Call<'a>], place: usize) -> Self {
        Self { is_peek: true, ..Self::new(keys, calls, smallvec![place]) }
    }

    /// Creates the next request. Returns `None` if every call is decided or already in a request.
    ///
    /// If `now` is set, the script uses this time instead of the server's clock. An invalid call is
    /// in no request; `decided` gets its error.
    pub fn next_request(
        &mut self,
        now: Option<Timestamp>,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) -> Option<PlannedRequest<'a>> {
        let planned = loop {
            let step = self.steps.last_mut()?;
            if step.places.as_slice().is_empty() {
                self.steps.pop();
                continue;
            }
            let (server, other_windows) = step.other_window.unzip();
            let at = server.or(now).unwrap_or_else(probable_time);
            if let Some(planned) = step.next(self.keys, self.calls, self.is_peek, at, decided) {
                let other_windows = other_windows.unwrap_or(0);
                break PlannedRequest { other_windows, ..planned };
            }
        };
        Some(match now {
            Some(now) => PlannedRequest { request: planned.request.at(now), ..planned },
            None => planned,
        })
    }

    /// Passes the decisions in the replies to `decided`, and plans the next requests for the
    /// undecided calls. If the request failed, `decided` gets the error for each call of the
    /// request.
    pub fn take_replies(
        &mut self,
        planned: PlannedRequest<'_>,
        replies: Result<Vec<Reply>, Error>,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) {
        let PlannedRequest { request, places, mut repeated, other_windows } = planned;
        let mut replies = match replies {
            Ok(replies) => replies.into_iter(),
            Err(error) => {
                let error = if places.len() > 1 { in_a_batch(&error) } else { error };
                return places.into_iter().for_each(|place| decided(place, Err(error.clone())));
            }
        };
        let next_tier = request.tier().next();
        let (mut undecided, mut in_other_window, mut server) = (Places::new(), Places::new(), None);
        for place in places {
            match (replies.next(), next_tier) {
                (Some(Reply::Decided(Ok(reply))), _)
                    if reply.is_repetition && self.calls[place].must_renew() =>
                {
                    let mut step = Step::new(smallvec![place], request.tier());
                    step.repeated = Some(Box::new(reply));
                    self.steps.push(step);
                }
                (Some(Reply::Decided(reply)), _) => {
                    decided(
                        place,
                        reply.map(|reply| repeated.take().map_or(reply, |first| *first)),
                    );
                }
                (Some(Reply::Undecided), Some(_)) => undecided.push(place),
                (Some(Reply::OtherWindow(now)), _) if other_windows < MAX_OTHER_WINDOWS => {
                    in_other_window.push(place);
                    server = Some(now);
                }
                (Some(Reply::OtherWindow(now)), _) => decided(place, Err(unstable_clock(now))),
                (Some(Reply::Undecided), None) | (None, _) => decided(place, Err(no_reply())),
            }
        }
        if let Some(server) = server {
            if !request.has_time_of_a_test() {
                probable_time::note(server);
            }
            let other_window = Some((server, other_windows + 1));
            let step = Step::new(in_other_window, request.tier());
            self.steps.push(Step { repeated: repeated.take(), other_window, ..step });
        }
        if let Some(tier) = next_tier.filter(|_| !undecided.is_empty()) {
            self.steps.push(Step::new(undecided, tier));
        }
    }

    /// Creates a separate plan for each call of a request that was not executed.
    pub fn split(&self, planned: PlannedRequest<'_>) -> impl Iterator<Item = Self> {
        let tier = planned.request.tier();
        let (keys, calls, is_peek) = (self.keys, self.calls, self.is_peek);
        planned.places.into_iter().map(move |place| {
            let places: Places = smallvec![place];
            let steps = SmallVec::from_buf([Step::new(places, tier)]);
            Self { keys, calls, is_peek, steps }
        })
    }

    pub fn calls_of<'p>(
        &self,
        planned: &'p PlannedRequest<'_>,
    ) -> impl Iterator<Item = &'c Call<'a>> + use<'c, 'p, 'a> {
        let calls = self.calls;
        planned.places.iter().map(move |&place| &calls[place])
    }

    /// Returns `true` if the plan reports decisions without writing anything.
    #[must_use]
    pub fn is_peek(&self) -> bool {
        self.is_peek
    }
}

impl Step {
    /// Creates a request for as many calls from the start of the list as fit. Returns `None` if
    /// these calls are all invalid.
    fn next<'a>(
        &mut self,
        keys: &Keys,
        calls: &[Call<'a>],
        is_peek: bool,
        at: Timestamp,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) -> Option<PlannedRequest<'a>> {
        let planned =
            |request, places| PlannedRequest { request, places, repeated: None, other_windows: 0 };
        let &[first, ref others @ ..] = self.places.as_slice() else { return None };
        if others.is_empty() || is_peek || calls[first].id.is_some() {
            self.places.next();
            let repeated = self.repeated.take();
            let mut call = calls[first];
            if repeated.is_some() {
                call.operation = Operation::Extend;
            }
            return match single(keys, &call, self.tier, is_peek, at) {
                Ok(request) => {
                    Some(PlannedRequest { repeated, ..planned(request, smallvec![first]) })
                }
                Err(error) => {
                    decided(first, Err(error));
                    None
                }
            };
        }
        if self.tier == Tier::Usual {
            let rest = self.places.as_slice().iter().map(|&place| &calls[place]);
            if let Some(request) = Request::usual_batch(keys, rest, at) {
                let places = self.places.by_ref().take(request.len()).collect();
                return Some(planned(request, places));
            }
        }
        let (request, places) = self.next_batch(keys, calls, at, decided)?;
        Some(planned(request, places))
    }

    /// Creates a request of a general script for the first calls in the list. The request ends
    /// before a call with an id, or before the first call that does not fit.
    fn next_batch<'a>(
        &mut self,
        keys: &Keys,
        calls: &[Call<'a>],
        at: Timestamp,
        decided: &mut impl FnMut(usize, Result<ScriptReply, Error>),
    ) -> Option<(Request<'a>, Places)> {
        let mut batch = Batch::new(keys, self.tier, at);
        let mut places = Places::new();
        while let Some(&place) = self.places.as_slice().first() {
            let call = &calls[place];
            if call.id.is_some() || !batch.has_room_for(call) {
                break;
            }
            self.places.next();
            match batch.add_call(call) {
                Ok(()) => places.push(place),
                Err(error) => decided(place, Err(error)),
            }
        }
        (!places.is_empty()).then(|| (batch.finish(), places))
    }
}

fn single<'a>(
    keys: &Keys,
    call: &Call<'a>,
    tier: Tier,
    is_peek: bool,
    at: Timestamp,
) -> Result<Request<'a>, Error> {
    if is_peek && matches!(call.operation, Operation::Reserve { .. }) {
        let mut batch = Batch::new(keys, tier, at);
        batch.add_reserve_peek(call)?;
        return Ok(batch.finish());
    }
    let call = if is_peek { Call::with_charges(Operation::Peek, call.charges) } else { *call };
    match tier {
        Tier::WithHolds => Request::with_holds(keys, &call, at),
        _ => Request::new(keys, &call, at),
    }
}

fn unstable_clock(now: Timestamp) -> Error {
    let message = format!(
        "the clock of the server has jumped to other windows of a quota {MAX_OTHER_WINDOWS} times \
         during the call, at last to {} µs since 1970; nothing was charged",
        now.as_micros()
    );
    Error::new(ErrorKind::Protocol, message)
}

/// Returns the error of one call of a batch that failed as a whole.
#[must_use]
pub fn in_a_batch(error: &Error) -> Error {
    error.clone().with_context("in a batch")
}

#[must_use]
pub fn no_reply() -> Error {
    Error::new(ErrorKind::Protocol, "the script did not reply to the call")
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::time::Duration;

    use proptest::prelude::*;
    use proptest::sample::Index;
    use tidegate_core::{CallId, Charge, Decision, Policy};

    use super::super::bounds::{MAX_CHARGES, MAX_KEY_BYTES};
    use super::super::bytes::put as put_number;
    use super::super::layout;
    use super::*;

    /// Returns a bucket, a window, a policy that blocks, a log, and a policy that refunds lapsed
    /// holds.
    fn policies() -> [Policy; 5] {
        [
            "a: token-bucket 2/1h",
            "b: fixed-window 2/1h",
            "c: fixed-window 2/1h block 1m",
            "d: sliding-log 2/1h",
            "e: token-bucket 2/1h refund-lapsed",
        ]
        .map(|text| text.parse().unwrap())
    }

    #[derive(Debug, Clone)]
    struct CallInput {
        /// The index of the policy of each charge.
        policies: Vec<usize>,
        subject: u8,
        operation: Operation,
        has_id: bool,
    }

    fn call_input() -> impl Strategy<Value = CallInput> {
        let policies = prop_oneof![
            12 => (0..2_usize).prop_map(|policy| vec![policy]),
            3 => (0..5_usize).prop_map(|policy| vec![policy]),
            1 => prop::collection::vec(0..5_usize, 0..4),
            // This call has more charges than are allowed.
            1 => Just(vec![0; 65]),
        ];
        let operation = prop_oneof![
            12 => Just(Operation::Acquire),
            1 => Just(Operation::Peek),
            1 => Just(Operation::Refund),
            1 => Just(Operation::Reserve { max_wait: Duration::from_secs(1) }),
        ];
        (policies, 0..6_u8, operation, prop::bool::weighted(0.05)).prop_map(
            |(policies, subject, operation, has_id)| CallInput {
                policies,
                subject,
                operation,
                has_id,
            },
        )
    }

    #[derive(Debug, Clone)]
    enum End {
        /// The request fails.
        Fails,
        /// The reply omits the last `left_out` calls. If `undecided` selects a key, the reply
        /// leaves all calls on this key undecided.
        Replies { left_out: usize, undecided: Option<Index> },
    }

    fn end() -> impl Strategy<Value = End> {
        prop_oneof![
            1 => Just(End::Fails),
            1 => (0..3_usize).prop_map(|left_out| End::Replies { left_out, undecided: None }),
            6 => any::<Index>().prop_map(|key| End::Replies { left_out: 0, undecided: Some(key) }),
        ]
    }

    fn decided() -> Reply {
        let taken_at = SmallVec::new();
        Reply::Decided(Ok(ScriptReply {
            decision: Decision::new([]),
            taken_at,
            is_repetition: false,
        }))
    }

    /// The requests of a plan, and the calls that it decided, in order.
    #[derive(Debug, Default)]
    struct Run {
        requests: Vec<(Tier, Vec<usize>)>,
        decided: Vec<(usize, Result<(), ErrorKind>)>,
    }

    /// Executes a plan. The function `end(n, request)` returns the result of request n.
    fn run(
        mut plan: Plan<'_, '_>,
        mut end: impl FnMut(usize, &PlannedRequest<'_>) -> Result<Vec<Reply>, Error>,
    ) -> Run {
        let mut run = Run::default();
        let mut decided = vec![];
        let mut put = |place, reply: Result<ScriptReply, Error>| {
            decided.push((place, reply.map(|_| ()).map_err(|error| error.kind())));
        };
        while let Some(planned) = plan.next_request(None, &mut put) {
            run.requests.push((planned.request.tier(), planned.places.to_vec()));
            let replies = end(run.requests.len() - 1, &planned);
            plan.take_replies(planned, replies, &mut put);
        }
        Run { decided, ..run }
    }

    fn charges<'p>(input: &CallInput, policies: &'p [Policy], subject: &'p str) -> Vec<Charge<'p>> {
        let charge = |&policy: &usize| Charge::new(&policies[policy], subject);
        input.policies.iter().map(charge).collect()
    }

    proptest! {
        #[test]
        fn every_call_is_decided_once_and_in_order_whatever_is_replied(
            inputs in prop::collection::vec(call_input(), 0..40),
            repeated in prop_oneof![4 => Just(1_usize), 1 => Just(120_usize)],
            ends in prop::collection::vec(end(), 1..20),
        ) {
            let (policies, keys) = (policies(), Keys::new("any"));
            let subjects = ["s0", "s1", "s2", "s3", "s4", "s5"];
            let charges: Vec<Vec<Charge<'_>>> = inputs
                .iter()
                .map(|input| charges(input, &policies, subjects[usize::from(input.subject)]))
                .collect();
            let call = |(input, charges)| {
                let (input, charges): (&CallInput, &Vec<Charge<'_>>) = (input, charges);
                let call = Call::new(input.operation, charges);
                match input.has_id {
                    true => call.with_id(CallId::new("id", Duration::from_secs(1))),
                    false => call,
                }
            };
            let once: Vec<Call<'_>> = inputs.iter().zip(&charges).map(call).collect();
            let calls: Vec<Call<'_>> =
                (0..repeated).flat_map(|_| once.iter().copied()).collect();
            let key_of = |place: usize| calls[place].charges.get(0).map(|charge| keys.key(&charge));

            let result = run(Plan::for_all(&keys, &calls), |number, planned| {
                let places = &planned.places;
                assert_eq!(planned.request.len(), places.len());
                // A request contains one charge for each key of a call.
                let count_keys = |&place: &usize| {
                    let keys = calls[place].charges.iter().map(|charge| keys.key(&charge));
                    keys.collect::<HashSet<_>>().len()
                };
                let size: usize = places.iter().map(count_keys).sum();
                assert!(places.len() == 1 || size <= MAX_CHARGES, "{size} charges");
                assert!(places.len() == 1 || places.iter().all(|&place| calls[place].id.is_none()));
                match &ends[number % ends.len()] {
                    End::Fails => Err(Error::new(ErrorKind::Timeout, "no answer")),
                    End::Replies { left_out, undecided } => {
                        let left = undecided.map(|index| key_of(places[index.index(places.len())]));
                        let reply = |&place: &usize| match &left {
                            Some(key) if *key == key_of(place) => Reply::Undecided,
                            _ => decided(),
                        };
                        Ok(places.iter().take(places.len() - left_out.min(&places.len())).map(reply).collect())
                    }
                }
            });

            let mut times_decided = vec![0; calls.len()];
            let mut last: HashMap<Vec<u8>, usize> = HashMap::new();
            for (place, outcome) in &result.decided {
                times_decided[*place] += 1;
                let call = &calls[*place];
                if let Err(error) = call.check() {
                    prop_assert_eq!(outcome, &Err(error.kind()));
                    continue;
                }
                // The plan keeps only the order of calls with a single charge. A call with several
                // charges waits while one of its states is undecided, but later calls on its other
                // states do not wait.
                if call.charges.len() == 1 {
                    let before = last.insert(key_of(*place).unwrap(), *place);
                    prop_assert!(before.is_none_or(|before| before < *place), "{:?}", result);
                }
            }
            prop_assert!(times_decided.iter().all(|times| *times == 1), "{:?}", result);
        }

        #[test]
        fn exactly_the_undecided_calls_of_a_batch_are_requested_again_before_all_others(
            undecided in prop::collection::hash_set(0..1_024_usize, 1..30),
        ) {
            let (policies, keys) = (policies(), Keys::new("any"));
            let charge = [Charge::new(&policies[0], "s")];
            let calls = vec![Call::acquire(&charge); 1_500];
            let result = run(Plan::for_all(&keys, &calls), |number, planned| {
                let reply = |place| match number < 2 && undecided.contains(place) {
                    true => Reply::Undecided,
                    false => decided(),
                };
                Ok(planned.places.iter().map(reply).collect())
            });
            let mut again: Vec<usize> = undecided.into_iter().collect();
            again.sort_unstable();
            prop_assert_eq!(result.requests, [
                (Tier::Usual, (0..1_024).collect()),
                (Tier::General, again.clone()),
                (Tier::WithHolds, again),
                (Tier::Usual, (1_024..1_500).collect()),
            ]);
        }
    }

    #[test]
    fn a_request_is_bounded_by_the_bytes_of_its_keys() {
        let (policies, keys) = (policies(), Keys::new("any"));
        let subjects: Vec<String> =
            (0..8).map(|n| format!("{n}").repeat(MAX_KEY_BYTES / 4)).collect();
        for (policy, tier) in [(0, Tier::Usual), (3, Tier::General)] {
            let charges: Vec<_> =
                subjects.iter().map(|subject| [Charge::new(&policies[policy], subject)]).collect();
            let calls: Vec<_> = charges.iter().map(|charge| Call::acquire(charge)).collect();
            let result = run(Plan::for_all(&keys, &calls), |_, planned| {
                Ok(planned.places.iter().map(|_| decided()).collect())
            });
            assert_eq!(result.requests, [(tier, (0..4).collect()), (tier, (4..8).collect())]);
        }
    }

    #[test]
    fn the_error_of_a_request_is_the_error_of_each_of_its_calls() {
        let (policies, keys) = (policies(), Keys::new("any"));
        let charge = [Charge::new(&policies[0], "s")];
        let calls =
            [Call::acquire(&charge), Call::acquire(&charge), Call::new(Operation::Peek, &[])];
        for (places, expected) in [
            (smallvec![1], vec!["1 timeout: no answer"]),
            (
                smallvec![0, 1],
                vec!["0 timeout: in a batch: no answer", "1 timeout: in a batch: no answer"],
            ),
        ] {
            let mut plan = Plan::new(&keys, &calls, places);
            let mut errors = vec![];
            let mut put = |place, reply: Result<ScriptReply, Error>| {
                errors.push(format!("{place} {}", reply.unwrap_err()));
            };
            let planned = plan.next_request(None, &mut put).unwrap();
            plan.take_replies(planned, Err(Error::new(ErrorKind::Timeout, "no answer")), &mut put);
            assert!(plan.next_request(None, &mut put).is_none());
            assert_eq!(errors, expected);
        }
    }

    #[test]
    fn a_split_request_is_one_request_of_its_tier_per_call() {
        let (policies, keys) = (policies(), Keys::new("any"));
        let charge = [Charge::new(&policies[0], "s")];
        let calls = [Call::acquire(&charge); 3];
        let mut plan = Plan::for_all(&keys, &calls);
        let mut put = |_, _: Result<ScriptReply, Error>| ();
        let planned = plan.next_request(None, &mut put).unwrap();
        plan.take_replies(planned, Ok((0..3).map(|_| Reply::Undecided).collect()), &mut put);
        let planned = plan.next_request(None, &mut put).unwrap();
        plan.take_replies(planned, Ok((0..3).map(|_| Reply::Undecided).collect()), &mut put);
        let planned = plan.next_request(None, &mut put).unwrap();
        assert_eq!(planned.request.tier(), Tier::WithHolds);
        let plans: Vec<_> = plan.split(planned).collect();
        assert!(plan.next_request(None, &mut put).is_none());
        for (place, mut plan) in plans.into_iter().enumerate() {
            let planned = plan.next_request(None, &mut put).unwrap();
            assert_eq!(
                (planned.request.tier(), &planned.places[..]),
                (Tier::WithHolds, &[place][..])
            );
            assert!(plan.next_request(None, &mut put).is_none());
        }
    }

    #[test]
    fn a_plan_of_one_call_has_no_list_on_the_heap() {
        let (policies, keys) = (policies(), Keys::new("any"));
        let charge = [Charge::new(&policies[2], "s")];
        let calls = [Call::acquire(&charge)];
        let mut plan = Plan::for_all(&keys, &calls);
        let planned = plan.next_request(None, &mut |_, _| ()).unwrap();
        assert!(!planned.places.spilled() && !plan.steps.spilled());
        let mut is_decided = false;
        plan.take_replies(planned, Ok(vec![Reply::Undecided]), &mut |_, _| is_decided = true);
        let planned = plan.next_request(None, &mut |_, _| ()).unwrap();
        assert_eq!(planned.request.tier(), Tier::WithHolds);
        assert!(!is_decided && !planned.places.spilled());
    }

    #[test]
    fn a_call_is_sent_again_with_the_windows_at_the_time_of_the_server() {
        let keys = Keys::new("any");
        let quota: Policy = "p: quota 9/day in UTC".parse().unwrap();
        let charge = [Charge::new(&quota, "s")];
        let (call, day) = (Call::acquire(&charge), 86_400_000_000);
        let mut decided = vec![];
        let mut put = |place, reply: Result<ScriptReply, Error>| {
            decided.push((place, reply.map(|_| ()).map_err(|error| error.kind())));
        };
        for calls in [&[call][..], &[call, call]] {
            let mut plan = Plan::for_all(&keys, calls);
            for other_windows in 0..=u64::from(MAX_OTHER_WINDOWS) {
                let planned = plan.next_request(Some(Timestamp::EPOCH), &mut put).unwrap();
                let at = Timestamp::from_micros(other_windows * day);
                let expected = Plan::for_all(&keys, calls).next_request(Some(at), &mut put);
                assert_eq!(planned.request.arguments(), expected.unwrap().request.arguments());
                let mut reply = vec![layout::OTHER_WINDOW];
                put_number(&mut reply, at.as_micros() + day);
                let replies = planned.request.read(&reply);
                plan.take_replies(planned, replies, &mut put);
            }
            assert!(plan.next_request(None, &mut put).is_none());
        }
        let error = Err(ErrorKind::Protocol);
        assert_eq!(decided, [(0, error), (0, error), (1, error)]);
    }

    #[test]
    fn a_peek_reports_on_a_reservation_and_writes_nothing() {
        let (policies, keys) = (policies(), Keys::new("any"));
        let charge = [Charge::new(&policies[0], "s")];
        let max_wait = Duration::from_secs(1);
        for operation in [Operation::Acquire, Operation::Reserve { max_wait }] {
            let calls = [Call::new(operation, &charge)];
            let mut plan = Plan::peek(&keys, &calls, 0);
            assert!(plan.is_peek());
            let planned = plan.next_request(None, &mut |_, _| ()).unwrap();
            let peek = Call::new(Operation::Peek, &charge);
            let peek = Request::new(&keys, &peek, Timestamp::MAX).unwrap();
            let is_plain_peek = planned.request.arguments() == peek.arguments();
            assert_eq!(is_plain_peek, operation == Operation::Acquire);
        }
    }
}
