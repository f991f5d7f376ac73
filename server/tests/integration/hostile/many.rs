//! Tests the maximum number of connections of a server. The server is a separate process, so that
//! its sockets are not open files of the test.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::sync::{Barrier, Mutex, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::checks::grpc;
use crate::http::client::{read_answer, request};
use crate::program::{program, settings};

const PATIENCE: Duration = Duration::from_secs(300);

/// The maximum number of clients that connect or wait for their answer at the same time.
const AT_ONCE: usize = 100;

/// The maximum memory of the server for an idle connection, in bytes, in a build without
/// optimizations.
const MAX_CONNECTION_BYTES: usize = 100 << 10;

/// A lock for tests that open 10,000 connections. The process has enough files for only one of them
/// at a time.
pub(crate) static TURN: Mutex<()> = Mutex::const_new(());

#[derive(Debug, Clone, Copy, PartialEq)]
enum Protocol {
    Resp,
    Http,
    Grpc,
}

use Protocol::{Grpc, Http, Resp};

struct Server {
    child: Child,
    addresses: [SocketAddr; 3],
    _directory: TempDir,
}

impl Server {
    /// Starts a server whose settings contain `lines` in each of the sections for RESP, HTTP and
    /// gRPC.
    async fn start(mut program: tokio::process::Command, lines: &str) -> Self {
        let text = format!(
            "[resp]\nidle_timeout = '1h'\n{lines}[http]\nidle_timeout = '1h'\nrequest_timeout = '1h'\n{lines}\
             [grpc]\n{lines}"
        );
        settings(&mut program, &text);
        let directory = tempfile::tempdir().unwrap();
        let limit = "domain: d\ndescriptors: [{key: u, rate_limit: {unlimited: true}}]";
        fs::write(directory.path().join("a.yaml"), limit).unwrap();
        program.env("RUNTIME_ROOT", directory.path()).env("RUNTIME_APPDIRECTORY", ".");
        program.env("GRPC_HOST", "127.0.0.1").env("GRPC_PORT", "0").env("PORT", "0");
        program.args(["--resp", "127.0.0.1:0"]);
        let mut child = program.stderr(std::process::Stdio::inherit()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line =
            async || timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        // The program prints "gRPC on …, JSON on http://…" and "RESP on …".
        let first = line().await;
        let (grpc, http) = first.split_once(", JSON on http://").unwrap();
        let grpc = grpc.strip_prefix("gRPC on ").unwrap().parse().unwrap();
        let resp = line().await.strip_prefix("RESP on ").unwrap().parse().unwrap();
        let addresses = [resp, http.parse().unwrap(), grpc];
        Self { child, addresses, _directory: directory }
    }

    /// Starts a server with this maximum number of connections for each protocol.
    async fn with_places(places: usize) -> Self {
        Self::start(program(), &format!("max_connections = {places}\n")).await
    }

    async fn connect(&self, protocol: Protocol) -> io::Result<Client> {
        Client::connect(protocol, self.addresses[protocol as usize]).await
    }

    fn memory(&self) -> usize {
        memory_of(&self.child)
    }
}

pub(crate) fn memory_of(child: &Child) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}

/// Returns the processor time that a process has used, in steps of 10 ms.
fn processor_time_of(child: &Child) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id().unwrap())).unwrap();
    // Fields 14 and 15 of the file `stat` are the processor time in ticks. Field 2 is in
    // parentheses and can contain spaces.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_ascii_whitespace().skip(11).take(2);
    Duration::from_millis(10 * ticks.map(|number| number.parse::<u64>().unwrap()).sum::<u64>())
}

struct Client {
    protocol: Protocol,
    stream: BufReader<TcpStream>,
    calls: u32,
}

impl Client {
    async fn connect(protocol: Protocol, address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { protocol, stream: BufReader::with_capacity(512, stream), calls: 0 })
    }

    fn request(&mut self) -> Vec<u8> {
        self.calls += 1;
        match self.protocol {
            Resp => b"CL.THROTTLE key 1000000000 1000000 1\r\n".to_vec(),
            Http => {
                let body = r#"{"domain": "d", "descriptors": [{"entries": [{"key": "u"}]}]}"#;
                request("POST", "/json", "", body).into_bytes()
            }
            Grpc if self.calls == 1 => grpc::call(grpc::REQUEST),
            Grpc => grpc::call_on(2 * self.calls - 1, grpc::REQUEST),
        }
    }

    async fn answer(&mut self) -> io::Result<()> {
        match self.protocol {
            Resp => {
                let mut line = String::new();
                for expected in ["*5\r\n", ":0\r\n", ":", ":", ":-1\r\n", ":"] {
                    line.clear();
                    self.stream.read_line(&mut line).await?;
                    if !line.starts_with(expected) {
                        return Err(io::Error::other(line));
                    }
                }
                Ok(())
            }
            Http => match read_answer(&mut self.stream).await {
                Some(answer) if answer.status == 200 => Ok(()),
                answer => Err(io::Error::other(format!("{answer:?}"))),
            },
            Grpc => loop {
                let (kind, flags) = self.frame().await?;
                if kind == grpc::HEADERS && flags & grpc::END_STREAM != 0 {
                    return Ok(());
                }
            },
        }
    }

    /// Reads an HTTP/2 frame, and answers it if it is a `PING`.
    async fn frame(&mut self) -> io::Result<(u8, u8)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        if head[3] == grpc::PING {
            self.stream.write_all(&grpc::frame(grpc::PING, grpc::ACK, 0, &payload)).await?;
        }
        Ok((head[3], head[4]))
    }

    async fn call(&mut self) -> io::Result<()> {
        let request = self.request();
        self.stream.write_all(&request).await?;
        self.answer().await
    }

    /// Waits until the server closes the connection, and only answers HTTP/2 pings.
    async fn stay(mut self) {
        match self.protocol {
            Grpc => while self.frame().await.is_ok() {},
            Resp | Http => drop(self.stream.read_u8().await),
        }
    }
}

/// Clients that are connected at the same time. Each of them has received an answer.
struct Crowd {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Crowd {
    /// Connects `count` clients. Each client sends the first `first` bytes of a request, waits
    /// until all clients have done so, sends the rest, and receives its answer.
    async fn gather(server: &Arc<Server>, protocol: Protocol, count: usize, first: usize) -> Self {
        let (stop, stopped) = watch::channel(false);
        let at_once = Arc::new(Semaphore::new(AT_ONCE));
        let (begun, answered) = (Arc::new(Barrier::new(count)), Arc::new(Barrier::new(count + 1)));
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            let (server, at_once, mut stopped) =
                (Arc::clone(server), Arc::clone(&at_once), stopped.clone());
            let (begun, answered) = (Arc::clone(&begun), Arc::clone(&answered));
            tasks.spawn(async move {
                let permit = at_once.acquire().await;
                let mut client = server.connect(protocol).await.unwrap();
                let request = client.request();
                let (now, later) = request.split_at(first.min(request.len()));
                client.stream.write_all(now).await.unwrap();
                drop(permit);
                if first > 0 {
                    begun.wait().await;
                }
                let permit = at_once.acquire().await;
                let sent = client.stream.write_all(later).await;
                let mut done = sent.is_ok() && client.answer().await.is_ok();
                // On a busy machine, the server may have ended an incomplete request at its
                // timeout. The client then connects again.
                while !done {
                    assert!(first > 0, "{protocol:?}: a client was not served");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    client = server.connect(protocol).await.unwrap();
                    done = client.call().await.is_ok();
                }
                drop(permit);
                answered.wait().await;
                tokio::select! {
                    () = client.stay() => panic!("{protocol:?}: an idle connection has ended"),
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
            });
        }
        let all = async {
            tokio::select! {
                _ = answered.wait() => {}
                Some(Err(error)) = tasks.join_next() => std::panic::resume_unwind(error.into_panic()),
            }
        };
        timeout(PATIENCE, all).await.unwrap();
        Self { tasks, stop }
    }

    async fn leave(mut self) {
        self.stop.send_replace(true);
        while let Some(left) = self.tasks.join_next().await {
            left.unwrap();
        }
    }
}

/// Returns `true` if the server refuses another client because it has its maximum number of
/// connections.
async fn is_refused(server: &Server, protocol: Protocol, places: usize) -> bool {
    let mut client = server.connect(protocol).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, client.stream.read_to_end(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    match protocol {
        Resp => answer == format!("-ERR max number of clients reached: {places}\r\n"),
        Http => {
            answer.starts_with("HTTP/1.1 503 ")
                && answer.ends_with("max number of connections is reached\n")
        }
        // The gRPC port sends no refusal, because an HTTP/2 client would not read it.
        Grpc => read.is_err() || answer.is_empty(),
    }
}

/// Makes calls while the server refuses further clients. Returns the median and the maximum of the
/// latencies.
async fn latencies(server: &Server, client: &mut Client, places: usize) -> (Duration, Duration) {
    let mut latencies = Vec::new();
    for call in 0..300 {
        if call % 10 == 0 {
            assert!(is_refused(server, client.protocol, places).await, "{:?}", client.protocol);
        }
        let start = Instant::now();
        timeout(PATIENCE, client.call()).await.unwrap().unwrap();
        latencies.push(start.elapsed());
    }
    latencies.sort();
    (latencies[latencies.len() / 2], latencies[latencies.len() - 1])
}

/// Returns the number of connections to try: 10,000, or fewer if the limit of open files is too
/// low.
pub(crate) fn places() -> usize {
    // The number of files that other tests in this process may open.
    const OTHERS: u64 = 1_500;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let possible = maximum.map_or(u64::MAX, |maximum| maximum.saturating_sub(OTHERS));
    if possible < 10_000 {
        eprintln!(
            "the system lets a process open {maximum:?} files: trying {possible} connections, not 10000"
        );
    }
    assert!(
        possible >= 1_000,
        "a process may open {maximum:?} files; the test needs 2500 (ulimit -Hn)"
    );
    usize::try_from(possible).unwrap_or(usize::MAX).min(10_000)
}

#[tokio::test]
async fn ten_thousand_clients_are_served_and_the_next_one_is_refused() {
    let _turn = TURN.lock().await;
    let places = places();
    let server = Arc::new(Server::with_places(places).await);
    for protocol in [Resp, Http, Grpc] {
        let mut running = server.connect(protocol).await.unwrap();
        running.call().await.unwrap();
        let before = server.memory();
        let crowd = Crowd::gather(&server, protocol, places - 1, 0).await;
        let each = server.memory().saturating_sub(before) / (places - 1);
        let (median, max) = latencies(&server, &mut running, places).await;
        println!("{protocol:?}: {each} bytes each; calls take {median:?}, at most {max:?}");
        assert!(each < MAX_CONNECTION_BYTES, "{protocol:?}: {each} bytes each");
        assert!(median < Duration::from_secs(1), "{protocol:?}: {median:?}");
        crowd.leave().await;

        // After the first clients have left, the server accepts as many new clients. Each of them
        // first sends a single byte.
        let crowd = Crowd::gather(&server, protocol, places - 1, 1).await;
        assert!(is_refused(&server, protocol, places).await, "{protocol:?}");
        running.call().await.unwrap();
        crowd.leave().await;
        running.call().await.unwrap();
    }
}

/// Makes the server keep as many unsent responses as it allows: the client announces a window of 0
/// bytes, so that the server can send no data, and sends more requests than permitted.
async fn leave_unread(server: &Server) -> TcpStream {
    let mut stream = TcpStream::connect(server.addresses[Grpc as usize]).await.unwrap();
    const INITIAL_WINDOW_SIZE: [u8; 6] = [0, 4, 0, 0, 0, 0];
    let mut bytes = grpc::call(grpc::REQUEST);
    bytes.extend(grpc::frame(grpc::SETTINGS, 0, 0, &INITIAL_WINDOW_SIZE));
    for stream in (3..2_001).step_by(2) {
        bytes.extend(grpc::call_on(stream, grpc::REQUEST));
    }
    let (mut reader, mut writer) = stream.split();
    let read = async {
        let mut answers = Vec::new();
        while grpc::frames(&answers).iter().filter(|frame| frame.kind == grpc::HEADERS).count()
            < 100
        {
            assert!(reader.read_buf(&mut answers).await.unwrap() > 0);
        }
    };
    let (written, ()) =
        timeout(PATIENCE, async { tokio::join!(writer.write_all(&bytes), read) }).await.unwrap();
    written.unwrap();
    stream
}

#[tokio::test]
async fn clients_that_do_not_read_keep_little_memory_of_the_server() {
    const CLIENTS: usize = 40;
    let _turn = TURN.lock().await;
    let server = Server::start(program(), "").await;
    let mut running = server.connect(Grpc).await.unwrap();
    running.call().await.unwrap();
    let before = server.memory();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(leave_unread(&server).await);
    }
    let each = server.memory().saturating_sub(before) / CLIENTS;
    println!("{each} bytes each");
    assert!(each < 1 << 20, "{each} bytes each");
    timeout(PATIENCE, running.call()).await.unwrap().unwrap();
}

#[tokio::test]
async fn when_no_file_can_be_opened_clients_wait_and_are_served_later() {
    let unlimited = program();
    let mut limited = tokio::process::Command::new("sh");
    limited
        .arg("-c")
        .arg("ulimit -n 60 && exec \"$0\" \"$@\"")
        .arg(unlimited.as_std().get_program());
    limited
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .kill_on_drop(true)
        .stdout(std::process::Stdio::piped());
    let server = Server::start(limited, "").await;
    for protocol in [Resp, Http, Grpc] {
        let mut served = Vec::new();
        // The operating system accepts 80 connections. The server may open only 60 files, so it
        // cannot accept all of them.
        for _ in 0..80 {
            let mut client = server.connect(protocol).await.unwrap();
            let request = client.request();
            client.stream.write_all(&request).await.unwrap();
            served.push(client);
        }
        timeout(PATIENCE, served[0].answer()).await.unwrap().unwrap();
        let mut waiting = served.split_off(79);
        let used = processor_time_of(&server.child);
        let early = timeout(Duration::from_secs(1), waiting[0].answer()).await;
        assert!(early.is_err(), "{protocol:?}: {early:?}");
        // The server pauses after each failed attempt to accept a connection, so it uses little
        // processor time.
        let used = processor_time_of(&server.child) - used;
        assert!(used < Duration::from_millis(100), "{protocol:?}: {used:?}");
        timeout(PATIENCE, served[0].call()).await.unwrap().unwrap();
        drop(served);
        timeout(PATIENCE, waiting[0].answer()).await.unwrap().unwrap();
    }
}
