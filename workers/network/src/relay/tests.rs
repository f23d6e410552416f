//! Tests of [`super`].

use super::*;
use crate::pair::Pair;
use quackd_ipc::sockets::packet_pair;
use quackd_protocol::network::{RequestPath, RuleText, Rules};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::net::TcpListener;
use tokio::task::LocalSet;

fn rules(texts: &[&str]) -> Rules {
    let rule = |rule: &&str| RuleText { rule: (*rule).to_owned(), origin: "session".into() };
    Rules { rules: texts.iter().map(rule).collect(), ..Rules::default() }
}

/// A proxy, and the worker's end of its pair.
fn proxy(texts: &[&str]) -> (Rc<Proxy>, OwnedFd) {
    let (ours, theirs) = packet_pair().unwrap();
    (Rc::new(Proxy::new(&rules(texts), Pair::new(ours).unwrap())), theirs)
}

async fn connected() -> (TcpStream, TcpStream) {
    connected_at("127.0.0.1").await
}

async fn connected_at(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (outer, inner) = tokio::join!(connecting, listener.accept());
    (outer.unwrap(), inner.unwrap().0)
}

fn request(host: &str, port: u16) -> Request {
    Request { host: Host::read(host).unwrap(), port, path: RequestPath::Connect }
}

/// A connection of a command, and its server: the command's end, the server's end, and both ends of the proxy.
async fn chain() -> (TcpStream, TcpStream, (TcpStream, Server)) {
    let (command, client) = connected().await;
    let (server, far) = connected().await;
    (command, far, (client, Server { stream: server, route: Route::Direct }))
}

/// Runs a test, which must end.
async fn ends(test: impl Future<Output = ()>) {
    let patience = Duration::from_secs(45);
    timeout(patience, LocalSet::new().run_until(test)).await.expect("the connection has ended");
}

async fn is_reset(stream: &mut TcpStream) -> bool {
    let error = stream.read(&mut [0; 64]).await.err();
    error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn a_rule_that_is_revoked_before_the_hello_closes_the_tunnel() {
    let test = async {
        let (proxy, _worker) = proxy(&["machine:443"]);
        let request = request(MACHINE_HOST, 443);
        let admitted = proxy.decide(&request.host, 443).unwrap();
        let (mut command, mut far, (client, server)) = chain().await;
        // After the answer to CONNECT, and before the first bytes.
        proxy.set_rules(&rules(&[]));
        run(&proxy, &request, admitted, client, server, b"hello".to_vec(), Upstream::All).await;
        assert!(is_reset(&mut far).await, "nothing was passed on");
        assert!(is_reset(&mut command).await);
        let (log, _) = proxy.log.next().await;
        assert_eq!(log[0].verdict, Verdict::Failed(FailReason::RuleRemoved));
    };
    ends(test).await;
}

#[tokio::test]
async fn a_removed_address_rule_and_a_removed_raw_close_what_they_allowed() {
    let before = ["db.example:5432", "127.0.0.1:5432", "db.example:443/raw", "127.0.0.1:443"];
    for (port, after) in [
        (5432, &["db.example:5432"][..]),
        (5432, &["db.example:5432", "127.0.0.1:5432", "!127.0.0.0/8"]),
        (443, &["db.example:443", "127.0.0.1:443"]),
    ] {
        let test = async {
            let (proxy, _worker) = proxy(&before);
            let request = request("db.example", port);
            let admitted = proxy.decide(&request.host, port).unwrap();
            let (mut command, mut far, (client, server)) = chain().await;
            let changing = async {
                // The connection works until the change.
                let mut byte = [0];
                far.read_exact(&mut byte).await.unwrap();
                proxy.set_rules(&rules(&before));
                command.write_all(b"y").await.unwrap();
                far.read_exact(&mut byte).await.unwrap();
                proxy.set_rules(&rules(after));
                assert!(is_reset(&mut command).await, "{after:?}");
            };
            let running =
                run(&proxy, &request, admitted, client, server, b"x".to_vec(), Upstream::All);
            tokio::join!(running, changing);
        };
        ends(test).await;
    }
}

#[tokio::test]
async fn a_host_that_the_user_allowed_once_is_cut_off_with_the_network() {
    let test = async {
        let (proxy, _worker) = proxy(&[]);
        let request = request("db.example", 5432);
        proxy.asks.allow_once(request.host.clone(), 5432);
        let admitted = proxy.decide(&request.host, 5432).unwrap();
        let (mut command, mut far, (client, server)) = chain().await;
        // The address of a tunnel is not checked.
        let server = Server { route: Route::Tunnel, ..server };
        let changing = async {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            // No rule names the host, and it was allowed once.
            proxy.set_rules(&rules(&["other.example"]));
            command.write_all(b"y").await.unwrap();
            far.read_exact(&mut byte).await.unwrap();
            proxy.set_rules(&Rules { is_off: true, ..Rules::default() });
            assert!(is_reset(&mut command).await);
            proxy.asks.allow_once(request.host.clone(), 5432);
            assert!(proxy.decide(&request.host, 5432).is_err(), "an answer that comes late");
        };
        let running = run(&proxy, &request, admitted, client, server, b"x".to_vec(), Upstream::All);
        tokio::join!(running, changing);
    };
    ends(test).await;
}

/// The kernel connects to 127.0.0.2 from 127.0.0.1, as to an address of another machine.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_address_that_the_user_allowed_once_is_allowed_until_a_rule_denies_it() {
    let test = async {
        let (proxy, _worker) = proxy(&["db.example:5432"]);
        let request = request("db.example", 5432);
        let admitted = proxy.decide(&request.host, 5432).unwrap();
        proxy.asks.allow_once(Host::read("127.0.0.2").unwrap(), 5432);
        let (mut command, client) = connected().await;
        let (server, mut far) = connected_at("127.0.0.2").await;
        let server = Server { stream: server, route: Route::Direct };
        let changing = async {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            proxy.set_rules(&rules(&["db.example:5432", "other.example"]));
            command.write_all(b"y").await.unwrap();
            far.read_exact(&mut byte).await.unwrap();
            proxy.set_rules(&rules(&["db.example:5432", "!127.0.0.0/8"]));
            assert!(is_reset(&mut command).await);
        };
        let running = run(&proxy, &request, admitted, client, server, b"x".to_vec(), Upstream::All);
        tokio::join!(running, changing);
    };
    ends(test).await;
}

#[tokio::test]
async fn a_broken_transfer_is_an_error_for_the_command_and_a_whole_one_is_not() {
    for is_broken in [true, false] {
        let test = async {
            let (proxy, _worker) = proxy(&["machine:80"]);
            let request = request(MACHINE_HOST, 80);
            let admitted = proxy.decide(&request.host, 80).unwrap();
            let (mut command, mut far, (client, server)) = chain().await;
            let serving = async {
                far.write_all(b"half").await.unwrap();
                let mut half = [0; 4];
                command.read_exact(&mut half).await.unwrap();
                if is_broken {
                    reset(far);
                    assert!(is_reset(&mut command).await);
                } else {
                    drop(far);
                    assert_eq!(command.read(&mut half).await.unwrap(), 0);
                }
            };
            let running = run(
                &proxy,
                &request,
                admitted,
                client,
                server,
                Vec::new(),
                Upstream::Rest(BodyReader::new(Body::Length(0))),
            );
            tokio::join!(running, serving);
        };
        ends(test).await;
    }
}

#[tokio::test]
async fn a_client_that_is_gone_after_its_request_ends_the_connection() {
    for upstream in [Upstream::Rest(BodyReader::new(Body::Length(0))), Upstream::IfSwitched] {
        let test = async {
            let (proxy, _worker) = proxy(&["machine:80"]);
            let request = request(MACHINE_HOST, 80);
            let admitted = proxy.decide(&request.host, 80).unwrap();
            let (command, mut far, (client, server)) = chain().await;
            let leaving = async {
                let mut byte = [0];
                far.read_exact(&mut byte).await.unwrap();
                reset(command);
                assert!(is_reset(&mut far).await);
            };
            let running = run(&proxy, &request, admitted, client, server, b"x".to_vec(), upstream);
            tokio::join!(running, leaving);
        };
        ends(test).await;
    }
}

#[tokio::test]
async fn nothing_passes_before_a_switch_of_protocols_and_its_answer_may_come_in_pieces() {
    let test = async {
        let (proxy, _worker) = proxy(&["machine:80"]);
        let request = request(MACHINE_HOST, 80);
        let admitted = proxy.decide(&request.host, 80).unwrap();
        let (mut command, mut far, (client, server)) = chain().await;
        let talking = async {
            let mut bytes = [0; 12];
            for part in [&b"HTT"[..], b"P/1.1 ", b"101"] {
                far.write_all(part).await.unwrap();
                command.read_exact(&mut bytes[..part.len()]).await.unwrap();
            }
            command.write_all(b"frame").await.unwrap();
            far.read_exact(&mut bytes[..5]).await.unwrap();
            drop((command, far));
        };
        let running =
            run(&proxy, &request, admitted, client, server, Vec::new(), Upstream::IfSwitched);
        tokio::join!(running, talking);
    };
    ends(test).await;
}

#[tokio::test]
async fn closing_before_the_first_byte_is_no_mismatch() {
    let (mut command, mut client) = connected().await;
    let host = Host::read("a.example").unwrap();
    command.write_all(b"\x16\x03").await.unwrap();
    drop(command);
    assert!(matches!(tls_hello(&mut client, Vec::new(), &host).await, First::Gone));
    let (mut command, mut client) = connected().await;
    command.write_all(b"SSH-2.0-x\r\n").await.unwrap();
    assert!(matches!(tls_hello(&mut client, Vec::new(), &host).await, First::Other));
}
