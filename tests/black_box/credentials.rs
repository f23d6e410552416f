//! Credentials of the user: a session logs in by ssh and signs commits with keys that only the user's agent has, for
//! hosts and uses that the user allows. Git over https is in `tests/network`, which has hosts with port 443.

use crate::approvals::{answerer, question};
use crate::first_hour_network::has;
use crate::harness::tier::needs;
use crate::harness::{Cli, Daemon, KillOnDrop, Session, program, untested, wait_for, write_file};
use crate::network_hosts::{MACHINE, repo_of, sandbox};
use quackd_testkit::TestDir;
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

/// Socket of the agent, and the file of its key, in the home.
const AGENT: &str = "agent";
const KEY: &str = ".ssh/id_ed25519";

/// `sshd` drops its rights in a directory that only an installed service creates, so user 0 gives it a private `/run`.
const SSHD: &str = r#"[ "$(id -u)" = 0 ] || exec "$0" "$@"
exec unshare -m /bin/sh -c 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && exec "$0" "$@"' "$0" "$@""#;

/// Variable of git. ssh reads `known_hosts` in the home of `/etc/passwd`, and a test has another one.
const SSH: &str = "GIT_SSH_COMMAND=\"ssh -o UserKnownHostsFile=$HOME/.ssh/known_hosts\"";

/// A server for logins by ssh at a port of this machine, with the user's key and a repository.
struct SshServer {
    directory: TestDir,
    port: u16,
}

impl SshServer {
    /// Starts a server. `None`, with a report, if this machine has no program for it.
    #[track_caller]
    fn start(daemon: &Daemon) -> Option<Self> {
        let path = std::env::var("PATH").unwrap_or_default();
        let directories = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]);
        let sshd = directories.map(|at| Path::new(at).join("sshd")).find(|sshd| sshd.is_file());
        let Some(sshd) = sshd else {
            untested("no sshd");
            return None;
        };

        let directory = TestDir::with(&["repo"]);
        make_key(&directory.path().join("host_key"));
        let (at, keys) = (directory.path().display(), daemon.home().join(KEY));
        let settings = format!(
            "HostKey {at}/host_key\nAuthorizedKeysFile {}.pub\nPasswordAuthentication no\nStrictModes no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin yes\nUsePAM no\nPidFile none\nSetEnv PATH={path}\n",
            keys.display()
        );
        directory.write("config", settings);
        let repo = directory.path().join("repo");
        daemon.git(&repo, &["init", "-q", "-b", "main"]);
        daemon.git(&repo, &["commit", "-q", "--allow-empty", "-m", "first"]);

        // Each connection has its own process, as from inetd, so no port is given away and bound again.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let at = directory.path().to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), sshd, at) = (stream, sshd.clone(), at.clone()) else { return };
                std::thread::spawn(move || serve(stream, &sshd, &at));
            }
        });
        Some(Self { directory, port })
    }

    /// The line of `known_hosts`.
    fn known(&self) -> String {
        format!("[{MACHINE}]:{} {}", self.port, self.directory.read("host_key.pub"))
    }

    fn url(&self) -> String {
        let repo = self.directory.path().join("repo");
        format!("ssh://{}@{MACHINE}:{}{}", user(), self.port, repo.display())
    }

    /// The use of a credential that a login needs.
    fn login(&self) -> String {
        format!("ssh {}@{MACHINE}:{}", user(), self.port)
    }

    /// Log of the server, for messages of failed checks.
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// Serves one connection.
fn serve(stream: TcpStream, sshd: &Path, at: &Path) {
    let output = Stdio::from(OwnedFd::from(stream.try_clone().expect("a descriptor")));
    let mut server = program("/bin/sh");
    server.args(["-c", SSHD]).arg(sshd).args(["-i", "-f"]).arg(at.join("config"));
    server.arg("-E").arg(at.join("log")).stdin(OwnedFd::from(stream)).stdout(output);
    drop(server.stderr(Stdio::null()).status());
}

fn user() -> String {
    let output = program("id").arg("-un").output().expect("run id");
    String::from_utf8(output.stdout).expect("a name").trim().to_owned()
}

#[track_caller]
fn make_key(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut command = program("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path);
    assert!(command.status().expect("run ssh-keygen").success());
}

/// The user's public key, in the form `ssh-ed25519 AAAA…`.
#[track_caller]
fn public_key(daemon: &Daemon) -> String {
    let file = daemon.home().join(format!("{KEY}.pub"));
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// Runs `ssh-add` of the user. Returns its output if it succeeds.
fn ssh_add(daemon: &Daemon, option: &str) -> Option<String> {
    let mut command = daemon.program_for_tests("ssh-add");
    command.arg(option).stdin(Stdio::null()).env("SSH_AUTH_SOCK", daemon.home().join(AGENT));
    let output = command.output().expect("run ssh-add");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a test in a session that may reach `hosts`. The user has these `known_hosts` and an agent with one key.
#[track_caller]
fn with_agent(
    mut daemon: Daemon,
    known_hosts: &str,
    hosts: &str,
    test: impl FnOnce(&Daemon, &Session<'_>),
) {
    let (key, socket) = (daemon.home().join(KEY), daemon.home().join(AGENT));
    make_key(&key);
    write_file(daemon.home().join(".ssh/known_hosts"), known_hosts);
    let mut agent = program("ssh-agent");
    let agent = agent.args(["-D", "-a"]).arg(&socket).stdout(Stdio::null()).spawn();
    let _agent = KillOnDrop::from(agent.expect("start ssh-agent"));
    wait_for("the agent to take the key", || ssh_add(&daemon, &key.to_string_lossy()));

    daemon.configure(format!(
        "[sandbox]\nnetwork = \"hosts\"\nhosts = [\"{hosts}\"]\n\n[credentials]\nssh_agent = \"{}\"\n",
        socket.display()
    ));
    let repo = daemon.repo("a");
    std::fs::remove_dir(repo.path().join(".git")).unwrap();
    daemon.git(repo.path(), &["init", "-q", "-b", "main"]);
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if session.shows_namespaces() {
        test(&daemon, &session);
    }
}

/// Runs `quack allow --credential` in the workspace of the session.
fn allow(daemon: &Daemon, session: &Session<'_>, used: &str) -> Cli {
    let mut command = daemon.command(&["allow", "--credential", used]);
    command.current_dir(repo_of(session));
    Cli::run(command)
}

/// Checks that a command failed for lack of a grant, and that its answer has the command that gives one.
#[track_caller]
fn check_refused(text: &str, used: &str) {
    assert!(!text.ends_with("[Exit code: 0]"), "{text}");
    let allow = format!("quack sandbox allow --credential \"{used}\" --session ");
    for part in [&*format!("Credential not used: {used}"), &allow] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn a_login_by_ssh_needs_a_grant_and_the_key_stays_outside() {
    needs!(Network);
    let daemon = Daemon::absent();
    let Some(server) = SshServer::start(&daemon) else { return };
    let rule = format!("machine:{}", server.port);
    with_agent(daemon, &server.known(), &rule, |daemon, session| {
        let (used, url, repo) = (server.login(), server.url(), repo_of(session));
        daemon.git(&repo, &["commit", "-q", "--allow-empty", "-m", "mine"]);
        let list = format!("{SSH} git ls-remote {url} 2>&1");
        let is_listed = |text: &str| text.contains("refs/heads/main");

        let text = session.bash(&list);
        assert!(!is_listed(&text), "{text}");
        check_refused(&text, &used);

        allow(daemon, session, &used).ok();
        let shown = sandbox(daemon, &repo, &["show"]);
        let row = format!("granted        the credential {used}  g1 for this session");
        assert!(shown.contains(&row), "{shown}");
        let text = session.bash(&list);
        assert!(is_listed(&text), "{text}\n{}", server.log());
        let text = session.bash(&format!("{SSH} git push -q {url} HEAD:refs/heads/pushed 2>&1"));
        assert!(text.ends_with("[Exit code: 0]"), "{text}\n{}", server.log());
        let pushed = server.directory.path().join("repo");
        let head = |at: &Path, name: &str| daemon.git(at, &["rev-parse", name]);
        assert_eq!(head(&pushed, "pushed"), head(&repo, "HEAD"));

        // A removed grant is not used again.
        sandbox(daemon, &repo, &["revoke", &used]);
        check_refused(&session.bash(&list), &used);

        // With a client that can answer, the login waits.
        let wire = answerer(daemon, session);
        let call = session.begin("bash", json!({ "command": list }));
        let asked = question(&wire);
        let permission = &asked["permission"];
        assert_eq!(
            (&permission["kind"], &permission["target"], &asked["title"]),
            (&json!("credential"), &json!(used), &json!("Allow the use of a credential?"))
        );
        let answer = daemon.quack(&["allow", asked["id"].as_str().unwrap()]);
        assert_eq!(answer.ok(), format!("allowed once: credential {used}\n"));
        let text = call.text();
        assert!(is_listed(&text), "{text}\n{}", server.log());
    });
}

#[test]
fn the_agent_shows_public_keys_and_takes_no_orders() {
    needs!(Network);
    with_agent(Daemon::absent(), "", "git.example:22", |daemon, session| {
        let key = public_key(daemon);
        let text = session.bash("ssh-add -L");
        assert!(text.starts_with(&key), "{text} has not {key}");
        let make = "ssh-keygen -q -t ed25519 -N '' -f /tmp/new";
        for command in
            ["ssh-add -D", &format!("{make} && ssh-add /tmp/new"), "cat ~/.ssh/id_ed25519"]
        {
            let text = session.bash(&format!("{command} 2>&1"));
            assert!(!text.ends_with("[Exit code: 0]"), "{command}: {text}");
            assert!(!text.contains("PRIVATE KEY"), "{command}: {text}");
        }
        assert!(session.bash("test -e /tmp/new").ends_with("[Exit code: 0]"), "no key was made");
        let kept = ssh_add(daemon, "-L").expect("a list of keys");
        assert!(kept.starts_with(&key) && kept.lines().count() == 1, "not the same key: {kept}");
    });
}

/// Keys of two hosts, and their signatures of an ssh session whose identifier is 32 times `S`.
const KNOWN_KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJfVYiP7EnnWbgDKD0GaNrkaKB0kIw2JffbU9/gBI7GK";
const KNOWN_SIGNATURE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAQE/1JxQAEBvwCmQLbA1mkOECtTjwWtVQeNwLqcqo6/GBNcxUg1ZfUgqpD9lvADaLHopVtuS8R+V96NWww+IwdA4=";
const OTHER_KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAID7LC0VMxGeImnGjr1ACNi6rYsSIO04ldACAmi2RFxVA";
const OTHER_SIGNATURE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAQMoALN9Z/2XCaLjDAOjASVDFgT8P74J39WgHBrQ8lqH9OMkxIeGmtBS/2LAZledGlF6JdHhyCYEv9B8aZYlUmwU=";

/// A client of the agent that prints the type of each last answer: 14 is a signature, 5 a refusal.
const CLIENT: &str = r"
import base64, os, socket, struct, sys

key, known, known_signature, other, other_signature = [base64.b64decode(word) for word in sys.argv[1:]]
session = b'S' * 32

def text(data):
    return struct.pack('>I', len(data)) + data

def bind(host, signature, forwarding=0):
    return (b'\x1b' + text(b'session-bind@openssh.com') + text(host) + text(session) + text(signature)
            + bytes([forwarding]))

def login(session=session, host=None):
    method = b'publickey-hostbound-v00@openssh.com' if host else b'publickey'
    data = (text(session) + b'\x32' + text(b'me') + text(b'ssh-connection') + text(method) + b'\x01'
            + text(b'ssh-ed25519') + text(key))
    return data + (text(host) if host else b'')

def sign(data):
    return b'\x0d' + text(key) + text(data) + bytes(4)

def file(space):
    return b'SSHSIG' + text(space) + text(b'') + text(b'sha512') + text(bytes(64))

def attempt(name, *messages):
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(os.environ['SSH_AUTH_SOCK'])
        answers = agent.makefile('rb')
        for message in messages:
            agent.sendall(text(message))
            answer = answers.read(struct.unpack('>I', answers.read(4))[0])
    print(name, answer[0], flush=True)

proof = bind(known, known_signature)
attempt('proven', proof, sign(login()))
attempt('proven with its host', proof, sign(login(host=known)))
attempt('not bound', sign(login()))
attempt('invented host', bind(other, other_signature), sign(login()))
attempt('replayed', proof, sign(login(b'T' * 32)))
attempt('another host', proof, sign(login(host=other)))
attempt('forged', bind(known, other_signature), sign(login()))
attempt('forwarded', bind(known, known_signature, 1), sign(login()))
attempt('no login', proof, sign(b'anything'))
attempt('a file', proof, sign(file(b'file')))
attempt('a commit', proof, sign(file(b'git')))
attempt('remove all', b'\x13')
";

/// `git.example` and `other.example`, as OpenSSH hashes names of hosts.
const HASHED_NAMES: [&str; 2] = [
    "|1|MDEyMzQ1Njc4OWFiY2RlZmdoaWo=|5hyQVJ8yU3Ep3fKFNgfTL2ocIfs=",
    "|1|YWJjZGVmZ2hpajAxMjM0NTY3ODk=|luYZ0Uko58HdTjp7YUI/bu0s2ao=",
];

#[test]
fn a_login_is_signed_only_for_the_host_that_the_connection_proves() {
    needs!(Network);
    let [git, other] = HASHED_NAMES;
    let known = format!("{git} ssh-ed25519 {KNOWN_KEY}\n{other} ssh-ed25519 AAAA\n");
    with_agent(Daemon::absent(), &known, "git.example:22", |daemon, session| {
        // The session sees the lines of its hosts, also after a change of its rules.
        let lines = format!("git.example ssh-ed25519 {KNOWN_KEY}\n");
        let seen = || session.bash("cat ~/.ssh/known_hosts");
        assert_eq!(seen(), format!("{lines}\n[Exit code: 0]"));
        sandbox(daemon, &repo_of(session), &["allow", "other.example:22"]);
        let lines = format!("{lines}other.example ssh-ed25519 AAAA\n");
        assert_eq!(seen(), format!("{lines}\n[Exit code: 0]"));
        if !has(session, "/usr/bin/python3") {
            return;
        }
        allow(daemon, session, "ssh me@git.example").ok();
        write_file(repo_of(session).join("client.py"), CLIENT);
        let key = public_key(daemon);
        let key = key.strip_prefix("ssh-ed25519 ").unwrap();
        let hosts = [KNOWN_KEY, KNOWN_SIGNATURE, OTHER_KEY, OTHER_SIGNATURE].join(" ");
        let text = session.bash(&format!("/usr/bin/python3 client.py {key} {hosts}"));
        let expected = "proven 14\nproven with its host 14\nnot bound 5\ninvented host 5\nreplayed 5\nanother host 5\n\
                        forged 5\nforwarded 5\nno login 5\na file 5\na commit 5\nremove all 5\n";
        assert!(text.starts_with(expected), "{text}");
    });
}

/// Makes the user's git sign commits with the key.
fn sign_commits(daemon: &Daemon) {
    let key = daemon.home().join(format!("{KEY}.pub"));
    let settings = format!(
        "[user]\n\tname = a\n\temail = a@b\n\tsigningkey = {}\n[gpg]\n\tformat = ssh\n[commit]\n\tgpgsign = true\n",
        key.display()
    );
    write_file(daemon.home().join(".gitconfig"), settings);
}

#[test]
fn commits_are_signed_by_the_agent_of_the_user() {
    needs!(Network);
    let daemon = Daemon::absent();
    sign_commits(&daemon);
    with_agent(daemon, "", "git.example:22", |daemon, session| {
        let repo = repo_of(session);
        let commit = "git add -A && git commit -q -m first 2>&1";
        check_refused(&session.bash(commit), "sign commits");
        assert_eq!(
            daemon.git(&repo, &["for-each-ref"]),
            "",
            "there is no commit without a signature"
        );
        let denied = sandbox(daemon, &repo, &["denials"]);
        check_refused(&denied, "sign commits");

        allow(daemon, session, "sign commits").ok();
        let text = session.bash(commit);
        assert!(text.ends_with("[Exit code: 0]"), "{text}");
        let signers = daemon.home().join("signers");
        write_file(&signers, format!("a@b namespaces=\"git\" {}\n", public_key(daemon)));
        let signers = format!("gpg.ssh.allowedSignersFile={}", signers.display());
        daemon.git(&repo, &["-c", &signers, "verify-commit", "HEAD"]);

        // A command that runs when safe mode begins.
        let second = "mkfifo go && read line < go; git commit -q --allow-empty -m second 2>&1";
        let call = session.begin("bash", json!({ "command": second }));
        wait_for("the command to wait", || repo.join("go").exists().then_some(()));
        session.wire.request("attach", json!({"path": session.path, "safeMode": true}));
        std::fs::write(repo.join("go"), "\n").unwrap();
        let text = call.text();
        let refused = "Credential not used: sign commits: the session is in safe mode]";
        assert!(text.contains(refused), "{text}");
    });
}

#[test]
fn git_and_its_helpers_see_directories_of_sessions_empty_and_can_write_elsewhere() {
    needs!(Namespaces);
    let daemon = Daemon::absent();
    let home = std::fs::canonicalize(daemon.home()).unwrap();
    let [hidden, shown] = ["ws", "other"].map(|name| home.join(name).display().to_string());
    for at in [&hidden, &shown] {
        write_file(Path::new(at).join("helper"), "");
    }
    let script = r#"ls -A "$0" && : > "$1/new" && ls -A "$1""#;
    let words = ["credential-git", "--hide", &hidden, "--", "/bin/sh", "-c", script];
    let words = [&words[..], &[hidden.as_str(), shown.as_str()]].concat();
    assert_eq!(Cli::run(daemon.command(&words)).ok(), "helper\nnew\n");
}

#[test]
fn commits_are_not_signed_without_an_agent() {
    needs!(Network);
    let mut daemon = Daemon::absent();
    make_key(&daemon.home().join(KEY));
    sign_commits(&daemon);
    daemon.configure("[credentials]\nssh_agent = \"\"\n");
    let repo = daemon.repo("a");
    std::fs::remove_dir(repo.path().join(".git")).unwrap();
    daemon.git(repo.path(), &["init", "-q", "-b", "main"]);
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    let text = session.bash("git commit -q --allow-empty -m first 2>&1");
    for part in ["has committed is not signed", "run ssh-add, then quack restart"] {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
    let shown = sandbox(&daemon, repo.path(), &["show"]);
    assert!(shown.contains("\ncredentials    git over https\n"), "{shown}");
}

#[test]
fn credentials_are_shown_and_explained_and_the_whole_network_has_none() {
    needs!(Network);
    with_agent(Daemon::absent(), "", "git.example", |daemon, session| {
        let repo = repo_of(session);
        let shown = sandbox(daemon, &repo, &["show"]);
        assert!(shown.contains("\ncredentials    ssh, git over https\n"), "{shown}");
        let explain = |used: &str| sandbox(daemon, &repo, &["explain", used]);
        let text = explain("fetch https://git.example/me/app.git");
        assert!(
            text.starts_with(
                "fetch git.example/me/app: not allowed yet. quackd asks at the first use"
            ),
            "{text}"
        );
        assert!(
            text.contains("quack sandbox allow --credential 'fetch git.example/me/app'"),
            "{text}"
        );

        allow(daemon, session, "push https://git.example/me/app.git").ok();
        for used in ["fetch git.example/me/app", "push git.example/me/app"] {
            let text = explain(used);
            assert!(
                text.starts_with(&format!("{used}: allowed for this session by g1\n")),
                "{text}"
            );
        }
        for wrong in ["github.com", "pull github.com/me/app", "push github.com"] {
            let refused = allow(daemon, session, wrong);
            assert_eq!(refused.code(), Some(2), "{refused:?}");
            assert!(refused.stderr().contains("use \"ssh USER@HOST\""), "{refused:?}");
        }

        sandbox(daemon, &repo, &["set", "--network", "on"]);
        let text = session.bash("echo \"[$SSH_AUTH_SOCK]\"");
        assert!(text.starts_with("[]\n"), "{text}");
        let shown = sandbox(daemon, &repo, &["show"]);
        assert!(shown.contains("\ncredentials    not available to this session\n"), "{shown}");
    });
}
