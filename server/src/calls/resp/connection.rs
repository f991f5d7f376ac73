//! Serves a RESP connection from its first bytes to its end.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::bound::Bound;
use super::frame::{FrameError, Frames};
use super::reply::Reply;
use super::session::{Planned, Session, Shared, Step};
use crate::calls::{CallRequest, Outcome};
use crate::net::timer::{Timer, after, timeout};

/// The maximum number of commands in a batch.
const MAX_BATCH: usize = 256;

/// The maximum number of commands in a batch if the store answers immediately. The task yields to
/// other connections after each full batch. For any other store, a batch can be larger, because
/// other connections run while the batch waits for its answer.
const MAX_IMMEDIATE_BATCH: usize = 4;

/// A batch ends when its arguments have this many bytes. This limits the size of the replies,
/// because a reply can repeat the arguments of its command.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// The maximum number of bytes that one read returns.
const READ_BYTES: usize = 16 << 10;

/// The connection allocates a new read buffer if the current buffer has room for fewer bytes. An
/// argument keeps its whole buffer in memory, so replacing a buffer too early would waste memory.
const MIN_READ_BYTES: usize = 4 << 10;

/// The maximum time for which the server, after it has closed a connection, waits until the client
/// closes the connection too.
const LINGER: Duration = Duration::from_secs(1);

/// The maximum size of a buffer that is kept for reuse.
const KEPT_BYTES: usize = 64 << 10;

/// The idle timeout of a connection with bound holds.
const MAX_IDLE_WHILE_BOUND: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Answers the commands of a client until the client closes the connection, exceeds a timeout, or
/// sends bytes that are not a command. If `stopped` becomes true, the connection ends after the
/// commands that have arrived are answered.
///
/// # Errors
///
/// Returns an error if the connection fails.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    shared: Arc<Shared>,
    stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let settings = &shared.settings;
    let mut watched = stopped.clone();
    let mut stop = pin!(async move {
        // If the sender is dropped, the server has ended too.
        let _ = watched.wait_for(|stopped| *stopped).await;
    });
    let mut timer = Timer::default();
    let is_immediate = shared.calls.answer_immediately();
    let max_batch = if is_immediate { MAX_IMMEDIATE_BATCH } else { MAX_BATCH };
    let mut session = Session::new(Arc::clone(&shared));
    let mut frames = Frames::default();
    let mut bound = Bound::new(Arc::clone(&shared.guards));
    let (mut input, mut output) = (BytesMut::new(), Vec::new());
    // Whether long arguments have arrived since the last read. `input` still keeps their memory. To
    // free this memory, the connection copies `input` before the next read.
    let mut has_grown = false;
    // The time until which an incomplete command must be complete.
    let mut deadline: Option<Instant> = None;
    loop {
        let batch = read_batch(&mut frames, &mut session, &mut input, &shared, max_batch);
        let (is_end, is_full) = (batch.is_end, batch.commands.len() >= max_batch || batch.is_large);
        has_grown |= batch.bytes > KEPT_BYTES;
        if !batch.commands.is_empty() {
            deadline = None;
            answer(batch.commands, &shared, &mut bound, &mut output).await;
        }
        if is_immediate && is_full && !is_end && output.len() < KEPT_BYTES {
            // `output` keeps the replies. The server sends them together with the replies to the
            // next batch.
            yield_now().await;
            continue;
        }
        if !output.is_empty() {
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
        if !is_partial {
            deadline = None;
        }
        timer.set(match is_partial {
            true => *deadline.get_or_insert_with(|| after(settings.command_timeout)),
            // While a hold is bound, its holder works. The operating system notices if it is gone.
            false if bound.has_holds() => after(MAX_IDLE_WHILE_BOUND),
            false => after(settings.idle_timeout),
        });
        if mem::take(&mut has_grown) {
            input = BytesMut::from(&*input);
        }
        if input.capacity() - input.len() < MIN_READ_BYTES {
            input.reserve(READ_BYTES);
        }
        tokio::select! {
            // The read is polled first. If bytes have arrived, the other futures are not polled.
            biased;
            read = stream.read_buf(&mut input) => {
                if read? == 0 {
                    return Ok(());
                }
            }
            () = &mut stop => return end(&mut stream, settings.write_timeout).await,
            () = poll_fn(|cx| timer.poll(cx)) => {
                let message = if is_partial {
                    let span = settings.command_timeout;
                    format!("a command did not arrive within {span:?}")
                } else {
                    format!("no command arrived within {:?}", settings.idle_timeout)
                };
                Reply::error(message).write(session.protocol(), &mut output);
                timeout(settings.write_timeout, send(&mut stream, &output)).await??;
                return end(&mut stream, settings.write_timeout).await;
            }
        }
    }
}

/// Writes all bytes, and then flushes the stream, because an encrypted stream buffers writes.
async fn send(stream: &mut (impl AsyncWrite + Unpin), output: &[u8]) -> io::Result<()> {
    stream.write_all(output).await?;
    stream.flush().await
}

/// Closes a connection. To shut down an encrypted stream, the server sends a message. If the client
/// does not read, sending would block, so the shutdown has a timeout.
async fn end(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    within: Duration,
) -> io::Result<()> {
    timeout(within, stream.shutdown()).await??;
    // If the server closed a socket that has unread input, the client could lose replies in flight.
    // Therefore the server reads and discards the input until the client closes the connection.
    // The timeout of tokio also ends a copy whose input is always ready.
    let _ = tokio::time::timeout(LINGER, tokio::io::copy(stream, &mut tokio::io::sink())).await;
    Ok(())
}

/// A batch of commands. The server sends their replies together.
struct Batch {
    commands: Vec<Planned>,
    /// Whether the server closes the connection after this batch.
    is_end: bool,
    /// The size of the arguments of all commands in bytes.
    bytes: usize,
    /// Whether the batch ended because of [`MAX_BATCH_BYTES`]. Further commands may then be in the
    /// buffer.
    is_large: bool,
}

fn read_batch(
    frames: &mut Frames,
    session: &mut Session,
    input: &mut BytesMut,
    shared: &Shared,
    max_batch: usize,
) -> Batch {
    let mut batch = Batch { commands: Vec::new(), is_end: false, bytes: 0, is_large: false };
    while batch.commands.len() < max_batch && !batch.is_end && !batch.is_large {
        let next = match session.next_queued() {
            Some(arguments) => Ok(Some(arguments)),
            None => frames.next(input, session.bounds()),
        };
        match next {
            Ok(None) => break,
            Ok(Some(arguments)) => {
                batch.bytes += arguments.iter().map(|argument| argument.len()).sum::<usize>();
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
async fn answer(
    mut commands: Vec<Planned>,
    shared: &Shared,
    bound: &mut Bound,
    output: &mut Vec<u8>,
) {
    let start = Clock::now();
    for planned in &mut commands {
        if let Step::Call(request, _) = &planned.step
            && let Err(error) = bound.check(request)
        {
            planned.step = Step::Reply(Reply::from_error(&error));
        }
    }
    let requests: Vec<&CallRequest> = commands
        .iter()
        .filter_map(|planned| match &planned.step {
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
            // The command is counted when `EXEC` executes it, not when it is queued.
            Step::Queued => {
                Reply::Status("QUEUED").write(protocol, output);
                continue;
            }
            Step::Reply(reply) | Step::End(reply) => (reply, false),
            Step::Call(request, form) => {
                let answer = decisions.next();
                if let Some(answer) = &answer {
                    bound.learn(&request, answer);
                }
                match answer {
                    Some(Ok(decision)) => {
                        (form.reply(&request, &decision), !request.is_admitted(&decision))
                    }
                    Some(Err(error)) => (Reply::from_error(&error), false),
                    // `decide_many` returns one answer per call, so `decisions` has an answer for
                    // each call.
                    None => (Reply::error("the call was not decided"), false),
                }
            }
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
