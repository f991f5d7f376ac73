//! Tests of nodes that redirect a call or do not reply to it.

use std::time::{Duration, Instant};

use tidegate_cluster::ErrorKind;

use super::node::{Node, Say};
use super::{HIGH, LOW, acquire, slot, two_nodes};

#[tokio::test]
async fn a_call_is_sent_directly_to_the_node_that_serves_its_slot() {
    let (low, high, store) = two_nodes().await;
    for _ in 0..3 {
        assert!(acquire(&store, HIGH).await.unwrap().is_allowed());
    }
    assert_eq!((low.calls(), high.calls()), (0, 3));
    assert_eq!(low.commands(), ["CLUSTER"], "the slots are queried once");
}

#[tokio::test]
async fn a_slot_that_moved_is_followed_and_remembered() {
    let (low, high, store) = two_nodes().await;
    low.says([high.redirect("MOVED", slot(LOW))]);
    for _ in 0..3 {
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        // After the redirect, both nodes report that the node `high` serves all slots. The nodes of
        // a real cluster also report a new assignment.
        low.sees(&[(0, 16_383, &high)]);
        high.sees(&[(0, 16_383, &high)]);
    }
    assert_eq!((low.calls(), high.calls()), (1, 3));
}

#[tokio::test]
async fn a_redirect_without_a_host_means_the_host_of_the_node() {
    let (low, high, store) = two_nodes().await;
    low.says([Say::Error(format!("MOVED {} :{}", slot(LOW), high.port))]);
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    assert_eq!((low.calls(), high.calls()), (1, 1));
}

#[tokio::test]
async fn asking_is_sent_with_the_call_and_does_not_change_the_slot_map() {
    let (low, high, store) = two_nodes().await;
    low.says(vec![high.redirect("ASK", slot(LOW)); 16]);
    let calls = (0..16).map(|_| acquire(&store, LOW));
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.unwrap().is_allowed());
    }
    let commands: Vec<_> = high.commands().into_iter().filter(|word| word != "CLUSTER").collect();
    assert_eq!(commands, ["ASKING", "EVALSHA"].repeat(16));
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    assert_eq!((low.calls(), high.calls()), (17, 16));
}

#[tokio::test]
async fn an_unknown_script_is_sent_to_the_node_that_reported_it() {
    let (low, high, store) = two_nodes().await;
    let unknown = || Say::Error("NOSCRIPT No matching script.".to_owned());
    low.says([unknown(), Say::Admit, high.redirect("ASK", slot(LOW))]);
    high.says([unknown()]);
    for _ in 0..2 {
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    }
    let commands = |node: &Node| {
        node.commands().into_iter().filter(|word| word != "CLUSTER").collect::<Vec<_>>()
    };
    assert_eq!(commands(&low), ["EVALSHA", "EVAL", "EVALSHA"]);
    assert_eq!(commands(&high), ["ASKING", "EVALSHA", "ASKING", "EVAL"]);
}

#[tokio::test]
async fn a_node_that_never_learns_the_script_is_an_error() {
    let (low, _high, store) = two_nodes().await;
    low.says(vec![Say::Error("NOSCRIPT No matching script.".to_owned()); 9]);
    assert_eq!(acquire(&store, LOW).await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(low.calls(), 2);
}

#[tokio::test]
async fn a_call_waits_a_moment_for_keys_that_are_being_moved() {
    let (low, _high, store) = two_nodes().await;
    let try_again = || Say::Error("TRYAGAIN Multiple keys request during rehashing".to_owned());
    low.says(vec![try_again(); 3]);
    assert!(acquire(&store, LOW).await.unwrap().is_allowed());
    assert_eq!(low.calls(), 4);
    low.says(vec![try_again(); 100]);
    let start = Instant::now();
    let error = acquire(&store, LOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.kind().is_definitely_not_charged());
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(low.calls(), 4 + 9);
}

#[tokio::test]
async fn a_redirect_loop_ends_in_an_error() {
    let (low, high, store) = two_nodes().await;
    low.says(vec![high.redirect("MOVED", slot(LOW)); 99]);
    high.says(vec![low.redirect("MOVED", slot(LOW)); 99]);
    let error = acquire(&store, LOW).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert_eq!(low.calls() + high.calls(), 9);
}

#[tokio::test]
async fn a_lost_call_is_never_sent_again() {
    for (say, kind) in [(Say::Close, ErrorKind::Unavailable), (Say::Nothing, ErrorKind::Timeout)] {
        let (low, high, store) = two_nodes().await;
        assert!(acquire(&store, LOW).await.unwrap().is_allowed());
        low.says([say.clone()]);
        let error = acquire(&store, LOW).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.kind().is_definitely_not_charged());
        assert!(acquire(&store, HIGH).await.unwrap().is_allowed());
        assert_eq!((low.calls(), high.calls()), (2, 1), "{say:?}");
    }
}

#[tokio::test]
async fn a_silent_node_does_not_delay_calls_to_other_nodes() {
    let (low, _high, store) = two_nodes().await;
    low.says([Say::Nothing]);
    let mut silent = std::pin::pin!(acquire(&store, LOW));
    let others = async {
        for _ in 0..10 {
            assert!(acquire(&store, HIGH).await.unwrap().is_allowed());
        }
    };
    tokio::select! {
        answer = &mut silent => panic!("the calls to the other node are delayed: {answer:?}"),
        () = others => {}
    }
    assert_eq!(silent.await.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn other_errors_have_the_same_kinds_as_from_a_single_server() {
    let (low, _high, store) = two_nodes().await;
    for (text, kind) in [
        ("CLUSTERDOWN The cluster is down", ErrorKind::Unavailable),
        ("READONLY You can't write against a read only replica.", ErrorKind::ReadOnly),
        ("LOADING Redis is loading the dataset in memory", ErrorKind::Busy),
        ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::OutOfMemory),
        ("CROSSSLOT Keys in request don't hash to the same slot", ErrorKind::Protocol),
        ("ASK nonsense", ErrorKind::Protocol),
    ] {
        let before = low.calls();
        low.says([Say::Error(text.to_owned())]);
        let error = acquire(&store, LOW).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(&format!("127.0.0.1:{}", low.port)), "{error}");
        assert_eq!(low.calls(), before + 1);
    }
}
