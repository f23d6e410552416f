//! Suppresses repeated log lines: writes the first ones, then only their number.
//!
//! Owns the recent lines. Two lines are equal if they differ only in their time. Called by the log's own thread with
//! one complete line at a time. The lines continue to [`super::rotating`].

use super::rotating::RotatingFile;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Number of repeats that are written in full.
const MAX_VERBATIM: u64 = 5;

/// Time after which a line counts as new.
const PERIOD: Duration = Duration::from_secs(30);

/// Maximum number of different lines that are remembered. Above it, the oldest are dropped.
const MAX_REMEMBERED: usize = 256;

/// Maximum length of a remembered line, in bytes. Longer lines are always written.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Counts repeated lines and writes to the log file.
#[derive(Debug)]
pub(super) struct RepeatFilter {
    to: RotatingFile,
    hasher: RandomState,
    seen: HashMap<u64, RepeatCount>,
    /// When the first period ends. `None` if no line is remembered.
    next_end: Option<Instant>,
}

#[derive(Debug)]
struct RepeatCount {
    since: Instant,
    times: u64,
    /// Number of occurrences that were already reported in the log.
    reported: u64,
    /// The last occurrence.
    line: Vec<u8>,
}

impl RepeatFilter {
    pub(super) fn new(to: RotatingFile) -> Self {
        Self { to, hasher: RandomState::new(), seen: HashMap::new(), next_end: None }
    }

    fn line(&mut self, line: &[u8], now: Instant) {
        if self.next_end.is_some_and(|end| end <= now) {
            self.end(|seen| PERIOD <= now.saturating_duration_since(seen.since));
        }

        if MAX_LINE_BYTES < line.len() {
            return self.to.line(line);
        }

        // Two lines with an equal hash would count as one. The random keys make that unlikely, also on purpose.
        let key = self.hasher.hash_one(without_time(line));
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.times += 1;
            if seen.times <= MAX_VERBATIM {
                seen.reported = seen.times;
                self.to.line(line);
                return;
            }

            seen.line.clear();
            seen.line.extend_from_slice(line);
            // Report a storm while it lasts, after 10, 100, 1000 … occurrences.
            if is_power_of_ten(seen.times) {
                self.to.line(&counted(line, seen.times - seen.reported));
                seen.reported = seen.times;
            }
            return;
        }

        if MAX_REMEMBERED <= self.seen.len() {
            self.end(|_| true);
        }
        self.seen.insert(key, RepeatCount { since: now, times: 1, reported: 1, line: Vec::new() });
        self.next_end.get_or_insert(now + PERIOD);
        self.to.line(line);
    }

    /// Drops finished lines, and writes the number of unreported occurrences of each.
    fn end(&mut self, is_over: impl Fn(&RepeatCount) -> bool) {
        let over: Vec<RepeatCount> =
            self.seen.extract_if(|_, seen| is_over(seen)).map(|(_, seen)| seen).collect();
        for seen in over.iter().filter(|seen| seen.reported < seen.times) {
            self.to.line(&counted(&seen.line, seen.times - seen.reported));
        }
        self.next_end = self.seen.values().map(|seen| seen.since + PERIOD).min();
    }
}

impl Write for RepeatFilter {
    /// Takes one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line, Instant::now());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the part after the first value, which is the time.
fn without_time(line: &[u8]) -> &[u8] {
    // The log writes the time as the first field, and no comma is in it.
    let comma = line.iter().position(|byte| *byte == b',').unwrap_or(0);
    line.get(comma..).unwrap_or(line)
}

/// Returns the line with a field for the number of occurrences.
fn counted(line: &[u8], n: u64) -> Vec<u8> {
    let object = line.trim_ascii_end();
    let open = object.strip_suffix(b"}").unwrap_or(object);
    [open, format!(",\"repeated\":{n}}}\n").as_bytes()].concat()
}

fn is_power_of_ten(n: u64) -> bool {
    n.checked_ilog10().is_some_and(|digits| 10_u64.pow(digits) == n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::limits::{LOG_FILE_BYTES, LOG_FILES_KEPT};
    use std::path::Path;
    use std::sync::Arc;

    fn text(n: u64, message: &str) -> String {
        format!(
            "{{\"timestamp\":\"2026-03-10T12:00:{n:09}Z\",\"level\":\"WARN\",\"message\":\"{message}\"}}\n"
        )
    }

    fn log(dir: &Path) -> RepeatFilter {
        let max = LOG_FILE_BYTES as u64;
        RepeatFilter::new(RotatingFile::new(&dir.join("l"), max, LOG_FILES_KEPT, Arc::default()))
    }

    fn lines(dir: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(dir.join("l")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_million_lines_have_no_more_than_their_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        // All lines are different. Together they have 140 MB.
        for n in 0..1_000_000_u64 {
            let line = text(n, &format!("{n:09} {}", "x".repeat(64)));
            log.write_all(line.as_bytes()).unwrap();
        }
        let files = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
        let sizes: Vec<u64> = files.map(|file| file.metadata().unwrap().len()).collect();
        let max = LOG_FILE_BYTES as u64;
        assert_eq!(sizes.len(), LOG_FILES_KEPT + 1);
        assert!(sizes.iter().all(|size| *size <= max), "{sizes:?}");
        assert!(4 * max < sizes.iter().sum(), "{sizes:?}");
        assert_eq!(
            lines(dir.path()).last().unwrap()["message"].as_str().unwrap()[..9],
            *"000999999"
        );
    }

    #[test]
    fn a_million_times_the_same_is_a_few_lines_with_their_number() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        for n in 0..1_000_000 {
            log.write_all(text(n, "no").as_bytes()).unwrap();
        }
        let lines = lines(dir.path());
        assert!(lines.len() < 20, "{lines:?}");
        let count = |line: &serde_json::Value| line["repeated"].as_u64().unwrap_or(1);
        assert_eq!(lines.iter().map(count).sum::<u64>(), 1_000_000);
    }

    #[test]
    fn what_was_left_out_is_told_at_the_end_of_the_period_and_others_are_not_held_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        let begin = Instant::now();
        for n in 0..8 {
            log.line(text(n, "no").as_bytes(), begin);
        }
        log.line(text(8, "other").as_bytes(), begin + PERIOD / 2);
        assert_eq!(lines(dir.path()).len(), 6);
        log.line(text(9, "no").as_bytes(), begin + PERIOD);
        let lines = lines(dir.path());
        assert_eq!(lines[6]["repeated"], 3);
        assert_eq!((&lines[7]["message"], lines[7].get("repeated")), (&"no".into(), None));
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        for n in 0..10_000 {
            log.line(text(n, &format!("{n}")).as_bytes(), Instant::now());
            assert!(log.seen.len() <= MAX_REMEMBERED);
        }
        log.write_all(&[b'x'; 2 * MAX_LINE_BYTES]).unwrap();
        assert!(log.seen.values().all(|seen| seen.line.len() <= MAX_LINE_BYTES));
    }
}
