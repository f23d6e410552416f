//! The content of a full screen: a terminal emulator that is sufficient to find the position of
//! each character.

/// The characters of a terminal, updated from a program's output.
#[derive(Default)]
pub(crate) struct Screen {
    rows: Vec<Vec<char>>,
    x: usize,
    y: usize,
    /// The start of an incomplete escape sequence.
    rest: String,
}

impl Screen {
    /// Processes output of the program.
    pub(crate) fn feed(&mut self, text: &str) {
        let text = std::mem::take(&mut self.rest) + text;
        let mut left = text.as_str();
        while let Some(c) = left.chars().next() {
            if c == '\u{1b}' {
                let Some(end) =
                    left.get(2..).and_then(|it| it.find(|c: char| c.is_ascii_alphabetic()))
                else {
                    left.clone_into(&mut self.rest);
                    return;
                };
                self.sequence(&left[2..end + 2], left.as_bytes()[end + 2]);
                left = &left[end + 3..];
            } else {
                self.letter(c);
                left = &left[c.len_utf8()..];
            }
        }
    }

    fn sequence(&mut self, numbers: &str, kind: u8) {
        match kind {
            b'H' => {
                let mut parts = numbers.split(';').map(|n| n.parse().unwrap_or(1).max(1) - 1);
                self.y = parts.next().unwrap_or(0);
                self.x = parts.next().unwrap_or(0);
            }
            b'A' => self.y = self.y.saturating_sub(numbers.parse().unwrap_or(1)),
            b'C' => self.x += numbers.parse::<usize>().unwrap_or(1),
            b'J' if matches!(numbers, "" | "0") => {
                self.rows.truncate(self.y + 1);
                if let Some(row) = self.rows.get_mut(self.y) {
                    row.truncate(self.x);
                }
            }
            // Each other kind of clear, and a switch of the screen, clears everything.
            b'J' => self.rows.clear(),
            b'h' | b'l' if numbers == "?1049" => self.rows.clear(),
            _ => {}
        }
    }

    fn letter(&mut self, c: char) {
        match c {
            '\r' => self.x = 0,
            '\n' => (self.x, self.y) = (0, self.y + 1),
            c => {
                let rows = self.rows.len().max(self.y + 1);
                self.rows.resize(rows, Vec::new());
                let row = &mut self.rows[self.y];
                row.resize(row.len().max(self.x + 1), ' ');
                row[self.x] = c;
                self.x += 1;
            }
        }
    }

    /// The content of the screen, line by line.
    pub(crate) fn text(&self) -> String {
        self.rows.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }
}
