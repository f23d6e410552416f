//! Lines of a client. Input in random chunks yields the same lines as a simple reader of the whole input, and
//! a canceled read loses nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_ipc::lines::{Line, LineReader};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, ReadBuf};

/// Yields its input in chunks of 1 to 16 bytes, and sometimes `Pending`.
struct Pieces<'a> {
    rest: &'a [u8],
    state: u32,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let n = (self.state >> 24) as usize % 17;
        if n == 0 {
            return Poll::Pending;
        }
        let (piece, rest) = self.rest.split_at(n.min(buffer.remaining()).min(self.rest.len()));
        buffer.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

fn read(input: &[u8], max_bytes: usize, state: u32) -> Vec<Line> {
    let mut reader = LineReader::new(Pieces { rest: input, state }, max_bytes);
    let mut lines = Vec::new();
    loop {
        // Drop a pending future and continue with another one.
        match pin!(reader.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => {}
            Poll::Ready(Ok(Some(line))) => lines.push(line),
            Poll::Ready(Ok(None)) => return lines,
            Poll::Ready(Err(error)) => panic!("{error}"),
        }
    }
}

/// Returns the lines of the complete input. A byte order mark before the first one does not count.
fn expected(input: &[u8], max_bytes: usize) -> Vec<Line> {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let mut rest: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let last = rest.pop().unwrap_or_default();
    let line = |text: &[u8], kept: &[u8]| if max_bytes < text.len() {
        Line::TooLong
    } else {
        Line::Text(kept.to_vec().into())
    };
    let mut lines: Vec<Line> =
        rest.iter().map(|text| line(text, text.strip_suffix(b"\r").unwrap_or(text))).collect();
    if !last.is_empty() {
        lines.push(line(last, last));
    }
    lines
}

fuzz_target!(|data: &[u8]| {
    let [max_bytes, state, input @ ..] = data else { return };
    let (max_bytes, state) = (usize::from(*max_bytes), u32::from(*state));
    assert_eq!(read(input, max_bytes, state), expected(input, max_bytes));
});
