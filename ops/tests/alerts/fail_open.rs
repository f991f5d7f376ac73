//! The least failure policy there is: what fails passes, and says so.

use std::time::Duration;

use tidegate_redis::{
    Answer, Call, Decision, Degraded, DegradedAnswer, Error, ErrorKind, Outcome, RedisStore, Store,
    Timestamp, Verdict, Wait,
};

#[derive(Debug)]
pub(crate) struct FailOpen(pub(crate) RedisStore);

impl Store for FailOpen {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        Answer::later(async move {
            let answer = tokio::time::timeout(Duration::from_millis(50), self.0.decide(call)).await;
            let reason = match answer {
                Ok(Ok(decision)) => return Ok(decision),
                Ok(Err(error)) => error.kind(),
                Err(_) => ErrorKind::Timeout,
            };
            let verdict = Verdict::new(Outcome::Allowed, 1, 1, Wait::NOW, 0);
            let degraded = Degraded { answer: DegradedAnswer::FailedOpen, reason };
            Ok(Decision::one(verdict).degraded_by(degraded))
        })
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.0.now()
    }
}
