//! The connection to a host: resolves names outside of the session, refuses addresses that no name may lead to, and
//! connects to the addresses that were checked and to no other. If the user's network has a proxy, names go to it, and it
//! resolves them.

use crate::own::is_own_address;
use crate::proxy::{Proxy, Request};
use quackd_network::http::{self, MAX_HEAD};
use quackd_policy::hosts::Host;
use quackd_protocol::network::{FailReason, MACHINE_HOST};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use std::{fmt, io};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Time for connecting.
const DIAL_TIME: Duration = Duration::from_secs(10);

/// Time after which the next address is tried too.
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

/// Maximum number of addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Error of a connection to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialError {
    /// The host leads to an address that the rules do not name.
    Private(IpAddr),
    Failed(FailReason),
    /// The proxy of the user's network answered with this status to a request for a tunnel. 0 without an answer.
    Upstream(u16),
}

impl DialError {
    /// Reason for the log. `None` if the rules refuse the address.
    pub(crate) fn reason(self) -> Option<FailReason> {
        match self {
            Self::Private(_) => None,
            Self::Failed(why) => Some(why),
            Self::Upstream(_) => Some(FailReason::Upstream),
        }
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Private(_) => f.write_str("is not allowed"),
            Self::Failed(FailReason::Unresolved) => f.write_str("cannot be resolved"),
            Self::Failed(_) => f.write_str("cannot be reached"),
            Self::Upstream(0) => {
                f.write_str("cannot be reached: the proxy of this network does not answer")
            }
            Self::Upstream(407) => {
                f.write_str("cannot be reached: the proxy of this network wants a password")
            }
            Self::Upstream(status) => {
                write!(f, "cannot be reached: the proxy of this network answered {status}")
            }
        }
    }
}

/// A connection to a host.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) stream: TcpStream,
    pub(crate) route: Route,
}

/// Path of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// To an address that was checked.
    Direct,
    /// Through a tunnel of the proxy of the user's network.
    Tunnel,
    /// To that proxy, which reads the address in each request.
    WholeAddress,
}

/// Connects to a host that the rules allow. Asks the user first if it leads to an address of a local network that no rule names.
/// `is_http` is true if the command sends one request of HTTP without TLS.
pub(crate) async fn dial(
    proxy: &Proxy,
    request: &Request,
    is_http: bool,
) -> Result<Server, DialError> {
    match &request.host {
        Host::Name(name) if name != MACHINE_HOST => {
            let upstream = proxy.upstream.as_ref();
            let upstream = upstream
                .and_then(|network_proxy| network_proxy.of_name(name, request.port, is_http));
            if let Some((name, port)) = upstream {
                return dial_upstream(proxy, request, name, port, is_http).await;
            }
        }
        _ => {}
    }

    let stream = match dial_directly(proxy, request).await {
        // The name is looked up again. Another address needs another answer.
        Err(DialError::Private(address)) if proxy.ask_about_address(request, address).await => {
            dial_directly(proxy, request).await?
        }
        dialled => dialled?,
    };
    Ok(Server { stream, route: Route::Direct })
}

/// Connects through the proxy of the user's network, to which no rule applies: the user has named it.
async fn dial_upstream(
    proxy: &Proxy,
    request: &Request,
    name: String,
    port: u16,
    is_http: bool,
) -> Result<Server, DialError> {
    let resolved = match name.parse() {
        Ok(address) => vec![address],
        Err(_) => mixed(proxy.lookups.find(&name).await),
    };

    let addresses = resolved.into_iter().take(MAX_ADDRESSES).map(|address| (address, port).into());
    let unreachable = |_| DialError::Upstream(0);
    let mut stream = connect(addresses.collect()).await.map_err(unreachable)?;

    if is_http {
        return Ok(Server { stream, route: Route::WholeAddress });
    }

    let opening = async {
        stream.write_all(&http::connect_request(&request.host, request.port)).await?;
        let mut head = Vec::new();
        loop {
            // The bytes after the head belong to the command.
            head.push(stream.read_u8().await?);
            let is_line = head.ends_with(b"\n") || MAX_HEAD <= head.len();
            if is_line && let Some(status) = http::connect_status(&head) {
                return io::Result::Ok(status);
            }
        }
    };

    match timeout(DIAL_TIME, opening).await {
        Ok(Ok(200..300)) => Ok(Server { stream, route: Route::Tunnel }),
        Ok(Ok(status)) => Err(DialError::Upstream(status)),
        _ => Err(DialError::Upstream(0)),
    }
}

async fn dial_directly(proxy: &Proxy, request: &Request) -> Result<TcpStream, DialError> {
    let port = request.port;
    let addresses = match &request.host {
        Host::Name(name) if name == MACHINE_HOST => {
            // The rules allowed this machine by its name, so they do not check its address.
            return connect(vec![(Ipv4Addr::LOCALHOST, port).into()]).await;
        }
        Host::Name(name) => {
            let resolved = mixed(proxy.lookups.find(name).await);
            resolved.into_iter().map(|address| SocketAddr::from((address, port))).collect()
        }
        Host::Address(address) => vec![SocketAddr::from((*address, port))],
    };

    let rules = proxy.rules();
    let is_refused = |address: &SocketAddr| {
        rules.refuses_address(address.ip(), port, is_own_address)
            && !proxy.is_address_allowed_once(address.ip(), port)
    };

    let first_refused = addresses.iter().find(|address| is_refused(address)).map(SocketAddr::ip);
    let allowed: Vec<SocketAddr> =
        addresses.into_iter().filter(|address| !is_refused(address)).take(MAX_ADDRESSES).collect();

    match (allowed.is_empty(), first_refused) {
        (true, Some(address)) => Err(DialError::Private(address.to_canonical())),
        (true, None) => Err(DialError::Failed(FailReason::Unresolved)),
        _ => connect(allowed).await,
    }
}

/// Addresses of IPv6 and IPv4 in turn.
fn mixed(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    // As RFC 8305 proposes: where one of the two does not work, a connection is late by one pause only.
    let (six, four): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut mixed = Vec::new();
    loop {
        match (six.next(), four.next()) {
            (None, None) => return mixed,
            (a, b) => mixed.extend(a.into_iter().chain(b)),
        }
    }
}

/// Connects to the first address that accepts. Tries the next one after an error or [`NEXT_ADDRESS`].
async fn connect(addresses: Vec<SocketAddr>) -> Result<TcpStream, DialError> {
    let connecting = async {
        let mut attempts = JoinSet::new();
        let mut addresses = addresses.into_iter();
        let mut next = addresses.next();
        loop {
            if let Some(address) = next.take() {
                attempts.spawn(TcpStream::connect(address));
                next = addresses.next();
            }
            tokio::select! {
                attempt = attempts.join_next() => match attempt {
                    Some(Ok(Ok(stream))) => return Some(stream),
                    // The next address is tried at once.
                    Some(_failed) => {}
                    None => return None,
                },
                () = sleep(NEXT_ADDRESS), if next.is_some() => {}
            }
        }
    };

    let connected = timeout(DIAL_TIME, connecting).await.ok().flatten();
    let stream = connected.ok_or(DialError::Failed(FailReason::Unreachable))?;
    // Without it small messages of a tunnel wait for each other.
    stream.set_nodelay(true).ok();
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookups::Lookups;
    use crate::pair::Pair;
    use quackd_ipc::sockets::packet_pair;
    use quackd_protocol::approval::AnswerScope;
    use quackd_protocol::network::{DenyReason, FromProxy, RequestPath, RuleText, Rules};
    use std::sync::Arc;

    const MIXED: &[&str] = &["::ffff:10.0.0.1", "fd00:ec2::254", "169.254.169.254", "127.0.0.1"];

    /// Dials `a.example`, which has these addresses, by these rules.
    async fn dialled(
        addresses: &'static [&str],
        texts: &[&str],
        port: u16,
    ) -> Result<SocketAddr, DialError> {
        let rule = |rule: &&str| RuleText { rule: format!("{rule}:{port}"), origin: String::new() };
        let rules = Rules { rules: texts.iter().map(rule).collect(), ..Rules::default() };
        let pair = packet_pair().unwrap();
        let mut proxy = Proxy::new(&rules, Pair::new(pair.0).unwrap());
        proxy.lookups = Lookups::by(Arc::new(|_| {
            addresses.iter().map(|address| address.parse().unwrap()).collect()
        }));
        let host = Host::read("a.example").unwrap();
        let request = Request { host, port, path: RequestPath::Connect };
        dial(&proxy, &request, false).await.map(|server| server.stream.peer_addr().unwrap())
    }

    #[tokio::test]
    async fn the_user_is_asked_about_the_local_address_of_an_allowed_name() {
        let text = RuleText { rule: "a.example".to_owned(), origin: String::new() };
        let rules = Rules { rules: vec![text], asks: true, is_off: false };
        for (address, answers) in [
            ("203.0.113.7", &[Err(DenyReason::DeniedByUser), Ok(AnswerScope::Once)][..]),
            ("169.254.169.254", &[]),
            ("127.0.0.1", &[]),
        ] {
            let ip: IpAddr = address.parse().unwrap();
            let test = async {
                let pair = packet_pair().unwrap();
                let mut proxy = Proxy::new(&rules, Pair::new(pair.0).unwrap());
                proxy.lookups = Lookups::by(Arc::new(move |_| vec![ip]));
                let mut unsent = proxy.asks.take_unsent().unwrap();
                let host = Host::read("a.example").unwrap();
                let request = Request { host, port: 443, path: RequestPath::Connect };
                let refused = dial_directly(&proxy, &request).await.map(drop);
                assert_eq!(refused, Err(DialError::Private(ip)));
                for answer in answers {
                    let answering = async {
                        let Some(FromProxy::Ask { id, host, port, name }) = unsent.recv().await
                        else {
                            panic!("another frame")
                        };
                        let name = name.as_deref();
                        assert_eq!((&*host, port, name), (address, 443, Some("a.example")));
                        proxy.asks.answered(id, *answer);
                    };
                    let asking = proxy.ask_about_address(&request, ip);
                    assert_eq!(tokio::join!(asking, answering).0, answer.is_ok());
                    assert_eq!(proxy.is_address_allowed_once(ip, 443), answer.is_ok());
                }
                if answers.is_empty() {
                    assert!(!proxy.ask_about_address(&request, ip).await);
                }
                assert!(unsent.try_recv().is_err());
            };
            tokio::task::LocalSet::new().run_until(test).await;
        }
    }

    #[tokio::test]
    async fn a_name_leads_only_to_addresses_that_a_rule_names_or_that_are_public() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let test = async {
            let own = "127.0.0.1".parse().unwrap();
            let found = dialled(MIXED, &["a.example", "127.0.0.1"], local.port()).await;
            assert_eq!(found, Ok(local), "only the named one was tried");
            for rules in [&["a.example"][..], &["a.example", "127.0.0.0/8", "0.0.0.0/0"]] {
                let refused = dialled(&["127.0.0.1"], rules, local.port()).await;
                assert_eq!(refused, Err(DialError::Private(own)));
            }
            let refused = dialled(MIXED, &["a.example"], local.port()).await;
            assert_eq!(refused, Err(DialError::Private("10.0.0.1".parse().unwrap())));
            let none = dialled(&[], &["a.example"], local.port()).await;
            assert_eq!(none, Err(DialError::Failed(FailReason::Unresolved)));
        };
        tokio::task::LocalSet::new().run_until(test).await;
    }
}
