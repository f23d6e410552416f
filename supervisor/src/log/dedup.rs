//! Lines that come again and again: a few are written, then only how many there were.
//!
//! Owns: which lines came lately. Two are the same if they differ in their time only. Called by the log's own
//! thread, with one whole line at a time; the lines go on to [`super::rotating`].

use super::rotating::RotatingFile;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// So many are written as they come.
const AS_THEY_COME: u64 = 5;

/// After this long a line begins anew.
const PERIOD: Duration = Duration::from_secs(30);

/// Different lines that are remembered. When there are more, those that came first are forgotten.
const MAX_REMEMBERED: usize = 256;

/// Longest line that is remembered, in bytes; longer ones are written whenever they come.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// See the module.
#[derive(Debug)]
pub(super) struct Repeats {
    to: RotatingFile,
    hasher: RandomState,
    seen: HashMap<u64, Seen>,
    /// When the first of them is over; nothing is to do before.
    next_end: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    since: Instant,
    times: u64,
    /// How many of these somebody reading the log knows of.
    told: u64,
    /// The last of them.
    line: Vec<u8>,
}

impl Repeats {
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
        let key = self.hasher.hash_one(without_time(line));
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.times += 1;
            if seen.times <= AS_THEY_COME {
                seen.told = seen.times;
                self.to.line(line);
                return;
            }
            seen.line.clear();
            seen.line.extend_from_slice(line);
            // A storm is seen while it lasts, at 10, 100, 1000 …
            if is_power_of_ten(seen.times) {
                self.to.line(&counted(line, seen.times - seen.told));
                seen.told = seen.times;
            }
            return;
        }
        if MAX_REMEMBERED <= self.seen.len() {
            self.end(|_| true);
        }
        self.seen.insert(key, Seen { since: now, times: 1, told: 1, line: Vec::new() });
        self.next_end.get_or_insert(now + PERIOD);
        self.to.line(line);
    }

    /// Forgets some, and says how many of each nobody was told of.
    fn end(&mut self, is_over: impl Fn(&Seen) -> bool) {
        let over: Vec<Seen> =
            self.seen.extract_if(|_, seen| is_over(seen)).map(|(_, seen)| seen).collect();
        for seen in over.iter().filter(|seen| seen.told < seen.times) {
            self.to.line(&counted(&seen.line, seen.times - seen.told));
        }
        self.next_end = self.seen.values().map(|seen| seen.since + PERIOD).min();
    }
}

impl Write for Repeats {
    /// Takes one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.line(line, Instant::now());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What stands behind the first value, which is the time.
fn without_time(line: &[u8]) -> &[u8] {
    let comma = line.iter().position(|byte| *byte == b',').unwrap_or(0);
    line.get(comma..).unwrap_or(line)
}

/// The line, and that it stands for so many.
fn counted(line: &[u8], n: u64) -> Vec<u8> {
    let object = line.trim_ascii_end();
    let open = object.strip_suffix(b"}").unwrap_or(object);
    [open, format!(",\"repeated\":{n}}}\n").as_bytes()].concat()
}

fn is_power_of_ten(mut n: u64) -> bool {
    while 10 <= n && n.is_multiple_of(10) {
        n /= 10;
    }
    n == 1
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

    fn log(dir: &Path) -> Repeats {
        Repeats::new(RotatingFile::new(&dir.join("l"), Arc::default()))
    }

    fn lines(dir: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(dir.join("l")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_million_lines_have_no_more_than_their_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        // All of them are different; together they would have 140 MB.
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
