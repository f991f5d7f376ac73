//! Defines plain commands, and scripts in the style of other projects, which were written for this
//! benchmark.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, Script};

const RETURN_ONE: &str = include_str!("scripts/return_one.lua");
const FLOOR: &str = include_str!("scripts/floor.lua");
const SORTED_SET_LOG: &str = include_str!("scripts/sorted_set_log.lua");
const HASH_TOKEN_BUCKET: &str = include_str!("scripts/hash_token_bucket.lua");
const HASH_SLIDING_COUNTER: &str = include_str!("scripts/hash_sliding_counter.lua");
const GCRA: &str = include_str!("scripts/gcra.lua");

/// The data structure in which a script of another project stores a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// A structure that only the script itself can create, so there is no warmup.
    WhatACallMakes,
    /// A sorted set. Each request is a member with its time as the score.
    SortedSet,
    /// A hash with the number of the window, its count, and the count of the previous window.
    CounterHash,
}

/// A command or a script, and its arguments.
pub(crate) struct Peer {
    script: Option<Script>,
    arguments: Vec<String>,
    pub(crate) keeps: Keeps,
}

impl Peer {
    pub(crate) fn incr() -> Self {
        Self { script: None, arguments: vec![], keeps: Keeps::WhatACallMakes }
    }

    pub(crate) fn return_one() -> Self {
        Self::script(RETURN_ONE, &[], Keeps::WhatACallMakes)
    }

    pub(crate) fn floor() -> Self {
        // The argument is as long as the argument of Tidegate's script for a single charge.
        Self::script(FLOOR, &["01234567890123456789012345678901234"], Keeps::WhatACallMakes)
    }

    pub(crate) fn sorted_set_log(limit: &str, window_micros: &str) -> Self {
        Self::script(SORTED_SET_LOG, &[limit, window_micros], Keeps::SortedSet)
    }

    pub(crate) fn hash_sliding_counter(limit: &str, window_secs: &str) -> Self {
        Self::script(HASH_SLIDING_COUNTER, &[limit, window_secs, "1"], Keeps::CounterHash)
    }

    pub(crate) fn hash_token_bucket(capacity: &str, per_second: &str) -> Self {
        Self::script(HASH_TOKEN_BUCKET, &[capacity, per_second, "1"], Keeps::WhatACallMakes)
    }

    pub(crate) fn gcra(burst: &str, rate: &str, period_secs: &str) -> Self {
        Self::script(GCRA, &[burst, rate, period_secs, "1"], Keeps::WhatACallMakes)
    }

    fn script(code: &str, arguments: &[&str], keeps: Keeps) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { script: Some(Script::new(code)), arguments, keeps }
    }

    pub(crate) fn command(&self, key: &str) -> Cmd {
        match &self.script {
            None => redis::cmd("INCR").arg(key).to_owned(),
            Some(script) => redis::cmd("EVALSHA")
                .arg(script.get_hash())
                .arg(1)
                .arg(key)
                .arg(&self.arguments)
                .to_owned(),
        }
    }

    pub(crate) async fn load(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        match &self.script {
            None => Ok(()),
            Some(script) => script.load_async(connection).await.map(drop),
        }
    }
}
