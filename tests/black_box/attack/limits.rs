//! Attacks on counters and limits: process counts, probes, watches, directory depth, variables.

use crate::harness::tier::needs;
use crate::harness::users::{Program, User, become_user};
use crate::harness::{Daemon, Session, Wire, untested, wait_for, wait_within, write_program};
use crate::terminals::{Viewer, run_script};
use nix::libc;
use nix::pty::openpty;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// The program under test.
const QUACK: &str = env!("CARGO_BIN_EXE_quack");

/// Tier reported by a daemon with `configuration`, before any attack.
fn honest_tier(configuration: &str) -> String {
    let daemon = configured(configuration, QUACK);
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("honest").path());
    session.bash("true");
    tier(&session)
}

fn tier(session: &Session<'_>) -> String {
    session.worker()["tier"].as_str().expect("a tier").to_owned()
}

/// Starts a daemon with a configuration.
fn configured(configuration: &str, quack: &str) -> Daemon {
    let mut daemon = Daemon::absent();
    daemon.configure(configuration);
    daemon.boot_with(quack, &["daemon"]);
    daemon
}

/// Runs `work` in a thread with the rights of a user that no other test uses, with a program that this
/// user can execute.
fn as_user(number: u32, work: impl FnOnce(&str) + Send) {
    let program = Program::new(User::Ordinary);
    let path = program.path.to_str().expect("a path").to_owned();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            become_user(56_000 + std::process::id() % 400 * 5 + number);
            work(&path);
        });
        running.join().expect("the attack to fail");
    });
}

/// Number of processes and threads of the calling user.
fn tasks() -> usize {
    let own = rustix::process::geteuid().as_raw();
    let of = |entry: fs::DirEntry| {
        let is_own = entry.metadata().is_ok_and(|found| found.uid() == own);
        let threads = || fs::read_dir(entry.path().join("task")).map_or(0, Iterator::count);
        if is_own { threads() } else { 0 }
    };
    fs::read_dir("/proc").expect("/proc").flatten().map(of).sum()
}

/// A worker that reports a system without any confinement on its first start. Later workers are
/// real.
const LIAR: &str = r#"#!/usr/bin/perl
use strict; use warnings; use Fcntl;
exec @ARGV unless mkdir("LIED");
fcntl(STDIN, F_SETFL, fcntl(STDIN, F_GETFL, 0) & ~O_NONBLOCK);
open(my $out, '>&=', 0); binmode $out; binmode STDIN;
sub say_frame { syswrite($out, pack('N', length($_[0])) . $_[0]); }
sub take { my ($n, $body) = ('', '');
    while (length($n) < 4) { exit 0 unless sysread(STDIN, $n, 4 - length($n), length($n)); }
    my $len = unpack('N', $n);
    while (length($body) < $len) { exit 0 unless sysread(STDIN, $body, $len - length($body), length($body)); }
    return $body; }
say_frame('{"hello":{"proto":1,"version":"x","pid":1,"sandbox":{"tier":"A","policy":"workspace-write",
"probe":{"namespaces_fail":"no","landlock_abi":0,"seccomp":false,"overlay":false,"is_root":true,"seatbelt":false}}}}');
while (1) { my $frame = take();
    say_frame("{\"tool_finished\":{\"call_id\":\"$1\",\"text\":\"lied\"}}") if $frame =~ /^\{"tool_call":\{"call_id":"(\d+)"/; }
"#;

#[test]
fn a_lying_worker_does_not_choose_the_tier_of_another_session() {
    let honest = honest_tier("");
    let mut daemon = Daemon::absent();
    let (liar, lied) = (daemon.home().join("liar.pl"), daemon.home().join("lied"));
    write_program(&liar, LIAR.replace("LIED", lied.to_str().expect("a path")));
    daemon.configure(format!("worker.launcher = {}\n", json!([liar])));
    daemon.boot();
    let wire = daemon.wire();
    let hostile = wire.attach(daemon.repo("hostile").path());
    assert_eq!(hostile.call("web_search", json!("x")), "lied");
    assert!(lied.is_dir());

    let next = wire.attach(daemon.repo("next").path());
    assert_eq!(next.bash("echo works"), "works\n\n[Exit code: 0]");
    assert_eq!(tier(&next), honest);
}

#[test]
fn the_system_is_probed_by_a_process_that_runs_nothing_else() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    assert_eq!(session.bash("echo works"), "works\n\n[Exit code: 0]");
    let tree = wire.request("quack.tree", json!({}));
    let children = tree["children"].as_array().expect("children");
    let probe = children.iter().find(|child| child["spec"]["name"] == "probe").expect("a probe");
    assert_eq!((&probe["errand"]["runs"], &probe["errand"]["failures"]), (&json!(1), &json!(0)));
}

/// Starts processes until the kernel refuses one, at most 2,000, and prints their number.
const FORKS: &str = r#"my @all; while (@all < 2000) { my $pid = fork; last unless defined $pid;
    unless ($pid) { close STDOUT; close STDERR; sleep 1000; exit } push @all, $pid }
kill 9, @all; 1 while wait != -1; print scalar(@all);"#;

/// Limit of processes in the fork bomb's daemon.
const PROCESSES: usize = 120;

#[cfg(target_os = "linux")]
#[test]
fn a_fork_bomb_without_namespaces_ends_at_a_limit_of_the_kernel() {
    needs!(OwnTier);
    as_user(0, |quack| {
        let daemon = configured(
            &format!("[sandbox]\ntier = \"D\"\n[limits]\nprocesses = {PROCESSES}\n"),
            quack,
        );
        let (wire, other) = (daemon.wire(), daemon.wire());
        let session = wire.attach(daemon.repo("bomb").path());
        let Some(()) = has_tier_d(&session) else { return };
        let number = |text: &str| {
            let digits = text.split_whitespace().next().unwrap_or_default().to_owned();
            digits.parse::<usize>().unwrap_or_else(|_| panic!("no number: {text}"))
        };
        // The number of threads of the daemon and of both workers varies.
        let (before, slack) = (tasks(), 100);
        let limits = session.bash("ulimit -Su; ulimit -Hu");
        let (soft, hard) = limits.split_once('\n').expect("two limits");
        for limit in [number(soft), number(hard)] {
            assert!(PROCESSES < limit && limit < before + PROCESSES + slack, "{limit}: {limits}");
        }
        let forks = format!("perl -e '{FORKS}'");
        let forked = number(&session.bash(&forks));
        assert!(PROCESSES / 2 < forked && forked <= PROCESSES, "{forked} processes");
        // The commands of a session share the limit.
        let sleeper = "for n in $(seq 60); do sleep 1000 & done; touch $TMPDIR/asleep; wait";
        session.call("bash", json!({"command": sleeper, "background": true}));
        let asleep = daemon.app().join("run").join(&session.id).join("tmp/asleep");
        wait_for("a job with 60 processes", || asleep.exists().then_some(()));
        let forked = number(&session.bash(&forks));
        assert!(PROCESSES / 8 < forked && forked <= PROCESSES - 60, "{forked} more processes");
        session.call("job_kill", json!("job-1"));

        let neighbour = other.attach(daemon.repo("neighbour").path());
        neighbour.bash("true");
        let bomb = json!({
            "sessionId": session.id, "tool": "bash", "timeoutMs": 3000,
            "arguments": {"command": "bomb() { bomb | bomb & }; bomb; while :; do :; done"},
        });
        let before = tasks();
        let bomb = wire.begin("quack.tool", &bomb);
        let mut most = 0;
        wait_for("the bomb to grow", || {
            most = tasks().max(most);
            (before + PROCESSES / 2 < most || bomb.is_there()).then_some(())
        });
        assert_eq!(neighbour.bash("echo undisturbed"), "undisturbed\n\n[Exit code: 0]");
        wait_within(Duration::from_secs(60), "the bomb to be answered", || {
            most = tasks().max(most);
            bomb.is_there().then_some(())
        });
        assert!(most < before + PROCESSES + slack, "{most} tasks, {before} before");
        let answer = bomb.reply();
        assert_eq!(answer["ok"], true, "{answer}");
        assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    });
}

/// Returns `None` and prints a note if this machine has no tier D.
fn has_tier_d(session: &Session<'_>) -> Option<()> {
    let text = session.bash("true");
    if text.contains("cannot be confined: ") {
        untested(&text);
        return None;
    }
    assert_eq!(tier(session), "D");
    Some(())
}

#[test]
fn without_namespaces_a_session_has_one_terminal_after_the_other_and_opens_no_other() {
    needs!(OwnTier);
    as_user(4, |quack| {
        let daemon = configured("[sandbox]\ntier = \"D\"\n", quack);
        let wire = daemon.wire();
        let session = wire.attach(daemon.repo("a").path());
        let Some(()) = has_tier_d(&session) else { return };
        // A terminal of the same user outside of the session.
        let other = openpty(None, None).expect("a terminal");
        let other = fs::read_link(format!("/proc/self/fd/{}", other.slave.as_raw_fd()));
        let script = format!(
            "tty; (: <{}) && echo OPENED; (: </dev/ptmx) && echo OPENED; echo by tty >/dev/tty; echo end; read -r x",
            other.expect("a name").display()
        );

        for _ in 0..3 {
            let viewer = Viewer::attach(&daemon, &session, &run_script(&session, &script));
            viewer.shows("end");
            let text = viewer.text();
            assert!(
                text.contains("/dev/pts/") && text.contains("by tty") && !text.contains("OPENED"),
                "{text}"
            );
            let second = json!({"sessionId": session.id, "argv": ["true"]});
            let refused = wire.refused("quack.run", second);
            assert!(refused.contains("Tier D allows one terminal per session"), "{refused}");
            assert!(refused.contains("quack jobs kill term-"), "{refused}");
            viewer.types("\r");
            viewer.news("term_exit");
            let is_over = || session.worker()["jobs"].as_array().is_none_or(Vec::is_empty);
            wait_for("the end to be reported", || is_over().then_some(()));
        }
    });
}

#[test]
fn an_isolated_session_without_namespaces_is_refused_with_the_reason() {
    needs!(OwnTier);
    as_user(3, |quack| {
        let daemon = configured("[sandbox]\ntier = \"D\"\n", quack);
        let repo = daemon.repo("a");
        let wire = daemon.wire();
        if has_tier_d(&wire.attach(repo.path())).is_none() {
            return;
        }
        let new = json!({"path": repo.path(), "name": "one", "isolated": true});
        let id = wire.request("quack.session_new", new)["session"]["id"].clone();
        let call = json!({"sessionId": id, "tool": "bash", "arguments": {"command": "true"}});
        let refused = wire.request("quack.tool", call);
        let reason = "an isolated session needs tier A, B or M: in tier D git cannot write, and";
        assert!(refused["text"].to_string().contains(reason), "{refused}");
    });
}

/// Command that creates a tree of this depth in the working directory, with a second directory on
/// each level and with directories without permissions.
fn deep(depth: u32) -> String {
    format!(
        "perl -e 'for my $level (1..{depth}) {{ mkdir \"d\" or die $!; mkdir \"e\"; \
         chdir \"d\" or die $!; open my $file, \">\", \"f\"; chmod 0, \"..\" if $level % 700 == 0 }}; \
         print \"deep\"'"
    )
}

const DEPTH: u32 = 5000;

/// Creates a deep tree in the run directory of a session.
fn dig(daemon: &Daemon, session: &Session<'_>) {
    let run = daemon.app().join("run").join(&session.id);
    // The usual deadline is too short for it on a busy machine.
    let dug = session.long_bash(&format!("cd '{}' && {}", run.display(), deep(DEPTH)));
    assert_eq!(dug, "deep\n[Exit code: 0]");
    assert!(run.join("d/d/d").is_dir());
}

/// Removes files that an earlier version leaves, because `TempDir` cannot remove them.
struct Swept<'a>(&'a Daemon);

impl Drop for Swept<'_> {
    fn drop(&mut self) {
        let app = self.0.app();
        drop(crate::harness::users::shell(&app, "chmod -R u+rwx run* ; rm -rf run*"));
    }
}

fn deep_trees_are_deleted(mut daemon: Daemon, quack: &str) {
    let (first, second) = (daemon.repo("a"), daemon.repo("b"));
    {
        let _swept = Swept(&daemon);
        let wire = daemon.wire();
        let (one, two) = (wire.attach(first.path()), wire.attach(second.path()));
        dig(&daemon, &one);
        dig(&daemon, &two);
        let run = daemon.app().join("run").join(&one.id);
        wire.request("quack.session_delete", json!({"sessionId": one.id, "force": true}));
        wait_for("the deleted session's files to go", || (!run.exists()).then_some(()));
    }
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait(), Some(0));
    daemon.boot_with(quack, &["daemon"]);
    let app = daemon.app();
    let _swept = Swept(&daemon);
    wait_for("the last daemon's files to go", || {
        let entries = fs::read_dir(&app).expect("the state directory").flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_gone = |name: &str| !app.join(name).join("d").exists();
        (!names.any(|name| name.starts_with("run.old")) && is_gone("run")).then_some(())
    });
}

#[test]
fn a_tree_of_any_depth_is_deleted_with_its_session_and_after_a_restart() {
    deep_trees_are_deleted(Daemon::start(), QUACK);
}

#[test]
fn an_ordinary_users_daemon_deletes_deep_trees_that_cannot_be_entered() {
    as_user(1, |quack| deep_trees_are_deleted(configured("", quack), quack));
}

#[cfg(target_os = "linux")]
#[test]
fn one_job_cannot_take_every_inotify_instance_of_the_user() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let session = wire.attach(repo.path());
    session.bash("true");
    if !["A", "B"].contains(&tier(&session).as_str()) {
        return untested("no namespaces");
    }
    let take = format!(
        "perl -e 'my $n = 0; $n++ while 0 <= syscall({}, 0); open my $f, \">\", \"part\"; \
         print $f $n; close $f; rename \"part\", \"count\"; sleep 1000'",
        libc::SYS_inotify_init1
    );
    session.call("bash", json!({"command": take, "background": true}));
    let taken = wait_for("the instances to be taken", || repo.read("count").parse::<usize>().ok());
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").expect("a limit");
    let most: usize = most.trim().parse().expect("a number");
    assert!(7 < taken && taken <= (most / 2).max(8), "{taken} of {most}");
    rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC)
        .expect("an instance for others");
    let limit = |name: &str| session.bash(&format!("cat /proc/sys/user/max_{name}"));
    assert_eq!(limit("user_namespaces"), "0\n\n[Exit code: 0]");
    assert_eq!(limit("inotify_instances"), format!("{taken}\n\n[Exit code: 0]"));
}

/// Requests that change a file or its file system.
const CHANGING: [(&str, u32); 36] = [
    ("FS_IOC_SETFLAGS", 0x4008_6602),
    ("FS_IOC32_SETFLAGS", 0x4004_6602),
    ("FS_IOC_FSSETXATTR", 0x401c_5820),
    ("FS_IOC_SETVERSION", 0x4008_7602),
    ("FS_IOC32_SETVERSION", 0x4004_7602),
    ("EXT4_IOC_SETVERSION", 0x4008_6604),
    ("EXT4_IOC32_SETVERSION", 0x4004_6604),
    ("EXT4_IOC_GROUP_EXTEND", 0x4008_6607),
    ("EXT4_IOC_MIGRATE", 0x6609),
    ("EXT4_IOC_ALLOC_DA_BLKS", 0x660c),
    ("EXT4_IOC_MOVE_EXT", 0xc028_660f),
    ("EXT4_IOC_SWAP_BOOT", 0x6611),
    ("FS_IOC_SET_ENCRYPTION_POLICY", 0x800c_6613),
    ("FS_IOC_GET_ENCRYPTION_PWSALT", 0x4010_6614),
    ("FS_IOC_ADD_ENCRYPTION_KEY", 0xc050_6617),
    ("FS_IOC_REMOVE_ENCRYPTION_KEY", 0xc040_6618),
    ("FS_IOC_ENABLE_VERITY", 0x4080_6685),
    ("FS_IOC_SETFSLABEL", 0x4100_9432),
    ("FITRIM", 0xc018_5879),
    ("FICLONE", 0x4004_9409),
    ("FICLONERANGE", 0x4020_940d),
    ("FIDEDUPERANGE", 0xc018_9436),
    ("BTRFS_IOC_SNAP_CREATE", 0x5000_9401),
    ("BTRFS_IOC_DEFRAG", 0x5000_9402),
    ("BTRFS_IOC_SUBVOL_CREATE", 0x5000_940e),
    ("BTRFS_IOC_SNAP_CREATE_V2", 0x5000_9417),
    ("BTRFS_IOC_SUBVOL_CREATE_V2", 0x5000_9418),
    ("BTRFS_IOC_SUBVOL_SETFLAGS", 0x4008_941a),
    ("XFS_IOC_SWAPEXT", 0xc0c0_586d),
    ("XFS_IOC_ALLOCSP", 0x4030_580a),
    ("XFS_IOC_UNRESVSP64", 0x4030_582b),
    ("XFS_IOC_ZERO_RANGE", 0x4030_5839),
    ("XFS_IOC_EXCHANGE_RANGE", 0x4028_5881),
    ("F2FS_IOC_START_ATOMIC_WRITE", 0xf501),
    ("F2FS_IOC_RELEASE_COMPRESS_BLOCKS", 0x8008_f512),
    ("FAT_IOCTL_SET_ATTRIBUTES", 0x4004_7211),
];

/// Requests that programs use on files that they only read.
const READING: [(&str, u32); 8] = [
    ("TCGETS", 0x5401),
    ("TCGETS2", 0x802c_542a),
    ("FIONREAD", 0x541b),
    ("FIGETBSZ", 2),
    ("FS_IOC_GETFLAGS", 0x8008_6601),
    ("FS_IOC_GETVERSION", 0x8008_7601),
    ("FS_IOC_FSGETXATTR", 0x801c_581f),
    ("FS_IOC_FIEMAP", 0xc020_660b),
];

/// Script that makes each request on `README.md` and prints the requests with a wrong outcome. A
/// changing request must be refused with EROFS. A reading request must not fail with EROFS.
fn requests() -> String {
    let list = |all: &[(&str, u32)]| {
        all.iter().map(|(name, request)| format!("{name}={request} ")).collect::<String>()
    };
    format!(
        "use strict; open(my $file, \"<\", \"README.md\") or die $!;\n\
         sub code {{ my $space = \"\\0\" x 8192; $! = 0; ioctl($file, $_[0], $space); return $! + 0 }}\n\
         for (split / /, \"{}\") {{ my ($name, $number) = split /=/; my $code = code($number);\n\
         print \"$name: $code\\n\" if $code != 30 }}\n\
         for (split / /, \"{}\") {{ my ($name, $number) = split /=/; my $code = code($number);\n\
         print \"$name: $code\\n\" if $code == 30 }}\nprint \"asked\\n\";",
        list(&CHANGING),
        list(&READING)
    )
}

fn asked(wire: &Wire, path: &Path) -> (String, String) {
    let session = wire.attach(path);
    fs::write(path.join("requests.pl"), requests()).expect("a program");
    let text = session.bash("perl requests.pl");
    let tier = session.worker()["tier"].as_str().unwrap_or_default().to_owned();
    (tier, text)
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_that_only_reads_can_make_a_request_that_changes_a_file() {
    needs!(OwnTier);
    const READ_ONLY: &str = "[sandbox]\nprofile = \"read-only\"\n";
    let daemon = configured(READ_ONLY, QUACK);
    let (tier, text) = asked(&daemon.wire(), daemon.repo("a").path());
    match tier.as_str() {
        "A" | "B" => assert_eq!(text, "asked\n\n[Exit code: 0]", "tier {tier}"),
        _ => untested("no namespaces"),
    }
    as_user(2, |quack| {
        let daemon = configured(&format!("{READ_ONLY}tier = \"D\"\n"), quack);
        let repo = daemon.repo("a");
        let wire = daemon.wire();
        if has_tier_d(&wire.attach(repo.path())).is_none() {
            return;
        }
        assert_eq!(asked(&wire, repo.path()).1, "asked\n\n[Exit code: 0]", "tier D");
        // The program that starts a single call in safe mode.
        let single = |script: &[&str]| {
            let mut single = daemon.program_for_tests(quack);
            single.args(["read-only", "--", "perl"]).args(script).current_dir(repo.path());
            let output = single.output().expect("run a command of safe mode");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(single(&["requests.pl"]), "asked\n");
        // Operations of io_uring change attributes without any of the refused calls.
        let ring = libc::SYS_io_uring_setup;
        let script = format!("my $p = \"\\0\" x 120; syscall({ring}, 1, $p); print $! + 0");
        assert_eq!(single(&["-e", &script]), "30", "io_uring");
    });
}

#[test]
fn of_the_variables_of_a_locale_only_known_names_with_plain_values_reach_commands() {
    let mut daemon = Daemon::absent();
    let long = format!("LC_NAME={}", "x".repeat(1000));
    let variables = [
        "LC_CTYPE=C.UTF-8",
        "LC_TIME=de_DE.UTF-8@euro",
        "LC_API_TOKEN=hunter2",
        "LC_=hunter2",
        "LC_PAPER=$(id)",
        "LC_MONETARY=a\u{1b}[31mb",
        "LANG=hunter2 two words",
        &long,
    ];
    let mut line = variables.to_vec();
    line.extend([QUACK, "daemon"]);
    let profile = "export LC_PROFILE_TOKEN=hunter2 LC_NUMERIC='a b' LC_COLLATE=C\n";
    for name in [".bash_profile", ".zprofile", ".profile"] {
        fs::write(daemon.home().join(name), profile).expect("a start file");
    }
    daemon.boot_with("env", &line);
    let wire = daemon.wire();
    let repo = daemon.repo("a");
    let seen = || {
        let session = wire.attach(repo.path());
        session.bash("env | grep -aE '^L(C_|ANG=)|hunter2' | sort")
    };
    let expected = "LC_CTYPE=C.UTF-8\nLC_TIME=de_DE.UTF-8@euro\n";
    let text = seen();
    assert_eq!(text.replace("LC_COLLATE=C\n", ""), format!("{expected}\n[Exit code: 0]"));
    let kept: Value = wait_for("the login shell's answer", || {
        let text = fs::read_to_string(daemon.app().join("login-environment.json")).ok()?;
        serde_json::from_str(&text).ok()
    });
    let kept = kept.to_string();
    assert!(kept.contains("LC_COLLATE") && !kept.contains("LC_PROFILE_TOKEN"), "{kept}");
    assert!(!kept.contains("LC_NUMERIC"), "{kept}");
}
