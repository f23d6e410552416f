//! The head of the first request on a connection to the listener of links: which port of which session it is for.
//!
//! The whole connection then belongs to that session, and later requests on it are not read. So no disagreement with a
//! server about a head can lead a byte to another session.

use crate::http::{MAX_FIELDS, MAX_HEAD};
use httparse::{EMPTY_HEADER, Request, Status};

/// Longest name of a session in a link, in bytes, as for every label of a host name.
pub const MAX_NAME: usize = 63;

/// Target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkTarget {
    /// Port in the session, not 0.
    pub port: u16,
    /// Name of the session: lower-case letters, digits and hyphens.
    pub name: String,
}

/// Reason to refuse a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkRefusal {
    /// It is not HTTP/1, has not exactly one `Host`, or its target is not a path.
    Malformed,
    /// The head is longer than [`MAX_HEAD`].
    TooLong,
    /// The `Host` is not `PORT.NAME.localhost` with the port of the listener.
    OtherHost,
    /// The port is the listener's own. In a session with the machine's network it would lead back here without end.
    OwnPort,
}

/// Reads the head of a request to the listener on `own_port`. `None` if more bytes are needed.
///
/// # Errors
/// The connection is to be refused.
pub fn target(bytes: &[u8], own_port: u16) -> Result<Option<LinkTarget>, LinkRefusal> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(Status::Complete(length)) if length <= MAX_HEAD => {}
        Ok(Status::Partial) if bytes.len() < MAX_HEAD => return Ok(None),
        Ok(_) => return Err(LinkRefusal::TooLong),
        Err(_) => return Err(LinkRefusal::Malformed),
    }

    let is_path = |path: &str| path.starts_with('/') || path == "*";
    if !request.path.is_some_and(is_path) {
        return Err(LinkRefusal::Malformed);
    }

    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(LinkRefusal::Malformed);
    };

    let host = std::str::from_utf8(host.value).map_err(|_error| LinkRefusal::Malformed)?;
    let target = host_target(host, own_port).ok_or(LinkRefusal::OtherHost)?;
    if target.port == own_port { Err(LinkRefusal::OwnPort) } else { Ok(Some(target)) }
}

fn host_target(host: &str, own_port: u16) -> Option<LinkTarget> {
    let host = match host.split_once(':') {
        Some((host, port)) => (number(port)? == own_port).then_some(host)?,
        None => host,
    };
    let host = host.to_ascii_lowercase();
    let (port, name) = host.strip_suffix(".localhost")?.split_once('.')?;
    is_name(name).then_some(())?;
    Some(LinkTarget { port: number(port)?, name: name.to_owned() })
}

/// Whether a text can be the name of a session in a link.
fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_part)
}

/// A port in the one form that browsers send.
fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port: &u16| *port != 0 && port.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(host: &str) -> Result<Option<LinkTarget>, LinkRefusal> {
        target(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(), 43112)
    }

    #[test]
    fn a_host_of_a_session_is_read_and_every_other_one_is_refused() {
        for (host, port, name) in [
            ("3000.web.localhost:43112", 3000, "web"),
            ("3000.web.localhost", 3000, "web"),
            ("65535.API-2.LocalHost:43112", 65535, "api-2"),
            (
                "1.7f0c2b51-4ac3-4b8e-9d3c-000000000000.localhost",
                1,
                "7f0c2b51-4ac3-4b8e-9d3c-000000000000",
            ),
        ] {
            let expected = LinkTarget { port, name: name.to_owned() };
            assert_eq!(read(host), Ok(Some(expected)), "{host}");
        }
        let long = format!("3000.{}.localhost", "a".repeat(64));
        for host in [
            "",
            "localhost:43112",
            "web.localhost:43112",
            "evil.example",
            "evil.example:43112",
            "3000.web.localhost.evil.example",
            "3000.web.localhost.:43112",
            "3000.web.localhost:43111",
            "3000.web.localhost:",
            "3000.web.localhost:43112:43112",
            "user@3000.web.localhost:43112",
            "3000.user:x@web.localhost:43112",
            "0.web.localhost:43112",
            "03000.web.localhost:43112",
            "+3000.web.localhost:43112",
            "65536.web.localhost:43112",
            "3000..localhost:43112",
            "3000.a.web.localhost:43112",
            "3000.w_b.localhost:43112",
            "3000.wéb.localhost:43112",
            "3000.web.localhost, 3000.api.localhost",
            "127.0.0.1:43112",
            "[::1]:43112",
            &long,
        ] {
            assert_eq!(read(host), Err(LinkRefusal::OtherHost), "{host}");
        }
        assert_eq!(read("43112.web.localhost:43112"), Err(LinkRefusal::OwnPort));
    }

    #[test]
    fn a_head_is_whole_and_unambiguous_or_refused() {
        let host = "Host: 3000.web.localhost\r\n";
        let ok = format!("GET / HTTP/1.1\r\n{host}\r\n");
        for end in 1..ok.len() {
            assert_eq!(target(&ok.as_bytes()[..end], 1), Ok(None), "{end}");
        }
        assert!(target(format!("{ok}GET /second HTTP/1.1\r\n").as_bytes(), 1).is_ok());
        for head in [
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            format!("GET / HTTP/1.1\r\n{host}{host}\r\n"),
            format!("GET / HTTP/1.1\r\n{host}hOST: 3000.api.localhost\r\n\r\n"),
            format!("GET / HTTP/1.1\r\nHost : 3000.web.localhost\r\n{host}\r\n"),
            format!("GET http://3000.api.localhost/ HTTP/1.1\r\n{host}\r\n"),
            format!("CONNECT 3000.api.localhost:80 HTTP/1.1\r\n{host}\r\n"),
            format!("GET / HTTP/2.0\r\n{host}\r\n"),
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
            "\u{16}\u{3}\u{1}\u{2}".to_owned(),
            "Host: 3000.web.localhost\r\n\r\n".to_owned(),
        ] {
            assert_eq!(target(head.as_bytes(), 1), Err(LinkRefusal::Malformed), "{head}");
        }
        let long = format!("GET / HTTP/1.1\r\n{host}A: {}", "a".repeat(MAX_HEAD));
        assert_eq!(target(&long.as_bytes()[..MAX_HEAD], 1), Err(LinkRefusal::TooLong));
        assert_eq!(target(&long.as_bytes()[..MAX_HEAD - 1], 1), Ok(None));
    }
}
