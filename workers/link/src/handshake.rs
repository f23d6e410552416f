//! The handshake: text lines of the far side, one line of JSON of the link process, then packets.

use crate::error::LinkError;
use crate::program::Program;
use bytes::BytesMut;
use quackd_protocol::far_errand::SendLimits;
use quackd_protocol::foreign_text::message_line;
use serde::{Deserialize, Serialize};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Number of this protocol.
pub(crate) const PROTO: u32 = 1;

/// Longest line, in bytes without its end.
pub(crate) const MAX_LINE: usize = 4 * 1024;

/// Most bytes of start files and logins before the handshake.
const MAX_NOISE: usize = 64 * 1024;

/// Longest error of the far side, in characters.
const MAX_ERROR: usize = 1000;

/// Begins each line of the handshake.
const MARK: &[u8] = b"quackd: ";

/// Third line of the far side: it can take packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// [`PROTO`].
    pub(crate) proto: u32,
    /// Version of the program.
    pub(crate) version: String,
    /// Bytes of the stream that it has received. 0 at a new start.
    pub(crate) received: u64,
}

/// Answer of the link process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`PROTO`].
    pub(crate) proto: u32,
    /// Id of the session.
    pub(crate) session: String,
    /// Secret of this worker, which a resumed link repeats.
    pub(crate) token: String,
    /// Time for which a lost link may be resumed, in milliseconds.
    pub(crate) grace_ms: u64,
    /// Bytes of the stream that the link process has received.
    pub(crate) received: u64,
    /// Work on the session's copy in place of its worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) copy: Option<CopyWork>,
}

/// Work on the copy of a session on the far side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyWork {
    /// Receive a file of this size in bytes, and unpack it.
    Put {
        /// Size of the file in bytes.
        bytes: u64,
        /// Whether the copy is made again.
        is_new: bool,
        /// Limits of the copy.
        limits: SendLimits,
    },
    /// Pack the copy, and send the file.
    Take {
        /// Limits of the copy.
        limits: SendLimits,
    },
    /// Delete the copy.
    Remove {},
}

impl Ready {
    /// Returns that of this process.
    pub(crate) fn own(received: u64) -> Self {
        Self { proto: PROTO, version: env!("CARGO_PKG_VERSION").to_owned(), received }
    }

    /// Returns the line. A line feed comes first, because a start file may have written text without one.
    pub(crate) fn line(&self) -> io::Result<String> {
        Ok(format!("\nquackd: ready {}\n", serde_json::to_string(self)?))
    }

    fn check(&self) -> Result<(), LinkError> {
        let own = Self::own(0);
        if self.proto == own.proto && self.version == own.version {
            return Ok(());
        }
        let version = message_line(&self.version, 64);
        let theirs = if self.proto == own.proto {
            version
        } else {
            format!("{version} (protocol {})", self.proto)
        };
        Err(LinkError::Version { theirs, ours: own.version })
    }
}

/// A line of the far side.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FarLine {
    /// It waits for the program.
    Send,
    /// The start failed.
    Error(String),
    /// It waits for a [`Hello`].
    Ready(Ready),
}

/// Input of the link process until the packets.
#[derive(Debug, Default)]
struct Lines {
    input: BytesMut,
    n_noise: usize,
}

impl Lines {
    /// Returns the next line of the handshake. `None` until it is complete. Other lines are skipped.
    fn next(&mut self) -> Result<Option<FarLine>, LinkError> {
        loop {
            let Some(end) = self.input.iter().position(|byte| *byte == b'\n') else {
                if MAX_LINE < self.input.len() {
                    let too_long = self.input.split();
                    self.skip(&too_long)?;
                }
                return Ok(None);
            };
            let line = self.input.split_to(end + 1);
            match line.strip_prefix(MARK) {
                Some(text) if line.len() <= MAX_LINE => return parse(text).map(Some),
                _ => self.skip(&line)?,
            }
        }
    }

    fn skip(&mut self, noise: &[u8]) -> Result<(), LinkError> {
        self.n_noise = self.n_noise.saturating_add(noise.len());
        if MAX_NOISE < self.n_noise {
            return Err(LinkError::Handshake("more than 64 KiB of other text"));
        }
        Ok(())
    }
}

fn parse(line: &[u8]) -> Result<FarLine, LinkError> {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    if text == "send" {
        return Ok(FarLine::Send);
    }
    if let Some(error) = text.strip_prefix("error ") {
        return Ok(FarLine::Error(message_line(error, MAX_ERROR)));
    }
    let ready = text.strip_prefix("ready ").and_then(|ready| serde_json::from_str(ready).ok());
    ready.map(FarLine::Ready).ok_or(LinkError::Handshake("an unknown line"))
}

/// Result of the far side's part of the handshake.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// Last line of the far side.
    pub(crate) ready: Ready,
    /// Whether it asked for the program.
    pub(crate) sent_program: bool,
    /// Bytes after the line.
    pub(crate) rest: BytesMut,
}

/// Reads the lines of the far side until it is ready, and sends the program if it asks for it, once.
pub(crate) async fn greet(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut program: Option<&mut Program>,
) -> Result<Greeting, LinkError> {
    let mut lines = Lines::default();
    let mut sent_program = false;
    loop {
        match lines.next()? {
            Some(FarLine::Send) if sent_program => {
                return Err(LinkError::Handshake("a second request for the program"));
            }
            Some(FarLine::Send) => {
                let missing = || LinkError::Program(io::ErrorKind::NotFound.into());
                program.take().ok_or_else(missing)?.send(to).await?;
                sent_program = true;
            }
            Some(FarLine::Error(text)) => return Err(LinkError::Refused(text)),
            Some(FarLine::Ready(ready)) => {
                ready.check()?;
                return Ok(Greeting { ready, sent_program, rest: lines.input });
            }
            None => {
                if from.read_buf(&mut lines.input).await? == 0 {
                    return Err(LinkError::Closed);
                }
            }
        }
    }
}

/// Writes the answer of the link process.
pub(crate) async fn say_hello(
    to: &mut (impl AsyncWrite + Unpin),
    hello: &Hello,
) -> Result<(), LinkError> {
    let mut line = serde_json::to_string(hello).map_err(io::Error::from)?;
    line.push('\n');
    to.write_all(line.as_bytes()).await?;
    Ok(to.flush().await?)
}

/// Reads one line of at most [`MAX_LINE`] bytes. Bytes after it stay in `input`.
///
/// # Errors
/// The line is longer, is not UTF-8, or the input ends.
pub(crate) async fn read_line(
    from: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
) -> io::Result<String> {
    loop {
        if let Some(end) = input.iter().position(|byte| *byte == b'\n') {
            let line = input.split_to(end + 1);
            let line = std::str::from_utf8(&line).map_err(io::Error::other)?;
            return Ok(line.trim_end().to_owned());
        }
        if MAX_LINE < input.len() {
            return Err(io::Error::other("a line of the handshake is too long"));
        }
        if from.read_buf(input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of this output of a far side.
    async fn greeted(output: &[u8]) -> Result<Greeting, LinkError> {
        greet(&mut &*output, &mut tokio::io::sink(), None).await
    }

    fn ready() -> String {
        format!(
            "quackd: ready {{\"proto\":1,\"version\":\"{}\",\"received\":7}}",
            env!("CARGO_PKG_VERSION")
        )
    }

    #[tokio::test]
    async fn other_text_is_skipped_and_bytes_after_the_line_are_kept() {
        let long = "x".repeat(3 * MAX_LINE);
        for before in ["", "Welcome\r\n", "no end\n", "a quackd: error x\n", &format!("{long}\n")] {
            let output = format!("{before}{}\r\n\u{1}rest", ready());
            let greeting = greeted(output.as_bytes()).await.unwrap();
            assert_eq!(greeting.ready, Ready::own(7));
            assert_eq!((greeting.sent_program, &greeting.rest[..]), (false, &b"\x01rest"[..]));
        }
        let own = Ready::own(7).line().unwrap();
        assert_eq!(own, format!("\n{}\n", ready()));
    }

    #[tokio::test]
    async fn a_failed_start_names_its_reason() {
        let noise = format!("{}\n", "x".repeat(80)).repeat(1000);
        for (output, expected) in [
            ("quackd: error no space\u{1b}[m\n", "no space"),
            (
                "quackd: ready {\"proto\":1,\"version\":\"0.0.9\",\"received\":0}\n",
                "quackd 0.0.9 runs",
            ),
            ("quackd: ready {\"proto\":2,\"version\":\"0.0.9\",\"received\":0}\n", "(protocol 2)"),
            ("quackd: ready {}\n", "unknown line"),
            ("quackd: send\n", "cannot send quackd's program"),
            ("quackd: rea", "client ended"),
            (noise.as_str(), "64 KiB"),
        ] {
            let error = greeted(output.as_bytes()).await.unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[tokio::test]
    async fn the_program_is_sent_once() {
        let dir = quackd_testkit::TestDir::empty();
        dir.write("quack", "PROGRAM");
        let mut program = Program::open_blocking(&dir.join("quack")).unwrap();
        let (mut far, near) = tokio::io::duplex(1024);
        let (mut from, mut to) = tokio::io::split(near);
        let far = async {
            far.write_all(b"hi\nquackd: send\n").await.unwrap();
            let mut program = [0; 7];
            far.read_exact(&mut program).await.unwrap();
            far.write_all(format!("{}\n", ready()).as_bytes()).await.unwrap();
            program
        };
        let (program, greeting) = tokio::join!(far, greet(&mut from, &mut to, Some(&mut program)));
        assert_eq!((&program, greeting.unwrap().sent_program), (b"PROGRAM", true));
    }

    #[tokio::test]
    async fn a_line_is_bounded() {
        let mut input = BytesMut::new();
        let line = read_line(&mut &b"end\nrest"[..], &mut input).await.unwrap();
        assert_eq!((line.as_str(), &input[..]), ("end", &b"rest"[..]));
        let long = vec![b'x'; 2 * MAX_LINE];
        assert!(read_line(&mut &long[..], &mut BytesMut::new()).await.is_err());
        assert!(read_line(&mut &b"half"[..], &mut BytesMut::new()).await.is_err());
    }
}
