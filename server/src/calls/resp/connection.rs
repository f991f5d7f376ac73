//! A connection, from its bytes to its end.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::frame::{FrameError, Frames};
use super::reply::Reply;
use super::session::{Planned, Session, Shared, Step};
use crate::calls::{CallRequest, Outcome};

/// The maximum number of commands that are decided together, and answered at once.
const MAX_BATCH: usize = 256;

/// How many bytes of arguments end a batch: a reply may repeat its arguments.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// How many bytes are read at once.
const READ_BYTES: usize = 16 << 10;

/// A buffer with room for fewer bytes is replaced. Arguments keep the buffers that they came in: one that has just begun is
/// filled first, so that arguments that come one by one keep about as much memory as they have bytes.
const MIN_READ_BYTES: usize = 4 << 10;

/// In place of a span beyond what a clock can count.
const FAR: Duration = Duration::from_secs(365 * 86_400);

/// How long a connection that has ended waits for its client to end it, too.
const LINGER: Duration = Duration::from_secs(1);

/// Buffers of at most this size are kept.
const KEPT_BYTES: usize = 64 << 10;

/// Answers the commands of a client until it ends the connection, is silent or slow for too long, or sends what is not
/// a command; or until `stopped` is true and the commands that have come are answered.
///
/// # Errors
///
/// If the connection fails.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let settings = &shared.settings;
    let mut session = Session::new(Arc::clone(&shared));
    let mut frames = Frames::default();
    let (mut input, mut output) = (BytesMut::new(), Vec::new());
    // Whether long arguments have come: the buffer has the memory of all that was taken from it, and its capacity does
    // not say so.
    let mut has_grown = false;
    // When the first bytes of a command came that is not complete.
    let mut begun: Option<Instant> = None;
    loop {
        let batch = read_batch(&mut frames, &mut session, &mut input, &shared);
        let (is_end, is_full) = (batch.is_end, batch.commands.len() >= MAX_BATCH || batch.is_large);
        let has_commands = !batch.commands.is_empty();
        has_grown |= batch.bytes > KEPT_BYTES;
        if has_commands {
            answer(batch.commands, &shared, &mut output).await;
            // A client that does not read its replies gets no more of them.
            timeout(settings.write_timeout, send(&mut stream, &output)).await??;
            output.clear();
            output.shrink_to(KEPT_BYTES);
        }
        if is_end {
            return end(&mut stream, settings.write_timeout).await;
        }
        if is_full {
            continue;
        }
        if *stopped.borrow() {
            return end(&mut stream, settings.write_timeout).await;
        }
        let is_partial = frames.is_partial(&input);
        if has_commands || !is_partial {
            begun = None;
        }
        let deadline = if is_partial {
            after(*begun.get_or_insert_with(Instant::now), settings.command_timeout)
        } else {
            after(Instant::now(), settings.idle_timeout)
        };
        if mem::take(&mut has_grown) {
            input = BytesMut::from(&*input);
        }
        if input.capacity() - input.len() < MIN_READ_BYTES {
            input.reserve(READ_BYTES);
        }
        let read = tokio::select! {
            read = timeout_at(deadline, stream.read_buf(&mut input)) => read,
            _ = stopped.wait_for(|stopped| *stopped) => continue,
        };
        match read {
            Ok(read) => {
                if read? == 0 {
                    return Ok(());
                }
            }
            Err(_) => {
                let message = if is_partial {
                    let span = settings.command_timeout;
                    format!("a command has not come within {span:?}")
                } else {
                    format!("no command has come for {:?}", settings.idle_timeout)
                };
                Reply::error(message).write(session.protocol(), &mut output);
                timeout(settings.write_timeout, send(&mut stream, &output)).await??;
                return end(&mut stream, settings.write_timeout).await;
            }
        }
    }
}

/// Writes all of it, and what an encrypted stream holds back.
async fn send(stream: &mut (impl AsyncWrite + Unpin), output: &[u8]) -> io::Result<()> {
    stream.write_all(output).await?;
    stream.flush().await
}

/// Ends a connection. An encrypted one says so to its client, which may not read it.
async fn end(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    within: Duration,
) -> io::Result<()> {
    timeout(within, stream.shutdown()).await??;
    // A socket that is closed while there is something to read drops the replies that are under way.
    let _ = timeout(LINGER, tokio::io::copy(stream, &mut tokio::io::sink())).await;
    Ok(())
}

fn after(start: Instant, span: Duration) -> Instant {
    start.checked_add(span).unwrap_or_else(|| start + FAR)
}

/// Commands that are answered at once.
struct Batch {
    commands: Vec<Planned>,
    /// Whether the connection ends after them.
    is_end: bool,
    /// How many bytes their arguments have.
    bytes: usize,
    /// Whether others may have come.
    is_large: bool,
}

fn read_batch(
    frames: &mut Frames,
    session: &mut Session,
    input: &mut BytesMut,
    shared: &Shared,
) -> Batch {
    let mut batch = Batch { commands: Vec::new(), is_end: false, bytes: 0, is_large: false };
    while batch.commands.len() < MAX_BATCH && !batch.is_end && !batch.is_large {
        let next = match session.next_queued() {
            Some(arguments) => Ok(Some(arguments)),
            None => frames.next(input, session.bounds()),
        };
        match next {
            Ok(None) => break,
            Ok(Some(arguments)) => {
                batch.bytes += arguments.iter().map(|it| it.len()).sum::<usize>();
                batch.is_large = batch.bytes >= MAX_BATCH_BYTES;
                let planned = session.plan(&arguments);
                batch.is_end = matches!(planned.step, Step::End(_));
                batch.commands.push(planned);
            }
            Err(error) => {
                shared.stats.protocol_errors.increment(1);
                shared.calls.unreadable(FrameError::LOGGED);
                let step = Step::End(Reply::error(error.to_string()));
                let protocol = session.protocol();
                batch.commands.push(Planned { command: None, protocol, step });
                batch.is_end = true;
            }
        }
    }
    batch
}

/// Decides the calls of a batch together, and writes all replies in order.
async fn answer(commands: Vec<Planned>, shared: &Shared, output: &mut Vec<u8>) {
    let start = Clock::now();
    let requests: Vec<&CallRequest> = commands
        .iter()
        .filter_map(|it| match &it.step {
            Step::Call(request, _) => Some(request),
            Step::Reply(_) | Step::Queued | Step::End(_) => None,
        })
        .collect();
    let decisions = match requests.is_empty() {
        true => Vec::new(),
        false => shared.calls.decide_many(&requests).await,
    };
    let mut decisions = decisions.into_iter();
    for Planned { command, protocol, step } in commands {
        let (reply, is_refused) = match step {
            // `EXEC` executes the command, which is counted then.
            Step::Queued => {
                Reply::Status("QUEUED").write(protocol, output);
                continue;
            }
            Step::Reply(reply) | Step::End(reply) => (reply, false),
            Step::Call(request, form) => match decisions.next() {
                Some(Ok(decision)) => {
                    (form.reply(&request, &decision), !request.is_admitted(&decision))
                }
                Some(Err(error)) => (Reply::of_error(&error), false),
                // `decide_many` has one answer for each.
                None => (Reply::error("the call was not decided"), false),
            },
        };
        let outcome = match (reply.is_error(), is_refused) {
            (true, _) => Outcome::Failed,
            (_, true) => Outcome::Refused,
            _ => Outcome::Done,
        };
        shared.stats.command(command, outcome);
        reply.write(protocol, output);
    }
    shared.stats.batch(start.elapsed());
}
