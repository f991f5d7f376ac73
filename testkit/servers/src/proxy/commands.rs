//! A counter of the Redis commands in a stream of bytes.

/// A counter of the commands that a Redis client sends, regardless of how the stream is split into
/// reads.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// The bytes of the line that is being read.
    line: Vec<u8>,
    /// The number of bytes of the current argument that have not been read yet, including the line
    /// end after the argument.
    skip: usize,
    /// The number of arguments of the current command that have not been read yet.
    arguments: usize,
}

impl Commands {
    /// Reads the next part of the stream, and returns the number of commands that end in this part.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> u64 {
        let mut commands = 0;
        while let [byte, rest @ ..] = bytes {
            if self.skip > 0 {
                let (skipped, rest) = bytes.split_at(self.skip.min(bytes.len()));
                self.skip -= skipped.len();
                bytes = rest;
            } else {
                bytes = rest;
                self.line.push(*byte);
                if *byte != b'\n' {
                    continue;
                }
                self.end_line();
            }
            commands += u64::from(self.skip == 0 && self.arguments == 0);
        }
        commands
    }

    /// Interprets a line that is complete. For example, `*2` begins a command with two arguments,
    /// and `$5` begins an argument with five bytes.
    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).unwrap_or_default().trim_end();
        let number = text.get(1..).and_then(|number| number.parse::<usize>().ok());
        match (text.as_bytes().first(), number) {
            (Some(b'*'), Some(arguments)) => self.arguments = arguments,
            (Some(b'$'), Some(length)) => {
                self.arguments = self.arguments.saturating_sub(1);
                self.skip = length.saturating_add(2);
            }
            // A line without a prefix is an inline command, whose words are all on the line.
            _ => self.arguments = 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Commands;

    const TWO: &[u8] = b"*2\r\n$3\r\nGET\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n";

    #[test]
    fn commands_are_counted_once_each() {
        assert_eq!(Commands::default().count(TWO), 2);
    }

    #[test]
    fn a_command_is_counted_wherever_the_stream_is_cut() {
        for at in 0..=TWO.len() {
            let (mut commands, (head, tail)) = (Commands::default(), TWO.split_at(at));
            assert_eq!(commands.count(head) + commands.count(tail), 2, "cut at {at}");
        }
        let mut commands = Commands::default();
        assert_eq!(TWO.iter().map(|byte| commands.count(&[*byte])).sum::<u64>(), 2);
    }

    #[test]
    fn a_command_counts_when_its_last_byte_was_read() {
        assert_eq!(Commands::default().count(&TWO[..TWO.len() - 1]), 1);
    }

    #[test]
    fn an_inline_command_is_counted() {
        assert_eq!(Commands::default().count(b"PING\r\nPING\r\n"), 2);
    }
}
