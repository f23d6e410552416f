//! Links: `http://PORT.NAME.localhost` leads to that port of that session and to nothing else, whatever a client sends.

use crate::harness::tier::needs;
use crate::harness::{Cli, Daemon, Repo, Session, Wire, untested, wait_for};
use crate::isolated::{isolated, repository};
use crate::network_hosts::children_named;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

const PYTHON: &str = "/usr/bin/python3";

/// Time for one answer. Every promised time is shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server of HTTP/1.1 that answers with its name, the `Host` and the first line of each request, and that repeats
/// everything after an upgrade. `/slow` sends its body after the next line of the client.
const SERVER: &str = r#"
import socket, sys, threading
name, port = sys.argv[1], int(sys.argv[2])

def serve(client):
    read = client.makefile("rb")
    while True:
        head = []
        while True:
            line = read.readline(65536)
            if not line:
                return
            line = line.decode().strip()
            if not line:
                break
            head.append(line)
        fields = dict(line.lower().split(": ", 1) for line in head[1:])
        if "upgrade" in fields:
            client.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
            while data := read.read1(65536):
                client.sendall(name.encode() + b": " + data)
            return
        body = f"{name} {fields.get('host')} {head[0]}\n".encode()
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        if "/slow" in head[0]:
            client.sendall(body[:1])
            read.readline(65536)
            body = body[1:]
        client.sendall(body)

listener = socket.create_server(("127.0.0.1", port), backlog=256)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

/// A world whose links have any free port. `None` without Python.
fn world() -> Option<Daemon> {
    if fs::metadata(PYTHON).is_err() {
        untested("no python3");
        return None;
    }
    let mut daemon = Daemon::absent();
    fs::create_dir(daemon.app()).unwrap();
    configure(&daemon, "127.0.0.1:0");
    daemon.boot();
    Some(daemon)
}

fn configure(daemon: &Daemon, listen: &str) {
    daemon.configure(format!("[forward]\nlisten = \"{listen}\"\n"));
}

/// A session with a name in the repository.
fn session<'a>(daemon: &Daemon, wire: &'a Wire, repo: &Repo, name: &str) -> Session<'a> {
    let at = repo.path().to_str().unwrap();
    daemon.quack(&["new", "--name", name, at]).ok();
    found(wire, &format!("{}/{name}", repo.path().file_name().unwrap().to_str().unwrap()))
}

fn found<'a>(wire: &'a Wire, reference: &str) -> Session<'a> {
    let found = wire.request("quack.find", json!({"sessionId": reference}))["session"].take();
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    Session { wire, id: text("sessionId"), name: text("sessionName"), path: text("workspacePath") }
}

/// Starts the server in a session.
fn serve(session: &Session<'_>, name: &str, port: u16) {
    session.call("write_file", json!({"path": "serve.py", "content": SERVER}));
    let command = format!("exec {PYTHON} -u serve.py {name} {port}");
    session.call("bash", json!({"command": command, "background": true}));
    session.bash(&format!("until (: < /dev/tcp/127.0.0.1/{port}) 2>/dev/null; do :; done"));
    let tier = session.worker()["tier"].clone();
    assert!(tier == "A" || tier == "B", "links are tested with namespaces, not with tier {tier}");
}

/// The link to a port of a session.
fn link(wire: &Wire, session: &str, port: u16) -> Link {
    let asked = json!({"sessionId": session, "port": port, "link": true});
    let data = wire.request("quack.forward", asked);
    assert_eq!(data.get("listen"), None, "{data}");
    Link::of(data["link"].as_str().unwrap())
}

/// An id as a part of a host name.
fn host_of(id: &str) -> String {
    id.to_lowercase().replace('_', "-").trim_matches('-').to_owned()
}

/// A link, as a browser reads it.
#[derive(Debug, Clone, PartialEq)]
struct Link {
    /// Name and port, as in `Host`.
    host: String,
    /// Port of 127.0.0.1.
    at: u16,
}

impl Link {
    fn of(text: &str) -> Self {
        let host = text.trim_end().strip_prefix("http://").unwrap();
        let at = host.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { host: host.to_owned(), at }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.at)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }

    /// Status and body of one request on a new connection.
    fn get(&self) -> (u16, String) {
        let mut client = self.connect();
        client.request(&self.host, "/");
        client.answer()
    }
}

/// A connection.
struct Client(BufReader<TcpStream>);

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn request(&mut self, host: &str, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Status and length of a head.
    fn head(&mut self) -> (u16, usize) {
        let first = self.line();
        let status = first.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {first:?}"));
        let mut length = 0;
        loop {
            let line = self.line().to_ascii_lowercase();
            match line.strip_prefix("content-length: ") {
                _ if line.is_empty() => return (status.parse().unwrap(), length),
                Some(value) => length = value.parse().unwrap(),
                None => {}
            }
        }
    }

    fn answer(&mut self) -> (u16, String) {
        let (status, length) = self.head();
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        (status, String::from_utf8(body).unwrap())
    }

    /// Whether the other side has closed the connection without another byte.
    fn is_closed(&mut self) -> bool {
        matches!(self.0.read(&mut [0]), Ok(0) | Err(_))
    }
}

/// Answer to raw bytes.
fn talk(link: &Link, bytes: &[u8]) -> (u16, String) {
    let mut client = link.connect();
    client.send(bytes);
    let answer = client.answer();
    assert!(client.is_closed(), "a refused connection is closed");
    answer
}

#[test]
fn two_isolated_sessions_serve_on_one_port_and_each_has_its_link() {
    needs!(Namespaces);
    let Some(daemon) = world() else { return };
    let (repo, wire) = (repository(&daemon), daemon.wire());
    let names = ["one", "two"];
    names.iter().for_each(|name| isolated(&daemon, &repo, name));
    let sessions = names.map(|name| found(&wire, &format!("project/{name}")));
    for (session, name) in sessions.iter().zip(names) {
        serve(session, name, 3000);
    }
    // Without a link, the lists have the ports and the command that prints one.
    assert_eq!(sessions[0].worker()["servers"], json!([{"port": 3000}]));
    let tree = daemon.quack(&["ps"]).ok();
    assert!(tree.contains("port 3000  quack forward 3000 --link --session project/one"), "{tree}");

    let shown = daemon.quack(&["forward", "project/one", "3000", "--link"]).ok();
    let links = [Link::of(&shown), link(&wire, "project/two", 3000)];
    for (link, name) in links.iter().zip(names) {
        assert_eq!(link.host, format!("3000.project-{name}.localhost:{}", link.at));
        let body = format!("{name} {} GET / HTTP/1.1\n", link.host);
        assert_eq!(link.get(), (200, body));
    }
    assert_eq!(links[0].at, links[1].at, "one listener");
    for (session, link) in sessions.iter().zip(&links) {
        let servers = json!([{"port": 3000, "link": format!("http://{}", link.host)}]);
        assert_eq!(session.worker()["servers"], servers);
        let state = wire.request("get_state", json!({"sessionId": session.id}));
        assert_eq!(state["servers"], servers);
        let state = daemon.quack(&["state", &session.id]).ok();
        assert!(state.contains(&format!("port 3000  http://{}\n", link.host)), "{state}");
    }
    // An id is a name too, and neither case nor the port of the listener matters.
    for host in [
        format!("3000.{}.localhost:{}", host_of(&sessions[0].id), links[0].at),
        links[0].host.to_uppercase(),
        "3000.project-one.localhost".to_owned(),
    ] {
        let link = Link { host, at: links[0].at };
        assert!(link.get().1.starts_with("one "), "{link:?}");
    }
    let listed = wire.request("quack.forward", json!({"list": true}));
    assert_eq!(listed["forwards"], json!([]), "a link is no forward");
}

#[test]
fn connections_are_kept_streamed_and_upgraded_and_stay_in_their_session() {
    needs!(Namespaces);
    let Some(daemon) = world() else { return };
    let (repo, wire) = (daemon.repo("shop"), daemon.wire());
    let sessions = ["a", "b"].map(|name| session(&daemon, &wire, &repo, name));
    serve(&sessions[0], "a", 3000);
    serve(&sessions[1], "b", 3000);
    let [a, b] = ["shop/a", "shop/b"].map(|name| link(&wire, name, 3000));

    // The head arrives in pieces, and requests follow on the same connection.
    let mut client = a.connect();
    for byte in format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", a.host).bytes() {
        client.send(&[byte]);
    }
    assert!(client.answer().1.starts_with("a "));
    for path in ["/2", "/3"] {
        client.request(&a.host, path);
        assert!(client.answer().1.ends_with(&format!("GET {path} HTTP/1.1\n")));
    }
    // A later request for another session reaches the one of the connection, also in one piece with the first.
    client.request(&b.host, "/smuggled");
    assert_eq!(client.answer(), (200, format!("a {} GET /smuggled HTTP/1.1\n", b.host)));
    let mut client = a.connect();
    let [first, second] =
        [&a.host, &b.host].map(|host| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.send(format!("{first}{second}").as_bytes());
    assert!(client.answer().1.starts_with("a ") && client.answer().1.starts_with("a "));

    // A body arrives before it is complete.
    client.request(&a.host, "/slow");
    let (status, length) = client.head();
    let mut body = vec![0; length];
    client.0.read_exact(&mut body[..1]).unwrap();
    client.send(b"go on\n");
    client.0.read_exact(&mut body[1..]).unwrap();
    assert_eq!((status, body.starts_with(b"a ")), (200, true));

    let mut socket = b.connect();
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b.host
    );
    socket.send(upgrade.as_bytes());
    assert_eq!(socket.head().0, 101);
    for _ in 0..3 {
        socket.send(b"\x00ping\n");
        assert_eq!(socket.line(), "b: \u{0}ping");
    }
    // Half of a connection may be closed.
    let mut client = a.connect();
    client.request(&a.host, "/");
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert!(client.answer().1.starts_with("a "));
}

#[test]
fn a_request_for_another_host_is_refused_and_learns_no_name() {
    needs!(Namespaces);
    let Some(daemon) = world() else { return };
    let (repo, wire) = (daemon.repo("shop"), daemon.wire());
    let served = session(&daemon, &wire, &repo, "secret");
    serve(&served, "secret", 3000);
    let link = link(&wire, "shop/secret", 3000);
    let at = link.at;
    let get = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let good = &link.host;
    for (head, status) in [
        (get("evil.example"), 421),
        (get(&format!("evil.example:{at}")), 421),
        (get(&format!("127.0.0.1:{at}")), 421),
        (get(&format!("localhost:{at}")), 421),
        (get(&format!("shop-secret.localhost:{at}")), 421),
        (get(&format!("3000.shop-secret.localhost.:{at}")), 421),
        (get("3000.shop-secret.localhost:1"), 421),
        (get(&format!("user@3000.shop-secret.localhost:{at}")), 421),
        (get(&format!("03000.shop-secret.localhost:{at}")), 421),
        (get("3000.shop-secret.localhost.evil.example"), 421),
        (get(""), 421),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nHost: {good}\r\nHost: {good}\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\nHost: evil.example\r\nHost: {good}\r\n\r\n"), 400),
        (format!("GET http://evil.example/ HTTP/1.1\r\nHost: {good}\r\n\r\n"), 400),
        (format!("CONNECT {good} HTTP/1.1\r\nHost: {good}\r\n\r\n"), 400),
        (format!("GET / HTTP/2.0\r\nHost: {good}\r\n\r\n"), 400),
        ("\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}".to_owned(), 400),
        (format!("GET / HTTP/1.1\r\nHost: {good}\r\nA: {}\r\n\r\n", "a".repeat(20_000)), 431),
        // The listener itself, as a server of a session with the network of the machine.
        (get(&format!("{at}.shop-secret.localhost:{at}")), 400),
    ] {
        let (found, text) = talk(&link, head.as_bytes());
        assert_eq!(found, status, "{head:.100}: {text}");
        assert!(text.starts_with("quackd: ") && !text.contains("secret"), "{head:.100}: {text}");
    }
    // A slow head, and one whose client goes away.
    let mut slow = link.connect();
    slow.send(b"GET / HTTP/1.1\r\nHost: ");
    let mut gone = link.connect();
    gone.send(b"GET / HTTP/1.1\r\n");
    gone.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert!(gone.is_closed());
    assert_eq!((slow.answer().0, slow.is_closed()), (408, true));
    assert!(link.get().1.starts_with("secret "));
}

#[test]
fn a_link_without_a_server_says_what_is_missing() {
    needs!(Namespaces);
    let Some(daemon) = world() else { return };
    let (repo, wire) = (daemon.repo("shop"), daemon.wire());
    let web = session(&daemon, &wire, &repo, "web");
    let idle = session(&daemon, &wire, &repo, "idle");
    serve(&web, "web", 3000);
    let good = link(&wire, "shop/web", 3000);
    let at = good.at;
    let other = |host: &str| Link { host: format!("{host}.localhost:{at}"), at };
    let unknown = other("3000.nobody").get();
    assert_eq!(unknown.0, 404);
    assert!(unknown.1.contains("no session has this name") && !unknown.1.contains("web"));
    let closed = other("3001.shop-web").get();
    assert_eq!(closed.0, 502);
    assert!(closed.1.contains("nothing listens on port 3001"), "{}", closed.1);
    let absent = link(&wire, &idle.id, 3000).get();
    assert_eq!(absent.0, 502);
    assert!(absent.1.contains("the session has no running worker"), "{}", absent.1);

    // Labels that are alike in a host name mean no session, and each session has its id.
    let (first, second) =
        (session(&daemon, &wire, &repo, "x y"), session(&daemon, &wire, &repo, "x.y"));
    let several = other("3000.shop-x-y").get();
    assert_eq!((several.0, several.1.contains("several sessions")), (404, true));
    for one in [&first, &second] {
        assert_eq!(link(&wire, &one.id, 1).host, format!("1.{}.localhost:{at}", host_of(&one.id)));
    }
    let mut open = good.connect();
    open.request(&good.host, "/");
    assert_eq!(open.answer().0, 200);
    wire.request("quack.session_delete", json!({"sessionId": web.id, "force": true}));
    assert!(open.is_closed(), "a connection ends with its session");
    assert_eq!(good.get().0, 404);
    let at = wire.refused("quack.forward", json!({"sessionId": web.id, "port": 1, "link": true}));
    assert!(at.contains("not found"), "{at}");
}

#[test]
fn many_connections_are_served_and_silent_ones_keep_nothing_busy() {
    needs!(Namespaces);
    let Some(daemon) = world() else { return };
    let (repo, wire) = (daemon.repo("shop"), daemon.wire());
    let sessions = ["a", "b"].map(|name| session(&daemon, &wire, &repo, name));
    serve(&sessions[0], "a", 3000);
    serve(&sessions[1], "b", 3000);
    let links = ["shop/a", "shop/b"].map(|name| link(&wire, name, 3000));
    std::thread::scope(|scope| {
        let get = |n: usize| {
            let link = &links[n % 2];
            scope.spawn(move || {
                let (status, body) = link.get();
                assert_eq!((status, body.starts_with(["a ", "b "][n % 2])), (200, true), "{body}");
            })
        };
        let all: Vec<_> = (0..100).map(get).collect();
        all.into_iter().for_each(|one| one.join().unwrap());
    });
    // More than are read at the same time: their places come back.
    let silent: Vec<Client> = (0..300).map(|_| links[0].connect()).collect();
    assert_eq!(links[0].get().0, 200);
    drop(silent);
}

#[test]
fn the_listener_opens_with_the_first_link_and_outlives_its_process_but_not_the_daemon() {
    needs!(Namespaces);
    let Some(mut daemon) = world() else { return };
    // A free port, which the next daemons can use again.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let restart = |daemon: &mut Daemon, listen: &str| {
        daemon.quack(&["stop"]).ok();
        configure(daemon, listen);
        daemon.boot();
    };
    restart(&mut daemon, &address);
    let repo = daemon.repo("shop");
    {
        let wire = daemon.wire();
        let web = session(&daemon, &wire, &repo, "web");
        serve(&web, "web", 3000);
        assert_eq!(children_named(&daemon, "quack-router"), Vec::<i32>::new());
        assert!(TcpStream::connect(&address).is_err(), "closed until the first link");
        let link = link(&wire, "shop/web", 3000);
        assert_eq!((link.at, link.get().0), (port, 200));
        let mut open = link.connect();
        open.request(&link.host, "/");
        assert_eq!(open.answer().0, 200);

        let router = children_named(&daemon, "quack-router")[0];
        kill(Pid::from_raw(router), Signal::SIGKILL).unwrap();
        assert_eq!(link.get().0, 200, "another router takes the waiting connection");
        open.request(&link.host, "/again");
        assert_eq!(open.answer().0, 200, "a served connection does not need the router");
        let deaths = wire.request("quack.ps", json!({}))["deaths"].clone();
        let died = deaths.as_array().unwrap().iter().filter(|death| death["child"] == "router");
        assert_eq!(died.count(), 1, "{deaths}");
        // A router that dies repeatedly closes the listener, and the next link opens it.
        wait_for("the listener to close", || {
            for router in children_named(&daemon, "quack-router") {
                // It may have just ended.
                kill(Pid::from_raw(router), Signal::SIGKILL).ok();
            }
            TcpStream::connect(&address).is_err().then_some(())
        });
        assert_eq!(self::link(&wire, "shop/web", 3000).get().0, 200);
    }
    restart(&mut daemon, &address);
    assert!(TcpStream::connect(&address).is_err(), "closed until the first link");
    {
        let wire = daemon.wire();
        assert_eq!(link(&wire, "shop/web", 3000).get().0, 502, "the same name, without a worker");
        assert_eq!(wire.request("quack.ps", json!({}))["deaths"], json!([]));
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    restart(&mut daemon, &taken.local_addr().unwrap().to_string());
    let refused = forward(&daemon, &["shop/web", "3000", "--link"]).stderr();
    assert!(refused.contains("quack config set forward.listen"), "{refused}");
    restart(&mut daemon, "off");
    let refused = forward(&daemon, &["shop/web", "3000", "--link"]).stderr();
    assert!(refused.contains("Links are off: forward.listen"), "{refused}");
    let usage = forward(&daemon, &["shop/web", "3000:1", "--link"]);
    assert_eq!(usage.code(), Some(2), "{}", usage.stderr());
}

fn forward(daemon: &Daemon, args: &[&str]) -> Cli {
    daemon.quack(&[&["forward"], args].concat())
}

#[test]
fn servers_of_a_session_are_listed_without_those_of_quackd_and_of_the_machine() {
    needs!(Namespaces);
    let Some(daemon) = world() else { return };
    let (repo, wire) = (daemon.repo("shop"), daemon.wire());
    let web = session(&daemon, &wire, &repo, "web");
    daemon.quack(&["sandbox", "set", "--network", "hosts", "--session", "shop/web"]).ok();
    assert_eq!(web.bash("true"), "\n[Exit code: 0]");
    assert_eq!(web.worker().get("servers"), None, "the proxy and its ports are not listed");
    let many = "import socket,time;all=[socket.create_server(('', 4000+n)) for n in range(20)];print('on',flush=True);time.sleep(600)";
    web.call(
        "bash",
        json!({"command": format!("exec {PYTHON} -c \"{many}\""), "background": true}),
    );
    let servers = wait_for("the servers", || {
        let servers = web.worker()["servers"].clone();
        (servers.as_array().is_some_and(|all| all.len() == 16)).then_some(servers)
    });
    assert_eq!(servers[15], json!({"port": 4015}), "in order, and bounded");
    let here = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = session(&daemon, &wire, &repo, "machine");
    daemon.quack(&["sandbox", "set", "--network", "on", "--session", "shop/machine"]).ok();
    other.bash("true");
    assert_eq!(other.worker()["network"], true);
    assert_eq!(other.worker().get("servers"), None::<&Value>, "the machine has {here:?}");
}
