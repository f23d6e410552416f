//! `GET /history`: the last lines of a session's history file, which the macOS app writes.
//!
//! Reads at most [`MAX_HISTORY_BYTES`] from the end, so the cost does not depend on the file's size.

use crate::reply::{self, HttpReply};
use hyper::StatusCode;
use quackd_protocol::limits::{DEFAULT_HISTORY_EVENTS, MAX_HISTORY_BYTES, MAX_HISTORY_EVENTS};
use serde::Serialize;
use serde_json::value::RawValue;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum length of a session id, in bytes. Same as in `quackd_home`.
const MAX_ID_BYTES: usize = 200;

/// Timeout of the read, so that a hanging disk blocks only this request.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Parameters of `GET /history`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query {
    session: Option<String>,
    limit: usize,
}

impl Query {
    /// Parses the query string. Ignores malformed parameters.
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = query.unwrap_or_default().split('&');
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        // The first of several values counts.
        let value =
            |name: &str| pairs.clone().find(|(key, _)| *key == name).map(|(_, value)| value);

        let session = value("sessionId").filter(|id| is_id(id)).map(str::to_owned);
        let limit = value("limit").and_then(|limit| limit.parse::<i64>().ok());
        let limit = limit.map_or(DEFAULT_HISTORY_EVENTS, |limit| {
            usize::try_from(limit).unwrap_or(1).clamp(1, MAX_HISTORY_EVENTS)
        });
        Self { session, limit }
    }
}

/// Returns true for a valid session id: plain ASCII, so it is never escaped in a URL.
fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.len() <= MAX_ID_BYTES && text.bytes().all(is_plain)
}

/// Answers `GET /history` with the last events of a session.
pub(crate) async fn answer(histories: &Path, query: Query) -> HttpReply {
    let Some(session) = query.session else {
        let text = "A valid sessionId query parameter is required";
        return reply::error(StatusCode::BAD_REQUEST, text);
    };

    let path = histories.join(format!("{session}.jsonl"));
    let reading = tokio::task::spawn_blocking(move || last_lines_blocking(path, query.limit));
    let read = tokio::time::timeout(READ_TIMEOUT, reading).await;
    match read {
        Ok(Ok(Ok(events))) => {
            #[derive(Serialize)]
            #[serde(rename_all = "camelCase")]
            struct History<'a> {
                events: Vec<Box<RawValue>>,
                session_id: &'a str,
            }
            reply::json(StatusCode::OK, &History { events, session_id: &session })
        }
        Ok(Ok(Err(error))) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("History not found for session {session}");
            reply::error(StatusCode::NOT_FOUND, &text)
        }
        Ok(Ok(Err(error))) => {
            tracing::warn!(%error, "remote: cannot read a history");
            reply::error(StatusCode::INTERNAL_SERVER_ERROR, "The history cannot be read")
        }
        Err(_) | Ok(Err(_)) => {
            reply::error(StatusCode::SERVICE_UNAVAILABLE, "The disk does not answer")
        }
    }
}

/// Returns the lines that are JSON, of the last `limit` lines. Skips a truncated first line, which is not
/// valid JSON.
fn last_lines_blocking(path: PathBuf, limit: usize) -> io::Result<Vec<Box<RawValue>>> {
    // Reading another file type, such as a FIFO, could block forever.
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a file"));
    }

    let mut file = File::open(path)?;
    let skipped = metadata.len().saturating_sub(MAX_HISTORY_BYTES);
    file.seek(SeekFrom::Start(skipped))?;

    let mut bytes = Vec::new();
    file.take(MAX_HISTORY_BYTES).read_to_end(&mut bytes)?;

    let mut lines: Vec<&[u8]> = bytes
        .rsplit(|byte| *byte == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .take(limit)
        .collect();
    lines.reverse();
    let parsed = lines.into_iter().filter_map(|line| serde_json::from_slice(line).ok());
    Ok(parsed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_leniently_and_an_id_strictly() {
        let parse = |query| {
            let found = Query::parse(Some(query));
            (found.session, found.limit)
        };
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(parse("sessionId=a-B_9&limit=7"), (id("a-B_9"), 7));
        assert_eq!(parse("limit=0&sessionId=a"), (id("a"), 1));
        assert_eq!(parse("limit=-5&sessionId=a"), (id("a"), 1));
        assert_eq!(parse("limit=99999&sessionId=a"), (id("a"), MAX_HISTORY_EVENTS));
        assert_eq!(parse("limit=x&sessionId=a"), (id("a"), DEFAULT_HISTORY_EVENTS));
        assert_eq!(parse("sessionId=a&sessionId=b&&=&x"), (id("a"), DEFAULT_HISTORY_EVENTS));
        for bad in ["", "sessionId", "sessionId=", "sessionId=a/b", "sessionId=..", "sessionId=%61"]
        {
            assert_eq!(parse(bad).0, None, "{bad}");
        }
        assert_eq!(Query::parse(None).session, None);
    }

    #[test]
    fn the_last_lines_are_given_and_bad_ones_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        std::fs::write(&path, b"{\"n\":1}\nbroken\n\n{\"n\": 2}\n\xc3{}\n[3]\r\n").unwrap();
        let read = |limit| {
            let lines = last_lines_blocking(path.clone(), limit).unwrap();
            lines.iter().map(|line| line.get().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(read(1), ["[3]"]);
        assert_eq!(read(3), ["{\"n\": 2}", "[3]"]);
        assert_eq!(read(100), ["{\"n\":1}", "{\"n\": 2}", "[3]"]);
        let missing = last_lines_blocking(dir.path().join("x"), 1).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(last_lines_blocking(dir.path().to_owned(), 1).is_err());
    }

    #[test]
    fn of_a_large_file_only_the_end_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.jsonl");
        let line = format!("\"{}\"\n", "x".repeat(1_000_000));
        std::fs::write(&path, line.repeat(12)).unwrap();
        assert_eq!(last_lines_blocking(path, 1000).unwrap().len(), 8);
    }
}
