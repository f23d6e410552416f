//! Answers to queries for names. No query leaves the machine: an allowed name gets an address that stands for it, and is
//! resolved only when a connection to it was allowed. So a query cannot carry data out.

use crate::own::own_name;
use crate::proxy::{Proxy, Request};
use quackd_network::dns::{MAX_QUERY, Query, is_own};
use quackd_policy::hosts::Host;
use quackd_protocol::network::{DenyReason, RequestPath};
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

/// Pause after a failed `accept` or `recvfrom`.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for a query over TCP.
const QUERY_TIME: Duration = Duration::from_secs(5);

/// Answers queries over UDP.
pub(crate) async fn serve_udp(socket: UdpSocket, proxy: Rc<Proxy>) {
    let own = own_name();
    let mut query = [0; MAX_QUERY];
    loop {
        // A command may shut the socket down. It then stays readable, so that `recv_from` would try again for ever.
        match socket.ready(Interest::READABLE).await {
            Ok(ready) if ready.is_read_closed() => return,
            Ok(_) => {}
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        }

        let (length, from) = match socket.try_recv_from(&mut query) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => {
                sleep(PAUSE).await;
                continue;
            }
        };

        if let Some(answer) = answer(query.get(..length).unwrap_or_default(), &own, &proxy) {
            // If the client's buffer is full, its query is lost as on any network.
            socket.try_send_to(&answer, from).ok();
        }

        // A flood of queries does not keep connections from being served.
        tokio::task::yield_now().await;
    }
}

/// Answers queries over TCP, one for each connection.
pub(crate) async fn serve_tcp(listener: TcpListener, proxy: Rc<Proxy>) {
    let own: Rc<str> = own_name().into();
    loop {
        let Ok((client, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };

        let Some(slot) = proxy.slot() else { continue };
        let (own, proxy) = (Rc::clone(&own), Rc::clone(&proxy));
        tokio::task::spawn_local(async move {
            // A client that sends no query, or a malformed one, gets no answer.
            timeout(QUERY_TIME, one_query(client, &own, &proxy)).await.ok();
            drop(slot);
        });
    }
}

async fn one_query(mut client: TcpStream, own: &str, proxy: &Proxy) -> Option<()> {
    let length = usize::from(client.read_u16().await.ok()?);
    if MAX_QUERY < length {
        return None;
    }

    let mut query = vec![0; length];
    client.read_exact(&mut query).await.ok()?;

    let answer = answer(&query, own, proxy)?;
    let length = u16::try_from(answer.len()).ok()?.to_be_bytes();
    client.write_all(&[&length[..], &answer].concat()).await.ok()
}

fn answer(query: &[u8], own: &str, proxy: &Proxy) -> Option<Vec<u8>> {
    let query = Query::read(query)?;
    let host = Host::read(&query.name);
    let Ok(host @ Host::Name(_)) = host else {
        return Some(query.no_such_name());
    };

    if is_own(&query.name, own) {
        return Some(query.no_such_name());
    }

    if proxy.knows_name(&host) {
        if !query.wants_address() {
            return Some(query.no_record());
        }
        let address = proxy.addresses.borrow_mut().of(&host.to_string());
        return Some(query.address(address));
    }

    // Programs ask for several types at once. The address suffices for the report.
    if query.wants_address() {
        let request = Request { host, port: 0, path: RequestPath::Dns };
        let reason = match proxy.decide(&request.host, 0) {
            Err(reason) => reason,
            Ok(_) => DenyReason::NotListed,
        };
        proxy.refuse(&request, reason, None);
    }

    Some(query.no_such_name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;
    use quackd_ipc::sockets::packet_pair;
    use quackd_protocol::network::Rules;
    use rustix::net::{Shutdown, shutdown};
    use tokio::task::LocalSet;

    #[tokio::test]
    async fn a_socket_that_was_shut_down_ends_its_service() {
        let test = async {
            let pair = packet_pair().unwrap();
            let proxy = Rc::new(Proxy::new(&Rules::default(), Pair::new(pair.0).unwrap()));
            let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            // Linux shuts it down, although it is not connected.
            assert!(shutdown(&socket, Shutdown::Read).is_err());
            serve_udp(socket, proxy).await;
        };
        let patience = Duration::from_secs(45);
        timeout(patience, LocalSet::new().run_until(test)).await.expect("the service ends");
    }
}
