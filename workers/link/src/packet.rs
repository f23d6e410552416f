//! Packets of a link: one byte for the kind, a big-endian `u32` length, and the payload.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use quackd_process::Exit;
use serde::{Deserialize, Serialize};

/// Maximum data of one packet, in bytes.
pub(crate) const MAX_DATA: usize = 64 * 1024;

/// Length of kind and length, in bytes.
const HEADER: usize = 5;

/// Longest text about an exit, in bytes.
const MAX_EXIT: usize = 64;

const DATA: u8 = 0;
const RECEIVED: u8 = 1;
const KEEP_ALIVE: u8 = 2;
const END: u8 = 3;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Packet {
    /// The next bytes of the stream.
    Data(Bytes),
    /// Number of bytes of the stream that the sender has passed on.
    Received(u64),
    /// Proof that the sender runs.
    KeepAlive,
    /// The far worker has exited. Follows its last byte.
    Ended(FarExit),
    /// From the link process: ends the far worker, or confirms [`Packet::Ended`].
    Leave,
}

/// Exit of the far worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FarExit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl From<Exit> for FarExit {
    fn from(exit: Exit) -> Self {
        match exit {
            Exit::Code(code) => Self::Code(code),
            Exit::Signal(signal) => Self::Signal(signal),
        }
    }
}

/// Reason why bytes of the other side are refused. The link is then lost, and not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    /// Unknown kind of packet, or a kind that only the other direction has.
    #[error("the other side sent a packet of an unexpected kind ({0})")]
    Kind(u8),
    /// The payload has another length than its kind allows.
    #[error("the other side sent a packet of a wrong length")]
    Length,
    /// The exit cannot be read.
    #[error("the other side sent an exit that cannot be read")]
    Exit,
    /// It acknowledges bytes that were not sent, or less than before.
    #[error("the other side acknowledged bytes that were not sent")]
    Acknowledgement,
    /// It sent more than the window allows.
    #[error("the other side sent more than was acknowledged allows")]
    Window,
    /// A frame is too long or has no tag.
    #[error("the far side sent a malformed frame")]
    Frame,
    /// A frame that only the link process may send.
    #[error("the far side sent a report about the link itself")]
    Link,
}

impl Packet {
    /// Takes the first packet out of `from`. `None` until it is complete.
    pub(crate) fn take(from: &mut BytesMut) -> Result<Option<Self>, Violation> {
        let Some((&[kind, a, b, c, d], _)) = from.split_first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);

        // Checked before the payload is awaited.
        let fits = match kind {
            DATA => length <= MAX_DATA,
            RECEIVED => length == size_of::<u64>(),
            KEEP_ALIVE => length == 0,
            END => length <= MAX_EXIT,
            _ => return Err(Violation::Kind(kind)),
        };
        if !fits {
            return Err(Violation::Length);
        }
        if from.len() < HEADER + length {
            return Ok(None);
        }

        from.advance(HEADER);
        let mut payload = from.split_to(length).freeze();
        Ok(Some(match kind {
            DATA => Self::Data(payload),
            RECEIVED => Self::Received(payload.get_u64()),
            KEEP_ALIVE => Self::KeepAlive,
            _ if payload.is_empty() => Self::Leave,
            _ => Self::Ended(serde_json::from_slice(&payload).map_err(|_| Violation::Exit)?),
        }))
    }

    /// Appends the packet. Data has at most [`MAX_DATA`] bytes.
    pub(crate) fn put(&self, into: &mut BytesMut) {
        match self {
            Self::Data(data) => put(into, DATA, data),
            Self::Received(total) => put(into, RECEIVED, &total.to_be_bytes()),
            Self::KeepAlive => put(into, KEEP_ALIVE, &[]),
            Self::Ended(FarExit::Code(code)) => {
                put(into, END, format!("{{\"code\":{code}}}").as_bytes());
            }
            Self::Ended(FarExit::Signal(signal)) => {
                put(into, END, format!("{{\"signal\":{signal}}}").as_bytes());
            }
            Self::Leave => put(into, END, &[]),
        }
    }
}

fn put(into: &mut BytesMut, kind: u8, payload: &[u8]) {
    into.put_u8(kind);
    into.put_u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    into.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_are_written_however_they_are_cut() {
        let packets = [
            Packet::Data(Bytes::from_static(b"hello")),
            Packet::Data(Bytes::from(vec![7; MAX_DATA])),
            Packet::Data(Bytes::new()),
            Packet::Received(u64::MAX),
            Packet::KeepAlive,
            Packet::Ended(FarExit::Code(100)),
            Packet::Ended(FarExit::Signal(9)),
            Packet::Leave,
        ];
        let mut written = BytesMut::new();
        packets.iter().for_each(|packet| packet.put(&mut written));
        for piece in [1, 3, 4096, written.len()] {
            let (mut input, mut read) = (BytesMut::new(), Vec::new());
            for bytes in written.chunks(piece) {
                input.extend_from_slice(bytes);
                while let Some(packet) = Packet::take(&mut input).unwrap() {
                    read.push(packet);
                }
            }
            assert_eq!(read, packets);
        }
    }

    #[test]
    fn other_bytes_are_refused_before_their_payload_arrives() {
        for (bytes, violation) in [
            (&[4, 0, 0, 0, 0][..], Violation::Kind(4)),
            (&[0, 0, 1, 0, 1], Violation::Length),
            (&[0, 255, 255, 255, 255], Violation::Length),
            (&[1, 0, 0, 0, 7], Violation::Length),
            (&[2, 0, 0, 0, 1], Violation::Length),
            (&[3, 0, 0, 1, 0], Violation::Length),
            (b"\x03\0\0\0\x02{}", Violation::Exit),
        ] {
            assert_eq!(Packet::take(&mut BytesMut::from(bytes)), Err(violation), "{bytes:?}");
        }
    }
}
