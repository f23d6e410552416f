//! The deny responder: immediately refuses network requests of commands if the network is off, and records the hosts.
//!
//! An HTTP proxy on 127.0.0.1:61080 answers 403, and a resolver on 127.0.0.1:53 answers that no name exists. Both run
//! on the worker's own thread. The proxy connects names of the loopback, so that programs that send everything to a
//! proxy reach a server in their own session. Commands are hostile: connections, sizes and times have limits.

use quackd_protocol::denial::{of_session, one_line};
use quackd_protocol::network::PROXY_PORT;
use quackd_protocol::suggestion::may_be_suggested;
use quackd_sandbox::confine::DenySockets;
use quackd_tools::{Attempts, RefusedRequest};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Most connections at the same time. Others are closed.
const MAX_CONNECTIONS: usize = 64;

/// Longest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;

/// Timeout for the head of a request, and for a connection to a server of the session.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Longest time of a connection to a server of the session.
const TUNNEL_TIME: Duration = Duration::from_secs(60 * 60);

/// Time and size of a body that is read and ignored after a refusal. A client that still sends would get a reset
/// in place of the answer.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const MAX_DRAINED: u64 = 1024 * 1024;

/// Pause after a failed `accept` or `recvfrom`, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Longest `/etc/hosts` that is read, in bytes.
const MAX_HOSTS_FILE: u64 = 1024 * 1024;

/// Most bytes of a query for a name.
const MAX_QUERY: usize = 1024;

/// Variables that end retries, since pip, cargo and uv also retry a refusal, for 8 to 11 s. And npm's search for a newer
/// npm, which would make each npm command an attempt to use the network.
const NO_RETRIES: [(&str, &str); 4] = [
    ("CARGO_NET_RETRY", "0"),
    ("PIP_RETRIES", "0"),
    ("UV_HTTP_RETRIES", "0"),
    ("npm_config_update_notifier", "false"),
];

/// Starts both services, and returns a note for each that could not be bound. `label` is that of the session.
pub(crate) fn start(sockets: DenySockets, attempts: &Arc<Attempts>, label: &str) -> Vec<String> {
    let mut notes = Vec::new();
    match sockets.proxy.and_then(TcpListener::from_std) {
        Ok(listener) => drop(actix::spawn(serve(listener, Arc::clone(attempts), label.into()))),
        Err(error) => notes.push(format!("no proxy that refuses requests at once: {error}")),
    }
    match sockets.resolver.and_then(UdpSocket::from_std) {
        Ok(socket) => drop(actix::spawn(resolve(socket, Arc::clone(attempts)))),
        Err(error) => notes.push(format!("no resolver that refuses names at once: {error}")),
    }
    notes
}

/// Variables of commands without a network, or with a network by host: no retries, and the proxy if it is served. Names
/// that `given` has in any case are left out: the user has listed them.
pub(crate) fn variables(
    given: &[(String, String)],
    has_proxy: bool,
) -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = NO_RETRIES.map(|(name, value)| (name, value.to_owned())).into();
    if has_proxy {
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        let names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"];
        all.extend(names.map(|name| (name, proxy.clone())));
        let near = ["NO_PROXY", "no_proxy"];
        all.extend(near.map(|name| (name, "localhost,127.0.0.1,::1".to_owned())));
        all.push(("NODE_USE_ENV_PROXY", "1".to_owned()));
    }
    all.retain(|(name, _)| !given.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    all
}

async fn serve(listener: TcpListener, attempts: Arc<Attempts>, label: Arc<str>) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok((client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            attempts.record(None);
            continue;
        };
        let (attempts, label) = (Arc::clone(&attempts), Arc::clone(&label));
        actix::spawn(async move {
            // A client that is gone needs no answer.
            drop(answer(client, &attempts, &label).await);
            drop(slot);
        });
    }
}

async fn answer(mut client: TcpStream, attempts: &Attempts, label: &str) -> io::Result<()> {
    let Ok(received) = timeout(HEAD_TIME, read_head(&mut client)).await else { return Ok(()) };
    let received = received?;
    let Some(request) = received.as_deref().and_then(Request::read) else {
        let body = "quackd: this is a proxy for the session's commands\n";
        return refuse(client, "400 Bad Request", body).await;
    };
    let host = request.host.clone();
    let near = tokio::task::spawn_blocking(move || near_blocking(&host)).await.unwrap_or_default();
    if near.is_empty() {
        let (host, port) = (one_line(&request.host), request.port);
        let rule = match port {
            80 | 443 => {
                attempts.record(Some(&request.host));
                host.clone()
            }
            port => {
                let refused = RefusedRequest { port, ..RefusedRequest::default() };
                attempts.refused(&request.host, refused);
                format!("{host}:{port}")
            }
        };
        let allow = match may_be_suggested(&request.host) {
            true => format!(". To allow it: quack sandbox allow {rule}{}", of_session(label)),
            false => String::new(),
        };
        let body =
            format!("quackd: {host} was not asked: the network of this session is off{allow}\n");
        return refuse(client, "403 quackd: the network is off", &body).await;
    }
    for address in near {
        let connecting = TcpStream::connect((address, request.port));
        let Ok(Ok(mut server)) = timeout(HEAD_TIME, connecting).await else { continue };
        if request.is_tunnel {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
        }
        server.write_all(&request.forwarded).await?;
        let copying = copy_bidirectional(&mut client, &mut server);
        return timeout(TUNNEL_TIME, copying).await.map_or(Ok(()), |copied| copied.map(drop));
    }
    refuse(client, "502 Bad Gateway", "quackd: no server of this session has this port\n").await
}

/// Reads to the end of a head, and perhaps further. `None` if the bytes are no request.
async fn read_head(client: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut received = Vec::new();
    loop {
        let new_from = received.len();
        if client.read_buf(&mut received).await? == 0 {
            return Ok(None);
        }
        // Programs that speak TLS or SOCKS wait for an answer.
        if !received.first().is_some_and(u8::is_ascii_uppercase) || MAX_HEAD < received.len() {
            return Ok(None);
        }
        if head_length(&received, new_from).is_some() {
            return Ok(Some(received));
        }
    }
}

/// Length of the head with its empty line, whose end is at or after `new_from`.
fn head_length(received: &[u8], new_from: usize) -> Option<usize> {
    let from = new_from.saturating_sub(3);
    let at = received.get(from..)?.windows(4).position(|end| end == b"\r\n\r\n")?;
    Some(from + at + 4)
}

async fn refuse(mut client: TcpStream, status: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Connection: close\r\nProxy-Connection: close\r\n\r\n{body}"
    );
    // The answer fits into the socket's buffer, so the write does not wait for the client.
    client.write_all(answer.as_bytes()).await?;
    client.shutdown().await?;
    let mut rest = client.take(MAX_DRAINED);
    let mut nowhere = tokio::io::sink();
    drop(timeout(DRAIN_TIME, tokio::io::copy(&mut rest, &mut nowhere)).await);
    Ok(())
}

/// A request to the proxy.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    host: String,
    port: u16,
    is_tunnel: bool,
    /// Bytes for the server.
    forwarded: Vec<u8>,
}

impl Request {
    /// Reads `CONNECT host:port` or a request with a whole address. `None` for other requests.
    fn read(received: &[u8]) -> Option<Self> {
        let (head, rest) = received.split_at_checked(head_length(received, 0)?)?;
        let head = std::str::from_utf8(head).ok()?;
        let (line, fields) = head.split_once("\r\n")?;
        let mut words = line.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if !version.starts_with("HTTP/1.") || words.next().is_some() {
            return None;
        }
        if method == "CONNECT" {
            let (host, port) = authority(target, None)?;
            return Some(Self { host, port, is_tunnel: true, forwarded: rest.to_vec() });
        }
        let (scheme, after) = target.split_once("://")?;
        let (place, path) = after.split_at(after.find(['/', '?']).unwrap_or(after.len()));
        let usual = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
        let (host, port) = authority(place, Some(usual))?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut forwarded = format!("{method} {slash}{path} {version}\r\nConnection: close\r\n");
        for field in fields.split_inclusive("\r\n") {
            let name = field.split(':').next().unwrap_or_default().to_ascii_lowercase();
            // One request for each connection: the next one may be for another host.
            if !["connection", "keep-alive"].contains(&name.as_str()) && !name.starts_with("proxy-")
            {
                forwarded.push_str(field);
            }
        }
        let forwarded = [forwarded.as_bytes(), rest].concat();
        Some(Self { host, port, is_tunnel: false, forwarded })
    }
}

/// Divides `user@host:port`. An address of IPv6 loses its brackets.
fn authority(text: &str, usual: Option<u16>) -> Option<(String, u16)> {
    let text = text.rsplit('@').next()?;
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port.parse().ok()?)),
        _ => (text, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some((host.to_owned(), port.or(usual)?))
}

/// Loopback addresses of a host: of an address itself, and of a name that `/etc/hosts` maps to some.
fn near_blocking(host: &str) -> Vec<IpAddr> {
    use std::io::Read;

    if let Ok(address) = host.parse() {
        return near_address(address).into_iter().collect();
    }
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    if name == "localhost" || name.ends_with(".localhost") {
        return vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    }
    let mut hosts = String::new();
    let file = std::fs::File::open("/etc/hosts");
    // A file that cannot be read maps no name.
    drop(file.and_then(|file| file.take(MAX_HOSTS_FILE).read_to_string(&mut hosts)));
    near_names(&hosts, &name)
}

/// The address to connect to, if it is one of the loopback or stands for all of this machine.
fn near_address(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Some(Ipv6Addr::LOCALHOST.into()),
        address => address.is_loopback().then_some(address),
    }
}

fn near_names(hosts: &str, name: &str) -> Vec<IpAddr> {
    let lines = hosts.lines().filter_map(|line| line.split('#').next());
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = words.next()?.parse().ok().and_then(near_address)?;
            words.any(|word| word.eq_ignore_ascii_case(name)).then_some(address)
        })
        .collect()
}

async fn resolve(socket: UdpSocket, attempts: Arc<Attempts>) {
    let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    let mut query = [0; MAX_QUERY];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut query).await else {
            sleep(PAUSE).await;
            continue;
        };
        let Some((name, answer)) = no_such_name(query.get(..length).unwrap_or_default()) else {
            continue;
        };
        if !is_own(&name, &own) {
            attempts.record(Some(&name));
        }
        // If the client's buffer is full, its query is lost as on any network.
        drop(socket.try_send_to(&answer, from));
    }
}

/// Names of this machine: programs look them up for a greeting, not to leave it.
fn is_own(name: &str, own: &str) -> bool {
    name == own
        || name == "localhost"
        || name.ends_with(".localhost")
        || name.ends_with(".127.in-addr.arpa")
        || name == "0.0.0.0.in-addr.arpa"
        || (name.ends_with(".ip6.arpa") && name.trim_start_matches(['0', '1', '.']) == "ip6.arpa")
}

/// The name that a query of RFC 1035 asks for, and the answer that it does not exist.
fn no_such_name(query: &[u8]) -> Option<(String, Vec<u8>)> {
    const HEADER: usize = 12;
    let [id_high, id_low, flags, _, 0, 1, ..] = *query else { return None };
    // Neither an answer nor another operation than a query.
    if flags & 0xf8 != 0 {
        return None;
    }
    let (mut name, mut at) = (Vec::new(), HEADER);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => name.push(String::from_utf8_lossy(query.get(at..at + length)?)),
            _ => return None,
        }
        at += length;
    }
    // Its type and class.
    let question = query.get(HEADER..at + 4)?;
    let name = name.join(".").to_ascii_lowercase();
    // An answer, recursion as wanted and available, and the code NXDOMAIN.
    let header = [id_high, id_low, 0x80 | (flags & 1), 0x83, 0, 1, 0, 0, 0, 0, 0, 0];
    (question.len() <= 255 + 4).then(|| (name, [&header, question].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, u16, bool, String)> {
        let Request { host, port, is_tunnel, forwarded } = Request::read(text.as_bytes())?;
        Some((host, port, is_tunnel, String::from_utf8(forwarded).unwrap()))
    }

    #[test]
    fn requests_name_a_host_in_two_forms() {
        let connect = read("CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\nhello").unwrap();
        assert_eq!(connect, ("::1".into(), 443, true, "hello".into()));
        let head = "POST http://u@vm?q HTTP/1.1\r\nHost: vm\r\nproxy-Connection: x\r\nConnection: a\r\n\r\n";
        let expected = "POST /?q HTTP/1.1\r\nConnection: close\r\nHost: vm\r\n\r\nbody";
        assert_eq!(
            read(&format!("{head}body")).unwrap(),
            ("vm".into(), 80, false, expected.into())
        );
        for garbage in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT host HTTP/1.1\r\n\r\n",
            "CONNECT :1 HTTP/1.1\r\n\r\n",
            "CONNECT a:99999 HTTP/1.1\r\n\r\n",
            "CONNECT a:1 b HTTP/1.1\r\n\r\n",
            "CONNECT a:1 HTTP/2\r\n\r\n",
            "GET http:// HTTP/1.1\r\n\r\n",
            "\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\n",
        ] {
            assert_eq!(read(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn only_the_loopback_is_near() {
        let near =
            |host: &str| near_blocking(host).iter().map(IpAddr::to_string).collect::<Vec<_>>();
        assert_eq!(near("127.0.0.2"), ["127.0.0.2"]);
        assert_eq!(near("0.0.0.0"), ["127.0.0.1"]);
        assert_eq!(near("::ffff:127.0.0.1"), ["127.0.0.1"]);
        assert_eq!(near("a.LocalHost."), ["127.0.0.1", "::1"]);
        for far in ["10.0.0.1", "::ffff:8.8.8.8", "example.invalid", "localhost.example.invalid"] {
            assert!(near(far).is_empty(), "{far}");
        }
        let hosts = "127.0.0.1 localhost vm # other\n10.0.0.1 far vm\n::1 six\ngarbage";
        let names = |name| near_names(hosts, name).len();
        assert_eq!((names("VM"), names("six"), names("far"), names("other")), (1, 1, 0, 0));
    }

    #[test]
    fn a_query_gets_its_answer_and_garbage_gets_none() {
        let head = b"\x12\x34\x01\x20\0\x01\0\0\0\0\0\x01";
        let question = b"\x07Example\x03org\0\0\x01\0\x01";
        let extra = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
        let query = [&head[..], question, extra].concat();
        let (name, answer) = no_such_name(&query).unwrap();
        assert_eq!(name, "example.org");
        let header = b"\x12\x34\x81\x83\0\x01\0\0\0\0\0\0";
        assert_eq!(answer, [&header[..], question].concat());
        assert_eq!(no_such_name(&answer), None);
        for end in 0..head.len() + question.len() {
            assert_eq!(no_such_name(&query[..end]), None, "{end}");
        }
        assert_eq!(no_such_name(&[&head[..], b"\xc0\x0c\0\x01\0\x01"].concat()), None);
        assert_eq!(
            no_such_name(&[&head[..], &b"\x01a".repeat(200), b"\0\0\x01\0\x01"].concat()),
            None
        );
    }

    #[test]
    fn names_of_this_machine_are_no_attempt() {
        let loopback = format!("1.{}ip6.arpa", "0.".repeat(31));
        for own in ["box", "localhost", "a.localhost", "1.0.0.127.in-addr.arpa", &loopback] {
            assert!(is_own(own, "box"), "{own}");
        }
        for far in ["example.org", "8.8.8.8.in-addr.arpa", "8.ip6.arpa", "boxes"] {
            assert!(!is_own(far, "box"), "{far}");
        }
    }

    #[test]
    fn variables_that_the_user_has_listed_stay() {
        let given = [
            ("https_proxy".to_owned(), "x".to_owned()),
            ("PIP_RETRIES".to_owned(), "3".to_owned()),
        ];
        let names = |given: &[_], has_proxy| -> Vec<_> {
            variables(given, has_proxy).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(
            names(&[], false),
            ["CARGO_NET_RETRY", "PIP_RETRIES", "UV_HTTP_RETRIES", "npm_config_update_notifier"]
        );
        let expected = [
            "CARGO_NET_RETRY",
            "UV_HTTP_RETRIES",
            "npm_config_update_notifier",
            "HTTP_PROXY",
            "http_proxy",
            "NO_PROXY",
            "no_proxy",
            "NODE_USE_ENV_PROXY",
        ];
        assert_eq!(names(&given, true), expected);
    }
}
