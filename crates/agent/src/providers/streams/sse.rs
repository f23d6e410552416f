//! Server-sent events: bytes, cut anywhere, to records. Shared by the streams of all APIs.
//! The caller removes a byte order mark.

/// Maximum size of a line, and of the data of a record, in bytes: a whole answer, and the
/// instructions and tools of the request, which some APIs repeat at its end.
pub(super) const MAX_LINE: usize = 16 * 1024 * 1024;

/// A record that is complete.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// Name of the event, often empty.
    pub(super) event: String,
    /// Lines of data, joined with line feeds. Never empty.
    pub(super) data: String,
}

/// A line or a record is longer than [`MAX_LINE`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Reads lines that end with CR, LF or both, and records that end with an empty line.
#[derive(Debug, Default)]
pub(super) struct Reader {
    line: Vec<u8>,
    record: Record,
    is_after_cr: bool,
}

impl Reader {
    /// Takes bytes from `input` up to the end of the next record. `Ok(None)` if all bytes are taken.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Record>, TooLong> {
        loop {
            if self.is_after_cr && !input.is_empty() {
                // The line feed of a CRLF may come with the next bytes.
                *input = input.strip_prefix(b"\n").unwrap_or(input);
                self.is_after_cr = false;
            }

            let end = input.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = input.split_at(end.unwrap_or(input.len()));
            if self.line.len() + part.len() > MAX_LINE {
                return Err(TooLong);
            }

            self.line.extend_from_slice(part);
            let Some((terminator, rest)) = rest.split_first() else {
                *input = rest;
                return Ok(None);
            };

            self.is_after_cr = *terminator == b'\r';
            *input = rest;
            if let Some(record) = self.end_line()? {
                return Ok(Some(record));
            }
        }
    }

    /// Returns the record at the end of the stream that lacks its empty line.
    pub(super) fn end(mut self) -> Option<Record> {
        // The first call may end a line, the second one ends the record.
        let last = self.end_line().ok()?;
        last.or_else(|| self.end_line().ok()?)
    }

    fn end_line(&mut self) -> Result<Option<Record>, TooLong> {
        let bytes = std::mem::take(&mut self.line);
        if bytes.is_empty() {
            let record = std::mem::take(&mut self.record);
            // The standard ignores a record without data.
            return Ok(Some(record).filter(|record| !record.data.is_empty()));
        }

        let line = String::from_utf8_lossy(&bytes);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);

        match name {
            // Old versions of llama.cpp report errors in a field of this name.
            "data" | "error" => {
                if self.record.data.len() + value.len() >= MAX_LINE {
                    return Err(TooLong);
                }
                if !self.record.data.is_empty() {
                    self.record.data.push('\n');
                }
                self.record.data.push_str(value);
            }
            "event" => self.record.event = value.to_owned(),
            _ => {}
        }

        if name == "error" {
            self.record.event = "error".to_owned();
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINE, Reader, Record, TooLong};

    fn read(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let (mut reader, mut records) = (Reader::default(), Vec::new());
        for mut chunk in chunks.iter().copied() {
            while let Some(record) = reader.next(&mut chunk).unwrap() {
                records.push(record);
            }
            assert!(chunk.is_empty());
        }
        records.extend(reader.end());
        records.into_iter().map(|Record { event, data }| (event, data)).collect()
    }

    #[test]
    fn every_line_end_and_every_cut_gives_the_same_records() {
        let lines = ": hello|event: a|data: 1 é🦆|data:2|id: 7|||retry|data||: x|data: {}|";
        let expected = [("a", "1 é🦆\n2"), ("", "{}")];
        for end in ["\n", "\r", "\r\n"] {
            let text = lines.replace('|', end);
            for cut in 0..=text.len() {
                let (head, tail) = text.as_bytes().split_at(cut);
                let records = read(&[head, tail]);
                let records: Vec<_> = records.iter().map(|(e, d)| (&**e, &**d)).collect();
                assert_eq!(records, expected, "{end:?} {cut}");
            }
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(read(&bytes).len(), 2);
        }
    }

    #[test]
    fn a_line_and_a_record_have_a_limit() {
        let mut reader = Reader::default();
        let half = vec![b'x'; MAX_LINE / 2];
        assert_eq!(reader.next(&mut &half[..]), Ok(None));
        assert_eq!(reader.next(&mut &half[..]), Ok(None));
        assert_eq!(reader.next(&mut &b"x"[..]), Err(TooLong));

        let mut reader = Reader::default();
        let line = [b"data:", &half[..], b"\n"].concat();
        assert_eq!(reader.next(&mut &line[..]), Ok(None));
        assert_eq!(reader.next(&mut &line[..]), Err(TooLong));
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        assert_eq!(read(&[b"data: a\xff\n\n"]), [(String::new(), "a\u{fffd}".to_owned())]);
    }
}
