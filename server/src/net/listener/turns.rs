//! Lets the connections of a listener take turns to read.
//!
//! The runtime has one queue of tasks. If all connections with many requests were in the queue, a
//! connection with one request would wait for all these requests. Therefore, each connection can
//! read only a few requests without a turn. To read more, it waits for a turn, and only a few
//! connections have a turn at the same time.
//!
//! A turn is the permission of one connection to read a bounded number of bytes. The number of
//! turns is fixed for each listener. The connections of a listener use only its turns, so that a
//! flood on one protocol hardly delays the other protocols.

use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::thread::available_parallelism;

use tokio::io::ReadBuf;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// The numbers of bytes that a connection may read at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnBytes {
    /// The number of bytes that a connection may read without a turn. It may read this number again
    /// after it has read all bytes that have arrived.
    free: usize,
    /// The number of bytes that a connection may read in one turn.
    turn: usize,
}

impl TurnBytes {
    /// The numbers of bytes for HTTP and gRPC. A turn covers about ten requests, and a request
    /// takes tens of microseconds.
    pub(crate) const REQUESTS: Self = Self { free: 256, turn: 1 << 10 };

    /// The numbers of bytes for RESP. A turn covers a batch of commands. Smaller turns would split
    /// a pipeline into more batches, and each batch costs a round trip to the store.
    pub(crate) const PIPELINES: Self = Self { free: 16 << 10, turn: 16 << 10 };
}

/// The turns of a listener. There are as many turns as CPUs, which is the usual number of threads.
#[derive(Debug, Clone)]
pub(super) struct Round {
    turns: Arc<Semaphore>,
    bytes: TurnBytes,
}

impl Round {
    pub(super) fn new(bytes: TurnBytes) -> Self {
        Self::with_turns(available_parallelism().map_or(1, usize::from), bytes)
    }

    fn with_turns(turns: usize, bytes: TurnBytes) -> Self {
        Self { turns: Arc::new(Semaphore::new(turns)), bytes }
    }
}

type Acquired = Result<OwnedSemaphorePermit, AcquireError>;

/// The state of one connection that reads in turns.
pub(super) struct Turns {
    round: Round,
    /// The number of bytes that the connection may read before its next turn.
    bytes: usize,
    next: Next,
}

/// The state of the next turn of a connection.
enum Next {
    /// The connection needs no turn yet.
    None,
    Waiting(Pin<Box<dyn Future<Output = Acquired> + Send + Sync>>),
    /// The connection has a turn, but uses it only after the tasks that are ready now have run.
    Ready(OwnedSemaphorePermit),
}

impl Turns {
    pub(super) fn new(round: Round) -> Self {
        Self { bytes: round.bytes.free, round, next: Next::None }
    }

    /// Calls `read` with the part of the buffer that the connection may fill now, or waits for a
    /// turn.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
        read: impl FnOnce(&mut Context<'_>, &mut ReadBuf<'_>) -> Poll<io::Result<()>>,
    ) -> Poll<io::Result<()>> {
        // The turn ends after this read. The requests are decided later, so that connections that
        // wait for a turn do not wait for these decisions.
        let _turn = match self.bytes {
            0 => Some(ready!(self.poll_turn(cx))),
            _ => None,
        };
        let (polled, bytes) = if buffer.remaining() <= self.bytes {
            let before = buffer.filled().len();
            let polled = read(cx, buffer);
            (polled, buffer.filled().len() - before)
        } else {
            let mut part = ReadBuf::new(buffer.initialize_unfilled_to(self.bytes));
            let polled = read(cx, &mut part);
            let bytes = part.filled().len();
            buffer.advance(bytes);
            (polled, bytes)
        };
        self.bytes = match polled {
            Poll::Ready(_) => self.bytes - bytes,
            Poll::Pending => self.round.bytes.free,
        };
        polled
    }

    /// Releases the turn, so that another connection can use it while this connection waits to
    /// write.
    pub(super) fn give_up(&mut self) {
        self.next = Next::None;
    }

    /// Waits for a turn. Even if a turn is free, waits until the tasks that are ready now have run.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<OwnedSemaphorePermit> {
        if matches!(self.next, Next::None) {
            let mut turn = Box::pin(Arc::clone(&self.round.turns).acquire_owned());
            self.next = match turn.as_mut().poll(cx) {
                Poll::Ready(Ok(turn)) => {
                    cx.waker().wake_by_ref();
                    Next::Ready(turn)
                }
                // The error does not occur, because the semaphore is never closed.
                Poll::Ready(Err(_)) | Poll::Pending => Next::Waiting(turn),
            };
            return Poll::Pending;
        }
        if let Next::Waiting(turn) = &mut self.next
            && let Ok(turn) = ready!(turn.as_mut().poll(cx))
        {
            self.next = Next::Ready(turn);
        }
        match mem::replace(&mut self.next, Next::None) {
            Next::Ready(turn) => {
                self.bytes = self.round.bytes.turn;
                Poll::Ready(turn)
            }
            Next::None | Next::Waiting(_) => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const BYTES: TurnBytes = TurnBytes::REQUESTS;
    const FREE_BYTES: usize = BYTES.free;
    const TURN_BYTES: usize = BYTES.turn;

    /// Polls a connection that always has more bytes to read. Returns the number of bytes read.
    fn read(turns: &mut Turns) -> usize {
        let cx = &mut Context::from_waker(Waker::noop());
        let mut read = 0;
        loop {
            let mut bytes = [0; 300];
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = turns.poll_read(cx, &mut buffer, |_, buffer| {
                buffer.initialize_unfilled();
                buffer.advance(buffer.remaining());
                Poll::Ready(Ok(()))
            });
            match polled {
                Poll::Ready(_) => read += buffer.filled().len(),
                Poll::Pending => return read,
            }
        }
    }

    #[test]
    fn a_connection_that_is_alone_reads_after_all_others_have_run() {
        let mut turns = Turns::new(Round::with_turns(2, BYTES));
        assert_eq!([0; 3].map(|_| read(&mut turns)), [FREE_BYTES, TURN_BYTES, TURN_BYTES]);
    }

    #[test]
    fn few_connections_have_a_turn_and_the_others_follow_in_order() {
        let round = Round::with_turns(2, BYTES);
        let mut all: Vec<_> = (0..100).map(|_| Turns::new(round.clone())).collect();
        assert!(all.iter_mut().all(|turns| read(turns) == FREE_BYTES));
        for index in 0..98 {
            assert_eq!(read(&mut all[index + 2]), 0, "it waits for {index}");
            assert_eq!(read(&mut all[index]), TURN_BYTES);
        }
        // A new connection can read its first requests without a turn.
        assert_eq!(read(&mut Turns::new(round)), FREE_BYTES);
    }

    #[test]
    fn a_connection_that_ends_gives_its_turn_to_the_next_one() {
        let round = Round::with_turns(2, BYTES);
        let mut all: Vec<_> = (0..10).map(|_| Turns::new(round.clone())).collect();
        assert!(all.iter_mut().all(|turns| read(turns) == FREE_BYTES));
        all.drain(..8);
        assert_eq!([read(&mut all[0]), read(&mut all[1])], [TURN_BYTES; 2]);
    }
}
