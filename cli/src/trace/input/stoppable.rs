//! An input that can be cancelled while it waits for data.

use std::io::{self, Cursor, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::trace::input::stop::Stop;

/// The maximum number of chunks that are read ahead.
const CHUNKS: usize = 4;
const CHUNK: usize = 64 << 10;

/// The time between two checks of `stop` while no data arrives.
const PAUSE: Duration = Duration::from_millis(50);

/// A reader whose input is read by another thread. A read that waits for a pipe cannot be
/// cancelled, but this reader can stop waiting for the thread.
pub(in crate::trace) struct Stoppable {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Cursor<Vec<u8>>,
    stop: Stop,
}

impl Stoppable {
    pub(in crate::trace) fn new(reader: Box<dyn Read + Send>, stop: Stop) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(CHUNKS);
        thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || read_all(reader, &sender))?;
        Ok(Self { chunks, chunk: Cursor::default(), stop })
    }
}

/// Sends chunks of the input to the channel, until the input ends or the receiver is dropped.
fn read_all(mut reader: Box<dyn Read + Send>, chunks: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK];
        let read = match reader.read(&mut chunk) {
            Ok(0) => return,
            Ok(length) => {
                chunk.truncate(length);
                Ok(chunk)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if chunks.send(read).is_err() || failed {
            return;
        }
    }
}

impl Read for Stoppable {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stop.is_asked() {
                return Err(io::Error::other("the reader was stopped"));
            }
            let read = self.chunk.read(into)?;
            if read > 0 || into.is_empty() {
                return Ok(read);
            }
            match self.chunks.recv_timeout(PAUSE) {
                Ok(chunk) => self.chunk = Cursor::new(chunk?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
    }
}
