//! The queue of commands between `MULTI` and `EXEC`.

use std::collections::VecDeque;
use std::mem::size_of;

use bytes::{Bytes, BytesMut};

use super::frame::Arguments;
use super::reply::Reply;

/// The maximum number of commands in a transaction.
pub const MAX_QUEUED_COMMANDS: usize = 10_000;

/// The maximum memory in bytes for the arguments of a transaction. Each argument counts as its
/// length plus the size of [`Bytes`].
pub const MAX_QUEUED_BYTES: usize = 4 << 20;

/// The commands that a client has sent since `MULTI`.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    commands: VecDeque<Arguments>,
    bytes: usize,
    is_aborted: bool,
}

impl Transaction {
    /// Queues a copy of a command. If the transaction is already aborted, the command is dropped.
    ///
    /// # Errors
    ///
    /// Returns an error reply if the transaction is full.
    pub(super) fn push(&mut self, arguments: &Arguments) -> Result<(), Reply> {
        if self.is_aborted {
            return Ok(());
        }
        let length = arguments.iter().map(|argument| argument.len()).sum();
        let bytes = self.bytes + length + arguments.len() * size_of::<Bytes>();
        if self.commands.len() >= MAX_QUEUED_COMMANDS {
            let commands = self.commands.len() + 1;
            return Err(Reply::error(format!(
                "a transaction has {commands} commands; it must have at most {MAX_QUEUED_COMMANDS}"
            )));
        }
        if bytes > MAX_QUEUED_BYTES {
            return Err(Reply::error(format!(
                "the commands of a transaction need {bytes} bytes; they must need at most {MAX_QUEUED_BYTES}"
            )));
        }
        self.bytes = bytes;
        self.commands.push_back(copy(arguments, length));
        Ok(())
    }

    /// Makes `EXEC` fail, and frees the memory of the queue.
    pub(super) fn abort(&mut self) {
        *self = Self { is_aborted: true, ..Self::default() };
    }

    /// Returns the commands in order, or `None` if the transaction was aborted.
    pub(super) fn into_commands(self) -> Option<VecDeque<Arguments>> {
        (!self.is_aborted).then_some(self.commands)
    }
}

/// Copies the arguments into one new buffer, because they would otherwise keep the read buffer in
/// memory, which can be much larger.
fn copy(arguments: &Arguments, length: usize) -> Arguments {
    let mut buffer = BytesMut::with_capacity(length);
    arguments.iter().for_each(|argument| buffer.extend_from_slice(argument));
    let mut buffer = buffer.freeze();
    arguments.iter().map(|argument| buffer.split_to(argument.len())).collect()
}
