//! The lines above the screen, as bytes with styles. The oldest are dropped.

use std::collections::VecDeque;
use vt100::capture::{BasicFormattedCaptureState, RowContents, basic_formatted_to_plain};

pub(super) struct Scrollback {
    /// Lines as a terminal reads them. Each begins and ends with the default style.
    lines: VecDeque<u8>,
    /// Maximum number of bytes.
    capacity: usize,
    /// The line that is added.
    line: String,
}

impl Scrollback {
    pub(super) fn new(capacity: usize) -> Self {
        Self { lines: VecDeque::new(), capacity, line: String::new() }
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the newest lines that have at most `max` bytes.
    pub(super) fn newest(&self, max: usize) -> Vec<u8> {
        let skipped = self.lines.len().saturating_sub(max);
        let is_cut = 0 < skipped && self.lines.get(skipped - 1) != Some(&b'\n');
        let newest: Vec<u8> = self.lines.iter().skip(skipped).copied().collect();
        match newest.iter().position(|byte| *byte == b'\n').filter(|_| is_cut) {
            Some(end) => newest.get(end + 1..).unwrap_or_default().to_vec(),
            None if is_cut => Vec::new(),
            None => newest,
        }
    }

    /// Returns the text of the newest `lines` lines.
    pub(super) fn text(&self, lines: usize) -> String {
        let newest = String::from_utf8_lossy(&self.newest(self.capacity)).into_owned();
        let all: Vec<&str> = newest.split_inclusive('\n').collect();
        let skipped = all.len().saturating_sub(lines);
        let plain: String =
            all.iter().skip(skipped).flat_map(|line| basic_formatted_to_plain(line)).collect();
        plain.replace('\r', "")
    }
}

impl vt100::Callbacks for Scrollback {
    fn on_scroll(&mut self, row: RowContents<'_>, _: bool) {
        if self.capacity == 0 {
            return;
        }

        self.line.clear();
        // Writing to a text never fails.
        if row
            .write_formatted_basic(&mut self.line, &mut BasicFormattedCaptureState::new())
            .is_err()
        {
            return;
        }
        if self.line.contains('\x1b') {
            self.line.push_str("\x1b[m");
        }
        self.line.push_str("\r\n");
        self.lines.extend(self.line.as_bytes());

        while self.capacity < self.lines.len() {
            let end = self.lines.iter().position(|byte| *byte == b'\n').unwrap_or(0);
            self.lines.drain(..=end);
        }
    }
}
