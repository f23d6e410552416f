//! Reads a recording of a terminal: a file in the format asciicast v2. The first line has the version, each other line the
//! time in seconds, the kind, and a text.

use anyhow::{Context as _, bail};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::time::Duration;
use tokio::sync::mpsc;

/// Longest line, in bytes. quackd writes at most 32 KiB of output into one, of which a byte may need six as JSON.
const MAX_LINE: usize = 1024 * 1024;

/// Latest time in a recording.
const MAX_TIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Output that is read ahead, in lines.
const READ_AHEAD: usize = 8;

/// Output of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    /// Time since the beginning.
    pub(super) at: Duration,
    /// The output.
    pub(super) output: String,
}

#[derive(Deserialize)]
struct Header {
    version: u32,
}

/// Reads a recording on a separate thread, since a file may be a pipe. The channel ends with the recording or with an
/// error.
pub(super) fn frames(file: impl Read + Send + 'static) -> mpsc::Receiver<anyhow::Result<Frame>> {
    let (sender, receiver) = mpsc::channel(READ_AHEAD);

    std::thread::spawn(move || {
        let mut recording = Recording { reader: BufReader::new(file), number: 0 };
        let mut next = recording.begin_blocking().and_then(|()| recording.next_blocking());
        while let Some(frame) = next.transpose() {
            let is_error = frame.is_err();
            if sender.blocking_send(frame).is_err() || is_error {
                return;
            }
            next = recording.next_blocking();
        }
    });

    receiver
}

struct Recording<R> {
    reader: R,
    /// Number of the last line, for errors.
    number: u64,
}

impl<R: BufRead> Recording<R> {
    /// Reads the first line.
    fn begin_blocking(&mut self) -> anyhow::Result<()> {
        let line = self.line_blocking()?.unwrap_or_default();
        match serde_json::from_slice(&line) {
            Ok(Header { version: 2 }) => Ok(()),
            Ok(Header { version }) => {
                bail!("the recording has version {version} of asciicast, not 2")
            }
            Err(_) => bail!("the file is no recording in the format asciicast v2"),
        }
    }

    /// Returns the next output. `None` at the end, which may be an incomplete line.
    fn next_blocking(&mut self) -> anyhow::Result<Option<Frame>> {
        while let Some(line) = self.line_blocking()? {
            let is_complete = line.ends_with(b"\n");
            let (at, kind, output): (f64, String, String) = match serde_json::from_slice(&line) {
                Ok(event) => event,
                // The recorder was killed while it wrote.
                Err(_) if !is_complete => return Ok(None),
                Err(error) => {
                    let number = self.number;
                    return Err(error).with_context(|| format!("cannot read line {number}"));
                }
            };

            // Other kinds are input, sizes and marks.
            if kind == "o" {
                let at = Duration::try_from_secs_f64(at).unwrap_or_default().min(MAX_TIME);
                return Ok(Some(Frame { at, output }));
            }
        }
        Ok(None)
    }

    fn line_blocking(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let most = u64::try_from(MAX_LINE)? + 1;
        self.number += 1;
        let read = (&mut self.reader).take(most).read_until(b'\n', &mut line);
        read.context("cannot read the recording")?;

        if MAX_LINE < line.len() {
            bail!("line {} is longer than {MAX_LINE} bytes", self.number);
        }
        Ok((!line.is_empty()).then_some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "{\"version\": 2, \"width\": 80, \"height\": 24, \"timestamp\": 1}\n";

    fn read(text: &str) -> Result<Vec<Frame>, String> {
        let mut recording = Recording { reader: text.as_bytes(), number: 0 };
        let mut frames = Vec::new();
        recording.begin_blocking().map_err(|error| error.to_string())?;
        while let Some(frame) = recording.next_blocking().map_err(|error| error.to_string())? {
            frames.push(frame);
        }
        Ok(frames)
    }

    fn frame(ms: u64, output: &str) -> Frame {
        Frame { at: Duration::from_millis(ms), output: output.to_owned() }
    }

    #[test]
    fn output_is_read_and_other_lines_are_skipped() {
        let text = format!(
            "{HEADER}[0.5, \"o\", \"a\\u001b[1m\"]\n[0.75, \"i\", \"x\"]\n[1, \"r\", \"90x30\"]\n\
             [1.5, \"o\", \"b\"]\n"
        );
        assert_eq!(read(&text), Ok(vec![frame(500, "a\u{1b}[1m"), frame(1500, "b")]));
        assert_eq!(read(HEADER), Ok(Vec::new()));
    }

    #[test]
    fn times_are_within_bounds_and_a_cut_line_is_the_end() {
        let text = format!("{HEADER}[-3, \"o\", \"a\"]\n[1e300, \"o\", \"b\"]\n[2, \"o");
        let times: Vec<_> = read(&text).unwrap().into_iter().map(|frame| frame.at).collect();
        assert_eq!(times, [Duration::ZERO, Duration::ZERO]);
        let text = format!("{HEADER}[1e9, \"o\", \"a\"]\n");
        assert_eq!(read(&text).unwrap().first().unwrap().at, MAX_TIME);
    }

    #[test]
    fn other_files_are_refused_and_lines_are_bounded() {
        let long = format!("{HEADER}[1, \"o\", \"{}\"]\n", "x".repeat(MAX_LINE));
        for (text, part) in [
            ("", "no recording"),
            ("#!/bin/sh\n", "no recording"),
            ("{\"version\": 1}\n", "version 1 of asciicast"),
            (format!("{HEADER}[1]\n").as_str(), "cannot read line 2"),
            (long.as_str(), "line 2 is longer than"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
