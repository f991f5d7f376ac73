//! Sends random concurrent requests that end in random ways. The total charge must be the sum of
//! the costs by the rules, and no hold may stay open.

use proptest::prelude::*;
use tidegate_core::OnDrop;

use super::*;
use Step::{Bytes as Sends, Fail, Hang, Panic, Tokens, Trailers, Wait};

/// The end of a request.
#[derive(Debug, Clone, Copy)]
enum End {
    Whole,
    WithTrailers,
    BodyFails,
    BodyPanics,
    ServerError,
    ServiceFails,
    HandlerPanics,
    /// The client disconnects while the handler is running.
    LeavesHandler,
    /// The client disconnects after this many frames.
    LeavesBody(usize),
    /// The client disconnects while the body waits for its next data.
    LeavesStream,
    /// The client disconnects immediately.
    LeavesAtOnce,
}

#[derive(Debug, Clone)]
struct Exchange {
    starts_at: u64,
    /// The tokens that the handler reports.
    tokens: Option<u64>,
    /// For each frame: its tokens, the wait before it in milliseconds, and its bytes.
    frames: Vec<(Option<u64>, u64, usize)>,
    end: End,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let end = prop_oneof![
        3 => Just(End::Whole),
        1 => Just(End::WithTrailers),
        1 => Just(End::BodyFails),
        1 => Just(End::BodyPanics),
        1 => Just(End::ServerError),
        1 => Just(End::ServiceFails),
        1 => Just(End::HandlerPanics),
        1 => Just(End::LeavesHandler),
        2 => (0_usize..5).prop_map(End::LeavesBody),
        1 => Just(End::LeavesStream),
        1 => Just(End::LeavesAtOnce),
    ];
    let tokens = || prop::option::of(0_u64..150);
    let frames = prop::collection::vec((tokens(), 0_u64..1_500, 0_usize..700), 0..5);
    (0_u64..2_000, tokens(), frames, end).prop_map(|(starts_at, tokens, frames, end)| Exchange {
        starts_at,
        tokens,
        frames,
        end,
    })
}

impl Exchange {
    fn request(&self) -> Request<Plan> {
        let mut before: Vec<Step> = self.tokens.map(Tokens).into_iter().collect();
        before.push(Wait(20));
        let mut after: Vec<Step> = self
            .frames
            .iter()
            .flat_map(|&(tokens, wait, bytes)| {
                [Some(Wait(wait)), tokens.map(Tokens), Some(Sends(bytes))].into_iter().flatten()
            })
            .collect();
        match self.end {
            End::Whole | End::ServerError | End::LeavesBody(_) | End::LeavesAtOnce => {}
            End::WithTrailers => after.push(Trailers),
            End::BodyFails => after.push(Fail),
            End::BodyPanics => after.push(Panic),
            End::LeavesStream => after.push(Hang),
            End::ServiceFails => before.push(Fail),
            End::HandlerPanics => before.push(Panic),
            End::LeavesHandler => before.push(Hang),
        }
        plan(&before, if matches!(self.end, End::ServerError) { 500 } else { 200 }, &after)
    }

    /// Sends the request and reads the response, as a client does. Returns `false` if the request
    /// was refused.
    async fn run<S: Store + 'static>(self, layer: HoldLayer<S>) -> bool {
        sleep(Duration::from_millis(self.starts_at)).await;
        let sent = send(&layer, self.request());
        let patience = match self.end {
            End::LeavesAtOnce => Duration::from_millis(5),
            End::LeavesHandler => Duration::from_millis(500),
            _ => Duration::from_secs(3_600),
        };
        let Ok(answer) = tokio::time::timeout(patience, sent).await else { return true };
        let Ok(response) = answer else { return true };
        let is_admitted = response.status() != 429;
        let mut body = response.into_body();
        let most = if let End::LeavesBody(frames) = self.end { frames } else { usize::MAX };
        for _ in 0..most {
            match tokio::time::timeout(Duration::from_secs(60), body.frame()).await {
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(_)) | None) | Err(_) => break,
            }
        }
        is_admitted
    }

    /// Returns the requests, tokens and bytes that this request must cost if it is admitted.
    fn cost(&self, if_cut: OnDrop, is_immediate: bool) -> [u64; 3] {
        let (is_started, frames) = match self.end {
            End::LeavesHandler | End::HandlerPanics => (true, 0),
            End::LeavesBody(frames) => (true, frames.min(self.frames.len())),
            // The client disconnects after 5 ms. If the store answers immediately, the handler is
            // already running. If the store delays its answer, the decision is still in flight.
            End::LeavesAtOnce => (is_immediate, 0),
            End::ServerError | End::ServiceFails => (false, 0),
            _ => (true, self.frames.len()),
        };
        if !is_started {
            return [0, 0, 0];
        }
        let sent = &self.frames[..frames];
        let reported: Vec<u64> =
            self.tokens.into_iter().chain(sent.iter().filter_map(|frame| frame.0)).collect();
        let bytes = sent.iter().map(|frame| frame.2 as u64).sum();
        let is_whole = match self.end {
            End::Whole | End::WithTrailers => true,
            // The response is whole if the client polled the body to its end, or if the body
            // reported its end after its last frame.
            End::LeavesBody(most) => {
                most > self.frames.len() || (most == self.frames.len() && self.knows_its_end())
            }
            _ => false,
        };
        let tokens = match (reported.is_empty(), is_whole || if_cut == OnDrop::Settle) {
            (false, _) => reported.iter().sum(),
            (true, true) => 100,
            (true, false) => 0,
        };
        [1, tokens, bytes]
    }

    fn knows_its_end(&self) -> bool {
        self.request().body().after.len().is_multiple_of(2)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn what_is_charged_is_what_the_rules_say(
        exchanges in prop::collection::vec(exchange(), 1..24),
        if_cut in prop::sample::select(vec![OnDrop::Settle, OnDrop::Cancel]),
        delay in prop::sample::select(vec![0_u64, 10]),
        limit in prop::sample::select(vec![400_u64, 1_000_000]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = watched(Duration::from_millis(delay));
            let limiter = limiter(Arc::clone(&store), limit);
            let layer = layer(&limiter).if_cut(if_cut);
            let runs: Vec<_> = exchanges
                .iter()
                .map(|exchange| tokio::spawn(exchange.clone().run(layer.clone())))
                .collect();
            let mut expected = [0; 3];
            let mut overage = 0;
            for (exchange, run) in exchanges.iter().zip(runs) {
                // If the task of a request panics, the request was admitted, because only its
                // handler or its body panics.
                let is_admitted = run.await.unwrap_or(true);
                if !is_admitted {
                    continue;
                }
                let cost = exchange.cost(if_cut, delay == 0);
                for (sum, cost) in expected.iter_mut().zip(cost) {
                    *sum += cost;
                }
                overage += cost[1].saturating_sub(100);
            }
            sleep(Duration::from_secs(10)).await;
            prop_assert!(expected[1] <= limit + overage, "{expected:?} of {limit}, and {overage}");
            expected[1] = expected[1].min(limit);
            prop_assert_eq!(taken(&limiter).await, expected);
            prop_assert_eq!(store.as_layer().open(), 0);
            Ok(())
        })?;
    }
}
