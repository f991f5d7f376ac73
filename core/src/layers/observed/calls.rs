//! The calls that the layer observes together (one call or a batch), and their answers.

use crate::{Call, Decision, Error};

#[derive(Debug, Clone, Copy)]
pub(super) enum Calls<'a> {
    One(Call<'a>),
    Batch(&'a [Call<'a>]),
}

impl<'a> Calls<'a> {
    #[cfg(feature = "metrics")]
    pub(super) fn as_slice(&self) -> &[Call<'a>] {
        match self {
            Self::One(call) => std::slice::from_ref(call),
            Self::Batch(calls) => calls,
        }
    }
}

pub(super) trait Answers: Send {
    fn as_slice(&self) -> &[Result<Decision, Error>];
}

impl Answers for Result<Decision, Error> {
    fn as_slice(&self) -> &[Self] {
        std::slice::from_ref(self)
    }
}

impl Answers for Vec<Result<Decision, Error>> {
    fn as_slice(&self) -> &[Result<Decision, Error>] {
        self
    }
}
