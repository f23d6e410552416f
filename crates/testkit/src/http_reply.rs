//! Replies of HTTP servers, as read from a plain socket.

use serde_json::Value;
use std::io::{ErrorKind, Read};

/// A reply.
#[derive(Debug, Clone)]
pub struct HttpReply {
    /// Status code; 0 without a reply.
    pub status: u16,
    /// Status line and headers, without the empty line.
    pub head: String,
    /// Content, as sent.
    pub body: String,
}

impl HttpReply {
    /// Reads until the server closes the connection. Fails the test if the read times out.
    #[track_caller]
    pub fn read(stream: &mut impl Read) -> Self {
        let mut bytes = Vec::new();
        // Any other error, such as a reset after the reply, also means that the connection was closed.
        if let Err(error) = stream.read_to_end(&mut bytes) {
            assert_ne!(error.kind(), ErrorKind::WouldBlock, "the server did not close");
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Value of a header that occurs exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }

    /// The content as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Value of a header that occurs exactly once in the head of a request or reply.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut values = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
    let (_, value) = values.next()?;
    values.next().is_none().then(|| value.trim())
}
