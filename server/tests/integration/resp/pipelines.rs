//! The batches in which the store receives the commands of a pipeline.

use std::sync::Mutex;

use tidegate_core::{Answer, Call, Decision, Error};

use super::*;

/// Records the number of calls in each batch.
#[derive(Debug)]
struct Batches {
    inner: MemoryStore<ManualClock>,
    sizes: Mutex<Vec<usize>>,
}

impl Store for Batches {
    fn decide<'a>(&'a self, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        self.sizes.lock().unwrap().push(1);
        self.inner.decide(call)
    }

    fn decide_many<'a>(
        &'a self,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        self.sizes.lock().unwrap().push(calls.len());
        self.inner.decide_many(calls)
    }

    fn now(&self) -> Answer<'_, Result<Timestamp, Error>> {
        self.inner.now()
    }
}

/// A pipeline that arrives in one piece needs one round trip to the store. A server that reads it
/// in smaller turns needs more.
#[tokio::test]
async fn a_pipeline_of_256_commands_is_one_batch() {
    let clock = ManualClock::new(Timestamp::from_micros(START * 1_000_000));
    let inner = MemoryStore::builder().clock(clock.clone()).build();
    let store = Arc::new(Batches { inner, sizes: Mutex::default() });
    let server = Server::on(store.clone(), clock, RespSettings::default()).await;
    let mut stream = server.stream().await;
    let pipeline =
        "*5\r\n$11\r\nCL.THROTTLE\r\n$1\r\nk\r\n$3\r\n999\r\n$1\r\n1\r\n$1\r\n9\r\n".repeat(256);
    stream.write_all(pipeline.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(rest(&mut stream).await.matches("*5\r\n").count(), 256);
    assert_eq!(*store.sizes.lock().unwrap(), [256]);
}
