//! One connection through a proxy.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::commands::Commands;
use super::mode::{End, Fate};

/// Bytes on their way, and when they arrive.
type Letter = (Instant, Vec<u8>);

/// Carries what a client and the server tell each other, until one of them, or the proxy, ends it.
pub(super) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    let target = *shared.target.borrow();
    let end = match TcpStream::connect(target).await {
        Ok(mut server) => {
            let end = tokio::select! {
                end = carry(&mut client, &mut server, &shared) => end,
                _ = cut.changed() => *cut.borrow_and_update(),
            };
            if end == End::Hang {
                // Both sides stay open, whatever they send, until the connection is cut.
                let _ = cut.changed().await;
                *cut.borrow_and_update()
            } else {
                end
            }
        }
        // As if no server had been reached.
        Err(_) => End::Reset,
    };
    match end {
        End::Close => {}
        End::Reset => {
            // A connection that may not linger is reset.
            let _ = client.set_zero_linger();
        }
        End::Hang => pending().await,
    }
}

/// Carries both ways until one way ends.
async fn carry(client: &mut TcpStream, server: &mut TcpStream, shared: &Shared) -> End {
    // A delay is the proxy's business, not that of the system.
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return End::Reset;
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let mut commands = Commands::default();
    let requests = way(
        from_client,
        to_server,
        || shared.mode.borrow().for_request(),
        |bytes| {
            shared.to_server.fetch_add(length(bytes), Ordering::SeqCst);
            shared.commands.fetch_add(commands.count(bytes), Ordering::SeqCst);
        },
    );
    let mut is_first = true;
    let answers = way(
        from_server,
        to_client,
        || shared.mode.borrow().for_answer(std::mem::replace(&mut is_first, false)),
        |bytes| {
            shared.to_client.fetch_add(length(bytes), Ordering::SeqCst);
        },
    );
    tokio::select! {
        end = requests => end,
        end = answers => end,
    }
}

/// Carries one way. It ends when all that was read before its end has been delivered.
async fn way(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    fate: impl FnMut() -> Fate,
    passing: impl FnMut(&[u8]),
) -> End {
    let (sender, receiver) = mpsc::unbounded_channel();
    // Reading goes on while bytes wait for their time: each is late by its own delay only.
    let (end, _) = tokio::join!(read(from, sender, fate), deliver(receiver, to, passing));
    end
}

async fn read(
    mut from: ReadHalf<'_>,
    letters: mpsc::UnboundedSender<Letter>,
    mut fate: impl FnMut() -> Fate,
) -> End {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return End::Close;
        }
        // Delivery fails if the receiver has gone: the other direction then ends the connection.
        let send = |bytes: &[u8], after| letters.send((Instant::now() + after, bytes.to_vec()));
        let _ = match fate() {
            Fate::Drop => Ok(()),
            Fate::Deliver(after) => send(&buffer[..read], after),
            Fate::End(end) => return end,
            Fate::Halve(end) => {
                let _ = send(&buffer[..read / 2], Duration::ZERO);
                return end;
            }
        };
    }
}

async fn deliver(
    mut letters: mpsc::UnboundedReceiver<Letter>,
    mut to: WriteHalf<'_>,
    mut passing: impl FnMut(&[u8]),
) -> io::Result<()> {
    while let Some((at, bytes)) = letters.recv().await {
        sleep_until(at).await;
        // Counted first: a client that has the answer must find its request in the counts.
        passing(&bytes);
        to.write_all(&bytes).await?;
    }
    Ok(())
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
