//! The faults that the matrix causes between the store and its servers.

use std::time::Duration;

use tidegate_cluster::ErrorKind;
use tidegate_test_servers::{Data, End, Mode};
use tokio::time::{Instant, sleep};

use crate::ledger::{Ledger, Outcome};
use crate::load::Load;
use crate::place::{Backend, Place};

/// The duration of a temporary fault. It is longer than the response timeout of the stores.
const SPAN: Duration = Duration::from_millis(700);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// All open connections stop transferring data forever. New connections work.
    Silent,
    /// All connections are closed. The setup of a new connection takes longer than a caller waits.
    SlowSetUp,
    /// Connections are closed while no call is in flight.
    ClosedWhileIdle,
    /// The server is killed, and then restarts with the same data.
    Killed,
    /// The server is paused (SIGSTOP) and resumed.
    Paused,
    /// The server executes calls, but the connection of a call is reset before the answer arrives.
    AnswersReset,
    /// The server executes calls, but all answers are dropped until the connections are reset.
    AnswersSwallowed,
    /// From the beginning of the fault on, each answer is late by 4 ms, and the callers wait at
    /// most 9 ms for each answer.
    CallersGiveUp,
    /// Calls alternate between two settings of the same policy, as during a rollout. The
    /// connections and servers have no fault.
    SettingsInTurns,
    /// The first Sentinel hangs, and the connections to the server are closed.
    HungSentinel,
}

impl Fault {
    pub(crate) fn all_for(backend: Backend) -> impl Iterator<Item = Self> {
        let all = [
            Self::Silent,
            Self::SlowSetUp,
            Self::ClosedWhileIdle,
            Self::Killed,
            Self::Paused,
            Self::AnswersReset,
            Self::AnswersSwallowed,
            Self::CallersGiveUp,
            Self::SettingsInTurns,
        ];
        let hung = (backend == Backend::Sentinel).then_some(Self::HungSentinel);
        all.into_iter().chain(hung)
    }

    /// Causes the fault and waits for its end. Returns the time from which the store must decide
    /// again.
    pub(crate) async fn run(self, place: &Place, load: &Load) -> Instant {
        let proxy = &place.proxy;
        match self {
            Self::Silent => proxy.cut(End::Hang),
            Self::SlowSetUp => {
                proxy.set(Mode::DelayFirstAnswer(Duration::from_millis(200))).await.unwrap();
                proxy.cut(End::Close);
            }
            Self::ClosedWhileIdle => {
                load.pause().await;
                proxy.cut(End::Close);
                sleep(Duration::from_millis(200)).await;
                let end = Instant::now();
                load.resume();
                return end;
            }
            Self::Killed => {
                place.node().kill().await.unwrap();
                sleep(SPAN).await;
                place.node().restart(Data::Kept).await.unwrap();
                place.until_it_writes().await;
            }
            Self::Paused => {
                place.node().pause().await.unwrap();
                sleep(SPAN).await;
                place.node().resume().await.unwrap();
                place.until_it_writes().await;
            }
            Self::AnswersReset => {
                proxy.set(Mode::LoseAnswer(End::Reset)).await.unwrap();
                sleep(SPAN).await;
                proxy.set(Mode::Pass).await.unwrap();
            }
            Self::AnswersSwallowed => {
                proxy.set(Mode::SwallowAnswers).await.unwrap();
                sleep(SPAN).await;
                proxy.set(Mode::Pass).await.unwrap();
                // The proxy has dropped answers on the open connections, so the store cannot use
                // these connections again.
                proxy.cut(End::Reset);
            }
            Self::CallersGiveUp => {
                let late = Duration::from_millis(4);
                let mode = Mode::Delay { requests: Duration::ZERO, answers: late };
                proxy.set(mode).await.unwrap();
                proxy.cut(End::Close);
                load.set_impatient(true);
                // From this time on, the store must decide some calls, even though each caller
                // waits at most 9 ms.
                let end = Instant::now();
                sleep(SPAN).await;
                return end;
            }
            Self::SettingsInTurns => {
                let end = Instant::now();
                sleep(SPAN).await;
                return end;
            }
            Self::HungSentinel => {
                place.sentinels()[0].pause().await.unwrap();
                proxy.cut(End::Close);
            }
        }
        Instant::now()
    }

    /// Removes the effects of the fault that remain after [`run`](Self::run).
    pub(crate) async fn clear(self, place: &Place) {
        place.proxy.set(Mode::Pass).await.unwrap();
        if self == Self::HungSentinel {
            place.sentinels()[0].resume().await.unwrap();
        }
    }

    /// Checks the calls that started at or after `since`. Returns violations of a property that
    /// applies only to this kind of fault.
    pub(crate) fn violations(self, ledger: &Ledger, since: Instant) -> Vec<String> {
        if self != Self::ClosedWhileIdle {
            return vec![];
        }
        // No call was in flight on the closed connections, so no call is allowed to fail.
        let lost = Outcome::Failed(ErrorKind::Unavailable);
        let entries = ledger.entries().into_iter();
        let failed =
            entries.filter(|entry| entry.started >= since && entry.outcome == lost).count();
        (failed > 0)
            .then(|| {
                format!(
                    "{failed} calls failed because their connection was closed while it was idle"
                )
            })
            .into_iter()
            .collect()
    }
}
