//! Tests the server with nearly valid input: seeds of the fuzz targets with random changes.

mod bombs;
#[cfg(target_os = "linux")]
pub(crate) mod many;
mod memory;
mod sizes;
mod stuck;

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tidegate_testkit::generate::Bytes;

use crate::checks;

struct Words {
    seeds: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl Words {
    fn read(target: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let seeds = std::fs::read_dir(root.join("tests/checks/seeds").join(target)).unwrap();
        let mut paths: Vec<_> = seeds.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let seeds: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        let words =
            seeds.iter().flat_map(|seed| seed.split_inclusive(|byte| b" \n,{}".contains(byte)));
        Self { words: words.map(<[u8]>::to_vec).collect(), seeds }
    }
}

#[derive(Debug, Clone)]
enum Change {
    Flip(Index, u8),
    Insert(Index, Index),
    InsertBytes(Index, Vec<u8>),
    Remove(Index, Index),
    Repeat(Index, usize),
    Cut(Index),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        3 => (index(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        3 => (index(), index()).prop_map(|(at, word)| Change::Insert(at, word)),
        1 => (index(), vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Change::InsertBytes(at, bytes)),
        2 => (index(), index()).prop_map(|(from, to)| Change::Remove(from, to)),
        1 => (index(), 2..20_usize).prop_map(|(at, times)| Change::Repeat(at, times)),
        1 => index().prop_map(Change::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, change: &Change, words: &[Vec<u8>]) {
    let at = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
    match change {
        Change::Flip(index, by) => {
            let at = at(index, bytes);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= by;
            }
        }
        Change::Insert(index, word) => {
            let at = at(index, bytes);
            bytes.splice(at..at, word.get(words).iter().copied());
        }
        Change::InsertBytes(index, new) => {
            let at = at(index, bytes);
            bytes.splice(at..at, new.iter().copied());
        }
        Change::Remove(from, to) => {
            let (from, to) = (at(from, bytes), at(to, bytes));
            bytes.drain(from.min(to)..from.max(to).min(from.min(to) + 20));
        }
        Change::Repeat(index, times) => {
            let at = at(index, bytes);
            let part = bytes[at..].iter().copied().take(30).collect::<Vec<_>>();
            bytes.splice(at..at, part.repeat(*times));
        }
        Change::Cut(index) => bytes.truncate(at(index, bytes)),
    }
}

/// Generates nearly valid input: one or two seeds of a fuzz target with at most five random
/// changes.
fn nearly(target: &str) -> impl Strategy<Value = Bytes> + use<> {
    let Words { seeds, words } = Words::read(target);
    let whole = vec(prop::sample::select(seeds), 1..3).prop_map(|seeds| seeds.concat());
    (whole, vec(change(), 0..6)).prop_map(move |(mut bytes, changes)| {
        changes.iter().for_each(|change| apply(&mut bytes, change, &words));
        Bytes::from(bytes)
    })
}

proptest! {
    #[test]
    fn each_command_has_one_reply_however_its_bytes_are_cut(
        bytes in nearly("resp"),
        part in 1_usize..40,
    ) {
        checks::resp::check(&bytes, part);
    }

    #[test]
    fn any_bytes_get_responses_of_http(bytes in nearly("http"), part in 1_usize..200) {
        checks::http::check_bytes(&bytes, part);
    }

    #[test]
    fn any_body_gets_one_response(bytes in nearly("json")) {
        if let Some((route, body)) = bytes.split_first() {
            checks::http::check_body(body, usize::from(*route));
        }
    }

    #[test]
    fn any_message_is_decided_or_refused(bytes in nearly("rls")) {
        checks::request::check(&bytes);
    }

    #[test]
    fn any_text_is_a_file_of_limits_or_an_error_at_its_place(bytes in nearly("yaml")) {
        checks::config::check(&String::from_utf8_lossy(&bytes));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn any_bytes_to_grpc_end_their_connection_and_no_other(bytes in nearly("grpc")) {
        match bytes.split_first() {
            Some((0, bytes)) => checks::grpc::check_bytes(bytes),
            Some((1..128, bytes)) => checks::grpc::check_frames(bytes),
            Some((128.., bytes)) => checks::grpc::check_body(bytes),
            None => {}
        }
        checks::grpc::check_serving();
    }
}
