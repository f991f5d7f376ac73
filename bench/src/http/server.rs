//! Runs the web server of the benchmark in its own process.

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tidegate_memory::MemoryStore;
use tidegate_redis::{Limiter, RedisStore, Store};

use super::stack::POLICY;
use super::{Limits, stack};
use crate::{Outcome, block_on};

const SUBJECTS: usize = 1_000;

/// The arguments of the server.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerOptions {
    #[arg(value_enum)]
    limits: Limits,
    /// URL of the Redis.
    redis: String,
}

/// Prints a free port, and serves on it until standard input ends.
pub(crate) fn serve(options: &ServerOptions) -> Outcome<()> {
    block_on(async {
        let hello = Router::new().route("/", get(hello));
        let app = match options.limits {
            Limits::Off => hello,
            Limits::Layer => hello.layer(stack::tidegate()?),
            Limits::Governor => hello.layer(stack::governor()?),
            Limits::Memory => within(MemoryStore::new())?,
            Limits::Redis => within(RedisStore::new(&options.redis)?)?,
        };
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        println!("{}", listener.local_addr()?.port());
        let (ended, end) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            // Standard input ends when the parent process ends or closes it.
            let _ = std::io::stdin().read_to_end(&mut vec![]);
            let _ = ended.send(());
        });
        tokio::select! {
            served = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()) => {
                served?;
            }
            _ = end => {}
        }
        Ok(())
    })
}

#[derive(Debug)]
struct Gate {
    limiter: Limiter<Arc<dyn Store>>,
    subjects: Vec<String>,
    next: AtomicUsize,
}

/// Returns a router whose handler calls a limiter on this store.
fn within(store: impl Store + 'static) -> Outcome<Router> {
    let limiter = Limiter::new(Arc::new(store) as Arc<dyn Store>, [POLICY.parse()?])?;
    let subjects = (0..SUBJECTS).map(|number| format!("user:{number:06}")).collect();
    let gate = Arc::new(Gate { limiter, subjects, next: AtomicUsize::new(0) });
    Ok(Router::new().route("/", get(hello_within)).with_state(gate))
}

async fn hello() -> &'static str {
    "Hello, world!"
}

async fn hello_within(State(gate): State<Arc<Gate>>) -> Result<&'static str, StatusCode> {
    let turn = gate.next.fetch_add(1, Ordering::Relaxed);
    let decision = gate.limiter.acquire(&gate.subjects[turn % SUBJECTS]).await;
    match decision {
        Ok(decision) if decision.is_allowed() => Ok("Hello, world!"),
        Ok(_) => Err(StatusCode::TOO_MANY_REQUESTS),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// A server process that runs until this value is dropped.
#[derive(Debug)]
pub(super) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    pub(super) fn start(limits: Limits, redis: &str) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["http-server", &limits.to_string(), redis])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = &mut process.stdout {
            BufReader::new(output).read_line(&mut line)?;
        }
        let port = line.trim().parse();
        Ok(Self { process, port: port.map_err(|_| format!("the server said {line:?}"))? })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process ends when its standard input is closed.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
