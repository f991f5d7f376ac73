//! Counts the usage of an answer while the answer streams.

use std::sync::Arc;

use serde_json::Value;
use tidegate_http::server::Usage;
use tidegate_redis::Estimator;

use crate::prompt::{Prompt, count, price};

/// The maximum length of a line of the stream, in bytes. Longer lines are ignored.
const MAX_LINE: usize = 1 << 16;

/// A meter that parses the pieces of an answer and reports the usage of the answer.
#[derive(Debug)]
pub struct Meter {
    usage: Usage,
    estimator: Arc<Estimator>,
    model: String,
    prompt_tokens: u64,
    answer_tokens: u64,
    /// The unfinished line at the end of the last piece of the answer. An event can be spread over
    /// several pieces.
    line: Vec<u8>,
}

impl Meter {
    /// Creates a meter for the answer to this prompt, and reports the tokens of the prompt as used.
    #[must_use]
    pub fn new(usage: Usage, estimator: Arc<Estimator>, prompt: &Prompt) -> Self {
        let Prompt { model, tokens, .. } = prompt;
        let (model, line) = (model.clone(), vec![]);
        let meter =
            Self { usage, estimator, model, prompt_tokens: *tokens, answer_tokens: 0, line };
        meter.report();
        meter
    }

    /// Parses a piece of an answer, which is a stream of server-sent events.
    pub fn read(&mut self, data: &[u8]) {
        for &byte in data {
            if byte != b'\n' {
                if self.line.len() < MAX_LINE {
                    self.line.push(byte);
                }
                continue;
            }
            let event = self.line.strip_prefix(b"data:").map(serde_json::from_slice::<Value>);
            if let Some(Ok(event)) = event {
                self.read_event(&event);
            }
            self.line.clear();
        }
    }

    /// Parses an event of a stream, or a whole answer that does not stream.
    pub fn read_event(&mut self, event: &Value) {
        let text = event["choices"][0]["delta"]["content"].as_str();
        if let Some(text) = text {
            self.answer_tokens += count(text);
        }
        // The last event of the model contains the exact numbers of tokens.
        if let (Some(prompt), Some(answer)) =
            (event["usage"]["prompt_tokens"].as_u64(), event["usage"]["completion_tokens"].as_u64())
        {
            (self.prompt_tokens, self.answer_tokens) = (prompt, answer);
            self.estimator.observe(&self.model, answer);
        }
        self.report();
    }

    fn report(&self) {
        self.usage.set("tokens", self.prompt_tokens.saturating_add(self.answer_tokens));
        self.usage.set("microdollars", price(self.prompt_tokens, self.answer_tokens));
    }
}
