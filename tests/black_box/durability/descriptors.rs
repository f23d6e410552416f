//! The daemon runs out of file descriptors, and recovers when descriptors are available again.

use crate::harness::{Daemon, PATIENCE, wait_for};
use rustix::process::{Resource, Rlimit, getrlimit, prlimit};
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// CPU time used by the daemon. The kernel counts it in units of 10 ms.
fn processor_time(daemon: &Daemon) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

const REFUSAL: &str = concat!(
    r#"{"id":"unknown","ok":false,"error":"Daemon has no free file descriptor for another client. "#,
    r#"Close some clients, or try again later."}"#,
    "\n"
);

#[test]
fn two_hundred_clients_too_many_are_refused_with_a_reason_harm_nobody_and_are_served_later() {
    let mut daemon = Daemon::absent();
    daemon.boot();
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    session.bash("true");
    let pid = rustix::process::Pid::from_raw(daemon.pid());
    let limit = |files: u64| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(files), maximum }).unwrap();
    };
    let n_open = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    limit(u64::try_from(n_open).unwrap() + 2);
    let crowd: Vec<_> =
        (0..200).filter_map(|_| UnixStream::connect(daemon.socket()).ok()).collect();
    assert!(100 < crowd.len(), "only {} could connect", crowd.len());

    let (start, used) = (Instant::now(), processor_time(&daemon));
    assert_eq!(session.bash("echo still"), "still\n\n[Exit code: 0]");
    wait_for("a second to pass", || {
        wire.request("ping", json!({}));
        (Duration::from_secs(1) < start.elapsed()).then_some(())
    });
    // The time includes a hundred pings.
    let share = (processor_time(&daemon) - used).as_secs_f64() / start.elapsed().as_secs_f64();
    assert!(share < 0.2, "{:.0} % of a processor while it cannot accept", 100.0 * share);
    // A few clients get the last descriptors, and some that become free during the test.
    let mut n_refused = 0;
    for mut client in &crowd {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // A refused client cannot be written to.
        client.write_all(b"{\"id\":\"1\",\"method\":\"ping\"}\n").ok();
        let mut text = String::new();
        BufReader::new(client).read_line(&mut text).unwrap();
        let is_refused = text == REFUSAL;
        assert!(is_refused || text.contains("\"id\":\"1\",\"ok\":true"), "{text}");
        n_refused += usize::from(is_refused);
    }
    assert!(100 < n_refused, "only {n_refused} of {} were refused", crowd.len());

    limit(1024);
    daemon.wire().request("ping", json!({}));
    session.bash("true");
    drop(crowd);
}
