//! Computes the new content of one file from its old content. Pure: planning uses it, and applying uses it
//! again.
//!
//! Bytes outside of matches do not change. If matches stay within lines, the pattern sees one line at a time,
//! without its line break. Otherwise `\s+$` would match line breaks, and an empty match would be found between
//! a carriage return and its line feed. If matches may cross lines, the pattern sees `\r\n` as `\n`, unless it names
//! `\r`.

use super::error::{ReplaceError, SkipReason};
use super::matcher::Matcher;
use super::outcome::{Eol, FileEncoding};
use super::request::Replace;
use super::template::{LineBreaks, Template, has_line_breaks};
use super::text::Text;
use super::{MAX_FILE_BYTES, MAX_REPLACEMENT_BYTES, MAX_REPLACEMENTS};
use crate::crlf::CrlfMap;
use crate::request::Dialect;
use crate::tree::Stop;
use regex_automata::util::captures::Captures;
use regex_automata::{Input, Match, PatternID};
use std::borrow::Cow;
use std::ops::Range;

/// Number of matches between two checks of the deadline.
const MATCHES_BETWEEN_LOOKS: u64 = 256;

/// Replaces the matches of one request, compiled once.
#[derive(Debug)]
pub struct Editor {
    matcher: Matcher,
    /// Templates of each pattern: one list for files that mostly have line feeds, and one for other files.
    templates: [Vec<Template>; 2],
    needs_groups: bool,
    /// Whether the two lists of templates differ.
    follows_eol: bool,
    line_range: Option<(u64, u64)>,
    max_replacements: u64,
    max_per_file: u64,
    skip_binary: bool,
}

/// A file with its matches replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// New content of the file.
    pub new: Vec<u8>,
    /// Number of changed lines of the old content.
    pub lines: u64,
    /// Number of matches that were replaced by different text.
    pub replacements: u64,
    /// Line endings of the old content.
    pub eol: Eol,
    /// Encoding of both contents.
    pub encoding: FileEncoding,
}

/// An edited file, with the data for its diff.
#[derive(Debug)]
pub(super) struct EditWithDiff {
    pub(super) edited: Edited,
    /// Old text without a mark and decoded, or `None` if it equals the content. Likewise `new_text`.
    pub(super) old_text: Option<Vec<u8>>,
    pub(super) new_text: Option<Vec<u8>>,
    pub(super) edits: Vec<Edit>,
}

/// One changed range, in the old text and in the new text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) old: Range<usize>,
    pub(super) new: Range<usize>,
}

/// Reason why a file has no new content.
#[derive(Debug)]
pub(super) enum EditError {
    /// The file is skipped.
    Skip(SkipReason),
    /// The request allows fewer matches.
    TooMany,
    /// The deadline passed, or the caller canceled.
    Stopped,
}

impl From<SkipReason> for EditError {
    fn from(reason: SkipReason) -> Self {
        Self::Skip(reason)
    }
}

impl Editor {
    /// Compiles a request in the dialect of its pattern.
    ///
    /// # Errors
    /// [`ReplaceError`] for a pattern, a replacement or a range of lines that cannot be used.
    pub fn new(request: &Replace) -> Result<Self, ReplaceError> {
        Self::reading(request, request.pattern.dialect)
    }

    pub(super) fn reading(request: &Replace, dialect: Dialect) -> Result<Self, ReplaceError> {
        if MAX_REPLACEMENT_BYTES < request.replacement.len() {
            return Err(ReplaceError::ReplacementTooLong { max: MAX_REPLACEMENT_BYTES });
        }
        if let Some((first, last)) = request.line_range
            && (first == 0 || last < first)
        {
            return Err(ReplaceError::BadLineRange { first, last });
        }

        let matcher = Matcher::new(&request.pattern, dialect)?;
        let text = request.replacement.as_str();
        let templates = |breaks| {
            let of = |id| {
                if request.template {
                    Template::with_groups(text, &matcher.regex, id, breaks)
                } else {
                    Ok(Template::text(text, breaks))
                }
            };
            let ids = (0..matcher.regex.pattern_len()).filter_map(|id| PatternID::new(id).ok());
            ids.map(of).collect::<Result<Vec<_>, _>>()
        };

        // A replacement with line breaks is made for both line ends, because each file decides.
        let follows_eol = !request.raw_newlines && has_line_breaks(text);
        let templates = if follows_eol {
            [templates(LineBreaks::Lf)?, templates(LineBreaks::CrLf)?]
        } else {
            [templates(LineBreaks::AsTheyAre)?, Vec::new()]
        };

        let needs_groups = templates.iter().flatten().any(Template::has_groups);
        Ok(Self {
            matcher,
            templates,
            needs_groups,
            follows_eol,
            line_range: request.line_range,
            max_replacements: request.max_replacements.min(MAX_REPLACEMENTS),
            max_per_file: request.max_per_file.unwrap_or(u64::MAX),
            skip_binary: request.skip_binary,
        })
    }

    /// Whether matches may cross lines.
    #[must_use]
    pub fn is_multiline(&self) -> bool {
        self.matcher.is_multiline
    }

    pub(super) fn is_multiline_by_itself(&self) -> bool {
        self.matcher.is_multiline_by_itself
    }

    /// Returns the new content for the content `old`, or `None` if nothing changes.
    ///
    /// # Errors
    /// The reason for which the file is skipped.
    pub fn edit(&self, old: &[u8]) -> Result<Option<Edited>, SkipReason> {
        match self.change(old, None) {
            Ok(change) => Ok(change.map(|change| change.edited)),
            Err(EditError::Skip(reason)) => Err(reason),
            Err(EditError::TooMany | EditError::Stopped) => Err(SkipReason::TooManyReplacements),
        }
    }

    /// Like [`Editor::edit`], but stops at a deadline and returns the data for a diff.
    pub(super) fn change(
        &self,
        old: &[u8],
        stop: Option<&Stop>,
    ) -> Result<Option<EditWithDiff>, EditError> {
        if MAX_FILE_BYTES < old.len() as u64 {
            return Err(SkipReason::TooLarge { len: old.len() as u64 }.into());
        }

        let text = Text::of(old, self.skip_binary)?;
        let body = &*text.bytes;
        // The pattern then sees each line end as `\n`.
        let (folded, crlf) = if self.matcher.folds && has_crlf(body) {
            let mut folded = body.to_vec();
            let (len, crlf) = CrlfMap::fold(&mut folded);
            folded.truncate(len);
            (Cow::Owned(folded), crlf)
        } else {
            (Cow::Borrowed(body), CrlfMap::default())
        };

        let region = self.region(&folded);
        let eol = || Eol::of(body);
        let templates = match (self.follows_eol, &self.templates) {
            (true, [lf, crlf]) => match eol() {
                Eol::CrLf | Eol::Mixed { is_mostly_crlf: true } => crlf,
                Eol::Lf | Eol::None | Eol::Mixed { .. } => lf,
            },
            (false, [only, _]) => only,
        };

        let mut work = Work::new(self, templates, body, stop);
        work.crlf = crlf;
        if self.matcher.is_multiline {
            work.replace_in(&folded, 0, region)?;
        } else {
            work.line_by_line(region)?;
        }

        if work.edits.is_empty() {
            return Ok(None);
        }

        let (new_text, edits) = work.finish()?;
        // The diff of a decoded file shows its text, not its bytes.
        let has_own_text =
            text.encoding() != FileEncoding::Utf8 && text.encoding() != FileEncoding::Bytes;
        let lines = lines_touched(body, &edits);
        let (eol, encoding, replacements) = (eol(), text.encoding(), edits.len() as u64);
        let kept_text = has_own_text.then(|| new_text.clone());

        let new = text.encode(new_text)?;
        if MAX_FILE_BYTES < new.len() as u64 {
            return Err(SkipReason::WouldBeTooLarge.into());
        }

        let edited = Edited { new, lines, replacements, eol, encoding };
        let old_text = has_own_text.then(|| text.bytes.into_owned());
        Ok(Some(EditWithDiff { edited, old_text, new_text: kept_text, edits }))
    }

    /// Returns the range in which matches may be.
    fn region(&self, body: &[u8]) -> Range<usize> {
        let Some((first, last)) = self.line_range else { return 0..body.len() };
        let mut ends = memchr::memchr_iter(b'\n', body).map(|at| at + 1);
        // A line starts where the line before it ends.
        let mut after = |n: u64| match usize::try_from(n).ok().and_then(|n| n.checked_sub(1)) {
            Some(n) => ends.nth(n).unwrap_or(body.len()),
            None => 0,
        };

        let start = after(first - 1);
        if start == body.len() && first != 1 {
            // The file has fewer lines.
            return start..start;
        }
        start..after(last - first + 1)
    }
}

/// State of editing one file.
struct Work<'a> {
    editor: &'a Editor,
    templates: &'a [Template],
    body: &'a [u8],
    /// Bytes that were removed from the text that the pattern sees.
    crlf: CrlfMap,
    stop: Option<&'a Stop>,
    groups: Captures,
    out: Vec<u8>,
    /// The old text up to this position is in `out`.
    copied: usize,
    n_matches: u64,
    edits: Vec<Edit>,
}

impl<'a> Work<'a> {
    fn new(
        editor: &'a Editor,
        templates: &'a [Template],
        body: &'a [u8],
        stop: Option<&'a Stop>,
    ) -> Self {
        let groups = editor.matcher.regex.create_captures();
        let (out, edits, crlf) = (Vec::new(), Vec::new(), CrlfMap::default());
        Self { editor, templates, body, crlf, stop, groups, out, copied: 0, n_matches: 0, edits }
    }

    /// Replaces matches in one pass over each line that may match.
    fn line_by_line(&mut self, region: Range<usize>) -> Result<(), EditError> {
        let body = self.body;
        let has_cr = memchr::memchr(b'\r', body).is_some();
        let (mut at, mut n_lines) = (region.start, 0_u64);
        while self.n_matches < self.editor.max_per_file {
            let next = self.editor.matcher.next_candidate(body, has_cr, at, region.end);
            let Some(candidate) = next else { return Ok(()) };
            let skipped = body.get(at..candidate).unwrap_or_default();
            let start = memchr::memrchr(b'\n', skipped).map_or(at, |break_at| at + break_at + 1);
            let rest = body.get(start..).unwrap_or_default();
            // No line follows the last line break.
            if rest.is_empty() || region.end <= start {
                return Ok(());
            }

            let end = memchr::memchr(b'\n', rest).map_or(body.len(), |break_at| start + break_at);
            let line = body.get(start..end).unwrap_or_default();
            let is_ended = end < body.len();
            // At the end of the file, a carriage return ends no line.
            let content = line.strip_suffix(b"\r").filter(|_| is_ended).unwrap_or(line);
            self.replace_in(content, start, 0..content.len())?;

            at = end + 1;
            n_lines += 1;
            if n_lines.is_multiple_of(MATCHES_BETWEEN_LOOKS) {
                self.look_at_the_time()?;
            }
        }
        Ok(())
    }

    /// Replaces the matches in a part of a haystack, which starts at `offset` of the text.
    fn replace_in(
        &mut self,
        haystack: &[u8],
        offset: usize,
        part: Range<usize>,
    ) -> Result<(), EditError> {
        let editor = self.editor;
        let end = part.end;
        let input = Input::new(haystack).range(part);

        for regex_match in editor.matcher.regex.find_iter(input) {
            if regex_match.is_empty() && is_within_a_char(haystack, regex_match.start()) {
                continue;
            }
            if editor.max_per_file <= self.n_matches {
                return Ok(());
            }
            self.n_matches += 1;
            if self.n_matches.is_multiple_of(MATCHES_BETWEEN_LOOKS) {
                self.look_at_the_time()?;
            }
            self.replace(haystack, offset, end, regex_match)?;
        }
        Ok(())
    }

    fn replace(
        &mut self,
        haystack: &[u8],
        offset: usize,
        end: usize,
        regex_match: Match,
    ) -> Result<(), EditError> {
        let Some(template) = self.templates.get(regex_match.pattern().as_usize()) else {
            return Ok(());
        };
        let groups = self.editor.needs_groups.then(|| {
            // Find the same match again with its groups, which needs a slower search.
            let input = Input::new(haystack).range(regex_match.start()..end);
            self.editor.matcher.regex.captures(input, &mut self.groups);
            &self.groups
        });

        let original = |range: Range<usize>| {
            self.crlf.original_range(offset + range.start..offset + range.end)
        };
        let old = original(regex_match.range());

        let kept = self.out.len();
        self.out.extend_from_slice(self.body.get(self.copied..old.start).unwrap_or_default());
        let new_start = self.out.len();
        let group = |span| self.body.get(original(span)).unwrap_or_default();
        template.expand(group, groups, &mut self.out);
        let new = new_start..self.out.len();

        // A match that is replaced by itself is no edit.
        if self.out.get(new.clone()) == self.body.get(old.clone()) {
            self.out.truncate(kept);
            return Ok(());
        }

        self.copied = old.end;
        if self.editor.max_replacements <= self.edits.len() as u64 {
            return Err(EditError::TooMany);
        }
        if MAX_FILE_BYTES < self.out.len() as u64 {
            return Err(SkipReason::WouldBeTooLarge.into());
        }

        self.edits.push(Edit { old, new });
        Ok(())
    }

    fn look_at_the_time(&self) -> Result<(), EditError> {
        match self.stop {
            Some(stop) if stop.is_reached() => Err(EditError::Stopped),
            Some(_) | None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<(Vec<u8>, Vec<Edit>), EditError> {
        self.out.extend_from_slice(self.body.get(self.copied..).unwrap_or_default());
        if MAX_FILE_BYTES < self.out.len() as u64 {
            return Err(SkipReason::WouldBeTooLarge.into());
        }
        Ok((self.out, self.edits))
    }
}

fn has_crlf(body: &[u8]) -> bool {
    memchr::memmem::find(body, b"\r\n").is_some()
}

/// Whether `at` is inside the bytes of one character. An insertion there would break the character.
fn is_within_a_char(text: &[u8], at: usize) -> bool {
    let is_continued = text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    is_continued
        && (1..=3.min(at)).any(|back| {
            let start = at - back;
            let len = match text.get(start) {
                Some(0xc2..=0xdf) => 2,
                Some(0xe0..=0xef) => 3,
                Some(0xf0..=0xf4) => 4,
                _ => return false,
            };
            let char = text.get(start..start + len);
            back < len && char.is_some_and(|char| std::str::from_utf8(char).is_ok())
        })
}

/// Counts the lines of the old text that the edits touch. An insertion touches the line that contains it.
fn lines_touched(body: &[u8], edits: &[Edit]) -> u64 {
    let (mut n_lines, mut line, mut at) = (0, 0_u64, 0);
    let mut last_touched = None;

    let mut line_of = |place: usize| {
        let between = body.get(at..place).unwrap_or_default();
        line += memchr::memchr_iter(b'\n', between).count() as u64;
        at = place.max(at);
        line
    };

    for Edit { old, .. } in edits {
        let first = line_of(old.start);
        let last = line_of(if old.is_empty() { old.start } else { old.end - 1 });
        // A line that several edits touch counts once.
        let first_new = last_touched.map_or(first, |touched: u64| first.max(touched + 1));
        n_lines += (last + 1).saturating_sub(first_new);
        last_touched = Some(last);
    }
    n_lines
}
