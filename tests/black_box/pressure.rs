//! Memory: under memory pressure idle workers are evicted, the longest idle first and none twice. A
//! session over its memory limit loses its largest command, and nothing else ends. `pi/memory` tests
//! the limits of Pi.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const BACK: &str = "back\n\n[Exit code: 0]";

/// Parses the number in `text` between two parts.
#[track_caller]
fn number(text: &str, before: &str, after: &str) -> u64 {
    let rest = text.split_once(before).map(|(_, rest)| rest);
    let word = rest.and_then(|rest| rest.split_once(after)).map(|(word, _)| word);
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number: {text}"))
}

/// Asserts that a text ends with the line about the memory of the session, and returns the memory of the command in MiB.
#[track_caller]
fn had_too_much(text: &str, limit_mb: u64) -> u64 {
    let line = format!(
        "[Memory limit of the session, {limit_mb} MiB (limits.session_memory_mb), exceeded; this command had most, "
    );
    assert!(text.contains(&line), "{text}");
    assert!(text.ends_with(" MiB, and was ended]\n[Exit code: unknown]"), "{text}");
    number(text, &line, " MiB, and was ended]")
}

#[test]
fn a_session_that_has_more_memory_than_it_may_loses_that_command_and_no_other_does() {
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 300\n");
    let wire = daemon.wire();
    let (a, b) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    // Close to the limit, and long enough to be checked. Memory shared with children counts once.
    let forks = "perl -e '$n = 100 << 20; $h = \"x\" x $n; \
        for (1..4) { if (!fork) { sleep 4; exit } } 1 while wait > 0; print \"fits\\n\"'";
    assert_eq!(a.bash(forks), "fits\n\n[Exit code: 0]");
    let (kept, others) = (a.pid("pid"), b.pid("pid"));
    let beside = a.begin("bash", json!(daemon.gated("beside", "echo beside")));
    let undisturbed = b.begin("bash", json!(daemon.gated("go", "echo undisturbed")));

    // Several processes, each below the limit. The shell would go on without them.
    let hoards = "perl -e '$n = 1 << 20; for (1..3) { if (!fork) { push @h, \"x\" x $n for 1..250; sleep 600 } } \
        1 while wait > 0'; echo went on";
    let had = had_too_much(&a.bash(hoards), 300);
    assert!((200..800).contains(&had), "{had}");

    // Neither the worker nor another command or session ends.
    for (gate, call, expected) in [("beside", beside, "beside"), ("go", undisturbed, "undisturbed")]
    {
        daemon.open_gate(gate);
        assert_eq!(call.text(), format!("{expected}\n\n[Exit code: 0]"));
    }
    assert_eq!(a.bash("echo back"), BACK);
    for (session, pid) in [(&a, kept), (&b, others)] {
        assert_eq!((session.pid("pid"), &session.worker()["restarts"]), (pid, &json!(0)));
    }
    let ask = json!({"sessionId": a.id, "tool": "bash", "arguments": {"command": hoards}});
    let reply = wire.request("quack.tool", ask);
    assert_eq!((&reply["ceiling"], &reply["isError"]), (&json!("session_memory"), &json!(true)));
    let supervisor = wire.request("quack.ps", json!({}))["supervisor"].clone();
    assert_eq!(supervisor["deathsTotal"], 0, "{supervisor}");
}

#[test]
fn a_session_that_takes_all_memory_with_hundreds_of_processes_costs_only_itself() {
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 300\n");
    let wire = daemon.wire();
    let (a, b) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    let (kept, others) = (a.pid("pid"), b.pid("pid"));
    let undisturbed = b.begin("bash", json!(daemon.gated("go", "echo undisturbed")));

    // Each process is far below the limit. The shell would go on without them.
    let many = "perl -e '$n = 1 << 20; for (1..300) { if (!fork) { push @h, \"x\" x $n for 1..6; sleep 600 } } \
        1 while wait > 0'; sleep 600";
    let had = had_too_much(&a.bash(many), 300);
    // With a limit of the kernel no session has more: files in memory count too, and may have as much. The kernel needs a
    // quarter of that for them.
    let is_limited = daemon.quack(&["doctor"]).stdout().contains("the kernel limits the memory");
    let most = if is_limited { 675 } else { 300 * 20 };
    assert!((200..=most).contains(&had), "{had}");

    assert_eq!(a.bash("echo back"), BACK);
    daemon.open_gate("go");
    assert_eq!(undisturbed.text(), "undisturbed\n\n[Exit code: 0]");
    for (session, pid) in [(&a, kept), (&b, others)] {
        assert_eq!((session.pid("pid"), &session.worker()["restarts"]), (pid, &json!(0)));
    }
}

#[test]
fn a_process_of_a_pipe_that_is_ended_is_named_although_the_shell_goes_on() {
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 300\n");
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let pid = session.pid("pid");
    // The kernel kills the first program, or the worker ends the command.
    let pipe =
        "perl -e '$n = 1 << 20; push @h, \"x\" x $n for 1..900; sleep 600' | grep -c x; true";
    let ask = json!({"sessionId": session.id, "tool": "bash", "arguments": {"command": pipe}});
    let reply = wire.request("quack.tool", ask);
    assert_eq!((&reply["ceiling"], &reply["isError"]), (&json!("session_memory"), &json!(true)));
    let line = "[Memory limit of the session, 300 MiB (limits.session_memory_mb), ";
    assert!(reply["text"].as_str().unwrap().contains(line), "{reply}");
    let raw = daemon.quack(&["tool", "bash", "--raw", pipe, "--session", &session.id]).stderr();
    assert!(raw.contains("error: the memory of the session reached its limit"), "{raw}");
    assert_eq!(session.bash("echo back"), BACK);
    assert_eq!(session.pid("pid"), pid);
}

#[test]
fn files_in_memory_have_at_most_the_memory_of_their_session_and_can_be_deleted() {
    needs!(Namespaces);
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 300\n");
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    if !session.shows_namespaces() {
        return;
    }
    let pid = session.pid("pid");
    let text = session.bash("head -c 400m /dev/zero >/tmp/full; rm /tmp/full && echo deleted");
    assert!(text.contains("No space left on device") && text.contains("deleted"), "{text}");
    assert_eq!(session.bash("echo back"), BACK);
    assert_eq!(session.pid("pid"), pid);
}

#[test]
fn a_background_job_that_has_too_much_ends_and_says_so() {
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 200\n");
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    let pid = session.pid("pid");
    // `tail` reads and keeps all its input, then waits for a reader that does not read.
    let hoard = "head -c 400m /dev/zero | tail -c 400m | sleep 600";
    session.call("bash", json!({"command": hoard, "background": true}));
    let text = wait_within(Duration::from_secs(40), "the job to end", || {
        let text = session.call("job_output", json!({"job": "job-1", "wait_ms": 1000}));
        (!text.ends_with("[Job running]")).then_some(text)
    });
    had_too_much(&text, 200);
    let list = session.call("jobs", json!({}));
    assert!(list.contains("too much memory"), "{list}");
    assert_eq!(session.bash("echo back"), BACK);
    assert_eq!(session.pid("pid"), pid);
}

#[test]
fn memory_that_is_mapped_to_share_it_counts() {
    let daemon = Daemon::start_with("[limits]\nsession_memory_mb = 300\n");
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    // Anonymous mmap of `mb` MiB, populated at once: MAP_SHARED, MAP_ANONYMOUS, MAP_POPULATE.
    let shares = |mb: u32, then: &str| {
        format!(
            "perl -e '$mmap = `uname -m` =~ /x86_64/ ? 9 : 222; \
            $at = syscall $mmap, 0, {mb} << 20, 3, 0x8021, -1, 0; \
            print $at == -1 ? \"none\\n\" : \"mapped\\n\"; {then}'"
        )
    };
    assert_eq!(session.bash(&shares(100, "")), "mapped\n\n[Exit code: 0]");
    let had = had_too_much(&session.bash(&shares(500, "sleep 600")), 300);
    assert!((301..700).contains(&had), "{had}");
    assert_eq!(session.bash("echo back"), BACK);
}

/// Names of the sessions whose workers were evicted under memory pressure.
fn evicted(sessions: &BTreeMap<&str, Session<'_>>) -> Vec<String> {
    let ps = sessions["first"].wire.request("quack.ps", json!({}));
    let is_gone = |session: &Session<'_>| {
        let workers = ps["workers"].as_array().unwrap();
        let worker = workers.iter().find(|worker| worker["sessionId"] == session.id.as_str());
        worker.is_some_and(|worker: &Value| {
            worker["why"].as_str().is_some_and(|why| why.starts_with("memory was short"))
        })
    };
    let gone = sessions.iter().filter(|(_, session)| is_gone(session));
    gone.map(|(name, _)| (*name).to_owned()).collect()
}

#[test]
fn while_memory_is_short_the_one_that_was_idle_for_longest_goes_first_and_nobody_who_is_used() {
    // More than any machine has, so memory is always low.
    let daemon = Daemon::start_with("[worker]\nevict_below_mb = 1048576\n");
    let wire = daemon.wire();
    let session = |name| (name, wire.attach(daemon.repo(name).path()));
    let sessions = BTreeMap::from(["first", "second", "third", "used"].map(session));
    // All workers are busy, so none is evicted before the idle order is fixed.
    let calls: Vec<_> = ["first", "second", "third", "used"]
        .iter()
        .map(|name| (name, sessions[name].begin("bash", json!(daemon.gated(name, "echo done")))))
        .collect();
    wait_for("all to be busy", || {
        let is_busy = |session: &Session<'_>| session.worker()["state"] == "busy";
        sessions.values().all(is_busy).then_some(())
    });
    let evictions = || {
        let supervisor = wire.request("quack.ps", json!({}))["supervisor"].clone();
        (supervisor["evictions"].as_u64().unwrap(), supervisor["deathsTotal"].clone())
    };
    // On a slow machine a worker may have been idle for long before that.
    let (before, _) = evictions();
    let used = &sessions["used"];
    let pid = used.pid("pid");
    for (name, call) in calls {
        daemon.open_gate(name);
        assert_eq!(call.text(), "done\n\n[Exit code: 0]");
    }
    let mut order: Vec<String> = Vec::new();
    wait_within(Duration::from_secs(60), "three evictions", || {
        // A worker in use is not evicted, although memory stays low.
        assert_eq!(used.bash("echo back"), BACK);
        let new: Vec<_> =
            evicted(&sessions).into_iter().filter(|name| !order.contains(name)).collect();
        order.extend(new);
        (3 <= order.len()).then_some(())
    });
    assert_eq!(order, ["first", "second", "third"]);
    assert_eq!(used.pid("pid"), pid);

    let held = used.begin("bash", json!(daemon.gated("held", "echo done")));

    // The worker starts on demand and stays while it is used: workers do not evict each other in
    // turns.
    let begun = Instant::now();
    let back = &sessions["first"];
    assert_eq!(back.bash("echo back"), BACK);
    let pid = back.pid("pid");
    wait_within(Duration::from_secs(30), "several samples of memory", || {
        assert_eq!(back.bash("echo back"), BACK);
        (Duration::from_secs(7) < begun.elapsed()).then_some(())
    });
    assert_eq!(back.pid("pid"), pid);
    daemon.open_gate("held");
    assert_eq!(held.text(), "done\n\n[Exit code: 0]");
    assert_eq!(evictions(), (before + 3, json!(0)));
    let said = daemon.quack(&["doctor"]).stdout();
    assert!(said.contains("memory is short: ") && said.contains("ended for want of use"), "{said}");
}
