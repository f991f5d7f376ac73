//! A fake node of a cluster, which sends the replies that a test sets, and records the commands
//! that it receives.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidegate_cluster::{Call, Charge, Policy};
use tidegate_redis::protocol::{Keys, Request, probable_time};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A reply of the fake node to a script call.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    /// A decision that admits the call.
    Admit,
    /// A decision that refuses the call.
    Refuse,
    /// The node replies with an error of this text, such as `MOVED 7 127.0.0.1:7000`.
    Error(String),
    /// The node never replies on the connection again, and does not close the connection.
    Nothing,
    /// The node closes the connection without a reply.
    Close,
}

/// A command and the time at which it was received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) words: Vec<String>,
    pub(crate) at: Instant,
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Vec<Received>>,
    /// The replies to the next script calls. After these replies, the node admits every call.
    says: Mutex<VecDeque<Say>>,
    /// The reply to CLUSTER SLOTS: for each range of slots, the first slot, the last slot, the host
    /// and the port.
    view: Mutex<Vec<(u16, u16, String, u16)>>,
    /// The number of replicas in the reply to WAIT.
    replicas: Mutex<u64>,
}

/// A fake node, which stops when this value is dropped.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Node {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn sees(&self, view: &[(u16, u16, &Node)]) {
        let view = view.iter().map(|(first, last, node)| (*first, *last, node.port));
        self.sees_ports(&view.collect::<Vec<_>>());
    }

    /// Sets the reply to CLUSTER SLOTS. The reply can name any servers on this machine by their
    /// ports.
    pub(crate) fn sees_ports(&self, view: &[(u16, u16, u16)]) {
        let view = view.iter().map(|(first, last, port)| (*first, *last, String::new(), *port));
        *self.shared.view.lock().unwrap() = view.collect();
    }

    pub(crate) fn says(&self, says: impl IntoIterator<Item = Say>) {
        self.shared.says.lock().unwrap().extend(says);
    }

    /// Returns `true` if the node has used all replies of [`says`](Self::says).
    pub(crate) fn has_said_all(&self) -> bool {
        self.shared.says.lock().unwrap().is_empty()
    }

    pub(crate) fn has_replicas(&self, count: u64) {
        *self.shared.replicas.lock().unwrap() = count;
    }

    /// Returns an error reply that redirects a call to this node. `word` is `MOVED` or `ASK`.
    pub(crate) fn redirect(&self, word: &str, slot: u16) -> Say {
        Say::Error(format!("{word} {slot} 127.0.0.1:{}", self.port))
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// Returns the first word of each received command, except for CLIENT. Every connection starts
    /// with CLIENT commands.
    pub(crate) fn commands(&self) -> Vec<String> {
        let commands = self.received().into_iter().map(|command| command.words[0].clone());
        commands.filter(|word| word != "CLIENT").collect()
    }

    /// Returns the number of script calls that the node has received.
    pub(crate) fn calls(&self) -> usize {
        self.commands().iter().filter(|word| word.starts_with("EVAL")).count()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, Arc::clone(&shared)));
    }
}

async fn converse(stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let words = read(&mut reader).await?;
        let at = Instant::now();
        shared.received.lock().unwrap().push(Received { words: words.clone(), at });
        answer(&words, &shared, &mut writer).await?;
    }
}

async fn read(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<String>> {
    let mut words = vec![];
    for _ in 0..number(reader, '*').await? {
        let mut word = vec![0; number(reader, '$').await? + 2];
        reader.read_exact(&mut word).await?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Ok(words)
}

async fn number(reader: &mut BufReader<OwnedReadHalf>, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let number = line.trim_end().strip_prefix(kind).and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

async fn answer(words: &[String], shared: &Shared, writer: &mut OwnedWriteHalf) -> io::Result<()> {
    let reply = match &*words[0] {
        "CLUSTER" => view(&shared.view.lock().unwrap()).into_bytes(),
        "TIME" => b"*2\r\n$2\r\n17\r\n$1\r\n5\r\n".to_vec(),
        "WAIT" => format!(":{}\r\n", shared.replicas.lock().unwrap()).into_bytes(),
        "EVAL" | "EVALSHA" => {
            let say = shared.says.lock().unwrap().pop_front();
            match say.unwrap_or(Say::Admit) {
                Say::Admit => verdicts(words, 0),
                Say::Refuse => verdicts(words, 1),
                Say::Error(text) => format!("-{text}\r\n").into_bytes(),
                Say::Nothing => std::future::pending().await,
                Say::Close => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
        _ if words.iter().any(|word| word.contains("{limits}")) => {
            match shared.says.lock().unwrap().pop_front() {
                Some(Say::Error(text)) => format!("-{text}\r\n").into_bytes(),
                _ => b"+OK\r\n".to_vec(),
            }
        }
        _ => b"+OK\r\n".to_vec(),
    };
    writer.write_all(&reply).await
}

fn view(view: &[(u16, u16, String, u16)]) -> String {
    let mut reply = format!("*{}\r\n", view.len());
    for (first, last, host, port) in view {
        reply +=
            &format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n", host.len());
    }
    reply
}

/// Returns a reply in the format of the general script. The time in the reply is five microseconds
/// after the start of 1970. The reply contains one verdict for each key of a state, and the amount
/// 0 for each charge that is refunded or undone.
fn verdicts(words: &[String], outcome: u8) -> Vec<u8> {
    const REFUND: u8 = 3;
    const UNDO: u8 = 6;
    let (sha, code) = usual_script();
    if words[1] == sha || words[1] == code {
        return usual_verdicts(words, outcome);
    }
    let keys: usize = words[2].parse().unwrap();
    // The argument of the general script begins with the operation and the number of charges. The
    // argument of a script for a single charge begins with the cost. Its second byte is 0 for the
    // small costs of the tests, so the argument is not mistaken for a refund or an undo.
    let has_amounts =
        matches!(words[3 + keys].as_bytes(), [REFUND | UNDO, count, ..] if *count > 0);
    let mut answer = vec![0];
    answer.extend(&5_u64.to_le_bytes()[..7]);
    // A key that ends in `%h` contains an epoch instead of a state, so the reply has no verdict for
    // this key.
    for _ in words[3..3 + keys].iter().filter(|key| !key.ends_with("%h")) {
        answer.extend([0, outcome]);
        answer.extend([0; 35]);
        if has_amounts {
            answer.extend([0; 7]);
        }
    }
    bulk(&answer)
}

/// Returns a reply in the format of the script for usual batches. Each key gets a verdict: an
/// admitted charge to an aligned fixed window, or a denied charge to a key without a state.
fn usual_verdicts(words: &[String], outcome: u8) -> Vec<u8> {
    const FIXED_ALIGNED: u8 = 0x91;
    const EMPTY: u8 = 4;
    let keys: usize = words[2].parse().unwrap();
    let mut answer = vec![0];
    answer.extend(&5_u64.to_le_bytes()[..7]);
    for _ in 0..keys {
        match outcome {
            0 => {
                answer.push(FIXED_ALIGNED);
                answer.extend(&1_000_000_u64.to_le_bytes()[..7]);
                answer.extend(&1_u64.to_le_bytes()[..7]);
            }
            _ => answer.push(EMPTY),
        }
    }
    bulk(&answer)
}

fn bulk(answer: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", answer.len()).into_bytes();
    reply.extend(answer);
    reply.extend(b"\r\n");
    reply
}

/// Returns the SHA-1 and the code of the script for usual batches.
pub(crate) fn usual_script() -> (&'static str, &'static str) {
    let policy: Policy = "p: fixed-window 10/1s".parse().unwrap();
    let charge = [Charge::new(&policy, "s")];
    let calls = [Call::acquire(&charge); 2];
    let script = Request::usual_batch(&Keys::new("any"), &calls, probable_time()).unwrap().script();
    (script.sha(), script.code())
}
