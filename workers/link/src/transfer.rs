//! The packets of a transfer, which begin after the handshake: data and keep-alives. The near side sends a file or nothing.
//! The far side answers with one frame, and then a file or nothing. A transfer is not resumed.

use crate::packet::{MAX_DATA, Packet};
use bytes::{Buf as _, Bytes, BytesMut};
use quackd_ipc::frames;
use quackd_protocol::isolate::MAX_SENT_BYTES;
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{sleep, timeout};

/// Silence after which a keep-alive is sent, and that of the other side after which the link is lost.
const KEEP_ALIVE: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_secs(30);

/// Free buffer for one read, in bytes.
const READ: usize = 64 * 1024;

/// Longest answer of the far side in bytes.
const MAX_ANSWER: usize = 256 * 1024;

/// Opens a packed file. The process that wrote it is confined, and could have replaced it.
///
/// # Errors
/// That of the system, or the file is not a regular one.
pub(crate) fn open_sent_blocking(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || MAX_SENT_BYTES < found.len() {
        return Err(io::Error::other("the packed file was replaced by something else"));
    }
    Ok(file)
}

/// Answer of the far side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FarAnswer {
    /// The work is done. A file of this size follows.
    Done {
        /// Absolute path of the copy there.
        path: String,
        /// Size of the file in bytes.
        bytes: u64,
        /// Lines for the user.
        notes: Vec<String>,
    },
    /// Nothing was done.
    Failed {
        /// Reason, one line.
        text: String,
    },
}

/// The bytes from the other side.
pub(crate) struct Incoming<R> {
    reader: R,
    input: BytesMut,
    data: Bytes,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    /// `input` has bytes that came with the handshake.
    pub(crate) fn new(reader: R, input: BytesMut) -> Self {
        Self { reader, input, data: Bytes::new() }
    }

    /// Waits until there is data. Cancel-safe.
    ///
    /// # Errors
    /// The link is lost, or the other side sends something else.
    pub(crate) async fn fill(&mut self) -> io::Result<()> {
        while self.data.is_empty() {
            match Packet::take(&mut self.input).map_err(io::Error::other)? {
                Some(Packet::Data(data)) => self.data = data,
                Some(Packet::KeepAlive) => {}
                Some(_other) => return Err(io::Error::other("the link has ended")),
                None => {
                    self.input.reserve(READ);
                    let read = timeout(SILENCE, self.reader.read_buf(&mut self.input)).await;
                    let n = read.map_err(|_| {
                        let seconds = SILENCE.as_secs();
                        io::Error::other(format!("nothing was received for {seconds} s"))
                    })??;
                    if n == 0 {
                        return Err(io::Error::other("the connection was closed"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for data and drops it.
    ///
    /// # Errors
    /// As [`Self::fill`].
    pub(crate) async fn skip(&mut self) -> io::Result<()> {
        self.fill().await?;
        self.data = Bytes::new();
        Ok(())
    }

    /// Receives exactly this number of bytes.
    async fn exact(&mut self, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.fill().await?;
            let n = self.data.len().min(bytes.len());
            let (now, rest) = bytes.split_at_mut(n);
            self.data.copy_to_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    /// Receives the answer of the far side.
    pub(crate) async fn answer(&mut self) -> io::Result<FarAnswer> {
        let mut length = [0; 4];
        self.exact(&mut length).await?;
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if MAX_ANSWER < length {
            return Err(io::Error::other("the answer is too long"));
        }
        let mut body = vec![0; length];
        self.exact(&mut body).await?;
        serde_json::from_slice(&body).map_err(|_| io::Error::other("the answer is malformed"))
    }

    /// Receives a file of this size. Writes blocks of this process's own task.
    pub(crate) async fn file(&mut self, mut file: &File, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while 0 < left {
            self.fill().await?;
            let n = usize::try_from(left).unwrap_or(usize::MAX).min(self.data.len());
            file.write_all(&self.data.split_to(n))?;
            left = left.saturating_sub(u64::try_from(n).unwrap_or(u64::MAX));
        }
        Ok(())
    }
}

/// Sends keep-alives. Never resolves without an error.
pub(crate) async fn keep_alive(writer: &mut (impl AsyncWrite + Unpin)) -> io::Error {
    loop {
        sleep(KEEP_ALIVE).await;
        if let Err(error) = send(writer, &Packet::KeepAlive).await {
            return error;
        }
    }
}

async fn send(writer: &mut (impl AsyncWrite + Unpin), packet: &Packet) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    packet.put(&mut bytes);
    writer.write_all(&bytes).await?;
    writer.flush().await
}

/// Sends the answer of the far side.
pub(crate) async fn send_answer(
    writer: &mut (impl AsyncWrite + Unpin),
    answer: &FarAnswer,
) -> io::Result<()> {
    let body = frames::encode(answer).map_err(io::Error::other)?;
    let length = u32::try_from(body.len()).map_err(io::Error::other)?.to_be_bytes();
    send(writer, &Packet::Data(Bytes::copy_from_slice(&length))).await?;
    for piece in body.chunks(MAX_DATA) {
        send(writer, &Packet::Data(Bytes::copy_from_slice(piece))).await?;
    }
    Ok(())
}

/// Sends a file of this size.
pub(crate) async fn send_file(
    writer: &mut (impl AsyncWrite + Unpin),
    mut file: &File,
    bytes: u64,
) -> io::Result<()> {
    let mut left = bytes;
    let mut chunk = vec![0; MAX_DATA];
    while 0 < left {
        let limit = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        let n = file.read(chunk.get_mut(..limit).unwrap_or_default())?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let piece = Bytes::copy_from_slice(chunk.get(..n).unwrap_or_default());
        send(writer, &Packet::Data(piece)).await?;
        left = left.saturating_sub(u64::try_from(n).unwrap_or(u64::MAX));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_testkit::TestDir;

    #[tokio::test]
    async fn a_file_follows_its_answer_and_other_bytes_are_refused() {
        let dir = TestDir::empty();
        let content = vec![7; 3 * MAX_DATA + 1];
        std::fs::write(dir.join("from"), &content).unwrap();
        let bytes = content.len() as u64;
        let answer = FarAnswer::Done { path: "/w".to_owned(), bytes, notes: Vec::new() };

        let (near, mut far) = tokio::io::duplex(1000);
        let from = File::open(dir.join("from")).unwrap();
        let sending = async {
            send(&mut far, &Packet::KeepAlive).await.unwrap();
            send_answer(&mut far, &answer).await.unwrap();
            send_file(&mut far, &from, bytes).await.unwrap();
            send(&mut far, &Packet::Leave).await.unwrap();
        };
        let receiving = async {
            let mut incoming = Incoming::new(near, BytesMut::new());
            assert_eq!(incoming.answer().await.unwrap(), answer);
            let to = File::create(dir.join("to")).unwrap();
            incoming.file(&to, bytes).await.unwrap();
            assert!(incoming.fill().await.is_err());
        };
        tokio::join!(sending, receiving);
        assert_eq!(std::fs::read(dir.join("to")).unwrap(), content);

        for bytes in
            [&b"\x09\0\0\0\0"[..], b"\0\0\0\0\x04\xff\xff\xff\xff", b"\0\0\0\0\x06\0\0\0\x02{}"]
        {
            let mut incoming = Incoming::new(bytes, BytesMut::new());
            assert!(incoming.answer().await.is_err(), "{bytes:?}");
        }
    }
}
