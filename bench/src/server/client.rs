//! A client for all protocols, with several connections on one thread.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::exchange::{Exchange, MAX_IN_FLIGHT, Reply};
use crate::Outcome;

/// The time without data on all connections after which the benchmark fails.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// The maximum number of requests in flight on a connection at a fixed rate. Further requests wait,
/// and their latency includes the wait.
const MAX_AT_RATE: usize = 100;

/// The times at which requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    /// This number of requests is in flight on each connection. Each reply causes a request.
    Each(usize),
    /// The client sends this number of requests together on each connection, and sends the next
    /// ones after all replies.
    Together(usize),
    /// This number of requests is sent per second, regardless of replies.
    Rate(u64),
}

/// The condition that ends sending.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    Time(Duration),
    Requests(u64),
}

#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) took: Duration,
    pub(super) requests: u64,
    pub(super) allowed: u64,
    /// The latencies in nanoseconds, from the time when the request is sent. At a fixed rate, they
    /// begin when the request is due.
    pub(super) latencies: Vec<u64>,
}

/// Connections to one server.
pub(super) struct Client {
    streams: Vec<TcpStream>,
    lines: Vec<Line>,
    next: usize,
}

struct Line {
    exchange: Box<dyn Exchange>,
    input: Vec<u8>,
    output: Vec<u8>,
    requests: usize,
    in_flight: usize,
    /// The times at which the last requests were sent, by the number of the request modulo
    /// [`MAX_IN_FLIGHT`].
    sent: Vec<Instant>,
}

impl Client {
    pub(super) fn connect(
        address: SocketAddr,
        connections: usize,
        exchange: impl Fn() -> Box<dyn Exchange>,
    ) -> Outcome<Self> {
        let (mut streams, mut lines) = (vec![], vec![]);
        for _ in 0..connections {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
            lines.push(Line::new(exchange()));
        }
        Ok(Self { streams, lines, next: 0 })
    }

    /// Sends `requests` in turn until `until` is reached. Returns after the last reply.
    pub(super) fn run(&mut self, requests: &[Vec<u8>], pace: Pace, until: Until) -> Outcome<Run> {
        let until = match (pace, until) {
            // At a fixed rate, the client sends all requests that are due in the time, even if they
            // are late.
            (Pace::Rate(rate), Until::Time(time)) => {
                Until::Requests(u64::try_from(time.as_nanos() * u128::from(rate) / 1_000_000_000)?)
            }
            _ => until,
        };
        let wait = match pace {
            Pace::Rate(_) => Timespec { tv_sec: 0, tv_nsec: 0 },
            Pace::Each(_) | Pace::Together(_) => PATIENCE,
        };
        let (started, mut run, mut replies) = (Instant::now(), Run::default(), vec![]);
        let mut bytes = vec![0; 64 << 10];
        loop {
            let rest = match until {
                Until::Requests(count) => count - run.requests,
                Until::Time(time) if started.elapsed() < time => u64::MAX,
                Until::Time(_) => 0,
            };
            run.requests += match pace {
                Pace::Rate(rate) => self.send_due(requests, rate, run.requests, rest, started),
                Pace::Each(depth) => self.fill(requests, depth, false, rest),
                Pace::Together(depth) => self.fill(requests, depth, true, rest),
            };
            if rest == 0 && self.lines.iter().all(|line| line.in_flight == 0) {
                run.took = started.elapsed();
                return Ok(run);
            }
            for index in self.wait(&wait)? {
                let (stream, line) = (&self.streams[index], &mut self.lines[index]);
                line.flush(stream)?;
                line.read(stream, &mut bytes, &mut replies)?;
                let now = Instant::now();
                for Reply { index, is_allowed } in replies.drain(..) {
                    run.allowed += u64::from(is_allowed);
                    let latency = now.saturating_duration_since(line.sent[index % MAX_IN_FLIGHT]);
                    run.latencies.push(u64::try_from(latency.as_nanos())?);
                }
            }
        }
    }

    /// Sends requests until `depth` requests are in flight on each connection. With `is_together`,
    /// skips connections with requests in flight.
    fn fill(&mut self, requests: &[Vec<u8>], depth: usize, is_together: bool, max: u64) -> u64 {
        let (now, mut sent) = (Instant::now(), 0);
        for line in &mut self.lines {
            if is_together && line.in_flight > 0 {
                continue;
            }
            while line.in_flight < depth && sent < max {
                line.send(&requests[self.next % requests.len()], now);
                self.next += 1;
                sent += 1;
            }
        }
        sent
    }

    /// Sends the requests that are due at a fixed rate. Uses the connections in turn.
    fn send_due(
        &mut self,
        requests: &[Vec<u8>],
        rate: u64,
        before: u64,
        max: u64,
        started: Instant,
    ) -> u64 {
        let (now, mut sent, connections) = (Instant::now(), 0, self.lines.len());
        while sent < max {
            let due = started + Duration::from_nanos((before + sent) * 1_000_000_000 / rate);
            let line = &mut self.lines[self.next % connections];
            if due > now || line.in_flight >= MAX_AT_RATE {
                break;
            }
            line.send(&requests[self.next % requests.len()], due);
            self.next += 1;
            sent += 1;
        }
        sent
    }

    /// Writes the pending output, and waits for input. Returns the connections that are ready.
    fn wait(&mut self, timeout: &Timespec) -> Outcome<Vec<usize>> {
        let mut polled = vec![];
        for (stream, line) in self.streams.iter().zip(&mut self.lines) {
            line.flush(stream)?;
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, !line.output.is_empty());
            polled.push(PollFd::new(stream, flags));
        }
        if poll(&mut polled, Some(timeout))? == 0 && timeout.tv_sec > 0 {
            return Err(format!("no reply has come within {} s", timeout.tv_sec).into());
        }
        let ready = polled.iter().enumerate().filter(|(_, it)| !it.revents().is_empty());
        Ok(ready.map(|(index, _)| index).collect())
    }
}

impl Line {
    fn new(mut exchange: Box<dyn Exchange>) -> Self {
        let mut output = vec![];
        exchange.begin(&mut output);
        let sent = vec![Instant::now(); MAX_IN_FLIGHT];
        Self { exchange, input: vec![], output, requests: 0, in_flight: 0, sent }
    }

    fn send(&mut self, request: &[u8], at: Instant) {
        self.exchange.request(request, &mut self.output);
        self.sent[self.requests % MAX_IN_FLIGHT] = at;
        self.requests += 1;
        self.in_flight += 1;
    }

    fn flush(&mut self, mut stream: &TcpStream) -> Outcome<()> {
        while !self.output.is_empty() {
            match stream.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        mut stream: &TcpStream,
        bytes: &mut [u8],
        replies: &mut Vec<Reply>,
    ) -> Outcome<()> {
        let read = match stream.read(bytes) {
            Ok(0) => return Err("the server has closed a connection".into()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        self.input.extend_from_slice(&bytes[..read]);
        let whole = self.exchange.read(&self.input, replies, &mut self.output)?;
        self.input.drain(..whole);
        self.in_flight -= replies.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::super::resp::{Resp, command};
    use super::*;

    /// Starts a server that collects `held` requests of a connection and then answers all of them.
    fn server(held: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The threads of the server end with their connections, or with the program.
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                thread::spawn(move || {
                    let (mut bytes, mut waiting) = ([0; 4_096], 0);
                    while let Ok(read @ 1..) = stream.read(&mut bytes) {
                        waiting += bytes[..read].iter().filter(|byte| **byte == b'*').count();
                        while waiting >= held {
                            waiting -= held;
                            stream.write_all(b":1\r\n".repeat(held).as_slice()).unwrap();
                        }
                    }
                });
            }
        });
        address
    }

    fn run(held: usize, connections: usize, pace: Pace, until: Until) -> Run {
        let requests = ["a", "b", "c"].map(|key| command(&["INCR", key]));
        let client = Client::connect(server(held), connections, || Box::<Resp>::default());
        client.unwrap().run(&requests, pace, until).unwrap()
    }

    #[test]
    fn all_requests_are_answered_at_each_pace() {
        for (held, pace) in [(1, Pace::Each(1)), (1, Pace::Each(3)), (4, Pace::Together(4))] {
            let run = run(held, 2, pace, Until::Requests(24));
            assert_eq!((run.requests, run.allowed), (24, 24), "{pace:?}");
            assert_eq!(run.latencies.len(), 24, "{pace:?}");
        }
        let run = run(1, 2, Pace::Each(1), Until::Time(Duration::from_millis(5)));
        assert!(run.requests > 0 && run.took >= Duration::from_millis(5), "{run:?}");
        assert_eq!(run.latencies.len() as u64, run.requests);
    }

    #[test]
    fn at_a_fixed_rate_the_time_of_a_request_runs_from_when_it_was_due() {
        // The server answers all 20 requests when the last one arrives, 19 ms after the first one
        // is due.
        let mut run = run(20, 1, Pace::Rate(1_000), Until::Time(Duration::from_millis(20)));
        assert_eq!((run.requests, run.latencies.len()), (20, 20));
        run.latencies.sort_unstable();
        assert!(run.latencies[19] >= 19_000_000, "{:?}", run.latencies);
        for pair in run.latencies.windows(2) {
            assert_eq!(pair[1] - pair[0], 1_000_000, "all are answered at once");
        }
    }
}
