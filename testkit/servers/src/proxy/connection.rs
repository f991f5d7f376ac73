//! One connection of a client through a proxy.

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

use super::commands::Commands;
use super::mode::{End, Fate};
use super::shared::Shared;

/// Bytes in flight, and the time of their delivery.
type Delivery = (Instant, Vec<u8>);

/// Forwards bytes between a client and a server, until the client, the server or the proxy ends the
/// connection.
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
                // The connections to the client and to the server stay open until the proxy cuts
                // them. Further bytes are ignored.
                let _ = cut.changed().await;
                *cut.borrow_and_update()
            } else {
                end
            }
        }
        // The proxy cannot connect to the server, so it resets the client's connection, as if the
        // server had refused it.
        Err(_) => End::Reset,
    };
    match end {
        End::Close => {}
        End::Reset => {
            // Closing a socket with a linger time of zero resets the connection.
            let _ = client.set_zero_linger();
        }
        End::Hang => pending().await,
    }
}

/// Forwards bytes in both directions until one direction ends.
async fn carry(client: &mut TcpStream, server: &mut TcpStream, shared: &Shared) -> End {
    // The system must not buffer bytes, because only the proxy is allowed to delay bytes.
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return End::Reset;
    }
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let mut commands = Commands::default();
    let requests = forward(
        from_client,
        to_server,
        || shared.mode.borrow().for_request(),
        |bytes| {
            shared.to_server.fetch_add(length(bytes), Ordering::SeqCst);
            shared.commands.fetch_add(commands.count(bytes), Ordering::SeqCst);
        },
    );
    let mut is_first = true;
    let answers = forward(
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

/// Forwards the bytes of one direction. Returns when this direction has ended and all earlier bytes
/// have been delivered.
async fn forward(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    fate: impl FnMut() -> Fate,
    passing: impl FnMut(&[u8]),
) -> End {
    let (sender, receiver) = mpsc::unbounded_channel();
    // The proxy reads new bytes while earlier bytes wait for their delivery, so that delays do not
    // add up.
    let (end, _) = tokio::join!(read(from, sender, fate), deliver(receiver, to, passing));
    end
}

async fn read(
    mut from: ReadHalf<'_>,
    deliveries: mpsc::UnboundedSender<Delivery>,
    mut fate: impl FnMut() -> Fate,
) -> End {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return End::Close;
        }
        // Sending fails after the delivery has ended. The other direction then ends the connection.
        let send = |bytes: &[u8], after| deliveries.send((Instant::now() + after, bytes.to_vec()));
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
    mut deliveries: mpsc::UnboundedReceiver<Delivery>,
    mut to: WriteHalf<'_>,
    mut passing: impl FnMut(&[u8]),
) -> io::Result<()> {
    while let Some((at, bytes)) = deliveries.recv().await {
        sleep_until(at).await;
        // The bytes are counted before they are written. So when a client has received an answer,
        // the counts already include the request that the server has answered.
        passing(&bytes);
        to.write_all(&bytes).await?;
    }
    Ok(())
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
