//! The head of a request, to an HTTP proxy or to a server. httparse parses it; this module decides what is accepted.
//!
//! Strict where programs differ in what they understand: each disagreement between this proxy and a server would let a
//! request for one host pass as one for another.

use httparse::{EMPTY_HEADER, Request, Response, Status};
use quackd_policy::hosts::Host;
use std::net::IpAddr;

/// Longest head, in bytes.
pub const MAX_HEAD: usize = 16 * 1024;

/// Fields that are not forwarded as they are. A server may ignore `Upgrade`, so a protocol that this proxy does not read is
/// left out: the server answers in HTTP.
const REWRITTEN: [&str; 9] = [
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "host",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Most fields of a head.
pub(crate) const MAX_FIELDS: usize = 100;

/// A request for a host.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// Kind of the request.
    pub kind: Kind,
    /// Length of the head in bytes.
    pub length: usize,
}

/// Kind of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// `CONNECT`: a tunnel.
    Connect,
    /// A request to forward.
    Forward {
        /// Head for the server.
        head: Vec<u8>,
        /// Length of the body.
        body: Body,
        /// True if the connection may become another protocol, such as WebSocket.
        upgrades: bool,
    },
}

/// Length of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Body {
    /// This many bytes.
    Length(u64),
    /// In chunks.
    Chunked,
}

/// Result of reading a head.
#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    /// More bytes are needed.
    Incomplete,
    /// A request.
    Complete(Head),
    /// A malformed request, or one that programs understand differently.
    Malformed,
    /// The `Host` field names another host.
    Mismatch(Host, u16),
}

/// Reads a request to a proxy: `CONNECT host:port`, or a whole address of http.
#[must_use]
pub fn proxy_request(bytes: &[u8]) -> Read {
    read(bytes, |method, target| {
        if method == "CONNECT" {
            let (host, port) = target.rsplit_once(':')?;
            return Some((Host::read(host).ok()?, number(port)?, None));
        }

        let rest = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
        let after = rest.and_then(|_| target.get(7..))?;
        let (place, path) = after.split_at(after.find(['/', '?', '#']).unwrap_or(after.len()));
        let (host, port) = authority(place)?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = path.split('#').next().unwrap_or_default();
        Some((host, port, Some(format!("{slash}{path}"))))
    })
}

/// Reads a request to the server `host`, which the command believes to have reached on `port`.
#[must_use]
pub fn server_request(bytes: &[u8], host: &Host, port: u16) -> Read {
    read(bytes, |method, target| {
        let is_path = target.starts_with('/') || (target == "*" && method == "OPTIONS");
        is_path.then(|| (host.clone(), port, Some(target.to_owned())))
    })
}

type Target = (Host, u16, Option<String>);

fn read(bytes: &[u8], target_of: impl Fn(&str, &str) -> Option<Target>) -> Read {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut request = Request::new(&mut fields);
    let length = match request.parse(bytes) {
        Ok(Status::Complete(length)) if length <= MAX_HEAD => length,
        Ok(Status::Partial) if bytes.len() < MAX_HEAD => return Read::Incomplete,
        _ => return Read::Malformed,
    };

    let (Some(method), Some(target), Some(version)) =
        (request.method, request.path, request.version)
    else {
        return Read::Malformed;
    };

    let Some((host, port, path)) = target_of(method, target) else { return Read::Malformed };
    let Some(path) = path else {
        return Read::Complete(Head { host, port, kind: Kind::Connect, length });
    };

    let Some(facts) = Facts::of(request.headers) else { return Read::Malformed };
    match facts.host.map(authority) {
        // Version 1.0 does not require the field.
        None if version == 0 => {}
        Some(Some((named, at))) if named == host && at == port => {}
        Some(Some(_)) => return Read::Mismatch(host, port),
        None | Some(None) => return Read::Malformed,
    }

    // A server of version 1.0 would not see the end of the body.
    if version == 0 && facts.body == Body::Chunked {
        return Read::Malformed;
    }

    let has_port = port != 80 || facts.host.is_some_and(has_port);
    let named = host_field(&host, has_port.then_some(port));
    let connection = if facts.upgrades { "Upgrade" } else { "close" };

    // The fields that decide about host and length are written again, as this proxy has understood them.
    let mut head = format!(
        "{method} {path} HTTP/1.{version}\r\nHost: {named}\r\nConnection: {connection}\r\n{}",
        facts.length_field()
    )
    .into_bytes();

    for field in request.headers.iter() {
        let name = field.name.to_ascii_lowercase();
        let is_kept = !REWRITTEN.contains(&name.as_str()) || (name == "upgrade" && facts.upgrades);
        // One request for each connection: the next one may be for another host.
        if is_kept && !name.starts_with("proxy-") {
            head.extend([field.name.as_bytes(), b": ", field.value, b"\r\n"].concat());
        }
    }
    head.extend(b"\r\n");

    let kind = Kind::Forward { head, body: facts.body, upgrades: facts.upgrades };
    Read::Complete(Head { host, port, kind, length })
}

/// Writes the whole address into a head of [`Kind::Forward`], for another proxy.
#[must_use]
pub fn with_whole_address(head: &[u8], host: &Host, port: u16) -> Vec<u8> {
    let at = head.iter().position(|byte| *byte == b' ').map_or(0, |space| space + 1);
    let (method, rest) = head.split_at(at);
    let address = format!("http://{}", host_field(host, (port != 80).then_some(port)));
    // `OPTIONS *` is about the server, which an address without a path names.
    [method, address.as_bytes(), rest.strip_prefix(b"*").unwrap_or(rest)].concat()
}

/// A request for a tunnel to a host, for another proxy.
#[must_use]
pub fn connect_request(host: &Host, port: u16) -> Vec<u8> {
    let target = host_field(host, Some(port));
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").into_bytes()
}

/// Status of the answer to [`connect_request`], 0 for a malformed one. `None` if the head is not complete.
#[must_use]
pub fn connect_status(head: &[u8]) -> Option<u16> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut response = Response::new(&mut fields);
    match response.parse(head) {
        Ok(Status::Complete(_)) => response.code.or(Some(0)),
        Ok(Status::Partial) if head.len() < MAX_HEAD => None,
        _ => Some(0),
    }
}

/// Fields that decide about host and length.
struct Facts<'a> {
    host: Option<&'a str>,
    body: Body,
    /// True if the head has a length of the body. A body of 0 bytes may have none.
    has_length: bool,
    upgrades: bool,
}

impl<'a> Facts<'a> {
    /// `None` if the fields contradict each other.
    fn of(fields: &[httparse::Header<'a>]) -> Option<Self> {
        let one = |name: &str| -> Option<Option<&'a str>> {
            let mut same = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            let first = same.next().map(|field| std::str::from_utf8(field.value));
            let first = first.transpose().ok()?;
            // Programs differ in which of two equal fields counts.
            same.next().is_none().then_some(first)
        };

        let host = one("host")?;
        let (length, encoding) = (one("content-length")?, one("transfer-encoding")?);
        let body = match (length, encoding) {
            (None, None) => Body::Length(0),
            (Some(length), None) => {
                let is_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
                Body::Length(length.parse().ok().filter(|_| is_number)?)
            }
            (None, Some(encoding)) if encoding.eq_ignore_ascii_case("chunked") => Body::Chunked,
            // With both fields, or another encoding, a server could find another end of the body.
            _ => return None,
        };

        let is_web_socket =
            |protocol: Option<&str>| protocol.is_some_and(|p| p.eq_ignore_ascii_case("websocket"));
        let upgrades = one("upgrade").is_some_and(is_web_socket);
        Some(Self { host, body, has_length: length.is_some(), upgrades })
    }

    fn length_field(&self) -> String {
        match self.body {
            Body::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            Body::Length(length) if self.has_length => format!("Content-Length: {length}\r\n"),
            Body::Length(_) => String::new(),
        }
    }
}

fn has_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

fn host_field(host: &Host, port: Option<u16>) -> String {
    let host = match host {
        Host::Address(IpAddr::V6(address)) => format!("[{address}]"),
        host => host.to_string(),
    };
    port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
}

/// Splits `host:port` of an address of http.
fn authority(text: &str) -> Option<(Host, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, number(port)?),
        _ => (text, 80),
    };
    Some((Host::read(host).ok()?, port))
}

fn number(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port != 0)
}

/// Follows the chunks of a body, to find its end.
#[derive(Debug, Default)]
pub struct Chunks {
    state: ChunkState,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum ChunkState {
    /// In the line with the size, with its digits so far.
    #[default]
    Start,
    Size(u64, u8),
    /// After a semicolon.
    Extension(u64),
    /// After the carriage return of the size line.
    SizeEnd(u64),
    Data(u64),
    /// After the data: the line end.
    DataEnd(u8),
    /// At the start of a line after the last chunk.
    Trailer,
    InTrailer,
    TrailerEnd,
    LastEnd,
    Done,
}

/// The chunks are malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed chunks")]
pub struct BadChunks;

impl Chunks {
    /// Takes the next bytes. Returns how many of them belong to the body, and whether it has ended.
    ///
    /// # Errors
    /// The bytes are no chunks.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), BadChunks> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if let ChunkState::Data(left) = &mut self.state {
                let rest = u64::try_from(bytes.len() - at).unwrap_or(u64::MAX);
                let now = rest.min(*left);
                *left -= now;
                at += usize::try_from(now).unwrap_or_default();
                if *left == 0 {
                    self.state = ChunkState::DataEnd(b'\r');
                }
                continue;
            }

            self.state = self.next(byte)?;
            at += 1;
            if self.state == ChunkState::Done {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn next(&self, byte: u8) -> Result<ChunkState, BadChunks> {
        use ChunkState::{
            Data, DataEnd, Done, Extension, InTrailer, LastEnd, Size, SizeEnd, Start, Trailer,
            TrailerEnd,
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).map(u64::from);
        Ok(match (&self.state, byte) {
            (Start, byte) => Size(digit(byte).ok_or(BadChunks)?, 1),
            (Size(size, _), b'\r') => SizeEnd(*size),
            (Size(size, _), b';') => Extension(*size),
            // A size of at most 15 digits fits into 64 bits.
            (Size(size, n), byte) if *n < 15 => {
                Size(size * 16 + digit(byte).ok_or(BadChunks)?, n + 1)
            }
            (Extension(size), b'\r') => SizeEnd(*size),
            (Extension(size), byte) if byte != b'\n' => Extension(*size),
            (SizeEnd(0), b'\n') => Trailer,
            (SizeEnd(size), b'\n') => Data(*size),
            (DataEnd(b'\r'), b'\r') => DataEnd(b'\n'),
            (DataEnd(b'\n'), b'\n') => Start,
            (Trailer, b'\r') => LastEnd,
            (Trailer | InTrailer, byte) if byte != b'\r' && byte != b'\n' => InTrailer,
            (InTrailer, b'\r') => TrailerEnd,
            (TrailerEnd, b'\n') => Trailer,
            (LastEnd, b'\n') => Done,
            _ => return Err(BadChunks),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Host {
        Host::read(text).unwrap()
    }

    fn forwarded(text: &str) -> (Host, u16, String, Body, bool) {
        match proxy_request(text.as_bytes()) {
            Read::Complete(Head {
                host,
                port,
                kind: Kind::Forward { head, body, upgrades },
                ..
            }) => (host, port, String::from_utf8(head).unwrap(), body, upgrades),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn a_tunnel_is_requested_by_name_or_address() {
        for (target, host, port) in [
            ("A.example:443", "a.example", 443),
            ("[::1]:80", "::1", 80),
            ("10.0.0.1:22", "10.0.0.1", 22),
        ] {
            let text = format!("CONNECT {target} HTTP/1.1\r\nHost: other\r\n\r\nrest");
            let Read::Complete(head) = proxy_request(text.as_bytes()) else { panic!("{target}") };
            assert_eq!((head.host, head.port, head.kind), (named(host), port, Kind::Connect));
            assert_eq!(&text[head.length..], "rest");
        }
        for target in [
            "a.example",
            "a.example:",
            "a.example:0",
            "a.example:99999",
            "a.example:+1",
            ":443",
            "user@a.example:443",
            "2130706433:443",
            "0x7f.1:443",
            "a..b:443",
            "a.example:443:443",
            "a\0b:443",
            "http://a.example/",
        ] {
            let text = format!("CONNECT {target} HTTP/1.1\r\n\r\n");
            assert_eq!(proxy_request(text.as_bytes()), Read::Malformed, "{target:?}");
        }
    }

    #[test]
    fn a_request_is_forwarded_for_its_own_host_only() {
        let head = "POST http://a.example?q#f HTTP/1.1\r\nHost: A.example:80\r\nProxy-Authorization: x\r\n\
                    Connection: keep-alive\r\nContent-Length: 4\r\n\r\nbody";
        let expected = "POST /?q HTTP/1.1\r\nHost: a.example:80\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
        let answer = (named("a.example"), 80, expected.to_owned(), Body::Length(4), false);
        assert_eq!(forwarded(head), answer);
        let socket = "GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example:8080\r\nUpgrade: websocket\r\n\r\n";
        assert!(forwarded(socket).4);
        for (fields, expected) in [
            ("Host: b.example\r\n", Read::Mismatch(named("a.example"), 80)),
            ("Host: a.example:81\r\n", Read::Mismatch(named("a.example"), 80)),
            ("", Read::Malformed),
            ("Host: a.example\r\nHost: a.example\r\n", Read::Malformed),
            ("Host: a.example\r\nContent-Length: 1\r\nContent-Length: 1\r\n", Read::Malformed),
            (
                "Host: a.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                Read::Malformed,
            ),
            ("Host: a.example\r\nTransfer-Encoding: gzip, chunked\r\n", Read::Malformed),
            ("Host: a.example\r\nContent-Length: +1\r\n", Read::Malformed),
            ("Host: a.example\r\nContent-Length: 5\u{a0}\r\n", Read::Malformed),
            ("Host: a.example\r\nTransfer-Encoding: chunked\u{a0}\r\n", Read::Malformed),
            ("Host: a.example\r\nX: a\r\n b\r\n", Read::Malformed),
            ("Host : a.example\r\n", Read::Malformed),
        ] {
            let text = format!("GET http://a.example/ HTTP/1.1\r\n{fields}\r\n");
            assert_eq!(proxy_request(text.as_bytes()), expected, "{fields:?}");
        }
        for text in [
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http:// HTTP/1.1\r\nHost: a\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\n",
            "GET http://u@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ] {
            assert_eq!(proxy_request(text.as_bytes()), Read::Malformed, "{text:?}");
        }
        let endless = format!("GET http://a.example/ HTTP/1.1\r\nX: {}", "x".repeat(MAX_HEAD));
        assert_eq!(proxy_request(endless.as_bytes()), Read::Malformed);
        assert_eq!(proxy_request(b"GET http://a.ex"), Read::Incomplete);
    }

    #[test]
    fn only_an_upgrade_to_web_sockets_is_passed_on() {
        for upgrade in ["h2c", "h2c, websocket", "TLS/1.0", "h2c\r\nUpgrade: websocket"] {
            let text = format!(
                "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                 Upgrade: {upgrade}\r\nHTTP2-Settings: AAMAAABk\r\nX: y\r\n\r\n"
            );
            let expected = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nX: y\r\n\r\n";
            let answer = (named("a.example"), 80, expected.to_owned(), Body::Length(0), false);
            assert_eq!(forwarded(&text), answer, "{upgrade}");
        }
    }

    #[test]
    fn a_request_of_version_1_0_gets_a_host_and_has_no_chunks() {
        let (_, _, head, ..) = forwarded("GET http://A.example./ HTTP/1.0\r\n\r\n");
        assert_eq!(head, "GET / HTTP/1.0\r\nHost: a.example\r\nConnection: close\r\n\r\n");
        let chunks = "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(proxy_request(chunks.as_bytes()), Read::Malformed);
    }

    #[test]
    fn a_server_is_asked_by_path() {
        let host = named("a.example");
        let read = |text: &str| server_request(text.as_bytes(), &host, 80);
        let good = "GET /x HTTP/1.1\r\nHost: a.example\r\n\r\n";
        assert!(matches!(read(good), Read::Complete(Head { port: 80, .. })));
        let other = "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n";
        assert_eq!(read(other), Read::Mismatch(host.clone(), 80));
        for text in [
            "CONNECT b:1 HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://b/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ] {
            assert_eq!(read(text), Read::Malformed, "{text}");
        }
    }

    #[test]
    fn chunks_end_where_they_say() {
        let body = b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET / HTTP/1.1";
        let end = body.len() - b"GET / HTTP/1.1".len();
        assert_eq!(Chunks::default().take(body), Ok((end, true)));
        let mut pieces = Chunks::default();
        for at in 0..end {
            assert_eq!(pieces.take(&body[at..=at]), Ok((1, at + 1 == end)), "{at}");
        }
        for bad in [
            &b"x\r\n"[..],
            b"3\nabc",
            b"3\r\nabcd\r\n",
            b"ffffffffffffffff1\r\n",
            b"0\r\n\rx",
            b"\r\n",
        ] {
            assert_eq!(Chunks::default().take(bad), Err(BadChunks), "{bad:?}");
        }
    }
}
