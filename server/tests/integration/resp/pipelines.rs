//! Tests the batches in which the server sends the commands of a pipeline to the store.

use std::sync::Mutex;

use tidegate_core::layers::Layer;
use tidegate_core::{Answer, Call, Decision, Error, StoreExt};

use super::*;

/// A layer that records the number of calls in each batch. With `MAY_WAIT`, the server assumes that
/// the store does not answer immediately.
#[derive(Debug, Default)]
struct Batches<const MAY_WAIT: bool>(Mutex<Vec<usize>>);

impl<S: Store, const MAY_WAIT: bool> Layer<S> for Batches<MAY_WAIT> {
    const MAY_WAIT: bool = MAY_WAIT;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.0.lock().unwrap().push(1);
        inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.0.lock().unwrap().push(calls.len());
        inner.decide_many(calls)
    }
}

/// Sends 256 commands on one connection, and then one command on another connection. Returns the
/// sizes of the batches.
async fn batches_of_two_connections<const MAY_WAIT: bool>() -> Vec<usize> {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let store = Arc::new(inner.layer(Batches::<MAY_WAIT>::default()));
    let server = Server::on(store.clone(), clock, RespSettings::default()).await;
    let command = "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$3\r\n999\r\n$1\r\n1\r\n$1\r\n9\r\n";
    let mut streams = [server.stream().await, server.stream().await];
    for (stream, commands) in streams.iter_mut().zip([256, 1]) {
        stream.write_all(command.repeat(commands).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    for (stream, commands) in streams.iter_mut().zip([256, 1]) {
        assert_eq!(rest(stream).await.matches("*5\r\n").count(), commands);
    }
    let batches = store.as_layer().0.lock().unwrap();
    batches.clone()
}

/// Checks that a pipeline that arrives in one part needs only one round trip to the store.
#[tokio::test]
async fn a_pipeline_of_256_commands_is_one_batch() {
    assert_eq!(batches_of_two_connections::<true>().await, [256, 1]);
}

/// Checks that with a memory store, the server decides at most 4 commands of a connection per turn.
/// So a client with one command does not wait for a long pipeline of another client.
#[tokio::test]
async fn a_long_pipeline_delays_another_connection_by_one_turn_only() {
    let batches = batches_of_two_connections::<false>().await;
    let place = batches.iter().position(|size| *size == 1).unwrap();
    assert!(place < 8, "{batches:?}");
    assert_eq!(batches.iter().sum::<usize>(), 257);
    assert_eq!(batches.iter().max(), Some(&4));
}
