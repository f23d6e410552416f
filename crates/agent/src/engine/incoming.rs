//! The answer to one request as it arrives. Used by answers of a run and by summaries.

use super::Part;
use crate::providers::{self, Delta, ProviderError, Stream, StreamEnd};
use quackd_protocol::model::{MAX_MODEL_ERROR_BYTES, ModelFailure, ModelHead, ModelInfo};

/// Deltas of one piece above which adjacent deltas are joined. A piece has more of them if the
/// supervisor is slow, which takes at most 1,000 events a second.
const MAX_SINGLE_DELTAS: usize = 64;

/// An answer that is not complete.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Number of the request.
    pub(super) number: u64,
    /// Reads the body. Owns the model of the request, which can differ from the session's current one.
    pub(super) stream: Stream,
    pub(super) head: Option<ModelHead>,
    /// Body of an answer with an error status.
    error_body: Vec<u8>,
    /// Whether the provider has sent a byte of the answer, so that it may bill it.
    pub(super) has_bytes: bool,
}

/// Effect of one part on the answer.
#[derive(Debug)]
pub(super) enum Arrived {
    /// The answer has grown.
    Deltas(Vec<Delta>),
    /// The answer is complete with these deltas. The rest of the body is not needed.
    Last(Vec<Delta>),
    /// The body ended.
    End(StreamEnd),
    /// The provider refused the request.
    Refused(ProviderError),
    /// The request failed before the first byte of an answer.
    Missing(ModelFailure),
}

impl Incoming {
    pub(super) fn new(number: u64, model: &ModelInfo) -> Self {
        let (stream, error_body) = (Stream::new(model), Vec::new());
        Self { number, stream, head: None, error_body, has_bytes: false }
    }

    /// Takes a part of the answer.
    pub(super) fn take(&mut self, part: Part) -> Arrived {
        let status = self.head.as_ref().map(|head| head.status);
        let error_status = status.filter(|status| !(200..300).contains(status));

        match (part, error_status) {
            (Part::Head(head), _) => self.head = Some(head),
            (Part::Bytes(bytes), Some(_)) => {
                // The rest of an error page is read and dropped.
                let room = MAX_MODEL_ERROR_BYTES.saturating_sub(self.error_body.len());
                self.error_body.extend(bytes.iter().take(room));
            }
            (Part::Bytes(bytes), None) => {
                self.has_bytes = true;
                let deltas = joined(self.stream.push(&bytes));
                return if self.stream.is_over() {
                    Arrived::Last(deltas)
                } else {
                    Arrived::Deltas(deltas)
                };
            }
            // The status decides, also if the connection broke within the body.
            (Part::Done | Part::Failed(_), Some(status)) => {
                let delay = self.head.as_ref().and_then(|head| head.retry_after_ms);
                let body = &self.error_body;
                return Arrived::Refused(providers::http_error(status, body, delay.is_some()));
            }
            (Part::Done, None) => return Arrived::End(StreamEnd::Complete),
            (Part::Failed(failure), None) if self.has_bytes => {
                return Arrived::End(StreamEnd::Broken(failure.text));
            }
            (Part::Failed(failure), None) => return Arrived::Missing(failure),
        }
        Arrived::Deltas(Vec::new())
    }
}

/// Joins adjacent deltas of a block, if there are more than [`MAX_SINGLE_DELTAS`]. Drops the counts of tokens, which
/// no event contains.
fn joined(mut deltas: Vec<Delta>) -> Vec<Delta> {
    deltas.retain(|delta| !matches!(delta, Delta::Usage(_)));
    if deltas.len() <= MAX_SINGLE_DELTAS {
        return deltas;
    }

    let mut joined: Vec<Delta> = Vec::new();
    for delta in deltas {
        if !joined.last_mut().is_some_and(|last| last.join(&delta)) {
            joined.push(delta);
        }
    }
    joined
}
