//! Many calls at once: the store is asked about those whose answers are not known, and only once.

use std::collections::HashSet;

use super::asked::Asked;
use super::refusal::is_asking;
use super::sent::Sent;
use super::{Cache, DenyCacheStore};
use crate::{Answer, Call, Clock, Decision, Error, ErrorKind, Store};

type Answers = Vec<Result<Decision, Error>>;

/// Calls, of which some have been answered, and the others are on their way.
struct Sorted<'a> {
    /// By the places of the calls; `None` for those on their way.
    known: Vec<Option<Decision>>,
    sent: Vec<Sent<'a>>,
}

impl<S: Store, C: Clock> DenyCacheStore<S, C> {
    pub(super) fn decide_all<'a>(&'a self, calls: &'a [Call<'a>]) -> Answer<'a, Answers> {
        let sorted = sort(&self.cache, &self.clock, calls);
        if sorted.sent.is_empty() {
            return Answer::ready(sorted.merge(vec![]));
        }
        if sorted.sent.len() == calls.len() {
            return match self.inner.decide_many(calls).into_ready() {
                Ok(answers) => Answer::ready(sorted.merge(answers)),
                Err(later) => Answer::later(async move { sorted.merge(later.await) }),
            };
        }
        Answer::later(async move {
            let asked: Vec<Call<'_>> = sorted.sent.iter().map(Sent::call).collect();
            let answers = self.inner.decide_many(&asked).await;
            sorted.merge(answers)
        })
    }
}

/// Answers what is known. A call that shares a key with an earlier one that is on its way has to be
/// sent after it, as that one may change the answer.
fn sort<'a>(cache: &'a Cache, clock: &impl Clock, calls: &'a [Call<'a>]) -> Sorted<'a> {
    let at = cache.moments.now(clock);
    let mut on_their_way = HashSet::with_hasher(cache.hasher.clone());
    let mut sorted = Sorted { known: Vec::with_capacity(calls.len()), sent: vec![] };
    for call in calls {
        let asked = Asked::new(*call, &cache.hasher);
        let may_be_known =
            is_asking(call.operation) && !asked.keys.iter().any(|key| on_their_way.contains(key));
        let known = if may_be_known { cache.find(&asked, at) } else { None };
        if known.is_none() {
            on_their_way.extend(asked.keys.iter().copied());
            sorted.sent.push(Sent::new(cache, asked, at));
        }
        sorted.known.push(known);
    }
    sorted
}

impl Sorted<'_> {
    /// All answers, in the order asked.
    fn merge(self, answers: Answers) -> Answers {
        let mut answers = answers.into_iter();
        let mut sent = self.sent.into_iter();
        let mut next = || {
            // Without an answer the call is dropped as one that is lost.
            let (sent, answer) = (sent.next(), answers.next());
            let answer = answer.ok_or_else(missing)?;
            if let Some(sent) = sent {
                sent.answered(&answer);
            }
            answer
        };
        self.known.into_iter().map(|known| known.map_or_else(&mut next, Ok)).collect()
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::Protocol, "the store gave fewer answers than it was asked")
}
