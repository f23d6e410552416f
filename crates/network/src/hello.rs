//! The server name in the first message of TLS. rustls parses it.

use rustls::server::Acceptor;

/// Most bytes until the server name is known.
pub const MAX_HELLO: usize = 16 * 1024;

/// Content of the first message.
#[derive(Debug, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed.
    Incomplete,
    /// A hello, perhaps with a server name. The name is in lower case.
    Complete(Option<String>),
    /// Something else than a hello of TLS.
    Other,
}

/// Reads the first bytes of a connection.
#[must_use]
pub fn read(bytes: &[u8]) -> Hello {
    // The first byte of a handshake record.
    if bytes.first().is_some_and(|first| *first != 0x16) {
        return Hello::Other;
    }

    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return Hello::Other;
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Hello::Complete(name);
            }
            Ok(None) => {}
            Err(_not_tls) => return Hello::Other,
        }
    }
    if bytes.len() < MAX_HELLO { Hello::Incomplete } else { Hello::Other }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hello with this server name, in records of at most `record` bytes.
    fn hello(name: Option<&str>, record: usize) -> Vec<u8> {
        let mut extensions = Vec::new();
        if let Some(name) = name {
            let length = u16::try_from(name.len()).unwrap();
            let mut list = vec![0];
            list.extend(length.to_be_bytes());
            list.extend(name.as_bytes());
            let mut body = (length + 3).to_be_bytes().to_vec();
            body.extend(list);
            extensions.extend([0, 0]);
            extensions.extend((length + 5).to_be_bytes());
            extensions.extend(body);
        }
        // Signature algorithms, without which no hello is accepted.
        extensions.extend([0, 13, 0, 4, 0, 2, 4, 3]);
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.push(0);
        body.extend([0, 2, 0x13, 1]);
        body.extend([1, 0]);
        body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
        body.extend(extensions);
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let mut message = vec![1, length[1], length[2], length[3]];
        message.extend(body);
        message
            .chunks(record)
            .flat_map(|part| {
                let length = u16::try_from(part.len()).unwrap().to_be_bytes();
                [&[0x16, 3, 1, length[0], length[1]], part].concat()
            })
            .collect()
    }

    #[test]
    fn the_name_is_found_also_in_several_records_and_pieces() {
        for record in [4096, 10, 1] {
            let bytes = hello(Some("A.example"), record);
            assert_eq!(read(&bytes), Hello::Complete(Some("a.example".into())), "{record}");
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Hello::Incomplete, "{record} {end}");
            }
        }
        assert_eq!(read(&hello(None, 4096)), Hello::Complete(None));
    }

    #[test]
    fn other_bytes_and_endless_ones_are_no_hello() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"SSH-2.0-x",
            b"\x15\x03\x01\0\x02\x01\0",
            b"\x16\x09\x09\xff\xff",
        ] {
            assert_eq!(read(bytes), Hello::Other, "{bytes:?}");
        }
        let endless = [&b"\x16\x03\x01\x40\0\x01\0\x40\0"[..], &[0; MAX_HELLO]].concat();
        assert_eq!(read(&endless), Hello::Other);
    }
}
