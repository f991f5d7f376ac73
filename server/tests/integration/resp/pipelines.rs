//! The batches in which the store receives the commands of a pipeline.

use std::sync::Mutex;

use tidegate_core::layers::Layer;
use tidegate_core::{Answer, Call, Decision, Error, StoreExt};

use super::*;

/// A layer that records the number of calls in each batch.
#[derive(Debug, Default)]
struct Batches(Mutex<Vec<usize>>);

impl<S: Store> Layer<S> for Batches {
    const MAY_WAIT: bool = false;

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

/// A pipeline that arrives in one part needs one round trip to the store. If the server read it in
/// smaller turns, it would need more.
#[tokio::test]
async fn a_pipeline_of_256_commands_is_one_batch() {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let store = Arc::new(inner.layer(Batches::default()));
    let server = Server::on(store.clone(), clock, RespSettings::default()).await;
    let mut stream = server.stream().await;
    let pipeline =
        "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$3\r\n999\r\n$1\r\n1\r\n$1\r\n9\r\n".repeat(256);
    stream.write_all(pipeline.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await.matches("*5\r\n").count(), 256);
    assert_eq!(*store.as_layer().0.lock().unwrap(), [256]);
}
