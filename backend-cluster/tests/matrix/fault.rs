//! What goes wrong in a row.

use std::time::Duration;

use tidegate_cluster::ErrorKind;
use tidegate_testkit::servers::{Data, End, Mode};
use tokio::time::{Instant, sleep};

use crate::ledger::{Ledger, Outcome};
use crate::load::Load;
use crate::place::{Backend, Place};

/// How long a fault lasts that ends by itself: longer than a call waits.
const SPAN: Duration = Duration::from_millis(700);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connections that are open fall silent for ever; new ones are well.
    Silent,
    /// Connections are lost, and new ones take longer to set up than a caller waits.
    SlowSetUp,
    /// Connections are closed while no call is on its way.
    ClosedWhileIdle,
    /// The server is killed, and comes back with its data.
    Killed,
    /// The server is stopped (SIGSTOP), and goes on.
    Paused,
    /// Calls are carried out, and then their connections are reset instead of an answer.
    AnswersReset,
    /// Calls are carried out, and nothing is heard of it until the connections are reset.
    AnswersSwallowed,
    /// The callers wait only for moments, from the first call on.
    CallersGiveUp,
    /// Two settings of one policy take turns, as while a new one is rolled out. Nothing else goes wrong.
    SettingsInTurns,
    /// The first of the Sentinels hangs, and connections are lost.
    HungSentinel,
}

impl Fault {
    pub(crate) fn all_of(backend: Backend) -> impl Iterator<Item = Self> {
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

    /// Lets the fault happen, and returns from when on the store can decide again.
    pub(crate) async fn come_and_go(self, place: &Place, load: &Load) -> Instant {
        let proxy = &place.proxy;
        match self {
            Self::Silent => proxy.cut(End::Hang),
            Self::SlowSetUp => {
                proxy.set(Mode::DelayFirstAnswer(Duration::from_millis(200))).await.unwrap();
                proxy.cut(End::Close);
            }
            Self::ClosedWhileIdle => {
                load.rest().await;
                proxy.cut(End::Close);
                sleep(Duration::from_millis(200)).await;
                let well = Instant::now();
                load.go_on();
                return well;
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
                // A stream from which bytes are missing never goes on.
                proxy.cut(End::Reset);
            }
            Self::CallersGiveUp => {
                let late = Duration::from_millis(4);
                let mode = Mode::Delay { requests: Duration::ZERO, answers: late };
                proxy.set(mode).await.unwrap();
                proxy.cut(End::Close);
                load.give_up(true);
                // From then on at the latest, some of the calls must be answered.
                let well = Instant::now();
                sleep(SPAN).await;
                return well;
            }
            Self::SettingsInTurns => {
                let well = Instant::now();
                sleep(SPAN).await;
                return well;
            }
            Self::HungSentinel => {
                place.sentinels()[0].pause().await.unwrap();
                proxy.cut(End::Close);
            }
        }
        Instant::now()
    }

    /// Ends what the fault has left behind.
    pub(crate) async fn clear(self, place: &Place) {
        place.proxy.set(Mode::Pass).await.unwrap();
        if self == Self::HungSentinel {
            place.sentinels()[0].resume().await.unwrap();
        }
    }

    /// What else does not hold, of the calls that were made since then.
    pub(crate) fn complaints(self, ledger: &Ledger, since: Instant) -> Vec<String> {
        if self != Self::ClosedWhileIdle {
            return vec![];
        }
        // Nothing was sent on the connections that were lost, so nothing is lost with them.
        let lost = Outcome::Failed(ErrorKind::Unavailable);
        let entries = ledger.entries().into_iter();
        let failed = entries.filter(|it| it.asked >= since && it.outcome == lost).count();
        (failed > 0)
            .then(|| format!("{failed} calls failed for want of a connection"))
            .into_iter()
            .collect()
    }
}
