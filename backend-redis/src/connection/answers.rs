//! Finds the ends of replies within the bytes that a server sends.

/// The maximum length of a reply.
///
/// The longest valid reply is the reply to `CLUSTER SLOTS` in a cluster in which no two adjacent
/// slots are on one node: about 6 MB. A script replies with about 50 bytes per charge.
pub(super) const MAX_ANSWER: u64 = 16 << 20;

/// The maximum length of a line of a reply, such as an error. After each read, the parser of the
/// Redis client searches an incomplete line again from its start. The maximum bounds this work.
const MAX_LINE: u64 = 1 << 20;

/// The length of the shortest RESP value, such as `_\r\n`.
const MIN_VALUE: u64 = 3;

/// A counter of replies. It finds the end of a reply by the lengths that RESP (version 2 or 3)
/// contains, and does not store the bytes.
///
/// The counter does not detect input that is not RESP, because the parser of the Redis client
/// rejects such input.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The number of bytes of the current reply that have been received.
    length: u64,
    /// The number of values of the current reply that follow the current value.
    values: u64,
    /// The number of bytes of the current bulk string that have not arrived, including the line
    /// end.
    bulk: u64,
    /// The part of the first line of the current value that has been received.
    head: Option<Head>,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    kind: u8,
    number: u64,
    is_negative: bool,
    length: u64,
}

/// The error for a reply that is longer than [`MAX_ANSWER`], or has a line that is longer than
/// [`MAX_LINE`]. The counter returns this error before the whole reply has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

impl Answers {
    /// Counts the replies whose last byte is in `bytes`. `bytes` must continue the stream after the
    /// bytes of the previous call of this function.
    pub(super) fn count(&mut self, mut bytes: &[u8]) -> Result<u64, TooLong> {
        let mut answers = 0;
        while let [byte, rest @ ..] = bytes {
            let has_ended = if self.bulk > 0 {
                let missing = usize::try_from(self.bulk).unwrap_or(usize::MAX);
                let (bulk, rest) = bytes.split_at(missing.min(bytes.len()));
                bytes = rest;
                self.grow(bulk.len())?;
                self.bulk -= length(bulk.len());
                self.bulk == 0 && self.end_value()
            } else {
                bytes = rest;
                self.grow(1)?;
                self.read_head(*byte)?
            };
            answers += u64::from(has_ended);
        }
        Ok(answers)
    }

    fn grow(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.length += length(bytes);
        self.check(0)
    }

    /// Returns an error if the current reply exceeds [`MAX_ANSWER`] when `more` further bytes
    /// follow.
    fn check(&self, more: u64) -> Result<(), TooLong> {
        if self.length.saturating_add(more) > MAX_ANSWER { Err(TooLong) } else { Ok(()) }
    }

    fn read_head(&mut self, byte: u8) -> Result<bool, TooLong> {
        let Some(head) = &mut self.head else {
            self.head = Some(Head { kind: byte, number: 0, is_negative: false, length: 1 });
            return Ok(false);
        };
        head.length += 1;
        if head.length > MAX_LINE {
            return Err(TooLong);
        }
        match byte {
            b'0'..=b'9' => {
                head.number = head.number.saturating_mul(10).saturating_add((byte - b'0').into());
            }
            b'-' => head.is_negative = true,
            b'\n' => {
                let head = *head;
                self.head = None;
                return self.end_head(head);
            }
            _ => {}
        }
        Ok(false)
    }

    /// Processes the complete first line of a value. Returns `true` if the reply ends with this
    /// line.
    fn end_head(&mut self, Head { kind, number, is_negative, .. }: Head) -> Result<bool, TooLong> {
        let values = match kind {
            _ if is_negative => 0,
            b'$' | b'!' | b'=' => {
                self.bulk = number.saturating_add(2);
                self.check(self.bulk)?;
                return Ok(false);
            }
            b'*' | b'~' | b'>' => number,
            b'%' => number.saturating_mul(2),
            // RESP3 attributes are pairs before the value to which they belong, so count this value
            // too.
            b'|' => number.saturating_mul(2).saturating_add(1),
            _ => 0,
        };
        if values == 0 {
            return Ok(self.end_value());
        }
        self.values = self.values.saturating_add(values - 1);
        self.check(self.values.saturating_mul(MIN_VALUE))?;
        Ok(false)
    }

    /// Processes the end of a value. Returns `true` if the reply ends with this value.
    fn end_value(&mut self) -> bool {
        if self.values == 0 {
            self.length = 0;
            return true;
        }
        self.values -= 1;
        false
    }
}

fn length(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: [&[u8]; 16] = [
        b"+OK\r\n",
        b"-ERR 3 of *7 are $5\r\n",
        b":-12\r\n",
        b"$5\r\n\r\n$9\r\r\n",
        b"$0\r\n\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*3\r\n:1\r\n*2\r\n$3\r\nabc\r\n*0\r\n-ERR no\r\n",
        b"%2\r\n+a\r\n*1\r\n:1\r\n+b\r\n_\r\n",
        b"~2\r\n#t\r\n,1.5\r\n",
        b"=7\r\ntxt:one\r\n",
        b"!5\r\nERR x\r\n",
        b"|1\r\n+ttl\r\n:3\r\n$1\r\nv\r\n",
        b"(3492890328409238509324850943850943825024385\r\n",
        b">2\r\n+a\r\n+b\r\n",
    ];

    #[test]
    fn each_answer_ends_with_its_last_byte() {
        let mut answers = Answers::default();
        for answer in ANSWERS {
            let (last, first) = answer.split_last().unwrap();
            assert_eq!(answers.count(first), Ok(0), "{}", answer.escape_ascii());
            assert_eq!(answers.count(&[*last]), Ok(1), "{}", answer.escape_ascii());
        }
    }

    #[test]
    fn a_stream_may_be_split_at_any_byte() {
        let stream = ANSWERS.concat();
        for at in 0..=stream.len() {
            let (mut answers, (head, tail)) = (Answers::default(), stream.split_at(at));
            let count = answers.count(head).unwrap() + answers.count(tail).unwrap();
            assert_eq!(count, 16, "cut at {at}");
        }
    }

    #[test]
    fn an_answer_with_too_great_a_length_is_refused_immediately() {
        for head in [
            &b"$100000000000\r\n"[..],
            b"$99999999999999999999999999\r\n",
            b"*4611686018427387904\r\n",
            b"*8000000\r\n",
            b"%4000000\r\n",
            b"*2\r\n$16777216\r\n",
        ] {
            assert_eq!(Answers::default().count(head), Err(TooLong), "{}", head.escape_ascii());
        }
    }

    #[test]
    fn an_answer_without_a_length_is_refused_when_it_is_too_long() {
        let mut answers = Answers::default();
        assert_eq!(answers.count(b"+"), Ok(0));
        assert_eq!(answers.count(&[b'0'; (1 << 20) - 1]), Ok(0));
        assert_eq!(answers.count(b"\r"), Err(TooLong));
        let (mut answers, mut length) = (Answers::default(), 4);
        assert_eq!(answers.count(b"*99\r\n"), Ok(0));
        let element = [&b"$1048576\r\n"[..], &[b'0'; 1 << 20], b"\r\n"].concat();
        while answers.count(&element) == Ok(0) {
            length += element.len();
        }
        assert!((15 << 20..=16 << 20).contains(&length), "{length}");
    }

    #[test]
    fn many_answers_may_be_longer_together() {
        let mut answers = Answers::default();
        let answer = [&b"$1048576\r\n"[..], &[b'0'; 1 << 20], b"\r\n"].concat();
        for _ in 0..40 {
            assert_eq!(answers.count(&answer), Ok(1));
        }
    }
}
