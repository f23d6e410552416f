//! Recording of a terminal as a file of asciinema (asciicast v2): one line of JSON for the size, then one for each event.
//!
//! A thread writes the file, so that a hung disk stops neither the worker nor the program. After a failed write the
//! recording ends, and the program continues.

use crate::live::unfinished;
use quackd_protocol::limits::{MAX_RECORDING_BYTES, MAX_SPILL_FILES};
use quackd_protocol::terminal::Recording;
use quackd_terminal::TerminalSize;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use tokio::time::timeout;

/// Prefix and suffix of the job number in names of recordings.
const PREFIX: &str = "term-";
const SUFFIX: &str = ".cast";

/// Most lines and bytes that wait for the disk.
const MAX_WAITING_LINES: usize = 4096;
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;

/// Longest wait for the file.
const CREATION_LIMIT: Duration = Duration::from_secs(1);

/// Most entries of the directory that are read to find old recordings.
const MAX_ENTRIES: usize = 4096;

/// Returns the path of the recording of a job.
pub(crate) fn recording_path(run_dir: &Path, number: u64) -> PathBuf {
    run_dir.join(format!("{PREFIX}{number}{SUFFIX}"))
}

/// Returns the number of the job whose recording has this name.
pub(crate) fn recording_number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// File of a recording.
#[derive(Debug)]
pub(super) struct RecordingFile {
    path: PathBuf,
    /// Whether it exists. Closed without that if it cannot be created.
    created: watch::Receiver<bool>,
}

/// Reason why a requested recording does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the terminal is not recorded, because the file of the recording cannot be created")]
pub(crate) struct NotRecorded;

impl RecordingFile {
    /// Returns the path once the file exists.
    ///
    /// # Errors
    /// The file cannot be created, or was not within 1 s.
    pub(super) async fn path(&self) -> Result<&Path, NotRecorded> {
        let mut created = self.created.clone();
        let waiting = timeout(CREATION_LIMIT, created.wait_for(|is_created| *is_created));
        let is_created = waiting.await.is_ok_and(|created| created.is_ok());
        if is_created { Ok(&self.path) } else { Err(NotRecorded) }
    }
}

/// A running recording.
#[derive(Debug)]
pub(super) struct Recorder {
    /// `None` once the recording has ended.
    lines: Option<SyncSender<Vec<u8>>>,
    waiting: Arc<AtomicUsize>,
    started: Instant,
    n_bytes: u64,
    has_input: bool,
    /// First bytes of an incomplete character of the output, and of the input.
    output_carry: Vec<u8>,
    input_carry: Vec<u8>,
}

impl Recorder {
    /// Starts a recording. Returns its file, and the recorder unless no thread can be started.
    pub(super) fn start(
        path: PathBuf,
        size: TerminalSize,
        kind: Recording,
    ) -> (RecordingFile, Option<Self>) {
        let (created, is_created) = watch::channel(false);
        let file = RecordingFile { path: path.clone(), created: is_created };
        let (sender, lines) = sync_channel(MAX_WAITING_LINES);
        let recorder = Self::new(sender, size, kind);
        let waiting = Arc::clone(&recorder.waiting);
        let write = move || {
            // The recording ends with its receiver.
            let Ok(file) = create_blocking(&path) else { return };
            created.send_replace(true);
            write_blocking(file, &lines, &waiting).ok();
        };
        if std::thread::Builder::new().name("record".to_owned()).spawn(write).is_err() {
            return (file, None);
        }
        (file, Some(recorder))
    }

    fn new(lines: SyncSender<Vec<u8>>, size: TerminalSize, kind: Recording) -> Self {
        let mut recorder = Self {
            lines: Some(lines),
            waiting: Arc::default(),
            started: Instant::now(),
            n_bytes: 0,
            has_input: kind == Recording::Input,
            output_carry: Vec::new(),
            input_carry: Vec::new(),
        };
        recorder.push(&header(size));
        recorder
    }

    /// Records output of the program.
    pub(super) fn output(&mut self, bytes: &[u8]) {
        let text = text_of(&mut self.output_carry, bytes);
        self.event("o", &text);
    }

    /// Records typed bytes, if the recording has input.
    pub(super) fn input(&mut self, bytes: &[u8]) {
        if self.has_input {
            let text = text_of(&mut self.input_carry, bytes);
            self.event("i", &text);
        }
    }

    /// Records a change of the size.
    pub(super) fn resize(&mut self, size: TerminalSize) {
        self.event("r", &format!("{}x{}", size.cols, size.rows));
    }

    fn event(&mut self, kind: &str, text: &str) {
        if self.lines.is_some() && !text.is_empty() {
            let time = (self.started.elapsed().as_secs_f64() * 1e6).round() / 1e6;
            self.push(&json!([time, kind, text]));
        }
    }

    fn push(&mut self, line: &Value) {
        let line = format!("{line}\n").into_bytes();
        let length = line.len();

        self.n_bytes = self.n_bytes.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        let n_waiting = self.waiting.fetch_add(length, Ordering::Relaxed).saturating_add(length);
        let has_room = self.n_bytes <= MAX_RECORDING_BYTES && n_waiting <= MAX_WAITING_BYTES;
        let is_sent = self.lines.as_ref().is_some_and(|to| has_room && to.try_send(line).is_ok());
        // A recording without some of its events would mislead, so it ends.
        if !is_sent {
            self.lines = None;
        }
    }
}

fn header(size: TerminalSize) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    json!({ "version": 2, "width": size.cols, "height": size.rows, "timestamp": now,
            "env": { "TERM": "xterm-256color" } })
}

/// Returns the text of bytes after `carry`, which keeps the beginning of an incomplete character.
fn text_of(carry: &mut Vec<u8>, bytes: &[u8]) -> String {
    let mut all = std::mem::take(carry);
    all.extend_from_slice(bytes);
    *carry = all.split_off(all.len() - unfinished(&all));
    String::from_utf8_lossy(&all).into_owned()
}

/// Writes lines until there are no more.
///
/// # Errors
/// The disk takes no more.
fn write_blocking(
    mut file: File,
    lines: &Receiver<Vec<u8>>,
    waiting: &AtomicUsize,
) -> io::Result<()> {
    for line in lines {
        file.write_all(&line)?;
        waiting.fetch_sub(line.len(), Ordering::Relaxed);
    }
    Ok(())
}

/// Creates the file in a directory that commands of the session can write too, and deletes the oldest recordings beyond
/// the limit.
fn create_blocking(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        delete_oldest_blocking(directory);
    }
    // A command may have put a link there: remove it instead of following it.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn delete_oldest_blocking(directory: &Path) {
    let Ok(entries) = directory.read_dir() else { return };
    let names = entries.take(MAX_ENTRIES).flatten().map(|entry| entry.file_name());
    let mut numbers: Vec<u64> = names.filter_map(|name| recording_number(name.to_str()?)).collect();
    numbers.sort_unstable();

    let excess = (numbers.len() + 1).saturating_sub(MAX_SPILL_FILES);
    for number in numbers.into_iter().take(excess) {
        // A command may have deleted it since.
        std::fs::remove_file(recording_path(directory, number)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what a recorder has sent, and returns the lines of the file.
    fn recorded(kind: Recording, record: impl FnOnce(&mut Recorder)) -> Vec<Value> {
        let dir = tempfile::tempdir().unwrap();
        let path = recording_path(dir.path(), 3);
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        let (sender, lines) = sync_channel(MAX_WAITING_LINES);
        let mut recorder = Recorder::new(sender, TerminalSize::DEFAULT, kind);
        record(&mut recorder);
        let waiting = Arc::clone(&recorder.waiting);
        drop(recorder);
        write_blocking(create_blocking(&path).unwrap(), &lines, &waiting).unwrap();
        assert!(!dir.path().join("elsewhere").exists());
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_recording_has_the_size_and_the_events_of_its_kind() {
        let record = |recorder: &mut Recorder| {
            recorder.output(b"a\x1b[m\xe2\x82");
            recorder.output(b"\xac\xff");
            recorder.input(b"secret\r");
            recorder.resize(TerminalSize::new(100, 30));
        };
        let with_input = recorded(Recording::Input, record);
        assert_eq!((&with_input[0]["version"], &with_input[0]["width"]), (&json!(2), &json!(80)));
        let events: Vec<_> =
            with_input[1..].iter().map(|line| (line[1].clone(), line[2].clone())).collect();
        let expected =
            [("o", "a\u{1b}[m"), ("o", "\u{20ac}\u{fffd}"), ("i", "secret\r"), ("r", "100x30")];
        assert_eq!(events, expected.map(|(kind, text)| (json!(kind), json!(text))));
        assert!(with_input[1..].iter().all(|line| line[0].is_number()));
        let without = recorded(Recording::Output, record);
        assert!(without[1..].iter().all(|line| line[1] != "i"));
    }

    #[test]
    fn a_recording_ends_at_its_limit_and_when_the_disk_is_behind() {
        recorded(Recording::Output, |recorder| {
            recorder.n_bytes = MAX_RECORDING_BYTES - 10;
            recorder.output(b"too much");
            assert!(recorder.lines.is_none());
        });
        recorded(Recording::Output, |recorder| {
            recorder.output(&vec![b'x'; MAX_WAITING_BYTES]);
            assert!(recorder.lines.is_none());
            recorder.output(b"ignored");
        });
    }

    #[tokio::test]
    async fn a_recording_whose_file_cannot_be_created_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(recording_path(dir.path(), 1).join("full")).unwrap();
        for (number, is_created) in [(1, false), (2, true)] {
            let path = recording_path(dir.path(), number);
            let (file, _recorder) =
                Recorder::start(path.clone(), TerminalSize::DEFAULT, Recording::Output);
            assert_eq!(file.path().await.is_ok(), is_created);
            assert_eq!(path.is_file(), is_created);
        }
    }

    #[test]
    fn the_oldest_recordings_go() {
        let dir = tempfile::tempdir().unwrap();
        for number in 1..=12 {
            create_blocking(&recording_path(dir.path(), number)).unwrap();
        }
        std::fs::write(dir.path().join("term-x.cast"), "").unwrap();
        let left = |number| recording_path(dir.path(), number).exists();
        assert!((1..=4).all(|number| !left(number)) && (5..=12).all(left));
    }
}
