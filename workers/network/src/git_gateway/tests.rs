//! The gateway against a server of TLS on the loopback.

use super::*;
use crate::pair::Pair;
use crate::tls;
use quackd_ipc::descriptors::receive_with_descriptors;
use quackd_ipc::sockets::packet_pair;
use quackd_policy::upstream::UpstreamProxy;
use quackd_protocol::credentials::RefusedCredential;
use quackd_protocol::network::{
    FromProxy, MAX_PACKET_BYTES, RuleText, Rules, ToWorkerPacket, UpstreamVariables,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::LocalSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

const FETCH: &str =
    "GET /https/git.example/me/app.git/info/refs?service=git-upload-pack HTTP/1.1\r\n";
const PUSH: &str =
    "GET /https/git.example/me/app.git/info/refs?service=git-receive-pack HTTP/1.1\r\n";
const REFS: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/x-git\r\nSet-Cookie: a=b\r\nContent-Length: 4\r\n\r\nrefs";
const WANTS_PASSWORD: &str =
    "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n";

/// A proxy that reaches `git.example` through another one, and that server.
struct World {
    proxy: Rc<Proxy>,
    worker: OwnedFd,
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl World {
    async fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["git.example".to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config =
            ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.clone()], key)
                .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let rule = RuleText { rule: "git.example".to_owned(), origin: String::new() };
        let rules = Rules { rules: vec![rule], ..Rules::default() };
        let (ours, worker) = packet_pair().unwrap();
        let mut proxy = Proxy::new(&rules, Pair::new(ours).unwrap());
        proxy.tls = Some(tls::connector(roots).unwrap());
        let https = format!("http://{}", listener.local_addr().unwrap());
        let upstream = UpstreamVariables { https, ..UpstreamVariables::default() };
        proxy.upstream = Some(UpstreamProxy::new(&upstream));
        proxy.label = "app".to_owned();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self { proxy: Rc::new(proxy), worker, listener, acceptor }
    }

    /// Answers the next connection. Returns the head of its request.
    async fn serve_one(&self, answer: &str) -> String {
        let (mut stream, _) = self.listener.accept().await.unwrap();
        assert!(read_head(&mut stream).await.starts_with("CONNECT git.example:443 "));
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let mut stream = self.acceptor.accept(stream).await.unwrap();
        let head = read_head(&mut stream).await;
        let body = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; body.map_or(0, |length| length.parse().unwrap())];
        stream.read_exact(&mut body).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        // The proxy may have closed the connection after the answer.
        stream.shutdown().await.ok();
        head
    }

    /// Sends a request of a command. Returns the whole answer.
    async fn request(&self, request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, inside) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (mut client, (inside, _)) = (client.unwrap(), inside.unwrap());
        let slot = self.proxy.slot().unwrap();
        let mut answer = String::new();
        let serving = serve(inside, request.as_bytes().to_vec(), &self.proxy, slot);
        let (_served, read) = tokio::join!(serving, client.read_to_string(&mut answer));
        read.unwrap();
        answer
    }

    /// Answers the next request for a credential.
    async fn supervise(
        &self,
        requests: &mut mpsc::Receiver<FromProxy>,
        push: bool,
        result: Result<CredentialAnswer, CredentialRefusal>,
    ) {
        let Some(FromProxy::Credential { id, request }) = requests.recv().await else {
            panic!("another frame")
        };
        let repository = Repository::new("git.example", "me/app").unwrap();
        assert_eq!(request, CredentialRequest::Git { repository, push });
        self.proxy.credentials.answered(id, Answer { result, used_as: None });
    }
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

fn secret() -> CredentialAnswer {
    CredentialAnswer::Authorization("Basic c2VjcmV0".to_owned())
}

#[tokio::test]
async fn a_credential_goes_to_its_server_and_not_to_the_command() {
    let test = async {
        let world = World::new().await;
        let mut requests = world.proxy.credentials.take_unsent().unwrap();
        let serving = async {
            let first = world.serve_one(WANTS_PASSWORD).await;
            (first, world.serve_one(REFS).await)
        };
        let fetch = format!("{FETCH}Host: 127.0.0.1:61080\r\nGit-Protocol: version=2\r\n\r\n");
        let (answer, (first, second), ()) = tokio::join!(
            world.request(&fetch),
            serving,
            world.supervise(&mut requests, false, Ok(secret())),
        );
        assert!(
            first.starts_with("GET /me/app.git/info/refs?service=git-upload-pack HTTP/1.1\r\n")
        );
        assert!(first.contains("host: git.example\r\n"), "{first}");
        assert!(first.contains("git-protocol: version=2\r\n"), "{first}");
        assert!(!first.contains("authorization"), "{first}");
        assert!(second.contains("authorization: Basic c2VjcmV0\r\n"), "{second}");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nrefs"));
        assert!(answer.contains("content-type: application/x-git\r\n"), "{answer}");
        assert!(!answer.contains("cookie") && !answer.contains("c2VjcmV0"), "{answer}");

        // The next request of the same command has the credential at once.
        let post = "POST /https/git.example/me/app.git/git-upload-pack HTTP/1.1\r\nContent-Length: 4\r\n\r\n0000";
        let (answer, head) = tokio::join!(world.request(post), world.serve_one(REFS));
        assert!(head.contains("authorization: Basic c2VjcmV0\r\n"), "{head}");
        assert!(answer.ends_with("\r\n\r\nrefs"), "{answer}");

        // It does not serve to write.
        let push = format!("{PUSH}\r\n");
        let (answer, head, ()) = tokio::join!(
            world.request(&push),
            world.serve_one(WANTS_PASSWORD),
            world.supervise(&mut requests, true, Err(CredentialRefusal::Denied)),
        );
        assert!(!head.contains("authorization"), "{head}");
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert!(
            answer.contains(
                "quack sandbox allow --credential \"push git.example/me/app\" --session app"
            ),
            "{answer}"
        );
        let mut packet = [0; MAX_PACKET_BYTES];
        let n = receive_with_descriptors(&world.worker, &mut packet, 0, &mut Vec::new()).unwrap();
        let told: ToWorkerPacket = serde_json::from_slice(&packet[..n]).unwrap();
        let (what, why) = ("push git.example/me/app".to_owned(), CredentialRefusal::Denied);
        let label = "app".to_owned();
        assert_eq!(told, ToWorkerPacket::CredentialRefused(RefusedCredential { what, why, label }));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_credential_of_the_command_is_passed_on_and_no_other_is_asked_for() {
    let test = async {
        let world = World::new().await;
        let mut requests = world.proxy.credentials.take_unsent().unwrap();
        let fetch = format!("{FETCH}Authorization: Basic b3du\r\n\r\n");
        let (answer, head) = tokio::join!(world.request(&fetch), world.serve_one(WANTS_PASSWORD));
        assert!(head.contains("authorization: Basic b3du\r\n"), "{head}");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(requests.try_recv().is_err());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_refused_password_and_an_unknown_certificate_are_named() {
    let test = async {
        let world = World::new().await;
        let mut requests = world.proxy.credentials.take_unsent().unwrap();
        let serving = async {
            world.serve_one(WANTS_PASSWORD).await;
            world.serve_one(WANTS_PASSWORD).await
        };
        let fetch = format!("{FETCH}\r\n");
        let (answer, head, ()) = tokio::join!(
            world.request(&fetch),
            serving,
            world.supervise(&mut requests, false, Ok(secret())),
        );
        assert!(head.contains("authorization: Basic c2VjcmV0\r\n"), "{head}");
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert!(answer.contains("the server does not accept the credential"), "{answer}");

        let mut world = World::new().await;
        let proxy = Rc::get_mut(&mut world.proxy).unwrap();
        proxy.tls = Some(tls::connector(RootCertStore::empty()).unwrap());
        let refusing = async {
            let (mut stream, _) = world.listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            assert!(world.acceptor.accept(stream).await.is_err());
        };
        let (answer, ()) = tokio::join!(world.request(&fetch), refusing);
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
        assert!(answer.contains("SSL_CERT_FILE of the daemon"), "{answer}");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn the_rules_of_hosts_hold_and_redirects_stay_inside() {
    let test = async {
        let world = World::new().await;
        let other = FETCH.replace("git.example", "other.example");
        let answer = world.request(&format!("{other}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        assert!(answer.contains("quackd: denied (not-listed)"), "{answer}");
        let near = FETCH.replace("git.example", "localhost");
        let answer = world.request(&format!("{near}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
        let answer = world.request("GET /https/git.example/x HTTP/1.1\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");

        let moved = "HTTP/1.1 301 Moved\r\nLocation: https://git.example/new.git/x\r\nContent-Length: 0\r\n\r\n";
        let fetch = format!("{FETCH}\r\n");
        let (answer, _head) = tokio::join!(world.request(&fetch), world.serve_one(moved));
        assert!(answer.contains("location: /https/git.example/new.git/x\r\n"), "{answer}");
    };
    LocalSet::new().run_until(test).await;
}
