//! A connection that all callers share: made when it is first needed, watched while it lives, and
//! replaced when it was lost, by tasks of its own. No caller's future makes or ends anything, so callers
//! may give up at any time.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, RedisResult};
use tidegate_core::{Error, ErrorKind, Timestamp};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::error::{self, ConnectError};
use super::given::{Channel, GivenConnection};
use super::live::{Driver, LiveConnection};
use super::source::Source;
use super::stream::{Activity, Counts};

/// The pauses after failed attempts: the first, and the longest, to which they double.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A server that takes no writes, as it is a replica or has lost its replicas, is left for another
/// connection (and so, with Sentinel or behind a name, for another server), but not at every call.
const LEAST_LIFE: Duration = Duration::from_millis(200);

/// How much longer than `connect_timeout` an attempt is waited for.
const GRACE: Duration = Duration::from_millis(50);

/// The pause after a second login on a connection has failed.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

/// One multiplexed connection to one server.
#[derive(Debug)]
pub struct Connection(Kind);

#[derive(Debug)]
enum Kind {
    /// The store makes the connection, watches and replaces it.
    Own(Arc<Shared>),
    /// The application has made the connection.
    Given { connection: GivenConnection, response_timeout: Duration },
}

#[derive(Debug)]
struct Shared {
    source: Arc<Source>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// How long to leave the server alone if the next attempt fails.
    pause: Duration,
}

#[derive(Debug)]
enum Phase {
    /// Not needed yet, or lost.
    Idle,
    /// One attempt is under way, and all callers wait for it.
    Connecting(Outcome),
    Live(LiveConnection),
    /// The last attempt has failed, and the next one has to wait.
    Failed {
        error: ConnectError,
        until: Instant,
    },
}

/// What an attempt has come to, once it has. The sender goes early only with its runtime.
type Outcome = watch::Receiver<Option<Connected>>;

type Connected = Result<LiveConnection, ConnectError>;

/// What is sent at once.
#[derive(Clone, Copy)]
enum Message<'a> {
    One(&'a Cmd),
    All(&'a Pipeline),
}

impl Connection {
    /// A connection to be made when it is needed.
    pub(super) fn new(source: Arc<Source>) -> Self {
        let state = Mutex::new(State { phase: Phase::Idle, pause: FIRST_PAUSE });
        Self(Kind::Own(Arc::new(Shared { source, state })))
    }

    /// Returns a connection that the application has made.
    pub(super) fn given(connection: GivenConnection, response_timeout: Duration) -> Self {
        Self(Kind::Given { connection, response_timeout })
    }

    /// The connection, which is made if there is none: that takes at most the source's
    /// `connect_timeout`.
    ///
    /// # Errors
    ///
    /// If there is none and none could be made just now, or a moment ago. Nothing was sent then.
    pub async fn live(&self) -> Result<LiveConnection, Error> {
        match &self.0 {
            Kind::Own(shared) => shared.live().await,
            Kind::Given { connection, .. } => Ok(LiveConnection::existing(connection)),
        }
    }

    /// Sends one command on a connection, once. If it was surely not sent, because the connection had
    /// been lost before, it is sent on a new one.
    ///
    /// # Errors
    ///
    /// If the server refuses it, or does not answer, or not as expected.
    pub async fn send<T: FromRedisValue>(
        &self,
        live: &mut LiveConnection,
        command: &Cmd,
    ) -> Result<T, Error> {
        self.carry(live, Message::One(command)).await
    }

    /// Sends several commands on a connection, in one write, otherwise as [`send`](Self::send).
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub async fn send_all<T: FromRedisValue>(
        &self,
        live: &mut LiveConnection,
        commands: &Pipeline,
    ) -> Result<T, Error> {
        self.carry(live, Message::All(commands)).await
    }

    /// The time by the server's clock.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, or does not tell.
    pub async fn time(&self) -> Result<Timestamp, Error> {
        let mut question = Cmd::new();
        question.arg("TIME");
        let (seconds, micros): (u64, u64) = self.send(&mut self.live().await?, &question).await?;
        Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
    }

    async fn carry<T: FromRedisValue>(
        &self,
        live: &mut LiveConnection,
        message: Message<'_>,
    ) -> Result<T, Error> {
        match &self.0 {
            Kind::Own(shared) => shared.carry(live, message).await,
            Kind::Given { response_timeout, .. } => {
                let answer = timeout(*response_timeout, message.query(&mut live.connection)).await;
                let answer =
                    answer.map_err(|_| error::no_answer(&live.server, *response_timeout))?;
                answer.map_err(|error| error_of_call(live, error, *response_timeout))
            }
        }
    }
}

fn error_of_call(live: &LiveConnection, error: RedisError, response_timeout: Duration) -> Error {
    if error.is_timeout() {
        return error::no_answer(&live.server, response_timeout);
    }
    error::of_call(&live.server, error)
}

/// Why there is no connection.
enum Wait {
    /// It is being made.
    For(Outcome),
    /// It could not be made, and the next attempt has to wait.
    NotYet(ConnectError),
}

impl Shared {
    async fn live(self: &Arc<Self>) -> Result<LiveConnection, Error> {
        // If the runtime of the attempt ends, this runtime makes another attempt.
        for _ in 0..2 {
            let mut outcome = match self.look() {
                Ok(live) => return Ok(live),
                Err(Wait::For(outcome)) => outcome,
                Err(Wait::NotYet(error)) => return Err(error.of_call()),
            };
            // An attempt ends in time by itself, unless its runtime stands still.
            let limit = self.source.connect_timeout.saturating_add(GRACE);
            let waited = timeout(limit, outcome.wait_for(Option::is_some)).await;
            match waited.map(|ended| ended.ok().and_then(|outcome| outcome.clone())) {
                Ok(Some(outcome)) => {
                    return outcome.map_err(|error| error.of_call());
                }
                Ok(None) => {}
                Err(_) => {
                    self.give_up(&outcome);
                    return Err(self.source.no_connection_in_time().of_call());
                }
            }
        }
        let target = &self.source.target;
        let message = format!("no connection to {target}: the runtime that made it has ended");
        Err(ConnectError::new(ErrorKind::Unavailable, message).of_call())
    }

    /// The connection, if there is one; begins to make it otherwise.
    fn look(self: &Arc<Self>) -> Result<LiveConnection, Wait> {
        let mut state = self.state();
        match &state.phase {
            Phase::Live(live) if !live.activity.is_closed() => return Ok(live.clone()),
            // A sender that has gone without an outcome has gone with its runtime.
            Phase::Connecting(outcome) if outcome.has_changed().is_ok() => {
                return Err(Wait::For(outcome.clone()));
            }
            Phase::Failed { error, until } if Instant::now() < *until => {
                return Err(Wait::NotYet(error.clone()));
            }
            _ => {}
        }
        Err(Wait::For(self.start(&mut state)))
    }

    async fn carry<T: FromRedisValue>(
        self: &Arc<Self>,
        live: &mut LiveConnection,
        message: Message<'_>,
    ) -> Result<T, Error> {
        let limit = self.source.access.response_timeout;
        let before = live.activity.counts();
        match message.query(&mut live.connection).await {
            Ok(answer) => return Ok(answer),
            Err(error) if self.was_not_sent(live, before, &error) => {}
            Err(error) => return Err(error_of_call(live, error, limit)),
        }
        *live = self.live().await?;
        let before = live.activity.counts();
        message.query(&mut live.connection).await.map_err(|error| {
            self.was_not_sent(live, before, &error);
            error_of_call(live, error, limit)
        })
    }

    /// Begins to make a connection, in a task of its own.
    fn start(self: &Arc<Self>, state: &mut State) -> Outcome {
        let (sender, outcome) = watch::channel(None);
        state.phase = Phase::Connecting(outcome.clone());
        tokio::spawn(keep(Arc::downgrade(self), Arc::clone(&self.source), sender));
        outcome
    }

    /// Takes note of what an attempt has come to, if it has not been given up.
    fn settle(&self, attempt: &Outcome, connected: Connected) {
        let mut state = self.state();
        if !state.is_attempt(attempt) {
            return;
        }
        match connected {
            Ok(live) => *state = State { phase: Phase::Live(live), pause: FIRST_PAUSE },
            Err(error) => {
                let until = Instant::now() + state.pause;
                let pause = (state.pause * 2).min(LONGEST_PAUSE);
                *state = State { phase: Phase::Failed { error, until }, pause };
            }
        }
    }

    /// Has the next call make another attempt.
    fn give_up(&self, attempt: &Outcome) {
        let mut state = self.state();
        if state.is_attempt(attempt) {
            state.phase = Phase::Idle;
        }
    }

    /// Records what an error says about the connection. Returns whether it is certain that the call was not
    /// sent; `before` are the counts from before it was handed over.
    fn was_not_sent(
        self: &Arc<Self>,
        live: &LiveConnection,
        before: Counts,
        error: &RedisError,
    ) -> bool {
        let is_closed = live.activity.is_closed();
        if error.is_timeout() && !is_closed {
            // The task that watches would say the same in a moment, unless its runtime stands still.
            if live.activity.counts().answers == before.answers {
                self.replace(&live.activity);
            }
            return false;
        }
        if is_closed || error.is_unrecoverable_error() || error.is_connection_dropped() {
            self.drop_connection(live);
            return live.activity.close() == before.writes;
        }
        let is_read_only = matches!(error.code(), Some("READONLY" | "NOREPLICAS"));
        if is_read_only && live.since.elapsed() > LEAST_LIFE {
            self.drop_connection(live);
        }
        false
    }

    /// Returns the connection with this activity, if it is still in use.
    fn in_use(&self, activity: &Activity) -> Option<LiveConnection> {
        let state = self.state();
        match &state.phase {
            Phase::Live(live) if state.is_in_use(activity) => Some(live.clone()),
            _ => None,
        }
    }

    /// Lets go of a connection, unless there is a newer one already.
    fn drop_connection(&self, lost: &LiveConnection) {
        let mut state = self.state();
        if state.is_in_use(&lost.activity) {
            state.phase = Phase::Idle;
        }
    }

    /// Replaces a connection, unless there is a newer one already.
    fn replace(self: &Arc<Self>, lost: &Activity) {
        let mut state = self.state();
        if state.is_in_use(lost) {
            self.start(&mut state);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_attempt(&self, attempt: &Outcome) -> bool {
        matches!(&self.phase, Phase::Connecting(outcome) if outcome.same_channel(attempt))
    }

    fn is_in_use(&self, activity: &Activity) -> bool {
        matches!(&self.phase, Phase::Live(live) if std::ptr::eq(&*live.activity, activity))
    }
}

/// Makes a connection, and watches it until it ends.
async fn keep(
    shared: Weak<Shared>,
    source: Arc<Source>,
    outcome: watch::Sender<Option<Connected>>,
) {
    let connected = match select(pin!(source.connect()), pin!(outcome.closed())).await {
        Either::Left((connected, _)) => connected,
        // The store has gone, and with it all that may need a connection.
        Either::Right(_) => return,
    };
    let (connected, driver) = match connected {
        Ok((live, driver)) => (Ok(live), Some(driver)),
        Err(error) => (Err(error), None),
    };
    let made = connected.as_ref().ok().map(|live| (Arc::clone(&live.activity), live.renew_after));
    if let Some(shared) = shared.upgrade() {
        shared.settle(&outcome.subscribe(), connected.clone());
    }
    let _ = outcome.send(Some(connected));
    drop(outcome);
    if let (Some(driver), Some((activity, renew_after))) = (driver, made) {
        watch(&shared, &source, &activity, driver, renew_after).await;
    }
}

/// Drives a connection until it ends. If the server falls silent, another connection is made in its
/// place; calls that wait for answers on this one still get them, if they come in time.
async fn watch(
    shared: &Weak<Shared>,
    source: &Source,
    activity: &Activity,
    driver: Driver,
    renew_after: Option<Duration>,
) {
    let limit = source.access.response_timeout;
    let mut driver = tokio::spawn(driver);
    let silence = pin!(activity.wait_for_silence(limit));
    let renewals = pin!(renew_logins(shared, source, activity, renew_after));
    if let Either::Left(_) = select(&mut driver, select(silence, renewals)).await {
        return;
    }
    if let Some(shared) = shared.upgrade() {
        shared.replace(activity);
    }
    if timeout(limit, &mut driver).await.is_err() {
        driver.abort();
    }
}

/// Logs in again on a connection, each time after the span that its credentials ask for.
///
/// The task holds the connection only while it logs in, so that the connection ends with the store.
async fn renew_logins(
    shared: &Weak<Shared>,
    source: &Source,
    activity: &Activity,
    mut renew_after: Option<Duration>,
) -> Infallible {
    loop {
        match renew_after {
            Some(span) => sleep(span).await,
            None => pending().await,
        }
        let credentials = source.credentials().await;
        let live = shared.upgrade().and_then(|shared| shared.in_use(activity));
        renew_after = match (credentials, live) {
            (Some(credentials), Some(mut live)) => {
                let login = credentials.login(source.server());
                let logged_in = login.query_async::<()>(&mut live.connection).await;
                logged_in.map_or(Some(RENEWAL_PAUSE), |()| credentials.renewal())
            }
            (None, Some(_)) => Some(RENEWAL_PAUSE),
            // The connection is lost or replaced.
            (_, None) => None,
        };
    }
}

impl Message<'_> {
    async fn query<T: FromRedisValue>(self, connection: &mut Channel) -> RedisResult<T> {
        match self {
            Self::One(command) => command.query_async(connection).await,
            Self::All(commands) => commands.query_async(connection).await,
        }
    }
}
