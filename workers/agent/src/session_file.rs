//! The open session file. The supervisor has opened it for reading and appending, and has locked it: no other process
//! of quackd writes to it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// Longest session file that is read, in bytes.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// The file.
#[derive(Debug)]
pub(crate) struct SessionFile {
    file: File,
    /// Whether the last line has no line feed, because a writer was killed.
    is_torn: bool,
}

impl SessionFile {
    pub(crate) fn new(file: File) -> Self {
        Self { file, is_torn: false }
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

    /// Appends a line. A line that was cut by an earlier crash stays alone on its line.
    ///
    /// # Errors
    /// The line may be incomplete, for example because the disk is full. The next line begins on a new line.
    pub(crate) fn append(&mut self, line: &str) -> io::Result<()> {
        let whole: Vec<u8> = match self.is_torn {
            true => [b"\n", line.as_bytes()].concat(),
            false => line.as_bytes().to_vec(),
        };
        self.is_torn = true;
        self.file.write_all(&whole)?;
        self.is_torn = false;
        Ok(())
    }

    /// Waits until the disk has everything.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
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
}
