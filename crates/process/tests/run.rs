//! Tests commands with real bash: their results, and that no process is left.
//!
//! The tests of this file run one at a time: a command that runs alone also kills orphans of unknown origin, which
//! would be other tests' children.

#![cfg(target_os = "linux")]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this file is a test target"
)]
#![expect(clippy::print_stderr, reason = "figures for people")]

mod commands;

use commands::{NEVER, PATIENCE, run};
use quackd_process::{
    CALL_VARIABLE, Ceiling, Command, EndedBy, Exit, Finished, LaunchError, Live, MAX_HOLDERS,
    OomScore, Role, SpawnThread, SpillTarget, harden,
};
use quackd_testkit::{Turn, assert_gone, wait_until_async};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Runs a command to its deadline, which is short. Takes a longer one as long as the command did not get ready before.
async fn run_to_deadline(mut command: Command, is_ready: impl Fn(&Finished) -> bool) -> Finished {
    loop {
        let finished = run(command.clone()).await.unwrap();
        assert_eq!(finished.ended_by, EndedBy::Deadline);
        assert!(command.deadline <= finished.duration, "{:?}", finished.duration);
        if is_ready(&finished) {
            return finished;
        }
        command.deadline *= 4;
        assert!(command.deadline < PATIENCE, "it is never ready");
    }
}

/// Sets up this process like a worker, and locks out other tests.
async fn alone() -> Turn {
    quackd_testkit::alone(|| harden(Role::Worker).unwrap()).await
}

fn bash(tag: &str, script: &str) -> Command {
    let abort_grace = Duration::from_millis(100);
    Command { grace: NEVER, abort_grace, ..commands::bash(&unique(tag), script) }
}

/// Makes tags unique: the tests search all processes for tags, and several runs of them may overlap.
fn unique(tag: &str) -> String {
    format!("{tag}.{}", std::process::id())
}

fn stdout(finished: &Finished) -> String {
    assert!(finished.stdout.is_whole());
    commands::stdout(finished)
}

/// Returns the numbers that the command printed, one per line.
fn pids(finished: &Finished) -> Vec<u32> {
    stdout(finished).lines().map(|line| line.trim().parse().unwrap()).collect()
}

/// Returns the processes, including zombies, whose environment contains the tag.
fn tagged(tag: &str) -> Vec<u32> {
    let entry = format!("{CALL_VARIABLE}={}", unique(tag));
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
        })
        .collect()
}

#[tokio::test]
async fn the_exit_is_the_shells_own() {
    let _turn = alone().await;
    for (script, exit) in [
        ("true", Exit::Code(0)),
        ("exit 7", Exit::Code(7)),
        ("kill -9 $$", Exit::Signal(9)),
        ("kill -TERM $$", Exit::Signal(15)),
        ("no-such-program", Exit::Code(127)),
    ] {
        let finished = run(bash("exit", script)).await.unwrap();
        assert_eq!((finished.exit, finished.ended_by), (exit, EndedBy::Itself), "{script}");
        assert_eq!((finished.background_ended, finished.spill), (0, None), "{script}");
    }
}

#[tokio::test]
async fn both_streams_are_kept_apart() {
    let _turn = alone().await;
    let finished = run(bash("streams", "echo out; echo err >&2")).await.unwrap();
    assert_eq!(finished.stdout.head, b"out\n");
    assert_eq!(finished.stderr.head, b"err\n");
    assert_eq!((finished.stdout.total, finished.stderr.total), (4, 4));
}

#[tokio::test]
async fn a_background_job_ends_with_its_shell() {
    let _turn = alone().await;
    for script in ["sleep 600 & echo $!", "sleep 600 >/dev/null 2>&1 & echo $!"] {
        let finished = run(bash("background", script)).await.unwrap();
        assert_eq!((finished.exit, finished.ended_by), (Exit::Code(0), EndedBy::Itself));
        assert_eq!(finished.background_ended, 1);
        assert_gone(&pids(&finished));
    }
}

#[tokio::test]
async fn what_escaped_the_group_ends_with_its_shell() {
    let _turn = alone().await;
    // A new session two generations away, then the same without the tag.
    for clean in ["", "env -i"] {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "( {clean} setsid bash -c 'trap \"\" TERM; echo $$; sleep 600 & echo $!; : >{0}; wait' & ) ; \
             until [ -e {0} ]; do sleep 0.01; done",
            dir.path().join("up").display()
        );
        let finished = run(bash("escaped", &script)).await.unwrap();
        assert_eq!(finished.exit, Exit::Code(0));
        assert_eq!(finished.background_ended, 2);
        assert_eq!(pids(&finished).len(), 2);
        assert_gone(&pids(&finished));
    }
}

#[tokio::test]
async fn output_that_is_handed_on_at_the_end_is_not_lost() {
    let _turn = alone().await;
    let finished = run(bash("tee", "exec > >(cat); seq 20000")).await.unwrap();
    let expected: String = (1..=20_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(stdout(&finished), expected);
}

#[tokio::test]
async fn a_command_that_ends_on_term_has_time_to_clean_up() {
    let _turn = alone().await;
    let script =
        "trap 'sleep 0.2; echo bye; exit 3' TERM; echo $$ >&2; while :; do sleep 0.05; done";
    let mut command = bash("polite", script);
    command.deadline = Duration::from_millis(300);
    let finished = run_to_deadline(command, |finished| finished.stderr.total != 0).await;
    assert_eq!(finished.exit, Exit::Code(3));
    assert_eq!(stdout(&finished), "bye\n");
}

#[tokio::test]
async fn a_tree_that_ignores_term_is_gone_after_the_grace() {
    let _turn = alone().await;
    let script = "trap '' TERM; echo $$; sleep 600 & echo $!; \
        setsid sleep 600 & echo $!; (setsid bash -c 'echo $$; sleep 600; sleep 600' &); wait";
    let mut command = bash("stubborn", script);
    command.deadline = Duration::from_millis(500);
    command.grace = Duration::from_millis(400);
    let finished = run_to_deadline(command, |finished| pids(finished).len() == 4).await;
    assert_eq!(finished.exit, Exit::Signal(9));
    assert!(Duration::from_millis(900) <= finished.duration, "{:?}", finished.duration);
    assert_eq!(finished.background_ended, 0);
    assert_gone(&pids(&finished));
    assert_eq!(tagged("stubborn"), Vec::<u32>::new());
}

#[tokio::test]
async fn a_stopped_shell_is_ended_at_the_deadline() {
    let _turn = alone().await;
    for (script, exit) in [
        ("echo $$; kill -STOP $$", Exit::Signal(15)),
        ("trap '' TERM; echo $$; while :; do kill -STOP $$; done", Exit::Signal(9)),
    ] {
        let mut command = bash("stopped", script);
        command.deadline = Duration::from_millis(300);
        command.grace = Duration::from_millis(300);
        let finished = run_to_deadline(command, |finished| !pids(finished).is_empty()).await;
        assert_eq!(finished.exit, exit, "{script}");
        assert_gone(&pids(&finished));
    }
}

#[tokio::test]
async fn endless_forking_is_ended_and_leaves_nothing() {
    let _turn = alone().await;
    let mut command = bash(
        "forks",
        "trap '' TERM; echo on; f() { while :; do (setsid sleep 600 &); done; }; f & f & f & f",
    );
    command.deadline = Duration::from_millis(500);
    command.grace = Duration::from_millis(100);
    let finished = run_to_deadline(command, |finished| finished.stdout.total != 0).await;
    assert_eq!(finished.exit, Exit::Signal(9));
    assert_eq!(tagged("forks"), Vec::<u32>::new());
}

#[tokio::test]
async fn a_reader_of_stdin_meets_its_end_at_once() {
    let _turn = alone().await;
    let finished = run(bash("stdin", "cat; echo read")).await.unwrap();
    assert_eq!(stdout(&finished), "read\n");
}

/// Highest resident size of this process since the last reset, in KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_flood_is_counted_in_bounded_memory() {
    const FLOOD: usize = 300_000_000;
    const SPILLED: usize = 8 * 1024 * 1024;

    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_kib();
    let mut command = bash("flood", &format!("yes | head -c {FLOOD}"));
    command.spill = Some(SpillTarget {
        dir: dir.path().to_owned(),
        name: "bash-flood.log".to_owned(),
        max_bytes: SPILLED as u64,
        max_files: 8,
        min_free: 0,
        threshold: 102_400,
        at_once: false,
    });
    // Another task of the same thread must not starve during the flood.
    let heartbeat = tokio::spawn(async {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });

    let finished = run(command).await.unwrap();

    let grown = peak_kib() - before;
    assert!(grown < 8 * 1024, "grew by {grown} KiB");
    assert!(heartbeat.is_finished(), "the other task starves");
    assert_eq!(finished.exit, Exit::Code(0));
    assert_eq!(finished.stdout.total, FLOOD as u64);
    assert_eq!(finished.stdout.omitted(), FLOOD as u64 - 131_072);
    assert_eq!(finished.stdout.head, b"y\n".repeat(32_768));
    assert_eq!(finished.stdout.tail, b"y\n".repeat(32_768));
    let spilled = finished.spill.unwrap();
    assert_eq!((spilled.bytes, spilled.complete), (SPILLED as u64, false));
    assert_eq!(fs::read(&spilled.path).unwrap(), b"y\n".repeat(SPILLED / 2));
    eprintln!("{FLOOD} bytes in {:?}, peak grew by {grown} KiB", finished.duration);
}

#[tokio::test]
async fn a_quiet_stream_is_not_lost_beside_a_flood() {
    let _turn = alone().await;
    let script = "(yes | head -c 50000000 >&2) & sleep 0.01; echo now; wait; echo done";
    let finished = run(bash("uneven", script)).await.unwrap();
    assert_eq!(stdout(&finished), "now\ndone\n");
    assert_eq!(finished.stderr.total, 50_000_000);
}

#[tokio::test]
async fn a_spill_file_holds_both_streams_in_their_order() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    // Between two pipes there is no order, so each line is written when the one before it has been read.
    let script = format!(
        "next() {{ n=$((n+1)); until [ -e {}/read.$n ]; do sleep 0.01; done; }}; \
         for i in 1 2 3; do echo out $i; next; echo err $i >&2; next; done",
        dir.path().display()
    );
    let mut command = bash("order", &script);
    let live = Live::default();
    command.live = Some(live.clone());
    command.spill = Some(SpillTarget {
        dir: dir.path().to_owned(),
        name: "bash-order.log".to_owned(),
        max_bytes: 1000,
        max_files: 8,
        min_free: 0,
        threshold: 20,
        at_once: false,
    });
    let (finished, ()) = tokio::join!(run(command), async {
        for n in 1..=6 {
            wait_until_async("a line", || live.take().total == 6 * n).await;
            fs::write(dir.path().join(format!("read.{n}")), "").unwrap();
        }
    });
    let spilled = finished.unwrap().spill.unwrap();
    assert!(spilled.complete);
    assert_eq!(
        fs::read_to_string(&spilled.path).unwrap(),
        "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n"
    );
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(spilled.path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_dropped_command_is_killed_and_reaped() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let script = format!(
        "trap '' TERM; (setsid sleep 600 & echo $! >{0}.1; echo $$ >>{0}.1); mv {0}.1 {0}; sleep 600",
        file.display()
    );
    let running = run(bash("dropped", &script));
    tokio::select! {
        _ = running => panic!("it ended"),
        () = wait_until_async("the command", || file.exists()) => (),
    }
    let text = fs::read_to_string(file).unwrap();
    let pids: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), 2);
    wait_until_async("its end", || {
        !pids.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
    assert_eq!(tagged("dropped"), Vec::<u32>::new());
}

#[tokio::test]
async fn a_cancelled_command_ends_after_the_short_grace() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("started");
    let command =
        bash("cancelled", &format!("trap '' TERM; echo $$; touch {}; sleep 600", file.display()));
    let cancel = command.cancel.clone();
    let (finished, ()) = tokio::join!(run(command), async {
        wait_until_async("the command", || file.exists()).await;
        cancel.cancel();
    });
    let finished = finished.unwrap();
    assert_eq!((finished.exit, finished.ended_by), (Exit::Signal(9), EndedBy::Abort));
    assert_gone(&pids(&finished));
}

#[tokio::test]
async fn an_abort_during_the_grace_of_the_deadline_shortens_it() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    let told = dir.path().join("told");
    let script = format!("trap 'touch {}' TERM; sleep 600; sleep 600", told.display());
    let mut command = bash("impatient", &script);
    command.deadline = Duration::from_millis(200);
    let cancel = command.cancel.clone();
    let (finished, ()) = tokio::join!(run_to_deadline(command, |_| told.exists()), async {
        // Once the command has been sent TERM, its deadline has passed and the grace has begun.
        wait_until_async("the command's TERM", || told.exists()).await;
        cancel.cancel();
    });
    assert_eq!(finished.exit, Exit::Signal(9));
}

#[tokio::test]
async fn a_command_cancelled_before_its_start_does_not_run() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("started");
    let command = bash("early", &format!("touch {}", file.display()));
    command.cancel.cancel();
    // In a separate task: the future may move between threads.
    let outcome = tokio::spawn(run(command)).await.unwrap();
    assert!(matches!(outcome, Err(LaunchError::Aborted)));
    assert!(!file.exists());
}

#[tokio::test]
async fn commands_do_not_end_each_others_background_processes() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    let (up, over) = (dir.path().join("up"), dir.path().join("over"));
    // The long one has a child, an orphan with the tag and an orphan without; it looks after the
    // short one has ended.
    let long = format!(
        "sleep 600 & a=$!; b=$( (setsid sleep 600 >/dev/null & echo $!) ); \
         c=$( (env -i setsid sleep 600 >/dev/null & echo $!) ); touch {}; \
         until [ -e {} ]; do sleep 0.01; done; kill -0 $a $b $c && echo $a $b $c | tr ' ' '\\n'",
        up.display(),
        over.display()
    );
    let (long, short) = tokio::join!(run(bash("long", &long)), async {
        wait_until_async("the long one", || up.exists()).await;
        let short = run(bash("short", "(setsid sleep 600 & echo $!)")).await;
        fs::write(&over, "").unwrap();
        short
    });
    let (long, short) = (long.unwrap(), short.unwrap());
    assert_eq!((long.exit, long.background_ended), (Exit::Code(0), 3));
    assert_eq!((short.exit, short.background_ended), (Exit::Code(0), 1));
    assert_eq!(pids(&long).len(), 3);
    assert_gone(&pids(&long));
    assert_gone(&pids(&short));
}

#[tokio::test]
async fn orphans_that_end_by_themselves_do_not_pile_up() {
    let _turn = alone().await;
    // Its orphans are children of this process's first thread, until this process reaps them.
    let script = "for i in {1..20}; do (sleep 0.01 &); done; \
        while [ -n \"$(cat /proc/$PPID/task/$PPID/children)\" ]; do sleep 0.05; done";
    let finished = run(bash("zombies", script)).await.unwrap();
    assert_eq!(finished.exit, Exit::Code(0));
    assert_eq!(finished.background_ended, 0);
}

#[tokio::test]
async fn a_command_inherits_nothing_but_its_three_descriptors() {
    let _turn = alone().await;
    let _open = fs::File::open("/dev/null").unwrap();
    let finished = run(bash("descriptors", "ls /proc/$$/fd; true")).await.unwrap();
    assert_eq!(stdout(&finished), "0\n1\n2\n");
}

#[tokio::test]
async fn the_environment_is_exactly_what_was_given_and_the_tag() {
    let _turn = alone().await;
    let mut command = bash("environment", "");
    command.program = "/usr/bin/env".into();
    command.args.clear();
    command.env.push(("DUCK".to_owned(), "with = and\nnewline".to_owned()));
    let finished = run(command).await.unwrap();
    let expected = format!(
        "PATH=/usr/bin:/bin\nDUCK=with = and\nnewline\nQUACKD_CALL={}\n",
        unique("environment")
    );
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&stdout(&finished)), sorted(&expected));
}

#[tokio::test]
async fn signals_and_limits_of_a_command_are_ordinary() {
    let _turn = alone().await;
    // Signals 32 and 33 belong to the C library, which rejects changes of them.
    let script = "grep -E '^Sig(Blk|Ign)' /proc/self/status | while read name mask; do \
        echo $name $((0x$mask & 0x7fffffff)); done; ulimit -c; ulimit -n; \
        cat /proc/self/oom_score_adj; ps -o pgid= -p $$ | tr -d ' '; echo $$";
    let score = || std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let before: i32 = score().trim().parse().unwrap();
    let thread = SpawnThread::new(|| Ok(()), Some(OomScore::open().unwrap()));
    let command = Command { spawn_thread: Some(Arc::new(thread)), ..bash("ordinary", script) };
    let finished = run(command).await.unwrap();
    let text = stdout(&finished);
    let lines: Vec<_> = text.lines().collect();
    let ranked = (before + 300).to_string();
    assert_eq!(lines[..5], ["SigBlk: 0", "SigIgn: 0", "0", "4096", &ranked]);
    assert_eq!(score().trim(), before.to_string(), "the score of this process is its own again");
    assert_eq!(lines[5], lines[6]);
}

#[tokio::test]
async fn a_command_that_cannot_start_says_why() {
    let _turn = alone().await;
    let mut command = bash("cwd", "true");
    command.cwd = "/no/such/directory".into();
    let error = run(command).await.unwrap_err();
    assert!(matches!(error, LaunchError::Directory { .. }), "{error:?}");
    assert_eq!(error.to_string(), "cannot enter the working directory /no/such/directory");

    let mut command = bash("cwd", "true");
    command.cwd = "/bin/bash".into();
    let error = run(command).await.unwrap_err();
    assert!(matches!(error, LaunchError::Directory { .. }), "{error:?}");

    let mut command = bash("program", "true");
    command.program = "/no/such/program".into();
    let error = run(command).await.unwrap_err();
    assert!(matches!(error, LaunchError::Program { .. }), "{error:?}");

    let error = run(bash("long", &"x".repeat(200_000))).await.unwrap_err();
    assert!(matches!(error, LaunchError::TooLong), "{error:?}");

    let error = run(bash("nul", "true\0")).await.unwrap_err();
    assert!(matches!(error, LaunchError::Io(_)), "{error:?}");
}

#[tokio::test]
async fn a_shell_that_closed_its_output_is_still_waited_for() {
    let _turn = alone().await;
    let finished = run(bash("closed", "exec 1>&- 2>&-; sleep 0.3; exit 4")).await.unwrap();
    assert_eq!(finished.exit, Exit::Code(4));
    assert!(Duration::from_millis(300) <= finished.duration);
}

#[tokio::test]
async fn what_a_command_used_is_told() {
    let _turn = alone().await;
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; x=$(head -c 30000000 /dev/zero | tr '\\0' x)";
    let finished = run(bash("usage", script)).await.unwrap();
    let usage = finished.usage;
    assert!(Duration::from_millis(10) < usage.user, "{usage:?}");
    assert!(usage.user + usage.system < 20 * SECOND, "{usage:?}");
    assert!(30_000 < usage.max_rss_kb && usage.max_rss_kb < 1_000_000, "{usage:?}");
}

#[tokio::test]
async fn who_holds_the_output_of_a_finished_command_is_named() {
    let _turn = alone().await;
    let script = "sleep 601 & (setsid bash -c \"exec -a $'duck\\e[31m' sleep 602\" & echo $!); \
        sleep 603 >/dev/null 2>&1 &";
    let finished = run(bash("holders", script)).await.unwrap();
    assert_eq!((finished.output_open, finished.background_ended), (true, 3));
    let mut names: Vec<_> =
        finished.output_held_by.iter().map(|holder| holder.command.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["duck\u{fffd}[31m 602", "sleep 601"]);
    let printed = pids(&finished);
    assert!(finished.output_held_by.iter().any(|holder| printed.contains(&holder.pid)));

    let many = run(bash("holders", "for i in {1..20}; do sleep 600 & done")).await.unwrap();
    assert_eq!((many.output_open, many.output_held_by.len()), (true, MAX_HOLDERS));
    for script in ["sleep 600 >/dev/null 2>&1 &", "(echo x) &", "exec > >(cat); echo x"] {
        let finished = run(bash("holders", script)).await.unwrap();
        assert!(!finished.output_open, "{script}");
        assert_eq!(finished.output_held_by, [], "{script}");
    }
}

/// Runs as a separate user with a process limit, in case the test fails. An ordinary user keeps its id and gets as
/// many additional processes.
#[tokio::test]
async fn endless_forking_ends_where_nobody_counts_but_we() {
    let _turn = alone().await;
    let bomb = "b() { b | b & }; trap '' TERM; b; sleep 600; sleep 600";
    let mut command = bash("uncounted", "");
    if rustix::process::getuid().is_root() {
        command.program = "/usr/bin/setpriv".into();
        command.args = ["--reuid=54321", "--regid=54321", "--clear-groups", "bash", "-c"]
            .map(Into::into)
            .into();
        command.args.push(format!("ulimit -u 400; {bomb}").into());
    } else {
        command.args[1] = format!("ulimit -u $(($(ps -Lu $EUID | wc -l) + 400)); {bomb}").into();
    }
    command.limits.processes = 100;
    let finished = run(command).await.unwrap();
    assert_eq!((finished.ended_by, finished.exit), (EndedBy::Processes, Exit::Signal(9)));
    assert_eq!(finished.ceiling, Some(Ceiling::Processes { limit: 100 }));
    assert!(100 < finished.stopped, "{}", finished.stopped);
    assert_eq!((finished.is_gone, finished.survivors), (true, 0));
    assert_eq!(tagged("uncounted"), Vec::<u32>::new());
    // The grace does not apply here.
    eprintln!("{} processes, all over after {:?}", finished.stopped, finished.duration);

    let mut many = bash("counted", "for i in {1..20}; do sleep 0.6 & done; wait");
    many.limits.processes = 21;
    assert_eq!(run(many).await.unwrap().ended_by, EndedBy::Itself);
}

#[tokio::test]
async fn of_commands_with_too_much_memory_the_largest_ends_as_a_whole() {
    let _turn = alone().await;
    let dir = tempfile::tempdir().unwrap();
    let over = dir.path().join("over");
    let limited = |tag, script: &str| {
        let mut command = bash(tag, script);
        command.limits.memory = Some(400 << 20);
        command
    };
    // `tail` reads and keeps all its input, then waits for a reader that does not read. A child that left the group and
    // ignores signals ends too.
    let large = limited(
        "hoard",
        "(trap '' TERM; setsid sleep 600 &); head -c 700m /dev/zero | tail -c 700m | sleep 600",
    );
    // Memory that processes share after a fork counts once.
    let small = limited(
        "shared",
        &format!(
            "perl -e '$n = 60 << 20; $h = \"x\" x $n; \
             for (1..4) {{ if (!fork) {{ sleep 0.1 until -e \"{0}\"; exit }} }} 1 while wait > 0'; echo fits",
            over.display()
        ),
    );

    let (small, large) = tokio::join!(run(small), async {
        let large = run(large).await;
        fs::write(&over, "").unwrap();
        large
    });
    let (small, large) = (small.unwrap(), large.unwrap());
    assert_eq!(large.ended_by, EndedBy::Memory);
    // KILL follows TERM at once. Either may be the one that ends the shell.
    assert!(matches!(large.exit, Exit::Signal(9 | 15)), "{:?}", large.exit);
    let Some(Ceiling::SessionMemory { limit, used }) = large.ceiling else {
        panic!("{:?}", large.ceiling)
    };
    assert_eq!(limit, 400 << 20);
    assert!((250 << 20..900 << 20).contains(&used), "{used}");
    assert_eq!((large.is_gone, large.survivors), (true, 0));
    assert_eq!(tagged("hoard"), Vec::<u32>::new());
    assert_eq!((small.ended_by, small.exit, small.ceiling), (EndedBy::Itself, Exit::Code(0), None));
    assert_eq!(stdout(&small), "fits\n");
}

#[tokio::test]
async fn processor_time_is_limited() {
    let _turn = alone().await;
    let mut command = bash("busy", "while :; do :; done");
    command.limits.cpu = Some(SECOND / 2);
    let finished = run(command).await.unwrap();
    assert_eq!((finished.ended_by, finished.exit), (EndedBy::Itself, Exit::Signal(24)));
    assert!(finished.usage.user + finished.usage.system < 2 * SECOND, "{:?}", finished.usage);
    // A shell that catches the first signal is killed by the second.
    let mut command = bash("busy", "trap '' XCPU; while :; do :; done");
    command.limits.cpu = Some(SECOND);
    assert_eq!(run(command).await.unwrap().exit, Exit::Signal(9));
}

/// A copy of the page tables makes each page fault again at the next write, and takes time that grows with the memory.
#[tokio::test]
async fn a_large_worker_is_not_copied_for_a_command() {
    const PAGE: usize = 4096;
    const N_PAGES: usize = 20_000;

    let _turn = alone().await;
    let faults = || {
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let field = stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap();
        field.parse::<usize>().unwrap()
    };
    let mut memory = vec![1_u8; N_PAGES * PAGE];
    let before = faults();
    run(bash("size", "true")).await.unwrap();
    memory.iter_mut().step_by(PAGE).for_each(|byte| *byte += 1);
    let n_faults = faults() - before;
    assert!(memory.iter().step_by(PAGE).all(|byte| *byte == 2));
    assert!(n_faults < N_PAGES / 10, "{n_faults} pages were copied");
}
