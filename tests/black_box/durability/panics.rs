//! A panic aborts its process at once. The tests cause it from outside: the runtime panics if the kernel refuses to
//! wait for events.

use super::skipped;
use super::strace::{Strace, thread};
use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};

/// Lets a thread panic as soon as it waits for events. `None` if this machine does not allow it.
fn panicking(daemon: &Daemon, thread: i32, test: &str) -> Option<Strace> {
    let calls = "?epoll_wait,epoll_pwait";
    let faults = format!("{calls}:error=EBADF:when=1");
    Strace::attach_to(daemon, thread, &[], calls, &faults)
        .inspect_err(|why| skipped(test, why))
        .ok()
}

#[test]
fn a_supervisor_that_panics_aborts_with_one_line_and_the_next_start_lists_the_same_sessions() {
    let mut daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let (id, below) = (session.id.clone(), daemon.descendants());
    let actors = thread(daemon.pid(), "actors");
    let Some(strace) = panicking(&daemon, actors, "a_supervisor_that_panics_aborts") else {
        return;
    };
    wire.write(b"{\"id\":\"p\",\"method\":\"ping\"}\n");

    assert_eq!(daemon.wait(), None, "a signal ended it");
    let trace = strace.detach();
    assert!(trace.contains("(INJECTED)") && trace.contains("killed by SIGABRT"), "{trace}");
    wait_for("its processes to end", || {
        (!below.iter().any(crate::harness::is_alive)).then_some(())
    });
    let log = daemon.log();
    let panics: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect("a whole line"))
        .filter(|line: &Value| line["message"].as_str().is_some_and(|it| it.starts_with("panic: ")))
        .collect();
    let [panic] = &panics[..] else { panic!("{log}") };
    assert!(panic["message"].as_str().unwrap().contains("I/O driver"), "{panic}");

    daemon.boot();
    let sessions = daemon.wire().request("sessions", json!({"all": true}));
    assert_eq!(sessions["sessions"][0]["id"], id);
    daemon.wire().attach(daemon.repo("a").path()).bash("true");
}

#[test]
fn a_worker_that_panics_aborts_with_one_line_and_the_next_call_works() {
    let daemon = Daemon::start();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let call = session.begin("bash", json!("sleep 60"));
    let worker = wait_for("the call to run", || {
        let row = session.worker();
        (row["calls"].as_array()?.len() == 1).then(|| session.pid("pid"))
    });
    let Some(strace) = panicking(&daemon, worker, "a_worker_that_panics_aborts") else { return };
    // At the latest, the next heartbeat wakes the worker.
    let died = "Error: Worker died during bash (signal 6). It may have run; it was not retried.";
    assert_eq!(call.text(), died);
    let trace = strace.detach();
    assert!(trace.contains("(INJECTED)") && trace.contains("killed by SIGABRT"), "{trace}");

    wait_for("the panic in the log", || {
        let log = daemon.log();
        let line = log.lines().find(|line| line.contains("worker died"))?;
        let line: Value = serde_json::from_str(line).ok()?;
        let stderr = line["stderr"].as_str().unwrap();
        assert!(stderr.starts_with("panic: ") && stderr.lines().count() == 1, "{line}");
        Some(())
    });
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
    assert_ne!(session.pid("pid"), worker);
}
