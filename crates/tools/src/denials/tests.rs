//! Tests with the output of real programs that the kernel denied something.

use super::*;
use quackd_process::{EndedBy, Usage};
use quackd_protocol::policy::Policy;

/// Placeholder for the workspace, which must exist and be writable: missing files would be created in it.
const WORKSPACE: &str = "/w/repo";

fn finder(profile: Profile, network: bool) -> DenialDetector {
    let policy = Policy { profile, network, ..Policy::default() };
    let confinement = Arc::new(Confinement::new(policy, true, String::new()));
    DenialDetector::new(&confinement, &std::env::temp_dir())
}

/// Each denial as `kind target`.
fn found(finder: &DenialDetector, text: &str, code: i32) -> Vec<String> {
    let workspace = finder.workspace.to_str().unwrap();
    let text = text.replace(WORKSPACE, workspace);
    let told = |denial: &Denial| {
        assert!(denial.likely, "{denial:?}");
        let kind = format!("{:?}", denial.kind);
        match &denial.target {
            Some(target) => format!("{kind} {}", target.replace(workspace, WORKSPACE)),
            None => kind,
        }
    };
    finder.find_blocking(&text, Exit::Code(code), false).iter().map(told).collect()
}

#[track_caller]
fn check(cases: &[(&str, &[&str])]) {
    let finder = finder(Profile::WorkspaceWrite, false);
    for (text, expected) in cases {
        assert_eq!(found(&finder, text, 1), *expected, "{text}");
    }
}

/// Recorded with read-only bind mounts, bash 5.2, coreutils 9.1, git 2.47, Python 3.11, Node 20, cargo 1.95.
#[test]
fn writing_to_what_is_mounted_read_only() {
    check(&[
        ("bash: line 1: /etc/quack: Read-only file system\n", &["Write /etc/quack"]),
        ("touch: cannot touch '/etc/quack': Read-only file system\n", &["Write /etc/quack"]),
        (
            "mkdir: cannot create directory ‘/etc/quack’: Read-only file system",
            &["Write /etc/quack"],
        ),
        ("cp: cannot create regular file '/etc/a b': Read-only file system", &["Write /etc/a b"]),
        ("mv: cannot move 'f' to '/etc/f': Read-only file system", &["Write /etc/f"]),
        ("tee: /etc/quack: Read-only file system\nx\n", &["Write /etc/quack"]),
        ("tar: /etc/x.tar: Cannot open: Read-only file system", &["Write /etc/x.tar"]),
        (
            "sed: couldn't open temporary file /etc/sed1XAI6q: Read-only file system",
            &["Write /etc/sed1XAI6q"],
        ),
        (
            "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n\
             OSError: [Errno 30] Read-only file system: '/etc/quack'\n",
            &["Write /etc/quack"],
        ),
        (
            "Error: EROFS: read-only file system, open '/etc/quack'\n    at Object.writeFileSync\n  \
             code: 'EROFS',\n",
            &["Write /etc/quack"],
        ),
        (
            "error: failed to create package `q` at `/opt/ext/q`\n\nCaused by:\n  failed to create directory \
             `/opt/ext/q`\n\nCaused by:\n  Read-only file system (os error 30)\n",
            &["Write /opt/ext/q"],
        ),
        (
            "error: Read-only file system (os error 30) at path \"/opt/ext/tf77373\"",
            &["Write /opt/ext/tf77373"],
        ),
        (
            "/usr/bin/ld: cannot open output file /opt/a: Read-only file system\ncollect2: error: ld returned 1",
            &["Write /opt/a"],
        ),
        ("bash: line 1: ../n: Read-only file system\n", &["Write ../n"]),
        ("bash: line 1: /w/repo/../n: Read-only file system\n", &["Write /w/repo/../n"]),
        ("q: Read-only file system at -e line 1.\n", &["Write"]),
        // In the workspace, only protected names are separate mounts.
        (
            "rm: cannot remove '.git/hooks/pre-push.sample': Read-only file system\n\
             rm: cannot remove '.git/hooks/update.sample': Read-only file system\n",
            &["Protected .git/hooks/pre-push.sample", "Protected .git/hooks/update.sample"],
        ),
        (
            "bash: line 1: /w/repo/.githooks/x: Read-only file system",
            &["Protected /w/repo/.githooks/x"],
        ),
    ]);
    let read_only = finder(Profile::ReadOnly, false);
    let text = "fatal: Unable to create '/w/repo/.git/index.lock': Read-only file system\n";
    assert_eq!(found(&read_only, text, 128), ["Write /w/repo/.git/index.lock"]);
}

#[test]
fn moving_and_replacing_what_is_pinned() {
    check(&[
        (
            "error: could not write config file .git/config: Device or resource busy\n\
             fatal: could not set 'remote.o.url' to 'https://example.com/x'\n",
            &["Protected .git/config"],
        ),
        ("mv: cannot move '.git' to '.g': Device or resource busy", &["Protected .git"]),
        (
            "rmdir: failed to remove '.git/hooks': Device or resource busy",
            &["Protected .git/hooks"],
        ),
        (
            "fatal: unable to move /w/repo/.git to /opt/gd: Device or resource busy",
            &["Protected /w/repo/.git"],
        ),
        (
            "Error: EBUSY: resource busy or locked, rename '/w/repo/.git' -> '/w/repo/x'",
            &["Protected /w/repo/.git"],
        ),
        // Something else is busy.
        (
            "umount: /mnt: Device or resource busy.\nrm: cannot remove 'd': Device or resource busy",
            &[],
        ),
    ]);
}

#[test]
fn the_network_that_is_not_there() {
    let cases: &[(&str, &[&str])] = &[
        ("curl: (6) Could not resolve host: example.com\n", &["Network example.com"]),
        (
            "curl: (7) Failed to connect to 1.1.1.1 port 80 after 0 ms: Couldn't connect to server",
            &["Network 1.1.1.1"],
        ),
        (
            "fatal: unable to access 'https://github.com/a/b/': Could not resolve host: github.com\n",
            &["Network github.com"],
        ),
        (
            "ssh: Could not resolve hostname github.com: Temporary failure in name resolution\nfatal: Could not \
             read from remote repository.\n",
            &["Network github.com"],
        ),
        (
            "Resolving example.com (example.com)... failed: Temporary failure in name resolution.\n\
             wget: unable to resolve host address ‘example.com’\n",
            &["Network example.com"],
        ),
        ("OSError: [Errno 101] Network is unreachable\n", &["Network"]),
        (
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            &["Network"],
        ),
        (
            "npm error code EAI_AGAIN\nnpm error syscall getaddrinfo\nnpm error errno EAI_AGAIN\nnpm error request \
             to https://registry.npmjs.org/left-pad failed, reason: getaddrinfo EAI_AGAIN registry.npmjs.org\n",
            &["Network registry.npmjs.org"],
        ),
        (
            "Caused by:\n  [6] Could not resolve hostname (Could not resolve host: index.crates.io)\n",
            &["Network index.crates.io"],
        ),
        ("Error: connect ENETUNREACH 1.1.1.1:80 - Local (0.0.0.0:0)\n", &["Network 1.1.1.1"]),
        (
            "dial tcp: lookup proxy.golang.org: Temporary failure in name resolution",
            &["Network proxy.golang.org"],
        ),
        // From the system call filter, where no namespace is used.
        ("PermissionError: [Errno 1] Operation not permitted: socket", &["Network"]),
        // A server on this machine that is not running.
        (
            "curl: (7) Failed to connect to localhost port 1 after 0 ms: Couldn't connect to server",
            &[],
        ),
        ("ModuleNotFoundError: No module named 'x'", &[]),
    ];
    check(cases);
    let with_network = finder(Profile::WorkspaceWrite, true);
    for (text, _) in cases {
        assert_eq!(found(&with_network, text, 1), [""; 0], "{text}");
    }
}

#[test]
fn a_lack_of_rights_that_the_policy_may_be_the_cause_of() {
    check(&[
        ("cat: /no/such/secret: Permission denied\n", &["Read /no/such/secret"]),
        ("ls: cannot open directory '/no/such': Permission denied", &["Read /no/such"]),
        ("touch: cannot touch '.git/config': Permission denied", &["Protected .git/config"]),
        (
            "fatal: Unable to create '/w/repo/.git/index.lock': Permission denied",
            &["Protected /w/repo/.git/index.lock"],
        ),
        ("unshare: unshare failed: Operation not permitted", &["SystemCall"]),
        ("dmesg: read kernel buffer failed: Operation not permitted", &["SystemCall"]),
        ("bash: line 1: 12 Bad system call         (core dumped) ./a", &["SystemCall"]),
        (
            "sudo: The \"no new privileges\" flag is set, which prevents sudo from running as root.",
            &["SystemCall"],
        ),
        // Not caused by the policy: the workspace is writable, and no profile allows changing owners.
        ("touch: cannot touch '/w/repo/f': Permission denied", &[]),
        ("chown: changing ownership of 'f': Operation not permitted", &[]),
        ("chmod: changing permissions of 'f': Operation not permitted", &[]),
        ("git@github.com: Permission denied (publickey).", &[]),
    ]);
    let finder = finder(Profile::WorkspaceWrite, false);
    let not_executable = "bash: line 1: ./f: Permission denied\n";
    assert_eq!(found(&finder, not_executable, 126), [""; 0]);
    assert_eq!(found(&finder, not_executable, 1), ["Write ./f"]);
}

#[test]
fn what_permissions_keep_away_is_not_the_policys_doing() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    // A directory next to the workspace, which the policy does not deny.
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    let text = format!("cat: {}: Permission denied\n", secret.display());
    // Root can read the file, so the denial has another cause.
    let is_root = std::fs::File::open(&secret).is_ok();
    let confinement = Arc::clone(&finder(Profile::WorkspaceWrite, false).confinement);
    let finder = DenialDetector::new(&confinement, Path::new("/w/repo"));
    assert_eq!(found(&finder, &text, 1).len(), usize::from(is_root));
}

#[test]
fn what_is_told_is_bounded_and_distinct() {
    let finder = finder(Profile::WorkspaceWrite, false);
    let line = |n: u32| format!("touch: cannot touch '/etc/{n}': Read-only file system\n");
    let many: String = (0..10_000).map(line).collect();
    assert_eq!(found(&finder, &many, 1).len(), MAX_LISTED);
    assert_eq!(found(&finder, &line(1).repeat(10_000), 1), ["Write /etc/1"]);
    // One endless line that consists of parts of the texts.
    for piece in ["'", ": ", "permission denied", "/ ", "‘’\u{1b}"] {
        let text = piece.repeat(65_536 / piece.len()) + ": Read-only file system";
        let begin = std::time::Instant::now();
        assert!(found(&finder, &text, 1).len() <= MAX_LISTED);
        assert!(begin.elapsed() < Duration::from_secs(60), "{piece}");
    }
}

fn finished(exit: Exit, stderr: &str) -> Finished {
    let bytes = stderr.as_bytes().to_vec();
    let total = u64::try_from(bytes.len()).unwrap();
    Finished {
        exit,
        usage: Usage::default(),
        ended_by: EndedBy::Itself,
        ceiling: None,
        stdout: Captured::default(),
        stderr: Captured { head: bytes, tail: Vec::new(), total },
        background_ended: 0,
        stopped: 0,
        is_gone: true,
        survivors: 0,
        output_open: false,
        output_held_by: Vec::new(),
        duration: Duration::ZERO,
        spill: None,
    }
}

#[tokio::test]
async fn only_a_confined_command_that_failed_is_explained() {
    let text = "touch: cannot touch '/etc/q': Read-only file system\n";
    let confined = finder(Profile::WorkspaceWrite, false);
    let found = confined.find(&finished(Exit::Code(1), text)).await;
    assert_eq!(
        found.line.as_deref(),
        Some(
            "[Sandbox: writing /etc/q was probably denied (workspace-write, network off). \
             `quack sandbox explain /etc/q` shows the reason]"
        )
    );
    assert_eq!(confined.find(&finished(Exit::Signal(9), text)).await.denials, found.denials);
    let free = DenialDetector::new(&Arc::default(), Path::new(WORKSPACE));
    for nothing in [
        confined.find(&finished(Exit::Code(0), text)).await,
        // A successful command may print texts about settings that are not protected.
        confined
            .find(&finished(
                Exit::Code(0),
                "could not write config file /w/.git/config: Device or resource busy",
            ))
            .await,
        free.find(&finished(Exit::Code(1), text)).await,
    ] {
        assert!(nothing.denials.is_empty() && nothing.line.is_none(), "{nothing:?}");
    }
}

#[test]
fn the_path_of_a_settings_file_may_have_spaces() {
    check(&[(
        "error: could not write config file /w/repo/a b/.git/config: Device or resource busy\n\
         fatal: could not set 'remote.x.url' to '../y'\n",
        &["Protected /w/repo/a b/.git/config"],
    )]);
}

/// A detector for a confined command with these recorded attempts.
fn trying(hosts: &[Option<&str>]) -> DenialDetector {
    let attempts = Arc::new(crate::Attempts::default());
    let finder = finder(Profile::WorkspaceWrite, false).during(attempts.begin());
    hosts.iter().for_each(|host| attempts.record(*host));
    finder
}

#[tokio::test]
async fn a_recorded_attempt_is_certain_whatever_the_command_printed_and_exited_with() {
    let line = |what: &str, allow: &str| {
        format!(
            "[Sandbox: the network{what} was denied (workspace-write, network off). To allow it: \
             quack sandbox {allow}]"
        )
    };
    for code in [0, 6] {
        let tried = trying(&[Some("a.example"), Some("b.example")]);
        let Found { denials, line: told, .. } = tried.find(&finished(Exit::Code(code), "")).await;
        assert_eq!(told.unwrap(), line(" (a.example, b.example)", "allow a.example b.example"));
        let new = |host| Denial::new(DenialKind::Network, Some(host), false);
        assert_eq!(denials, [new("a.example"), new("b.example")]);
    }
    let text = "connect: Network is unreachable\ntouch: cannot touch '/etc/q': Read-only file system\n\
                ssh: connect to host 192.0.2.1 port 22: Network is unreachable\n";
    let Found { denials, line: told, .. } =
        trying(&[None]).find(&finished(Exit::Code(0), text)).await;
    assert_eq!((told.unwrap(), denials.len()), (line(" (192.0.2.1)", "allow 192.0.2.1"), 1));
    let Found { denials, line: told, .. } =
        trying(&[None]).find(&finished(Exit::Code(1), text)).await;
    let told = told.unwrap();
    assert!(told.starts_with("[Sandbox: writing /etc/q was probably denied "), "{told}");
    assert!(told.ends_with(&format!("]\n{}", line(" (192.0.2.1)", "allow 192.0.2.1"))), "{told}");
    assert_eq!(denials.len(), 2);
    let Found { line: told, .. } = trying(&[None]).find(&finished(Exit::Code(0), "")).await;
    assert_eq!(told.unwrap(), line("", "set --network on"));
}

#[tokio::test]
async fn a_refused_credential_is_the_reason_of_a_failed_login() {
    use quackd_protocol::credentials::{CredentialRefusal, RefusedCredential};

    let attempts = Arc::new(crate::Attempts::default());
    let finder = finder(Profile::WorkspaceWrite, false).during(attempts.begin());
    let failed = finished(Exit::Code(128), "git@github.com: Permission denied (publickey).\n");
    let told = finder.find(&failed).await.line.unwrap();
    assert!(told.contains("your ssh keys"), "{told}");
    let (what, why) = ("ssh git@github.com".to_owned(), CredentialRefusal::Denied);
    attempts.credential_refused(&RefusedCredential { what, why, label: String::new() });
    let told = finder.find(&failed).await.line.unwrap();
    let begin = "[Credential not used: ssh git@github.com: denied by the user";
    assert!(told.starts_with(begin) && !told.contains("your ssh keys"), "{told}");
}

#[test]
fn both_ends_of_a_long_output_are_looked_at() {
    let stream = |head: Vec<u8>, tail: Vec<u8>, total| ends(&Captured { head, tail, total });
    let whole = stream(b"ab".to_vec(), b"cd".to_vec(), 4);
    assert_eq!(whole, b"abcd");
    assert_eq!(stream(b"ab".to_vec(), b"cd".to_vec(), 9), b"ab\ncd");
    let long = stream(vec![b'a'; 65_536], vec![b'b'; 65_536], 1 << 30);
    assert_eq!(long.len(), 2 * MAX_END_BYTES + 1);
    assert_eq!((long[0], long[MAX_END_BYTES], long[2 * MAX_END_BYTES]), (b'a', b'\n', b'b'));
}
