//! Replays real traffic against rate-limit policies, and plans what they take.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod plan;
pub mod replay;
pub mod report;
pub mod sample;
pub mod scripts;
pub mod suggest;
pub mod trace;
