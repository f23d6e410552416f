//! The open session file. The supervisor has opened it for reading and appending, and has locked it: no other process
//! of quackd writes to it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Maximum size of a session file that is read, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// Maximum size of lines that wait because they could not be written, in bytes.
const MAX_WAITING_BYTES: usize = 8 * 1024 * 1024;

/// The file, with the lines that could not be written yet.
#[derive(Debug)]
pub(crate) struct SessionFile {
    file: File,
    /// Whether the last line has no line feed, because a writer was killed.
    is_torn: bool,
    /// Lines that are not in the file.
    waiting: VecDeque<String>,
    waiting_bytes: usize,
    /// Whether a line was dropped after the last waiting one.
    has_gap: bool,
}

impl SessionFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file, is_torn: false, waiting: VecDeque::new(), waiting_bytes: 0, has_gap: false }
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// The file cannot be read, or is longer than 256 MiB.
    pub(crate) fn read(&mut self) -> io::Result<Vec<u8>> {
        let length = self.file.metadata()?.len();
        if MAX_BYTES < length {
            let text = format!(
                "the session file has {} MiB, more than {} MiB; `quack new` starts another conversation",
                length / 1024 / 1024,
                MAX_BYTES / 1024 / 1024
            );
            return Err(io::Error::other(text));
        }

        self.file.seek(SeekFrom::Start(0))?;
        let mut bytes = Vec::new();
        (&self.file).take(MAX_BYTES).read_to_end(&mut bytes)?;
        self.is_torn = bytes.last().is_some_and(|last| *last != b'\n');
        Ok(bytes)
    }

    /// Appends a line, after those that could not be written before. A line that was cut by an earlier crash stays
    /// alone on its line.
    ///
    /// # Errors
    /// The line may be missing or incomplete, for example because the disk is full. The next call writes it again.
    /// Beyond 8 MiB of such lines, further ones are dropped. An empty line then takes their place, which tells readers
    /// of the file to link over it.
    pub(crate) fn append(&mut self, line: &str) -> io::Result<()> {
        self.keep(line);
        while let Some(line) = self.waiting.pop_front() {
            if let Err(error) = write_line(&mut self.file, &mut self.is_torn, &line) {
                self.waiting.push_front(line);
                return Err(error);
            }
            self.waiting_bytes -= line.len();
        }
        Ok(())
    }

    fn keep(&mut self, line: &str) {
        // The newest line is always tried if no other waits.
        if !self.waiting.is_empty() && MAX_WAITING_BYTES < self.waiting_bytes + line.len() {
            self.has_gap = true;
            return;
        }
        let gap = std::mem::take(&mut self.has_gap).then(|| "\n".to_owned());
        for line in gap.into_iter().chain([line.to_owned()]) {
            self.waiting_bytes += line.len();
            self.waiting.push_back(line);
        }
    }

    /// Waits until the disk has everything.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Writes a line. `is_torn` tells whether the file ends within a line, before and after.
fn write_line(file: &mut impl Write, is_torn: &mut bool, line: &str) -> io::Result<()> {
    // Ends the torn line, so that only that one is unreadable.
    if *is_torn {
        file.write_all(b"\n")?;
        *is_torn = false;
    }

    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let error = match file.write(rest) {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(n) => {
                rest = rest.get(n..).unwrap_or_default();
                *is_torn = !rest.is_empty();
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => error,
        };
        // If only the line feed is missing, the line is complete: a second copy of it would be wrong.
        return if *is_torn && rest == b"\n" { Ok(()) } else { Err(error) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_line_does_not_spoil_the_next_one() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"{\"type\":\"session\"}\n{\"cut").unwrap();
        let mut session = SessionFile::new(file.try_clone().unwrap());
        assert_eq!(session.read().unwrap(), b"{\"type\":\"session\"}\n{\"cut");
        session.append("{\"a\":1}\n").unwrap();
        session.append("{\"b\":2}\n").unwrap();
        session.sync().unwrap();
        let all = session.read().unwrap();
        assert_eq!(all, b"{\"type\":\"session\"}\n{\"cut\n{\"a\":1}\n{\"b\":2}\n");
    }

    /// A disk with room for some bytes.
    struct Disk {
        bytes: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room);
            if n == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= n;
            self.bytes.extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_failed_at_any_byte_is_in_the_file_once() {
        let line = "{\"a\":1}\n";
        for room in 0..line.len() {
            let (mut disk, mut is_torn) = (Disk { bytes: Vec::new(), room }, false);
            let first = write_line(&mut disk, &mut is_torn, line);
            disk.room = 100;
            if first.is_err() {
                write_line(&mut disk, &mut is_torn, line).unwrap();
            }
            write_line(&mut disk, &mut is_torn, "{\"b\":2}\n").unwrap();
            let text = String::from_utf8(disk.bytes).unwrap();
            let whole: Vec<_> = text.lines().filter(|line| line.ends_with('}')).collect();
            assert_eq!(whole, ["{\"a\":1}", "{\"b\":2}"], "{room}");
        }
    }

    #[test]
    fn lines_that_failed_are_written_first_and_dropped_ones_leave_an_empty_line() {
        let named = tempfile::NamedTempFile::new().unwrap();
        let mut session = SessionFile::new(File::open(named.path()).unwrap());
        session.append("{\"a\":1}\n").unwrap_err();
        session.append(&format!("{}\n", "x".repeat(MAX_WAITING_BYTES))).unwrap_err();
        session.append("{\"c\":3}\n").unwrap_err();
        session.file = File::options().read(true).append(true).open(named.path()).unwrap();
        session.append("{\"d\":4}\n").unwrap();
        let all = session.read().unwrap();
        assert_eq!(all, b"{\"a\":1}\n\n{\"c\":3}\n{\"d\":4}\n");
        assert_eq!(session.waiting_bytes, 0);
    }
}
