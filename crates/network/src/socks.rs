//! The two messages of SOCKS5 from a client (RFC 1928): its greeting and its request.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Reply to the greeting: no authentication.
pub const GREETING_REPLY: [u8; 2] = [5, 0];

/// A reply to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    /// The connection is established.
    Succeeded = 0,
    /// The rules do not allow it.
    NotAllowed = 2,
    /// The host cannot be reached.
    Unreachable = 4,
    /// Only connections are supported.
    NoSuchCommand = 7,
}

impl Reply {
    /// The bytes of the reply, without a bound address.
    #[must_use]
    pub fn bytes(self) -> [u8; 10] {
        [5, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// Result of reading a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<T> {
    /// More bytes are needed.
    Incomplete,
    /// A message, and its length in bytes.
    Complete(T, usize),
    /// The bytes are no such message.
    Malformed,
    /// A command other than a connection.
    Unsupported,
}

/// Reads the greeting. Clients must offer to go without authentication.
#[must_use]
pub fn greeting(bytes: &[u8]) -> Message<()> {
    match bytes {
        [] | [5] => Message::Incomplete,
        [5, n, methods @ ..] => match methods.get(..usize::from(*n)) {
            None => Message::Incomplete,
            Some(methods) if methods.contains(&0) => Message::Complete((), 2 + methods.len()),
            Some(_) => Message::Malformed,
        },
        _ => Message::Malformed,
    }
}

/// Reads a request to connect to a host and port.
#[must_use]
pub fn request(bytes: &[u8]) -> Message<(String, u16)> {
    let (command, kind, rest) = match bytes {
        [5, command, 0, kind, rest @ ..] => (*command, *kind, rest),
        [] | [5] | [5, _] | [5, _, 0] => return Message::Incomplete,
        _ => return Message::Malformed,
    };

    if command != 1 {
        return if matches!(command, 2 | 3) { Message::Unsupported } else { Message::Malformed };
    }

    let (host, used) = match (kind, rest) {
        (1, [a, b, c, d, ..]) => (Ipv4Addr::new(*a, *b, *c, *d).to_string(), 4),
        (4, long) => match long.first_chunk::<16>() {
            Some(octets) => (Ipv6Addr::from(*octets).to_string(), 16),
            None => return Message::Incomplete,
        },
        (3, [length, name @ ..]) => match name.get(..usize::from(*length)) {
            // Other bytes than UTF-8 are refused with the name.
            Some(name) => (String::from_utf8_lossy(name).into_owned(), 1 + name.len()),
            None => return Message::Incomplete,
        },
        (1 | 3, _) => return Message::Incomplete,
        _ => return Message::Malformed,
    };

    match rest.get(used..used + 2) {
        Some(&[high, low]) => Message::Complete((host, u16::from_be_bytes([high, low])), 6 + used),
        _ => Message::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_read() {
        for (bytes, expected, length) in [
            (&b"\x05\x01\0\x03\x09a.example\x01\xbbx"[..], ("a.example", 443), 16),
            (b"\x05\x01\0\x01\x0a\0\0\x07\0\x50", ("10.0.0.7", 80), 10),
            (b"\x05\x01\0\x04\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x16", ("fd00::1", 22), 22),
        ] {
            let expected = (expected.0.to_owned(), expected.1);
            assert_eq!(request(bytes), Message::Complete(expected, length));
            for end in 0..length {
                assert_eq!(request(&bytes[..end]), Message::Incomplete, "{end}");
            }
        }
    }

    #[test]
    fn other_messages_are_refused() {
        assert_eq!(greeting(b"\x05\x02\x02\0"), Message::Complete((), 4));
        assert_eq!(greeting(b"\x05\x02\x02"), Message::Incomplete);
        assert_eq!(greeting(b"\x05\x01\x02"), Message::Malformed);
        assert_eq!(greeting(b"\x04\x01"), Message::Malformed);
        assert_eq!(request(b"\x05\x02\0\x01\x0a\0\0\x07\0\x50"), Message::Unsupported);
        assert_eq!(request(b"\x05\x03\0\x01\0\0\0\0\0\0"), Message::Unsupported);
        assert_eq!(request(b"\x05\x01\0\x02\0"), Message::Malformed);
        assert_eq!(request(b"\x05\x01\x01\x01"), Message::Malformed);
    }
}
