//! Compiles a pattern to a regex that finds matches with their groups.
//!
//! Searching needs no groups and uses another matcher. Both find the same matches in a line.

use crate::SearchError;
use crate::basic;
use crate::crlf;
use crate::request::{Boundary, Case, Dialect, Multiline, Pattern};
use regex_automata::Input;
use regex_automata::meta::{BuildError, Config, Regex};
use regex_syntax::ParserBuilder;
use regex_syntax::ast::{self, Ast, ClassSetItem, Visitor};
use regex_syntax::hir::{
    Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind,
    Look, LookSet, Repetition,
};
use std::convert::Infallible;

/// Maximum length of a pattern with all its alternatives, in bytes.
const MAX_PATTERN_BYTES: usize = 64 * 1024;

/// Maximum compiled size of a pattern in bytes. Limits the memory of a hostile pattern.
const MAX_COMPILED_BYTES: usize = 10 * 1024 * 1024;

/// Finds matches. The patterns are numbered in their order.
#[derive(Debug)]
pub(super) struct Matcher {
    pub(super) regex: Regex,
    /// Matches may cross lines.
    pub(super) is_multiline: bool,
    /// Matches may cross lines because the pattern contains a line feed, and not because the request asked for
    /// it.
    pub(super) is_multiline_by_itself: bool,
    /// The pattern sees `\r\n` as `\n` if matches may cross lines.
    pub(super) folds: bool,
    leap: BlockSkip,
}

/// Whether lines without a match can be skipped by searching many lines at once. This requires that a match in
/// a line also matches at the same position of the whole text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockSkip {
    Always,
    /// A line ends only before a line feed.
    WithoutCr,
    Never,
}

impl Matcher {
    /// Compiles `pattern` in `dialect`.
    ///
    /// # Errors
    /// As for a search with the same pattern.
    pub(super) fn new(pattern: &Pattern, dialect: Dialect) -> Result<Self, SearchError> {
        let len = pattern.patterns.iter().map(String::len).sum::<usize>();
        if MAX_PATTERN_BYTES < len {
            return Err(SearchError::PatternTooLong { max: MAX_PATTERN_BYTES });
        }
        if pattern.patterns.is_empty() || pattern.patterns.iter().any(String::is_empty) {
            return Err(SearchError::EmptyPattern);
        }

        let crosses_lines = pattern.patterns.iter().any(|text| can_cross(text, pattern));
        let (is_multiline, dot_all) = match pattern.multiline {
            Multiline::Off => (false, false),
            Multiline::On { dot_all } => (true, dot_all),
            Multiline::Auto => (crosses_lines, false),
        };
        let names_cr = pattern.patterns.iter().any(|text| crlf::names_cr(text, pattern.literal));

        let mut hirs = Vec::new();
        for text in alternatives(pattern, is_multiline) {
            let hir = parse(text, pattern, dialect, dot_all)?;
            let hir = if is_multiline { hir } else { within_a_line(hir)? };
            hirs.push(bounded(hir, pattern.boundary));
        }

        let looks =
            hirs.iter().fold(LookSet::empty(), |all, hir| all.union(hir.properties().look_set()));
        // Files need not be UTF-8, so an empty match may be at any byte.
        let config = Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(MAX_COMPILED_BYTES))
            .hybrid_cache_capacity(MAX_COMPILED_BYTES);
        let regex = Regex::builder().configure(config).build_many_from_hir(&hirs);
        let regex = regex.map_err(|error| too_complex(&error))?;

        let is_multiline_by_itself = is_multiline && pattern.multiline == Multiline::Auto;
        let (folds, leap) = (is_multiline && !names_cr, BlockSkip::by(looks));
        Ok(Self { regex, is_multiline, is_multiline_by_itself, folds, leap })
    }

    /// Returns the earliest position between `at` and `end` at which a line with a match may be.
    pub(super) fn next_candidate(
        &self,
        text: &[u8],
        has_cr: bool,
        at: usize,
        end: usize,
    ) -> Option<usize> {
        if end <= at {
            return None;
        }

        let leaps = match self.leap {
            BlockSkip::Always => true,
            BlockSkip::WithoutCr => !has_cr,
            BlockSkip::Never => false,
        };
        if !leaps {
            return Some(at);
        }

        // The end of a match is cheaper to find than its start. A match never crosses a line, so both are in
        // the same line.
        self.regex.search_half(&Input::new(text).range(at..end)).map(|found| found.offset())
    }
}

impl BlockSkip {
    fn by(looks: LookSet) -> Self {
        // They see the ends of the text or of its lines, so each line must be searched alone.
        let is_of_texts =
            |look| matches!(look, Look::Start | Look::End | Look::StartCRLF | Look::EndCRLF);
        if looks.iter().any(is_of_texts) {
            Self::Never
        } else if looks.contains(Look::EndLF) {
            // A line is searched without its carriage return, but the whole text has it.
            Self::WithoutCr
        } else {
            Self::Always
        }
    }
}

/// Returns the patterns one by one. If matches stay within lines, each line of a pattern is an alternative.
fn alternatives(pattern: &Pattern, is_multiline: bool) -> Vec<&str> {
    let mut all = Vec::new();
    for text in &pattern.patterns {
        if is_multiline {
            all.push(text.as_str());
        } else {
            // A line feed at the end does not begin an empty alternative, which would match everywhere.
            all.extend(text.strip_suffix('\n').unwrap_or(text).split('\n'));
        }
    }
    all
}

/// Whether a pattern can match a line feed.
fn can_cross(text: &str, pattern: &Pattern) -> bool {
    let parsed = ParserBuilder::new().utf8(false).build().parse(text);
    text.contains('\n') || (!pattern.literal && parsed.is_ok_and(|hir| names_line_feed(&hir)))
}

fn names_line_feed(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Literal(literal) => literal.0.contains(&b'\n'),
        HirKind::Repetition(repetition) => names_line_feed(&repetition.sub),
        HirKind::Capture(capture) => names_line_feed(&capture.sub),
        HirKind::Concat(all) | HirKind::Alternation(all) => all.iter().any(names_line_feed),
        HirKind::Empty | HirKind::Class(_) | HirKind::Look(_) => false,
    }
}

fn parse(
    source: &str,
    pattern: &Pattern,
    dialect: Dialect,
    dot_all: bool,
) -> Result<Hir, SearchError> {
    let text = match dialect {
        _ if pattern.literal => regex_syntax::escape(source),
        Dialect::Rust => source.to_owned(),
        Dialect::Basic => basic::translate(source),
    };

    let is_insensitive = match pattern.case {
        Case::Sensitive => false,
        Case::Insensitive => true,
        Case::Smart => !pattern.patterns.iter().any(|part| has_upper_case(part, pattern.literal)),
    };

    ParserBuilder::new()
        .utf8(false)
        .multi_line(true)
        .case_insensitive(is_insensitive)
        .dot_matches_new_line(dot_all)
        .build()
        .parse(&text)
        .map_err(|error| bad(&error.to_string()))
}

/// Rewrites the expression for text without line feeds, or fails if it requires one. Otherwise a search over
/// many lines could find a match that begins in one line and ends in another.
fn within_a_line(hir: Hir) -> Result<Hir, SearchError> {
    let each = |all: Vec<Hir>| all.into_iter().map(within_a_line).collect::<Result<Vec<_>, _>>();
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => {
            let reason = r#"the literal "\n" is not allowed in a regex"#;
            return Err(SearchError::BadPattern { reason: reason.into(), full: reason.into() });
        }
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(Class::Unicode(mut class)) => {
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(mut class)) => {
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(Repetition { min, max, greedy, sub }) => {
            let sub = Box::new(within_a_line(*sub)?);
            Hir::repetition(Repetition { min, max, greedy, sub })
        }
        HirKind::Capture(Capture { index, name, sub }) => {
            let sub = Box::new(within_a_line(*sub)?);
            Hir::capture(Capture { index, name, sub })
        }
        HirKind::Concat(all) => Hir::concat(each(all)?),
        HirKind::Alternation(all) => Hir::alternation(each(all)?),
    })
}

fn bounded(hir: Hir, boundary: Boundary) -> Hir {
    let (before, after) = match boundary {
        Boundary::None => return hir,
        Boundary::Word => (Look::WordStartHalfUnicode, Look::WordEndHalfUnicode),
        Boundary::Line => (Look::StartLF, Look::EndLF),
    };
    Hir::concat(vec![Hir::look(before), hir, Hir::look(after)])
}

/// The parser's message shows the pattern and a caret. The reason is the last line.
fn bad(full: &str) -> SearchError {
    let last = full.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or(full);
    let reason = last.strip_prefix("error: ").unwrap_or(last).to_owned();
    SearchError::BadPattern { reason, full: full.to_owned() }
}

fn too_complex(error: &BuildError) -> SearchError {
    match error.size_limit() {
        Some(limit) => SearchError::BadPattern {
            reason: format!("compiled regex exceeds size limit of {limit}"),
            full: format!("Compiled regex exceeds size limit of {limit} bytes."),
        },
        None => bad(&error.to_string()),
    }
}

/// Whether the pattern contains a literal upper-case letter. Classes such as `\S` contain none.
fn has_upper_case(text: &str, is_literal: bool) -> bool {
    if is_literal {
        return text.chars().any(char::is_uppercase);
    }
    let parsed = ast::parse::Parser::new().parse(text);
    parsed.is_ok_and(|ast| match ast::visit(&ast, UpperCase(false)) {
        Ok(found) => found,
    })
}

struct UpperCase(bool);

impl UpperCase {
    fn look(&mut self, literal: &ast::Literal) {
        self.0 |= literal.c.is_uppercase();
    }
}

impl Visitor for UpperCase {
    type Output = bool;
    type Err = Infallible;

    fn finish(self) -> Result<bool, Infallible> {
        Ok(self.0)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Infallible> {
        if let Ast::Literal(literal) = ast {
            self.look(literal);
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Infallible> {
        match item {
            ClassSetItem::Literal(literal) => self.look(literal),
            ClassSetItem::Range(range) => {
                self.look(&range.start);
                self.look(&range.end);
            }
            _ => {}
        }
        Ok(())
    }
}
