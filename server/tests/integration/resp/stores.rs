//! Compares a server on a memory store with a server on Redis: the same commands must have the same
//! replies.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tidegate_core::Store;
use tidegate_server::store::{StoreSettings, open};
use tidegate_test_servers::Redis;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;
use crate::scene::block_on;

/// The policies refill almost nothing during a test, so that only times in the replies of the two
/// servers can differ.
const POLICIES: [&str; 6] = [
    "fixed-window 5/365d anchored",
    "sliding-log 4/365d block 30d",
    "sliding-window 6/365d",
    "login: fixed-window 3/365d anchored",
    "token-bucket 9/3650d",
    "gcra 2/3650d burst 4",
];

/// The policies without buckets. A bucket refills fractions of tokens all the time, so a refund
/// some milliseconds later could be one token less.
const WITHOUT_BUCKETS: &[&str] = POLICIES.split_at(4).0;

/// The smallest number in a reply that is a time, in milliseconds or seconds. The times of the two
/// servers can differ by up to a minute.
const TIMES: u64 = 1_000;
const MAX_DIFFERENCE: u64 = 60_000;

fn charge(policies: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    let key = select(vec!["a", "b", "{x}", "\r\n"]);
    let words = |words: &str| words.split(' ').map(str::to_owned).collect();
    let more = prop_oneof![
        4 => Just(Vec::new()),
        2 => Just(words("TENANT t")),
        1 => Just(words("CHECK")),
        4 => (0_u64..8).prop_map(|cost| vec!["COST".to_owned(), cost.to_string()]),
    ];
    (key, select(policies), more).prop_map(|(key, policy, mut more)| {
        more.splice(0..0, [key.to_owned(), policy.to_owned()]);
        more
    })
}

fn command() -> impl Strategy<Value = Vec<String>> {
    let throttle =
        (select(vec!["k", "l"]), 0_u64..4, 0_u64..4).prop_map(|(key, burst, quantity)| {
            let (burst, quantity) = (burst.to_string(), quantity.to_string());
            ["CL.THROTTLE", key, &burst, "2", "99999999", &quantity].map(str::to_owned).to_vec()
        });
    let options: Vec<&'static str> = vec![
        "",
        "",
        "",
        " MIN 2",
        " EX 86400",
        " ID x EX 86400",
        " ID y EX 86400",
        " ID x",
        " ID y",
        " SOFAR ID x",
    ];
    let verbs = |words: &'static str| select(words.split(' ').collect::<Vec<_>>());
    let taking =
        (verbs("ACQUIRE ACQUIRE ACQUIRE PEEK CHARGE BLOCK RESET"), vec(charge(&POLICIES), 1..3));
    let giving =
        (verbs("REFUND HOLD HOLD SETTLE CANCEL EXTEND"), vec(charge(WITHOUT_BUCKETS), 1..3));
    let own = (prop_oneof![7 => taking, 6 => giving], select(options)).prop_map(
        |((verb, charges), options)| {
            let mut words = vec![format!("TG.{verb}")];
            for (index, charge) in charges.into_iter().enumerate() {
                if index > 0 {
                    words.push("AND".to_owned());
                }
                words.extend(charge);
            }
            words.extend(options.split_ascii_whitespace().map(str::to_owned));
            words
        },
    );
    prop_oneof![1 => throttle, 5 => own]
}

fn encode(command: &[String]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}

/// Returns the replies of a server to all commands, each as a list of its lines.
async fn replies(
    store: Arc<dyn Store>,
    commands: &[Vec<String>],
    at_once: usize,
) -> Vec<Vec<String>> {
    let (client, server) = tokio::io::duplex(1 << 20);
    let calls = Arc::new(Calls::new(store));
    let served = tokio::spawn(tidegate_server::calls::resp::serve_stream(
        server,
        calls,
        RespSettings::default(),
    ));
    let (reader, mut writer) = tokio::io::split(client);
    let mut lines = BufReader::new(reader).lines();
    let mut replies = Vec::new();
    for part in commands.chunks(at_once) {
        let bytes: Vec<u8> = part.iter().flat_map(|command| encode(command)).collect();
        writer.write_all(&bytes).await.unwrap();
        for _ in part {
            let (mut reply, mut missing) = (Vec::new(), 1);
            while missing > 0 {
                let line = lines.next_line().await.unwrap().unwrap();
                missing -= 1;
                match line.split_at(1) {
                    ("*", count) => missing += count.parse::<usize>().unwrap(),
                    ("$", _) => missing += 1,
                    _ => {}
                }
                reply.push(line);
            }
            replies.push(reply);
        }
    }
    drop((lines, writer));
    served.await.unwrap().unwrap();
    replies
}

fn are_equal(one: &str, other: &str) -> bool {
    let number = |line: &str| line.strip_prefix(':').and_then(|digits| digits.parse::<u64>().ok());
    match (number(one), number(other)) {
        (Some(one), Some(other)) if one >= TIMES && other >= TIMES => {
            one.abs_diff(other) <= MAX_DIFFERENCE
        }
        _ => one == other,
    }
}

#[test]
fn a_memory_store_and_a_redis_give_the_same_replies() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let redis = runtime.block_on(Redis::start()).unwrap();
    let settings = StoreSettings { timeout: Duration::from_secs(30), ..StoreSettings::default() };
    proptest!(ProptestConfig::with_cases(60), |(
        commands in vec(command(), 1..60),
        at_once in 1_usize..60,
    )| {
        let (expected, found) = block_on(async {
            let client = &mut Client::connect(redis.port()).await.unwrap();
            ask(client, "FLUSHALL").await;
            let store = open(&redis.url(), &settings).unwrap();
            let expected = replies(Arc::new(MemoryStore::new()), &commands, 1).await;
            (expected, replies(store, &commands, at_once).await)
        });
        for (index, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let are_equal = expected.len() == found.len()
                && expected.iter().zip(found).all(|(one, other)| are_equal(one, other));
            prop_assert!(are_equal, "{:?}: {expected:?} {found:?}", &commands[..=index]);
        }
        prop_assert_eq!(expected.len(), found.len());
    });
}
