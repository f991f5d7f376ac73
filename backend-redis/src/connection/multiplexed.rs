//! A connection to a server that all callers share.
//!
//! Background tasks make the connection when it is first needed, watch the connection, and replace
//! it when it is lost. No caller's future makes or ends a connection, so a caller can be cancelled
//! at any time.

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

use super::error::{self, ConnectError, first_server_error};
use super::given::{Channel, GivenConnection};
use super::live::{Driver, LiveConnection};
use super::source::Source;
use super::stream::{Activity, Counts};

/// The first and the longest pause after a failed attempt to connect. The pause doubles with each
/// failure.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The minimum age of a connection that is dropped because the server refuses writes.
///
/// A server that refuses writes is a replica or has lost its replicas. A new connection possibly
/// reaches another server, because Sentinel or DNS chooses the server. If connections had no
/// minimum age, every refused call would make a new connection.
const MIN_LIFE: Duration = Duration::from_millis(200);

/// The additional time after `connect_timeout` that a call waits for an attempt to connect.
const GRACE: Duration = Duration::from_millis(50);

/// The pause after a login on an open connection has failed. The store then logs in again.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Connection(Kind);

#[derive(Debug)]
enum Kind {
    Own(Arc<Shared>),
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
    /// The pause that follows if the next attempt to connect fails.
    pause: Duration,
}

#[derive(Debug)]
enum Phase {
    /// The connection was not needed yet, or is lost.
    Idle,
    /// An attempt to connect is in progress, and all callers wait for it.
    Connecting(Outcome),
    Live(LiveConnection),
    /// The last attempt to connect has failed, and the next attempt starts after `until`.
    Failed {
        error: ConnectError,
        until: Instant,
    },
}

/// The result of an attempt to connect, which is set when the attempt has ended. If the sender is
/// dropped without a result, the runtime of the attempt has ended.
type Outcome = watch::Receiver<Option<Connected>>;

type Connected = Result<LiveConnection, ConnectError>;

/// One command, or several commands that are sent in one write.
#[derive(Clone, Copy)]
enum Message<'a> {
    One(&'a Cmd),
    All(&'a Pipeline),
}

impl Connection {
    pub(super) fn new(source: Arc<Source>) -> Self {
        let state = Mutex::new(State { phase: Phase::Idle, pause: FIRST_PAUSE });
        Self(Kind::Own(Arc::new(Shared { source, state })))
    }

    pub(super) fn given(connection: GivenConnection, response_timeout: Duration) -> Self {
        Self(Kind::Given { connection, response_timeout })
    }

    /// Returns the open connection. If no connection is open, connects within the `connect_timeout`
    /// of the source.
    ///
    /// If this function returns an error, no command was sent.
    pub async fn live(&self) -> Result<LiveConnection, Error> {
        match &self.0 {
            Kind::Own(shared) => shared.live().await,
            Kind::Given { connection, .. } => Ok(LiveConnection::existing(connection)),
        }
    }

    /// Returns the time at which the current connection was made.
    pub(super) fn connected_at(&self) -> Option<Instant> {
        let Kind::Own(shared) = &self.0 else { return None };
        match &shared.state().phase {
            Phase::Live(live) => Some(live.since),
            _ => None,
        }
    }

    /// Sends a command on a connection. If the connection is lost and the command was certainly not
    /// sent, sends the command on a new connection. The server never gets the command twice.
    pub async fn send<T: FromRedisValue>(
        &self,
        live: &mut LiveConnection,
        command: &Cmd,
    ) -> Result<T, Error> {
        self.transmit(live, Message::One(command)).await
    }

    /// Sends several commands on a connection in one write, like [`send`](Self::send).
    pub async fn send_all<T: FromRedisValue>(
        &self,
        live: &mut LiveConnection,
        commands: &Pipeline,
    ) -> Result<T, Error> {
        self.transmit(live, Message::All(commands)).await
    }

    pub async fn time(&self) -> Result<Timestamp, Error> {
        let mut command = Cmd::new();
        command.arg("TIME");
        let (seconds, micros): (u64, u64) = self.send(&mut self.live().await?, &command).await?;
        Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
    }

    async fn transmit<T: FromRedisValue>(
        &self,
        live: &mut LiveConnection,
        message: Message<'_>,
    ) -> Result<T, Error> {
        match &self.0 {
            Kind::Own(shared) => shared.transmit(live, message).await,
            Kind::Given { response_timeout, .. } => {
                let answer = timeout(*response_timeout, message.query(&mut live.connection)).await;
                let answer =
                    answer.map_err(|_| error::no_answer(&live.server, *response_timeout))?;
                answer.map_err(|error| call_error(live, error, *response_timeout))
            }
        }
    }
}

fn call_error(live: &LiveConnection, error: RedisError, response_timeout: Duration) -> Error {
    if error.is_timeout() {
        return error::no_answer(&live.server, response_timeout);
    }
    error::call_error(&live.server, error)
}

enum Absence {
    Connecting(Outcome),
    /// The last attempt to connect failed, and the pause after it has not ended.
    Paused(ConnectError),
}

impl Shared {
    async fn live(self: &Arc<Self>) -> Result<LiveConnection, Error> {
        // If the runtime of an attempt to connect ends, the loop starts a second attempt, on the
        // runtime of this call.
        for _ in 0..2 {
            let mut outcome = match self.live_or_start() {
                Ok(live) => return Ok(live),
                Err(Absence::Connecting(outcome)) => outcome,
                Err(Absence::Paused(error)) => return Err(error.call_error()),
            };
            // An attempt to connect ends after `connect_timeout` at the latest, but not if its
            // runtime is blocked. So this call also stops waiting by itself, after `limit`.
            let limit = self.source.connect_timeout.saturating_add(GRACE);
            let waited = timeout(limit, outcome.wait_for(Option::is_some)).await;
            match waited.map(|ended| ended.ok().and_then(|outcome| outcome.clone())) {
                Ok(Some(outcome)) => {
                    return outcome.map_err(|error| error.call_error());
                }
                Ok(None) => {}
                Err(_) => {
                    self.abandon(&outcome);
                    return Err(self.source.no_connection_in_time().call_error());
                }
            }
        }
        let target = &self.source.target;
        let message = format!("no connection to {target}: the runtime that made it has ended");
        Err(ConnectError::new(ErrorKind::Unavailable, message).call_error())
    }

    /// Returns the open connection. If no connection is open, starts an attempt to connect. During
    /// an attempt, or during the pause after a failed attempt, starts no other attempt.
    fn live_or_start(self: &Arc<Self>) -> Result<LiveConnection, Absence> {
        let mut state = self.state();
        match &state.phase {
            Phase::Live(live) if !live.activity.is_closed() => return Ok(live.clone()),
            // If the attempt to connect has dropped its sender, the runtime of the attempt has
            // ended. Then this call starts another attempt.
            Phase::Connecting(outcome) if outcome.has_changed().is_ok() => {
                return Err(Absence::Connecting(outcome.clone()));
            }
            Phase::Failed { error, until } if Instant::now() < *until => {
                return Err(Absence::Paused(error.clone()));
            }
            _ => {}
        }
        Err(Absence::Connecting(self.start(&mut state)))
    }

    async fn transmit<T: FromRedisValue>(
        self: &Arc<Self>,
        live: &mut LiveConnection,
        message: Message<'_>,
    ) -> Result<T, Error> {
        let limit = self.source.access.response_timeout;
        let before = live.activity.counts();
        match message.query(&mut live.connection).await {
            Ok(answer) => return Ok(answer),
            Err(error) if self.was_not_sent(live, before, &error) => {}
            Err(error) => return Err(call_error(live, error, limit)),
        }
        *live = self.live().await?;
        let before = live.activity.counts();
        message.query(&mut live.connection).await.map_err(|error| {
            self.was_not_sent(live, before, &error);
            call_error(live, error, limit)
        })
    }

    fn start(self: &Arc<Self>, state: &mut State) -> Outcome {
        let (sender, outcome) = watch::channel(None);
        state.phase = Phase::Connecting(outcome.clone());
        tokio::spawn(run(Arc::downgrade(self), Arc::clone(&self.source), sender));
        outcome
    }

    /// Records the result of an attempt to connect, unless the attempt was abandoned.
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

    /// Abandons an attempt to connect, so that the next call starts another attempt.
    fn abandon(&self, attempt: &Outcome) {
        let mut state = self.state();
        if state.is_attempt(attempt) {
            state.phase = Phase::Idle;
        }
    }

    /// Drops or replaces the connection if `error` shows that the connection is lost, that the
    /// server does not reply, or that the server refuses writes. Returns `true` if the call was
    /// certainly not sent. `before` contains the numbers of writes and replies on the connection
    /// before this call.
    fn was_not_sent(
        self: &Arc<Self>,
        live: &LiveConnection,
        before: Counts,
        error: &RedisError,
    ) -> bool {
        let is_closed = live.activity.is_closed();
        if error.is_timeout() && !is_closed {
            // The task that watches the connection also replaces a connection without replies. But
            // this task cannot run while its runtime is blocked.
            if live.activity.counts().answers == before.answers {
                self.replace(&live.activity);
            }
            return false;
        }
        if is_closed || error.is_unrecoverable_error() || error.is_connection_dropped() {
            self.drop_connection(live);
            return live.activity.close() == before.writes;
        }
        // Before version 7, Redis wraps an error of a script in another error.
        let is_read_only = first_server_error(error).is_some_and(|(code, detail)| {
            matches!(&*code, "READONLY" | "NOREPLICAS") || detail.contains(": -READONLY ")
        });
        if is_read_only && live.since.elapsed() > MIN_LIFE {
            self.drop_connection(live);
        }
        false
    }

    /// Returns the current connection, or `None` if `activity` belongs to an earlier connection.
    fn in_use(&self, activity: &Activity) -> Option<LiveConnection> {
        let state = self.state();
        match &state.phase {
            Phase::Live(live) if state.is_in_use(activity) => Some(live.clone()),
            _ => None,
        }
    }

    /// Drops a lost connection, unless it has already been replaced.
    fn drop_connection(&self, lost: &LiveConnection) {
        let mut state = self.state();
        if state.is_in_use(&lost.activity) {
            state.phase = Phase::Idle;
        }
    }

    /// Starts an attempt to replace a lost connection, unless the connection has already been
    /// replaced.
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

async fn run(shared: Weak<Shared>, source: Arc<Source>, outcome: watch::Sender<Option<Connected>>) {
    let connected = match select(pin!(source.connect()), pin!(outcome.closed())).await {
        Either::Left((connected, _)) => connected,
        // All receivers of the result were dropped, so no caller needs the connection.
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

/// Transfers the bytes of a connection until the connection ends. If the server does not reply in
/// time, the function replaces the connection. A call that waits on the old connection still gets
/// its reply if the reply arrives in time.
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

/// Logs in again on a connection whenever the `renew_after` of its credentials has passed.
///
/// The task holds the connection only during a login, so that the connection ends when the store is
/// dropped.
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
