//! JSON-RPC batches, which revision 2025-03-26 has and no other: several messages in one line, and their answers in one.
//!
//! Called by [`crate::line_transport`], which knows the revision and the ids in flight, and by [`crate::http_batches`].

use rmcp::model::{ErrorData, ProtocolVersion, RequestId, ServerJsonRpcMessage};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::HashSet;

/// Maximum number of messages of a batch.
const MAX_BATCH: usize = 64;

/// Maximum size of answers that wait for the others of their batch, in bytes. More are sent in
/// several arrays.
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;

/// The batches whose answers are not complete.
#[derive(Debug, Default)]
pub(crate) struct Batches(Vec<Batch>);

#[derive(Debug, Default)]
struct Batch {
    /// Requests without an answer.
    open: HashSet<RequestId>,
    /// The beginning of the array of answers.
    answers: Vec<u8>,
}

/// Reads the messages of a batch. `None` if it is not an array.
pub(crate) fn messages(line: &[u8]) -> Option<Result<Vec<Box<RawValue>>, serde_json::Error>> {
    line.trim_ascii_start().starts_with(b"[").then(|| serde_json::from_slice(line))
}

/// The answer to a message that does not reach the service.
pub(crate) type Refusal = Box<ServerJsonRpcMessage>;

/// Returns the messages of a batch. `has_batches`: the revision of the connection has batches.
pub(crate) fn admit(
    batch: serde_json::Result<Vec<Box<RawValue>>>,
    has_batches: bool,
) -> Result<Vec<Box<RawValue>>, Refusal> {
    let refused = |text: String| Err(Box::new(refusal(text, None)));

    match batch {
        Ok(_) if !has_batches => {
            let revision = ProtocolVersion::V_2025_03_26;
            refused(format!("batches are part of revision {revision} only"))
        }
        Ok(messages) if messages.is_empty() => refused("the batch is empty".to_owned()),
        Ok(messages) if MAX_BATCH < messages.len() => {
            refused(format!("the batch has more than {MAX_BATCH} messages"))
        }
        Ok(messages) => Ok(messages),
        Err(error) => Err(unreadable(b"", &error)),
    }
}

/// Returns the answer that refuses a message. `id`: that of the request, if the message is one.
pub(crate) fn refusal(
    text: impl Into<Cow<'static, str>>,
    id: Option<RequestId>,
) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::invalid_request(text, None), id)
}

/// Returns the answer to a text that is not a message.
pub(crate) fn unreadable(text: &[u8], error: &serde_json::Error) -> Refusal {
    #[derive(Deserialize)]
    struct WithId {
        id: Option<RequestId>,
    }

    let id = serde_json::from_slice(text).ok().and_then(|WithId { id }| id);
    let error = if error.is_syntax() || error.is_eof() {
        ErrorData::parse_error(format!("not JSON: {error}"), None)
    } else {
        ErrorData::invalid_request("not a JSON-RPC 2.0 message", None)
    };
    Box::new(ServerJsonRpcMessage::error(error, id))
}

impl Batches {
    /// Adds a batch with these requests and the answers to those that were refused. Returns its answers if nothing is open.
    pub(crate) fn begin(
        &mut self,
        open: HashSet<RequestId>,
        refusals: &[ServerJsonRpcMessage],
    ) -> Option<Vec<u8>> {
        let mut batch = Batch { open, answers: Vec::new() };
        refusals.iter().for_each(|refusal| batch.add(refusal));
        if batch.open.is_empty() {
            return batch.take();
        }
        self.0.push(batch);
        None
    }

    /// Takes the answer to a request of a batch. Returns `Err` if it is of none, and the answers that can be sent.
    pub(crate) fn answer(
        &mut self,
        id: &RequestId,
        answer: &ServerJsonRpcMessage,
    ) -> Result<Option<Vec<u8>>, NotInABatch> {
        let at = self.0.iter().position(|batch| batch.open.contains(id)).ok_or(NotInABatch)?;
        let Some(batch) = self.0.get_mut(at) else { return Err(NotInABatch) };
        batch.open.remove(id);
        batch.add(answer);
        Ok(self.flushed(at))
    }

    /// Forgets a request that gets no answer, because it was cancelled. Returns the answers that can be sent.
    pub(crate) fn cancel(&mut self, id: &RequestId) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|batch| batch.open.contains(id))?;
        self.0.get_mut(at)?.open.remove(id);
        self.flushed(at)
    }

    fn flushed(&mut self, at: usize) -> Option<Vec<u8>> {
        let batch = self.0.get_mut(at)?;
        if batch.open.is_empty() {
            self.0.swap_remove(at).take()
        } else if MAX_WAITING_BYTES < batch.answers.len() {
            batch.take()
        } else {
            None
        }
    }
}

/// The request is not part of a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotInABatch;

impl Batch {
    fn add(&mut self, answer: &ServerJsonRpcMessage) {
        self.answers.push(if self.answers.is_empty() { b'[' } else { b',' });
        // Answers are made of JSON, so they are JSON.
        if serde_json::to_writer(&mut self.answers, answer).is_err() {
            self.answers.extend_from_slice(b"null");
        }
    }

    /// Takes the array of the answers so far, as a line. `None` without answers.
    fn take(&mut self) -> Option<Vec<u8>> {
        let mut line = std::mem::take(&mut self.answers);
        if line.is_empty() {
            return None;
        }
        line.extend_from_slice(b"]\n");
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: i64) -> RequestId {
        RequestId::Number(number)
    }

    fn answer(number: i64, text: &str) -> ServerJsonRpcMessage {
        let error = ErrorData::invalid_request(text.to_owned(), None);
        ServerJsonRpcMessage::error(error, Some(id(number)))
    }

    fn ids(line: Option<Vec<u8>>) -> Vec<i64> {
        let line: Vec<serde_json::Value> = serde_json::from_slice(&line.unwrap()).unwrap();
        line.iter().map(|answer| answer["id"].as_i64().unwrap()).collect()
    }

    #[test]
    fn the_answers_of_a_batch_are_one_line() {
        let mut batches = Batches::default();
        assert_eq!(batches.begin([id(1), id(2), id(3)].into(), &[answer(9, "")]), None);
        assert_eq!(batches.begin([id(4)].into(), &[]), None);
        assert_eq!(batches.answer(&id(7), &answer(7, "")), Err(NotInABatch));
        assert_eq!(batches.answer(&id(3), &answer(3, "")), Ok(None));
        assert_eq!(ids(batches.answer(&id(4), &answer(4, "")).unwrap()), [4]);
        assert_eq!(batches.cancel(&id(2)), None);
        assert_eq!(ids(batches.answer(&id(1), &answer(1, "")).unwrap()), [9, 3, 1]);
        assert!(batches.0.is_empty());
        // Only notifications, or all cancelled.
        assert_eq!(batches.begin(HashSet::new(), &[]), None);
        assert_eq!(batches.begin([id(1)].into(), &[]), None);
        assert_eq!(batches.cancel(&id(1)), None);
        assert!(batches.0.is_empty());
        assert_eq!(ids(batches.begin(HashSet::new(), &[answer(1, "")])), [1]);
    }

    #[test]
    fn long_answers_do_not_wait_for_the_others() {
        let mut batches = Batches::default();
        batches.begin([id(1), id(2), id(3)].into(), &[]);
        let long = "x".repeat(MAX_WAITING_BYTES);
        assert_eq!(ids(batches.answer(&id(1), &answer(1, &long)).unwrap()), [1]);
        assert_eq!(batches.answer(&id(2), &answer(2, "")), Ok(None));
        assert_eq!(ids(batches.answer(&id(3), &answer(3, "")).unwrap()), [2, 3]);
    }
}
