//! Commands with endless output. The worker drains them at the speed of a pipe, memory stays
//! bounded, and the answer arrives in time with the correct exit code.
//!
//! The longest outputs have 2 GiB, or 10 GiB in an optimized build; `QUACKD_FLOOD_MIB` overrides
//! the size. `--nocapture` shows the measurements.

use crate::harness::{Daemon, Session};
use serde_json::{Value, json};
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Longer than any flood takes, even on a busy machine, and shorter than the wire's timeout for a
/// line.
const DEADLINE: Duration = Duration::from_secs(50);

/// Maximum peak memory of a worker.
const WORKER_KIB: u64 = 64 * 1024;

/// Maximum growth of the supervisor, regardless of the output. The supervisor receives only
/// answers, and 16 KiB for followers.
const SUPERVISOR_KIB: u64 = 8 * 1024;

fn flood_mib() -> u64 {
    let asked = std::env::var("QUACKD_FLOOD_MIB").ok().and_then(|mib| mib.parse().ok());
    asked.unwrap_or(if cfg!(debug_assertions) { 2 * 1024 } else { 10 * 1024 })
}

/// A value in KiB from `/proc/PID/status`.
#[track_caller]
fn kib(pid: i32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap()
}

/// A daemon, a session that floods, and a session that needs replies during the flood.
struct Bench {
    daemon: Daemon,
}

impl Bench {
    fn new() -> Self {
        Self { daemon: Daemon::start() }
    }

    /// Runs a command with `mib` MiB of output next to other calls. Returns its answer.
    #[track_caller]
    fn flood(&self, name: &str, mib: u64, command: &str, deadline: Duration) -> Value {
        let (wire, beside) = (self.daemon.wire(), self.daemon.wire());
        let session = wire.attach(self.daemon.repo(name).path());
        let other = beside.attach(self.daemon.repo("other").path());
        session.bash("true");
        other.bash("true");
        let before = kib(self.daemon.pid(), "VmRSS");
        let begin = Instant::now();
        let timeout_ms = u64::try_from(deadline.as_millis()).unwrap();
        let params = json!({"sessionId": session.id, "tool": "bash", "timeoutMs": timeout_ms,
                            "arguments": {"command": command}});
        let call = session.wire.begin("quack.tool", &params);
        assert_eq!(other.bash("echo beside"), "beside\n\n[Exit code: 0]");
        let reply = call.reply();
        let took = begin.elapsed();
        assert_eq!(reply["ok"], true, "{reply}");
        let worker = kib(session.pid("pid"), "VmHWM");
        let supervisor = kib(self.daemon.pid(), "VmRSS");
        drop(writeln!(
            std::io::stderr(),
            "{name}: {mib} MiB in {took:?}, worker at most {worker} KiB, supervisor {before} to {supervisor} KiB"
        ));
        assert!(worker < WORKER_KIB, "{name}: the worker's peak was {worker} KiB");
        assert!(
            supervisor < before + SUPERVISOR_KIB,
            "{name}: the supervisor grew from {before} to {supervisor} KiB"
        );
        reply["data"].clone()
    }

    /// Like [`Bench::flood`], for a command that exits by itself. `code` is its exit code.
    #[track_caller]
    fn whole_flood(&self, name: &str, mib: u64, command: &str, code: i32) -> String {
        let data = self.flood(name, mib, command, DEADLINE);
        let text = data["text"].as_str().unwrap();
        let closing = format!("\n[Output truncated at 100KB]\n[Exit code: {code}]");
        assert!(text.ends_with(&closing), "{name}: {}", end_of(text));
        let told = (&data["timedOut"], &data["exitCode"], &data["truncated"]);
        assert_eq!(told, (&json!(false), &json!(code), &json!(true)), "{name}");
        assert!(text.len() < 102_400 + 400, "{name}: {} bytes", text.len());
        text.to_owned()
    }
}

fn end_of(text: &str) -> &str {
    &text[text.floor_char_boundary(text.len().saturating_sub(300))..]
}

/// Number of omitted bytes according to an answer.
#[track_caller]
fn omitted(text: &str) -> u64 {
    let mark = text.split_once("\n[... ").unwrap_or_else(|| panic!("{}", end_of(text))).1;
    mark.split_once(" bytes omitted").unwrap().0.parse().unwrap()
}

#[test]
fn zeros_on_standard_output_are_drained_at_the_speed_of_a_pipe() {
    let mib = flood_mib();
    let text = Bench::new().whole_flood("stdout", mib, &format!("head -c {mib}M /dev/zero"), 0);
    // None of the output is shown; discarded bytes are counted.
    assert!(mib * 1024 * 1024 - 2 * 64 * 1024 <= omitted(&text));
}

#[test]
fn zeros_on_standard_error_are_drained_at_the_speed_of_a_pipe() {
    let mib = flood_mib();
    let command = format!("head -c {mib}M /dev/zero >&2; exit 3");
    Bench::new().whole_flood("stderr", mib, &command, 3);
}

#[test]
fn a_line_without_end_is_cut_at_both_ends() {
    let mib = flood_mib() / 4;
    let command = format!("head -c {mib}M /dev/zero | tr '\\0' x; exit 4");
    let text = Bench::new().whole_flood("line", mib, &command, 4);
    let half = "x".repeat(51_200);
    assert!(text.starts_with(&format!("{half}\n[... ")) && text.contains(&format!("]\n{half}\n[")));
    assert_eq!(omitted(&text), mib * 1024 * 1024 - 102_400);
}

#[test]
fn streams_that_alternate_do_not_block_each_other() {
    let mib = flood_mib() / 4;
    let command = format!(
        "for ((i = 0; i < {mib} / 2; i++)); do head -c 1M /dev/zero | tr '\\0' o; \
         head -c 1M /dev/zero | tr '\\0' e >&2; done; exit 5"
    );
    let text = Bench::new().whole_flood("alternating", mib, &command, 5);
    assert!(text.starts_with(&"o".repeat(51_200)), "{}", &text[..100]);
    assert!(text.contains(&format!("]\n{}\n[", "e".repeat(51_200))), "{}", end_of(&text));
    assert_eq!(omitted(&text), mib / 2 * 2 * 1024 * 1024 + 1 - 102_400);
}

#[test]
fn what_is_no_text_and_what_steers_a_terminal_is_no_more_than_other_bytes() {
    let mib = flood_mib() / 8;
    let bench = Bench::new();
    // Pieces of 7 bytes, so that reads and cuts fall at each offset.
    let command = format!("yes $'\\xe2\\x82\\xacz\\xf0\\x9f' | head -c {mib}M; exit 6");
    let text = bench.whole_flood("no text", mib, &command, 6);
    let shown = |text: &str| text.split_once("\n[... ").unwrap().0.to_owned();
    let line = "€z\u{fffd}\n";
    assert!(shown(&text).starts_with(&line.repeat(5000)), "{}", &text[..100]);
    let end = end_of(&text).split_once("\n[Output truncated").unwrap().0;
    assert!(end.contains(&line.repeat(10)), "{end}");

    let command = format!("yes $'\\e[38;5;196mé\\e[0m\\e]0;title\\a' | head -c {mib}M; exit 7");
    let text = bench.whole_flood("colours", mib, &command, 7);
    let (front, back) = text.split_once("\n[... ").unwrap();
    let (_, back) = back.split_once("]\n").unwrap();
    let (back, _) = back.split_once("\n[Output truncated").unwrap();
    for shown in [front, back] {
        let is_plain = shown.chars().all(|c| c == 'é' || c == '\n');
        assert!(is_plain && 1000 < shown.len(), "{}", &shown[..200.min(shown.len())]);
    }
}

#[test]
fn a_command_that_never_stops_printing_ends_at_its_deadline() {
    let bench = Bench::new();
    let data = bench.flood("yes", 0, "yes", Duration::from_secs(3));
    let text = data["text"].as_str().unwrap();
    assert!(text.starts_with("y\ny\n"));
    let closing = "\n[Output truncated at 100KB]\n\
                   [Process timed out after 3s and was terminated]\n[Exit code: unknown]";
    assert!(text.ends_with(closing), "{}", end_of(text));
    assert_eq!((&data["timedOut"], &data["isError"]), (&json!(true), &json!(true)));
    let wire = bench.daemon.wire();
    let session: Session<'_> = wire.attach(bench.daemon.repo("yes").path());
    assert_eq!(session.bash("echo back"), "back\n\n[Exit code: 0]");
}
