//! Tests the behavior that the README describes, over real sockets. The clock of the store stands
//! still, except in the test of lapsed estimates.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_example_llm_gateway::{app, limits, model};
use tidegate_memory::core::layers::{Layer, Layered};
use tidegate_memory::{
    Answer, Call, Decision, Error, Estimator, FixedWindow, Limiter, ManualClock, MemoryStore,
    Operation, Policy, Share, Store, StoreExt,
};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

/// A memory store that records its open holds.
type Watched = Layered<OpenHolds, Arc<MemoryStore<ManualClock>>>;

/// A layer that records the open holds. Clones share the record.
#[derive(Debug, Clone, Default)]
struct OpenHolds(Arc<Mutex<HashSet<Vec<u8>>>>);

impl OpenHolds {
    fn record(&self, call: &Call<'_>, answer: &Result<Decision, Error>) {
        if let (Some(id), Ok(decision)) = (call.id, answer) {
            let mut open = self.0.lock().unwrap();
            match call.operation {
                Operation::Hold if decision.is_allowed() => drop(open.insert(id.id.to_vec())),
                Operation::Settle => drop(open.remove(id.id)),
                _ => {}
            }
        }
    }
}

impl<S: Store> Layer<S> for OpenHolds {
    const MAY_WAIT: bool = false;

    fn decide<'a>(&'a self, inner: &'a S, call: Call<'a>) -> Answer<'a, Result<Decision, Error>> {
        inner.decide(call).inspect(move |answer| self.record(&call, answer))
    }

    fn decide_many<'a>(
        &'a self,
        inner: &'a S,
        calls: &'a [Call<'a>],
    ) -> Answer<'a, Vec<Result<Decision, Error>>> {
        inner.decide_many(calls).inspect(|answers| {
            calls.iter().zip(answers).for_each(|(call, answer)| self.record(call, answer));
        })
    }
}

/// A gateway for a stub model.
struct Scene {
    limiter: Limiter<Watched>,
    url: String,
    client: reqwest::Client,
}

/// The answer that a client received.
#[derive(Debug, Default, Clone, PartialEq)]
struct Seen {
    status: u16,
    words: u64,
    /// The tokens of the prompt and of the answer, as the model counted them.
    usage: Option<(u64, u64)>,
    fields: HashMap<String, String>,
    text: String,
}

impl Scene {
    async fn new(change: impl Fn(Policy) -> Policy, estimator: Estimator) -> Self {
        let inner = MemoryStore::builder().clock(ManualClock::default()).build();
        let store = Arc::new(inner).layer(OpenHolds::default());
        let policies = limits::policies().unwrap().into_iter().map(change);
        let limiter = Limiter::new(store, policies).unwrap();
        let gateway = app(limiter.clone(), model::start().await.unwrap(), estimator).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/chat/completions", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, gateway).await });
        Self { limiter, url, client: reqwest::Client::new() }
    }

    /// Sends a request, and reads the answer until it ends or until `most` words were read.
    async fn ask(&self, key: &str, request: &Value, most: u64) -> Seen {
        let post = self.client.post(&self.url).header("content-type", "application/json");
        let post = post.header("authorization", format!("Bearer {key}"));
        let mut answer = post.body(request.to_string()).send().await.unwrap();
        let fields = answer.headers().iter();
        let fields = fields.map(|(name, value)| (name.to_string(), value.to_str().unwrap().into()));
        let mut seen =
            Seen { status: answer.status().as_u16(), fields: fields.collect(), ..Seen::default() };
        while seen.words < most {
            // If the answer breaks off, `chunk` returns an error. The words before the error count
            // as read.
            let Ok(Some(chunk)) = answer.chunk().await else { break };
            seen.text += std::str::from_utf8(&chunk).unwrap();
            seen.words = seen.text.matches("\"word \"").count() as u64;
        }
        let usage = seen.text.rsplit("data: ").find_map(|event| {
            let event: Value = serde_json::from_str(event.trim()).ok()?;
            let usage = |name: &str| event["usage"][name].as_u64();
            Some((usage("prompt_tokens")?, usage("completion_tokens")?))
        });
        seen.usage = usage;
        seen
    }

    /// Returns the charged amount of a limit.
    async fn taken(&self, policy: &str, subject: &str) -> u64 {
        let request = self.limiter.by(policy, subject).tenant("acme").cost(0);
        let verdict = request.peek().await.unwrap().verdicts()[0];
        verdict.limit() - verdict.remaining()
    }

    /// Waits until all holds are settled. A server notices only after a while that a client has
    /// disconnected.
    async fn settled(&self) {
        let none_is_open = async {
            while !self.limiter.store().as_layer().0.lock().unwrap().is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), none_is_open).await.unwrap();
    }
}

/// Returns an estimator whose estimates never change, so that the tests know the estimates.
fn fixed(answer: u64) -> Estimator {
    Estimator::new(Share::new(9, 10).unwrap(), answer).min_observations(u32::MAX)
}

fn request(model: &str, words: u64) -> Value {
    let content = format!("please write {words}"); // three tokens
    json!({ "model": model, "stream": true, "messages": [{ "role": "user", "content": content }] })
}

const KEYS: [(&str, [&str; 3]); 4] = [
    ("sk-alice-laptop", ["alice/laptop", "alice", "search"]),
    ("sk-alice-ci", ["alice/ci", "alice", "search"]),
    ("sk-bob", ["bob/1", "bob", "search"]),
    ("sk-carol", ["carol/1", "carol", "ads"]),
];

/// Returns a policy with the name of `policy`, and with a limit that no test reaches.
fn larger(policy: Policy) -> Policy {
    let day = Duration::from_secs(86_400);
    Policy::new(policy.name(), FixedWindow::new(500_000_000, day)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_charged_is_what_was_sent_by_key_user_and_team() {
    let scene = Arc::new(Scene::new(larger, fixed(100)).await);
    let mut clients = vec![];
    for number in 0..300_u64 {
        let scene = Arc::clone(&scene);
        clients.push(tokio::spawn(async move {
            let (key, subjects) = KEYS[(number % 4) as usize];
            let words = 1 + number * 7 % 150; // some answers exceed the estimate
            let (model, most) = match number / 4 % 5 {
                0 | 1 => ("stub", u64::MAX),
                2 => ("stub-stalls", words), // the client disconnects
                3 => ("stub-breaks", u64::MAX),
                _ => ("stub-fails", u64::MAX),
            };
            let seen = scene.ask(key, &request(model, words), most).await;
            assert_eq!(seen.status, if model == "stub-fails" { 502 } else { 200 });
            // If an answer breaks off, the server can drop its last pieces. So the charge is
            // between the words that the client received and all words.
            let (prompt, answer) = match model {
                "stub" => {
                    let (prompt, answer) = seen.usage.unwrap();
                    (prompt, answer..=answer)
                }
                "stub-stalls" => (3, seen.words..=seen.words),
                "stub-breaks" => (3, seen.words..=words),
                _ => (0, 0..=0),
            };
            assert!(model == "stub-fails" || answer.contains(&words), "{model}: {seen:?}");
            let requests = u64::from(model != "stub-fails");
            let used = |answer| [requests, prompt + answer, prompt + answer, prompt + 4 * answer];
            (subjects, used(*answer.start()), used(*answer.end()))
        }));
    }
    let mut sent: HashMap<String, (u64, u64)> = HashMap::new();
    for client in clients {
        let (subjects, min, max) = client.await.unwrap();
        for (whose, subject) in ["key", "user", "team"].into_iter().zip(subjects) {
            for (index, what) in ["requests", "tokens", "day", "spend"].into_iter().enumerate() {
                let sum = sent.entry(format!("{whose}-{what} {subject}")).or_default();
                *sum = (sum.0 + min[index], sum.1 + max[index]);
            }
        }
    }
    scene.settled().await;
    assert_eq!(sent.len(), 4 * (4 + 3 + 2));
    for (limit, (min, max)) in sent {
        let (policy, subject) = limit.split_once(' ').unwrap();
        let taken = scene.taken(policy, subject).await;
        assert!((min..=max).contains(&taken), "{limit}: {taken} of {min} to {max}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_streams_stay_within_the_limit() {
    // Bob's key has 20,000 tokens per minute. Each request holds 503 tokens: 3 of the prompt and
    // 500 of the answer. It uses up to 3 more tokens, because the chat format adds 3 tokens that
    // the gateway does not know.
    let tokens_only = |policy: Policy| match policy.name().split_once('-') {
        Some((_, "requests" | "streams")) => larger(policy),
        _ => policy,
    };
    let scene = Arc::new(Scene::new(tokens_only, fixed(u64::MAX)).await);
    let mut clients = vec![];
    for number in 0..200_u64 {
        let scene = Arc::clone(&scene);
        clients.push(tokio::spawn(async move {
            let mut request = request("stub", if number % 3 == 0 { 20 } else { 500 });
            request["max_tokens"] = 500.into();
            let seen = scene.ask("sk-bob", &request, u64::MAX).await;
            match (seen.status, seen.usage) {
                (200, Some((prompt, answer))) => (prompt + answer, 1),
                (429, None) => {
                    assert!(seen.text.contains(r#""violated-policies":["key-tokens"]"#));
                    (0, 0)
                }
                answer => panic!("{answer:?}"),
            }
        }));
    }
    let (mut tokens, mut admitted) = (0, 0);
    for client in clients {
        let (used, is_admitted) = client.await.unwrap();
        (tokens, admitted) = (tokens + used, admitted + is_admitted);
    }
    scene.settled().await;
    assert!(tokens <= 20_000 + 3 * admitted, "{tokens} of 20,000 by {admitted}");
    assert!(admitted >= 20_000 / 503, "{admitted}");
    assert_eq!(scene.taken("key-tokens", "bob/1").await, tokens);
    assert_eq!(scene.taken("user-tokens", "bob").await, tokens);
    assert_eq!(scene.taken("key-requests", "bob/1").await, admitted);

    // The unused parts of the estimates were refunded, so more requests are admitted. At the end,
    // less than one estimate of 503 tokens remains.
    let mut request = request("stub", 500);
    request["max_tokens"] = 500.into();
    while let seen = scene.ask("sk-bob", &request, u64::MAX).await
        && seen.status == 200
    {
        tokens += seen.usage.unwrap().0 + 500;
        scene.settled().await;
    }
    assert!(tokens <= 20_000 + 3 && tokens > 20_000 - 503, "{tokens}");
}

/// A refusal by the slots charges nothing, and a client that leaves frees its slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_most_ten_requests_of_a_key_stream_at_a_time() {
    let streams_only =
        |policy: Policy| if policy.name() == "key-streams" { policy } else { larger(policy) };
    let scene = Arc::new(Scene::new(streams_only, fixed(100)).await);
    let mut clients = vec![];
    for number in 0..40_u64 {
        let scene = Arc::clone(&scene);
        clients.push(tokio::spawn(async move {
            let leaves = number % 2 == 0;
            let (model, most) = if leaves { ("stub-stalls", 5) } else { ("stub", u64::MAX) };
            loop {
                let seen = scene.ask("sk-bob", &request(model, 5), most).await;
                assert!(scene.taken("key-streams", "bob/1").await <= 10);
                match seen.status {
                    200 if leaves => return 3 + seen.words,
                    200 => return seen.usage.map_or(0, |(prompt, answer)| prompt + answer),
                    _ => assert!(seen.text.contains(r#""violated-policies":["key-streams"]"#)),
                }
                sleep(Duration::from_millis(5)).await;
            }
        }));
    }
    let mut tokens = 0;
    for client in clients {
        tokens += client.await.unwrap();
    }
    scene.settled().await;
    assert_eq!(scene.taken("key-streams", "bob/1").await, 0);
    assert_eq!(scene.taken("key-tokens", "bob/1").await, tokens);
    assert_eq!(scene.taken("key-requests", "bob/1").await, 40);
}

#[tokio::test]
async fn a_client_that_leaves_in_full_flow_is_charged_for_what_was_read() {
    let scene = Scene::new(larger, fixed(1_000)).await;
    let seen = scene.ask("sk-bob", &request("stub-slow", 1_000), 3).await;
    assert_eq!(seen.status, 200);
    scene.settled().await;
    let taken = scene.taken("key-tokens", "bob/1").await;
    assert!((6..500).contains(&taken), "{taken}");
}

#[tokio::test]
async fn an_answer_that_does_not_stream_is_charged_by_its_usage() {
    let scene = Scene::new(|policy| policy, fixed(1_000)).await;
    let mut request = request("stub", 40);
    request["stream"] = false.into();
    let seen = scene.ask("sk-bob", &request, u64::MAX).await;
    assert_eq!(seen.usage, Some((6, 40)));
    // The field `RateLimit` contains the remaining amount after the charge of the estimate: 20,000
    // − 1,003.
    let field = &seen.fields["ratelimit"];
    assert!(field.contains(r#""key-tokens";r=18997;"#), "{field}");
    scene.settled().await;
    assert_eq!(scene.taken("key-tokens", "bob/1").await, 46);
    assert_eq!(scene.taken("team-spend", "search").await, 6 + 4 * 40);
}

#[tokio::test]
async fn one_request_cannot_hold_the_whole_limit_and_max_tokens_bounds_it() {
    let scene = Scene::new(|policy| policy, fixed(u64::MAX)).await;
    let mut request = request("stub", 5);
    for (max_tokens, status) in [(9_997, 200), (9_998, 429), (1_i64 << 60, 429)] {
        request["max_tokens"] = max_tokens.into();
        let seen = scene.ask("sk-carol", &request, u64::MAX).await;
        assert_eq!(seen.status, status, "{max_tokens}: {}", seen.text);
    }
    scene.settled().await;
    assert_eq!(scene.taken("key-requests", "carol/1").await, 1);
}

#[tokio::test]
async fn an_answer_beyond_the_estimate_is_charged_and_later_requests_pay_for_it() {
    // The estimate of the answer is 1,000 tokens, as for any unknown model, although `max_tokens`
    // is 15,000.
    let scene = Scene::new(|policy| policy, fixed(1_000)).await;
    let mut long = request("stub", 15_000);
    long["stream"] = false.into();
    long["max_tokens"] = 15_000.into();
    let seen = scene.ask("sk-bob", &long, u64::MAX).await;
    assert_eq!((seen.status, seen.usage), (200, Some((6, 15_000))));
    scene.settled().await;
    assert_eq!(scene.taken("key-tokens", "bob/1").await, 15_006);
    assert_eq!(scene.ask("sk-bob", &long, u64::MAX).await.status, 200);
    scene.settled().await;
    // Both answers used 30,012 tokens of a bucket of 20,000. The next request needs 1,003 tokens.
    // The bucket refills 20,000 tokens per minute, so the request must wait 34 s.
    let refused = scene.ask("sk-bob", &request("stub", 1), u64::MAX).await;
    assert_eq!((refused.status, &*refused.fields["retry-after"]), (429, "34"));
    assert!(refused.text.contains(r#""violated-policies":["key-tokens"]"#), "{}", refused.text);
}

#[tokio::test]
async fn a_prompt_of_more_than_half_of_the_keys_tokens_is_never_admitted() {
    let scene = Scene::new(|policy| policy, fixed(1_000)).await;
    for (words, status) in [(9_000, 200), (9_001, 429)] {
        let content = "word ".repeat(words);
        let request = json!({ "model": "stub", "messages": [{ "content": content }] });
        let seen = scene.ask("sk-carol", &request, u64::MAX).await;
        assert_eq!(seen.status, status, "{}", seen.text);
        assert_eq!(seen.fields.get("retry-after"), None);
    }
}

#[tokio::test]
async fn the_estimates_of_a_gateway_that_was_killed_are_refunded_when_they_lapse() {
    let clock = ManualClock::default();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limiter = Limiter::new(store, limits::policies().unwrap()).unwrap();
    // The gateway holds an estimate under each limit. Then it is killed, so nothing settles the
    // hold.
    let request = limiter.subject("x").tenant("acme").cost(1);
    assert!(request.hold("4711", limits::ANSWER).await.unwrap().into_ticket().is_ok());
    let taken = async || {
        let peek = limiter.subject("x").tenant("acme").cost(0).peek().await.unwrap();
        let verdicts = limiter.verdicts(&peek);
        let by_day = verdicts
            .filter(|verdict| verdict.name().ends_with("day") || verdict.name().ends_with("spend"));
        by_day.map(|verdict| verdict.limit() - verdict.remaining()).collect::<Vec<_>>()
    };
    assert_eq!(taken().await, [1; 6]);
    clock.advance(limits::ANSWER);
    assert_eq!(taken().await, [0; 6]);
}

#[tokio::test]
async fn estimates_are_learned_from_answers() {
    let scene = Scene::new(larger, Estimator::new(Share::new(9, 10).unwrap(), 1_000)).await;
    let mut left = vec![];
    for _ in 0..40 {
        let seen = scene.ask("sk-bob", &request("stub", 20), u64::MAX).await;
        let field = seen.fields["ratelimit"].split(r#""key-tokens";r="#).nth(1).unwrap();
        let remaining: u64 = field.split(';').next().unwrap().parse().unwrap();
        scene.settled().await;
        left.push(remaining + scene.taken("key-tokens", "bob/1").await - 26);
    }
    // The first estimate is 1,003 tokens, because the model is unknown. At the end, the estimator
    // has learned that an answer has 20 tokens, so the estimate is at most 25.
    let held: Vec<_> = left.iter().map(|left| 500_000_000 - left).collect();
    assert_eq!(held[0], 1_003);
    assert!(held[39] <= 3 + 22, "{held:?}");
}

#[tokio::test]
async fn what_is_no_prompt_and_who_has_no_key_is_refused_and_charged_nothing() {
    let scene = Scene::new(|policy| policy, fixed(1_000)).await;
    let seen = scene.ask("sk-nobody", &request("stub", 5), u64::MAX).await;
    assert_eq!(seen.status, 401);
    for wrong in [json!({}), json!([]), json!({ "model": "stub" }), json!("?")] {
        assert_eq!(scene.ask("sk-bob", &wrong, u64::MAX).await.status, 400);
    }
    assert_eq!(scene.taken("key-requests", "bob/1").await, 0);
}
