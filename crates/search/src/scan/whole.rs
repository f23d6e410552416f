//! Searches a file as one text in which each line ends with `\n`, because matches may cross lines. Called by `file`.

use super::searchers::{Source, searcher};
use super::sink::FileSink;
use crate::crlf::CrlfMap;
use crate::line_matcher::LineMatcher;
use grep_matcher::{Match, Matcher, NoCaptures, NoError};
use grep_searcher::{Searcher, Sink, SinkFinish, SinkMatch};
use std::cell::RefCell;
use std::io::{self, Read};

/// Reads a file with `reads`, which decodes it and limits its size, and searches its text.
pub(super) fn search(
    reads: &mut Searcher,
    matcher: &LineMatcher,
    file: impl Read,
    sink: &mut FileSink<'_>,
) -> io::Result<()> {
    let text = Text::default();
    reads.search_reader(&text, file, IsBinary(&mut sink.binary))?;
    let mut text = text.0.into_inner();
    let (len, crlf) = CrlfMap::fold(&mut text);
    text.truncate(len);
    sink.crlf = crlf;
    searcher(sink.ask, Source::Text).search_slice(matcher, &text, sink)
}

/// Finds nothing, and keeps the text. A matcher that may cross lines gets the whole text at once.
#[derive(Debug, Default)]
struct Text(RefCell<Vec<u8>>);

impl Matcher for Text {
    type Captures = NoCaptures;
    type Error = NoError;

    fn find_at(&self, text: &[u8], _: usize) -> Result<Option<Match>, NoError> {
        self.0.replace(text.to_vec());
        Ok(None)
    }

    fn new_captures(&self) -> Result<NoCaptures, NoError> {
        Ok(NoCaptures::new())
    }
}

/// Receives only whether a NUL byte was found.
struct IsBinary<'a>(&'a mut bool);

impl Sink for IsBinary<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, _: &SinkMatch<'_>) -> io::Result<bool> {
        Ok(false)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        *self.0 |= end.binary_byte_offset().is_some();
        Ok(())
    }
}
