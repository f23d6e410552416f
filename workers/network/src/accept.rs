//! Connections of commands: to the HTTP and SOCKS proxy, and to synthetic addresses.

use crate::dial::{DialError, Route, Server, dial};
use crate::git_gateway;
use crate::proxy::{Admitted, Proxy, Request, Slot};
use crate::relay::{self, BodyReader, First, HTTP, TLS, Upstream, reset, tls_hello};
use crate::reply::{answer, refuse};
use quackd_network::http::{self, Head, Kind, MAX_HEAD, Read};
use quackd_network::socks::{self, GREETING_REPLY, Message, Reply};
use quackd_network::synthetic::SyntheticAddresses;
use quackd_policy::hosts::Host;
use quackd_protocol::network::{DenyReason, FailReason, RequestPath};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// Time for the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Pause after a failed `accept`, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum length of a message of SOCKS5, in bytes.
const MAX_SOCKS: usize = 512;

/// Kind of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// Of programs that use a proxy.
    Proxy,
    /// Of programs that do not, at this port.
    Transparent(u16),
}

/// Accepts connections until the process ends.
pub(crate) async fn serve(listener: TcpListener, door: Door, proxy: Rc<Proxy>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };

        let Some(slot) = proxy.slot() else {
            // Dropping it closes the connection at once.
            drop(client);
            continue;
        };

        // Otherwise small messages of a tunnel wait for each other.
        client.set_nodelay(true).ok();
        let proxy = Rc::clone(&proxy);
        tokio::task::spawn_local(async move {
            match door {
                Door::Proxy => by_proxy(client, &proxy, slot).await,
                Door::Transparent(port) => by_address(client, port, &proxy, slot).await,
            }
        });
    }
}

/// Tells the protocol by the first byte.
async fn by_proxy(client: TcpStream, proxy: &Proxy, slot: Slot) {
    let mut first = [0];
    let Ok(Ok(1)) = timeout(HEAD_TIME, client.peek(&mut first)).await else { return };
    // `None`: the client is gone and needs no answer.
    let _served = if first == [5] {
        by_socks(client, proxy, slot).await
    } else {
        by_http(client, proxy, slot).await
    };
}

async fn by_http(mut client: TcpStream, proxy: &Proxy, mut slot: Slot) -> Option<()> {
    let mut bytes = Vec::new();
    let reading = read_head(&mut client, &mut bytes, http::proxy_request);
    let head = match timeout(HEAD_TIME, reading).await.ok()?? {
        Read::Complete(head) => head,
        Read::Mismatch(host, port) => {
            let request = Request { host, port, path: RequestPath::Http };
            proxy.refuse(&request, DenyReason::NameMismatch, None);
            return refuse(client, &request, DenyReason::NameMismatch, &proxy.label).await;
        }
        Read::Malformed | Read::Incomplete if git_gateway::is_for(&bytes) => {
            return git_gateway::serve(client, bytes, proxy, slot).await;
        }
        Read::Malformed | Read::Incomplete => {
            return answer(
                client,
                "400 Bad Request",
                "",
                "quackd: malformed request to the proxy\n",
            )
            .await;
        }
    };

    let path = if head.kind == Kind::Connect { RequestPath::Connect } else { RequestPath::Http };
    let request = Request { host: head.host.clone(), port: head.port, path };
    if proxy.near.contains(&request.host) {
        // These names lead to servers of the session itself.
        return to_own_server(client, proxy, bytes, head).await;
    }

    let admitted = match proxy.admit(&request, &mut slot).await {
        Ok(admitted) => admitted,
        Err(reason) => return refuse(client, &request, reason, &proxy.label).await,
    };

    let is_http = match &head.kind {
        Kind::Connect => is_http_tunnel(&request, &admitted),
        Kind::Forward { upgrades, .. } => !upgrades,
    };

    let server = match dial(proxy, &request, is_http).await {
        Ok(server) => server,
        Err(DialError::Private(address)) => {
            proxy.refuse(&request, DenyReason::PrivateAddress, Some(address));
            return refuse(client, &request, DenyReason::PrivateAddress, &proxy.label).await;
        }
        Err(error) => {
            if let Some(reason) = error.reason() {
                proxy.fail(&request, reason, admitted.rule);
            }
            let text = format!("quackd: {} {error}\n", request.host);
            let status = format!("502 {}", text.trim_end());
            return answer(client, &status, "", &text).await;
        }
    };

    let rest = bytes.split_off(head.length);
    match head.kind {
        Kind::Connect => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
            tunnel(client, server, rest, &request, admitted, proxy).await;
        }
        Kind::Forward { head, body, upgrades } => {
            let head = for_route(head, &request, server.route);
            let (first, upstream) = forwarded(head, rest, body, upgrades)?;
            relay::run(proxy, &request, admitted, client, server, first, upstream).await;
        }
    }
    Some(())
}

/// Whether a tunnel carries a request of HTTP without TLS. Then it is read.
fn is_http_tunnel(request: &Request, admitted: &Admitted) -> bool {
    request.port == HTTP && !admitted.raw
}

/// The head of a request for the server, or for the proxy of the user's network.
fn for_route(head: Vec<u8>, request: &Request, route: Route) -> Vec<u8> {
    match route {
        Route::WholeAddress => http::with_whole_address(&head, &request.host, request.port),
        Route::Direct | Route::Tunnel => head,
    }
}

/// Returns the first bytes for the server, and what may follow. `None` if the body is malformed.
fn forwarded(
    mut head: Vec<u8>,
    rest: Vec<u8>,
    body: http::Body,
    upgrades: bool,
) -> Option<(Vec<u8>, Upstream)> {
    if upgrades {
        // A client sends nothing else before the answer.
        return rest.is_empty().then_some((head, Upstream::IfSwitched));
    }

    let mut reader = BodyReader::new(body);
    let of_body = reader.take(&rest).ok()?;
    head.extend(rest.get(..of_body).unwrap_or_default());
    Some((head, Upstream::Rest(reader)))
}

/// Checks the first bytes of a tunnel and passes it on: port 443 is for TLS, port 80 for HTTP, to the requested host.
async fn tunnel(
    mut client: TcpStream,
    server: Server,
    rest: Vec<u8>,
    request: &Request,
    admitted: Admitted,
    proxy: &Proxy,
) {
    let first = match request.port {
        TLS if !admitted.raw => match tls_hello(&mut client, rest, &request.host).await {
            First::Complete(hello) => First::Complete((hello, Upstream::All)),
            First::Other => First::Other,
            First::Gone => First::Gone,
        },
        _ if is_http_tunnel(request, &admitted) => {
            http_request(&mut client, rest, request, server.route).await
        }
        _ => First::Complete((rest, Upstream::All)),
    };

    match first {
        First::Complete((first, upstream)) => {
            relay::run(proxy, request, admitted, client, server, first, upstream).await;
        }
        First::Other => {
            proxy.refuse(request, DenyReason::NameMismatch, None);
            if request.port == HTTP {
                // A client that is gone needs no answer.
                let _answered =
                    refuse(client, request, DenyReason::NameMismatch, &proxy.label).await;
            } else {
                // A program that speaks another protocol does not understand a text.
                reset(client);
            }
        }
        // A scan of ports, or a program that connected in advance.
        First::Gone => proxy.fail(request, FailReason::Broken, admitted.rule),
    }
}

/// Reads a request to a server from a tunnel.
async fn http_request(
    client: &mut TcpStream,
    mut bytes: Vec<u8>,
    request: &Request,
    route: Route,
) -> First<(Vec<u8>, Upstream)> {
    let parse = |bytes: &[u8]| http::server_request(bytes, &request.host, request.port);
    let reading = read_head(client, &mut bytes, parse);
    let head = match timeout(HEAD_TIME, reading).await {
        Ok(Some(Read::Complete(head))) => head,
        Ok(Some(_)) => return First::Other,
        Ok(None) | Err(_) => return First::Gone,
    };

    let rest = bytes.split_off(head.length);
    match head.kind {
        Kind::Forward { head, body, upgrades } => {
            let head = for_route(head, request, route);
            forwarded(head, rest, body, upgrades).map_or(First::Other, First::Complete)
        }
        Kind::Connect => First::Other,
    }
}

/// Reads a head. `None` if the client closes the connection before its end.
async fn read_head(
    client: &mut TcpStream,
    bytes: &mut Vec<u8>,
    parse: impl Fn(&[u8]) -> Read,
) -> Option<Read> {
    loop {
        // The first bytes of a tunnel may have come with its head.
        if !bytes.is_empty() {
            match parse(bytes) {
                Read::Incomplete if bytes.len() < MAX_HEAD => {}
                Read::Incomplete => return Some(Read::Malformed),
                other => return Some(other),
            }
        }

        match client.read_buf(bytes).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Passes a request on to a server of the session.
async fn to_own_server(
    mut client: TcpStream,
    proxy: &Proxy,
    mut bytes: Vec<u8>,
    head: Head,
) -> Option<()> {
    let Some(mut server) = proxy.pair.connect(head.port).await else {
        let text = "quackd: no server of this session has this port\n";
        return answer(client, "502 Bad Gateway", "", text).await;
    };

    let rest = bytes.split_off(head.length);
    match head.kind {
        Kind::Connect => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.ok()?;
        }
        Kind::Forward { head, .. } => server.write_all(&head).await.ok()?,
    }

    server.write_all(&rest).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
}

async fn by_socks(mut client: TcpStream, proxy: &Proxy, mut slot: Slot) -> Option<()> {
    let mut bytes = Vec::new();
    let ((), used) =
        timeout(HEAD_TIME, message(&mut client, &mut bytes, socks::greeting)).await.ok()?.ok()?;
    drop(bytes.drain(..used));
    client.write_all(&GREETING_REPLY).await.ok()?;

    let read = timeout(HEAD_TIME, message(&mut client, &mut bytes, socks::request)).await.ok()?;
    let ((host, port), used) = match read {
        Ok(read) => read,
        Err(reply) => return client.write_all(&reply?.bytes()).await.ok(),
    };

    let rest = bytes.split_off(used);
    let Ok(host) = Host::read(&host) else {
        return client.write_all(&Reply::NotAllowed.bytes()).await.ok();
    };
    // To the rules, port 0 stands for any port.
    if port == 0 {
        return client.write_all(&Reply::NotAllowed.bytes()).await.ok();
    }

    let request = Request { host, port, path: RequestPath::Socks };
    if proxy.near.contains(&request.host) {
        let Some(mut server) = proxy.pair.connect(port).await else {
            return client.write_all(&Reply::Unreachable.bytes()).await.ok();
        };
        client.write_all(&Reply::Succeeded.bytes()).await.ok()?;
        server.write_all(&rest).await.ok()?;
        return tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(drop);
    }

    match open(&request, proxy, &mut slot).await {
        Ok((server, admitted)) => {
            client.write_all(&Reply::Succeeded.bytes()).await.ok()?;
            tunnel(client, server, rest, &request, admitted, proxy).await;
        }
        Err(reply) => client.write_all(&reply.bytes()).await.ok()?,
    }
    Some(())
}

/// Reads one message of SOCKS5. The error is the reply, if there is one.
async fn message<T>(
    client: &mut TcpStream,
    bytes: &mut Vec<u8>,
    parse: impl Fn(&[u8]) -> Message<T>,
) -> Result<(T, usize), Option<Reply>> {
    loop {
        match parse(bytes) {
            Message::Complete(message, used) => return Ok((message, used)),
            Message::Malformed => return Err(None),
            Message::Unsupported => return Err(Some(Reply::NoSuchCommand)),
            Message::Incomplete if MAX_SOCKS <= bytes.len() => return Err(None),
            Message::Incomplete => {}
        }

        match client.read_buf(bytes).await {
            Ok(0) | Err(_) => return Err(None),
            Ok(_) => {}
        }
    }
}

/// Admits a request and connects to its host. Records a refusal or failure.
async fn open(
    request: &Request,
    proxy: &Proxy,
    slot: &mut Slot,
) -> Result<(Server, Admitted), Reply> {
    let admitted = proxy.admit(request, slot).await.map_err(|_recorded| Reply::NotAllowed)?;

    match dial(proxy, request, is_http_tunnel(request, &admitted)).await {
        Ok(server) => Ok((server, admitted)),
        Err(DialError::Private(address)) => {
            proxy.refuse(request, DenyReason::PrivateAddress, Some(address));
            Err(Reply::NotAllowed)
        }
        Err(error) => {
            if let Some(reason) = error.reason() {
                proxy.fail(request, reason, admitted.rule);
            }
            Err(Reply::Unreachable)
        }
    }
}

/// Serves a connection to a synthetic address. Closing it without a byte resets it.
async fn by_address(client: TcpStream, port: u16, proxy: &Proxy, mut slot: Slot) {
    let Ok(SocketAddr::V4(local)) = client.local_addr() else { return };
    let address = *local.ip();
    let name = if SyntheticAddresses::is_one(address) {
        proxy.addresses.borrow_mut().name(address)
    } else {
        None
    };

    let Some(name) = name else { return reset(client) };
    let request = Request { host: Host::Name(name), port, path: RequestPath::Transparent };
    match open(&request, proxy, &mut slot).await {
        Ok((server, admitted)) => {
            tunnel(client, server, Vec::new(), &request, admitted, proxy).await;
        }
        Err(_) => reset(client),
    }
}
