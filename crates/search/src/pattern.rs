//! Compiles patterns to matchers: limits, alternatives, dialects, and errors in one line and in full.

use crate::basic;
use crate::crlf;
use crate::error::SearchError;
use crate::line_matcher::{Certainty, LineEnds, LineMatcher};
use crate::pattern_cost;
use crate::request::{Boundary, Case, Dialect, Multiline, Pattern};
use grep_matcher::Matcher as _;
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::hir::{Class, Hir, HirKind, Look, LookSet};

/// Maximum length of all patterns together, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// Maximum compiled size of a pattern in bytes. Limits the memory of a hostile pattern. A class of all letters
/// takes about 10 KiB.
const MAX_COMPILED_BYTES: usize = 10 * 1024 * 1024;

/// A pattern compiled in one dialect.
#[derive(Debug, Clone)]
pub(crate) struct Interpretation {
    pub(crate) matcher: LineMatcher,
    pub(crate) dialect: Dialect,
    /// Matches may cross lines.
    pub(crate) multiline: bool,
    /// The text is searched as a whole, without the carriage returns of its line ends.
    pub(crate) folds: bool,
    /// Bytes of text that are searched at once.
    pub(crate) piece: usize,
}

/// Returns the interpretations of a pattern, at least one. The caller tries them in order until one finds
/// something.
pub(crate) fn readings(pattern: &Pattern) -> Result<Vec<Interpretation>, SearchError> {
    readings_with(pattern, None)
}

/// Returns the matcher of a similar pattern that is searched together with another, whose line ends it must have.
pub(crate) fn similar(pattern: &Pattern, ends: LineEnds) -> Option<LineMatcher> {
    Some(readings_with(pattern, Some(ends)).ok()?.pop()?.matcher)
}

fn readings_with(
    pattern: &Pattern,
    ends: Option<LineEnds>,
) -> Result<Vec<Interpretation>, SearchError> {
    if pattern.patterns.is_empty() || pattern.patterns.iter().any(String::is_empty) {
        return Err(SearchError::EmptyPattern);
    }
    if MAX_BYTES < pattern.patterns.iter().map(String::len).sum() {
        return Err(SearchError::PatternTooLong { max: MAX_BYTES });
    }

    let requested = read(pattern, pattern.dialect, ends);
    let has_other = pattern.dialect == Dialect::Rust
        && pattern.retry_as_basic
        && !pattern.literal
        && pattern.patterns.iter().any(|pattern| basic::has_idioms(pattern));
    if !has_other {
        return Ok(vec![requested?]);
    }

    match (requested, read(pattern, Dialect::Basic, ends)) {
        (Ok(rust), Ok(basic)) => Ok(vec![rust, basic]),
        (Err(_), Ok(basic)) => Ok(vec![basic]),
        // If neither is valid, the error is about the dialect of the request.
        (rust, Err(_)) => Ok(vec![rust?]),
    }
}

fn read(
    pattern: &Pattern,
    dialect: Dialect,
    ends: Option<LineEnds>,
) -> Result<Interpretation, SearchError> {
    let spelled = || pattern.patterns.iter().map(|text| spell(without_end(text), pattern, dialect));
    let reading = |exact: RegexMatcher, multiline| {
        let piece = if pattern.literal {
            // A literal has no repetitions.
            usize::MAX
        } else {
            pattern_cost::piece(&spelled().collect::<Vec<_>>())?
        };

        let names_cr = spelled().any(|text| crlf::names_cr(&text, pattern.literal));
        let stays = exact.non_matching_bytes().is_some_and(|bytes| bytes.contains(b'\n'));
        let crosses = multiline && !stays;

        let matcher = match ends {
            // Such a pattern gets the text as it is, or without any carriage return of a line end.
            _ if names_cr || crosses => LineMatcher::plain(exact),
            Some(LineEnds::Lf) => LineMatcher::plain(exact),
            _ => of_both_ends(exact, pattern, dialect)?,
        };

        let folds = crosses && !names_cr;
        Ok(Interpretation { matcher, dialect, multiline, folds, piece })
    };

    match pattern.multiline {
        Multiline::Off => compile(pattern, dialect, None).and_then(|regex| reading(regex, false)),
        Multiline::On { dot_all } => {
            compile(pattern, dialect, Some(dot_all)).and_then(|regex| reading(regex, true))
        }
        Multiline::Auto => {
            let crosses =
                pattern.patterns.iter().any(|pattern| without_end(pattern).contains('\n'));
            if !crosses {
                match build(pattern, dialect, None) {
                    // The pattern needs a line break, so matches may cross lines.
                    Err(error) if matches!(error.kind(), ErrorKind::NotAllowed(_)) => (),
                    built => {
                        let built = built.map_err(|error| refusal(pattern, dialect, &error));
                        return built.and_then(|regex| reading(regex, false));
                    }
                }
            }
            compile(pattern, dialect, Some(false)).and_then(|regex| reading(regex, true))
        }
    }
}

/// Adds to a matcher what it needs for lines that end with `\r\n`.
fn of_both_ends(
    exact: RegexMatcher,
    pattern: &Pattern,
    dialect: Dialect,
) -> Result<LineMatcher, SearchError> {
    let is_whole_line = pattern.boundary == Boundary::Line;
    let parts = pattern.patterns.iter().flat_map(|text| without_end(text).split('\n'));
    let parts: Vec<String> = parts.map(|part| spell(part, pattern, dialect)).collect();

    if pattern.literal && !is_whole_line {
        let is_sure = parts.iter().all(|part| !part.is_empty());
        let certainty = if is_sure { Certainty::Always } else { Certainty::Never };
        return Ok(LineMatcher::of_both_ends(exact, None, certainty));
    }

    let mut is_wide = is_whole_line;
    let wide = parts.iter().map(|part| {
        let part = if pattern.literal { &regex_syntax::escape(part) } else { part };
        let ended = crlf::with_ends_before_cr(part);
        is_wide |= ended.is_some();
        let ended = ended.unwrap_or_else(|| part.clone());
        if is_whole_line { format!("(?:^(?:{ended}){})", crlf::END) } else { ended }
    });
    let wide: Vec<String> = wide.collect();

    let wide = is_wide.then(|| {
        let boundary = if is_whole_line { Boundary::None } else { pattern.boundary };
        let pattern = Pattern { literal: false, boundary, ..pattern.clone() };
        let built = builder(&pattern, None).build_many(&wide);
        built.map_err(|error| refusal(&pattern, dialect, &error))
    });

    let most = if is_whole_line { Certainty::BeforeLf } else { Certainty::Always };
    let certainty = parts.iter().map(|part| certainty(part)).fold(most, Certainty::min);
    Ok(LineMatcher::of_both_ends(exact, wide.transpose()?, certainty))
}

/// When a match in a line with its carriage return is also a match without it. A match that takes a character, but no
/// carriage return, ends before the one at the end of the line.
fn certainty(part: &str) -> Certainty {
    let mut parser = regex_syntax::ParserBuilder::new().utf8(false).multi_line(true).build();
    let Ok(hir) = parser.parse(part) else { return Certainty::Never };
    let properties = hir.properties();
    let ends = [Look::End, Look::EndCRLF, Look::StartCRLF];
    let ends = ends.into_iter().fold(LookSet::empty(), LookSet::insert);
    let is_empty = properties.minimum_len().is_none_or(|len| len == 0);

    if is_empty || takes_cr(&hir) || !properties.look_set().intersect(ends).is_empty() {
        Certainty::Never
    } else if properties.look_set().contains(Look::EndLF) {
        Certainty::BeforeLf
    } else {
        Certainty::Always
    }
}

/// Whether a class of the expression contains the carriage return.
fn takes_cr(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Class(Class::Unicode(class)) => {
            class.iter().any(|range| range.start() <= '\r' && '\r' <= range.end())
        }
        HirKind::Class(Class::Bytes(class)) => {
            class.iter().any(|range| range.start() <= b'\r' && b'\r' <= range.end())
        }
        HirKind::Repetition(repetition) => takes_cr(&repetition.sub),
        HirKind::Capture(capture) => takes_cr(&capture.sub),
        HirKind::Concat(all) | HirKind::Alternation(all) => all.iter().any(takes_cr),
        HirKind::Literal(literal) => literal.0.contains(&b'\r'),
        HirKind::Empty | HirKind::Look(_) => false,
    }
}

/// Removes a final newline, which is not part of the pattern.
fn without_end(pattern: &str) -> &str {
    pattern.strip_suffix('\n').unwrap_or(pattern)
}

fn compile(
    pattern: &Pattern,
    dialect: Dialect,
    dot_all: Option<bool>,
) -> Result<RegexMatcher, SearchError> {
    build(pattern, dialect, dot_all).map_err(|error| refusal(pattern, dialect, &error))
}

/// Compiles the patterns. Matches may cross lines if `dot_all` is set.
fn build(
    pattern: &Pattern,
    dialect: Dialect,
    dot_all: Option<bool>,
) -> Result<RegexMatcher, grep_regex::Error> {
    let mut alternatives = Vec::new();
    for text in &pattern.patterns {
        let text = without_end(text);
        // If matches stay within lines, a newline only separates alternatives.
        let parts = if dot_all.is_some() { vec![text] } else { text.split('\n').collect() };
        alternatives.extend(parts.into_iter().map(|part| spell(part, pattern, dialect)));
    }

    builder(pattern, dot_all).build_many(&alternatives)
}

fn builder(pattern: &Pattern, dot_all: Option<bool>) -> RegexMatcherBuilder {
    let mut builder = RegexMatcherBuilder::new();
    builder
        // The searcher passes many lines at once, so `^` and `$` must match at line ends.
        .multi_line(true)
        .fixed_strings(pattern.literal)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES);

    match pattern.case {
        Case::Sensitive => &mut builder,
        Case::Insensitive => builder.case_insensitive(true),
        Case::Smart => builder.case_smart(true),
    };
    match pattern.boundary {
        Boundary::None => &mut builder,
        Boundary::Word => builder.word(true),
        Boundary::Line => builder.whole_line(true),
    };
    match dot_all {
        None => builder.line_terminator(Some(b'\n')),
        Some(dot_all) => builder.dot_matches_new_line(dot_all),
    };
    builder
}

fn spell(part: &str, pattern: &Pattern, dialect: Dialect) -> String {
    match dialect {
        Dialect::Basic if !pattern.literal => basic::translate(part),
        Dialect::Basic | Dialect::Rust => part.to_owned(),
    }
}

fn refusal(pattern: &Pattern, dialect: Dialect, error: &grep_regex::Error) -> SearchError {
    let reason = last_line(&error.to_string());

    let wrong = pattern.patterns.iter().find_map(|text| {
        let spelled = spell(without_end(text), pattern, dialect);
        regex_syntax::parse(&spelled).err().map(|error| error.to_string())
    });

    let full = wrong.unwrap_or_else(|| {
        // Restores the regex crate's message, which the matcher's builder changes. Its error has no variant for the
        // size, so the text is compared.
        if reason.contains("exceeds size limit") {
            format!("Compiled regex exceeds size limit of {MAX_COMPILED_BYTES} bytes.")
        } else {
            error.to_string()
        }
    });

    SearchError::BadPattern { reason, full }
}

/// The parser's message shows the pattern and a caret. The reason is the last line.
fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or(text);
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_pattern_has_a_reason_of_one_line_and_one_in_full() {
        let cases = [
            ("foo(", "unclosed group"),
            ("[a", "unclosed character class"),
            ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
            (r"(a)\1", "backreferences are not supported"),
            ("*", "repetition operator missing expression"),
        ];
        for (pattern, expected) in cases {
            let error = readings(&Pattern::new(pattern)).unwrap_err();
            let SearchError::BadPattern { reason, full } = error else { panic!("{error}") };
            assert_eq!(reason, expected, "{pattern}");
            assert!(full.starts_with("regex parse error:\n"), "{full}");
            assert!(full.ends_with(&format!("error: {expected}")), "{full}");
        }
        let error = readings(&Pattern::new(r"(\pL{1000}){1000}")).unwrap_err();
        let reason = "compiled regex exceeds size limit of 10485760".to_owned();
        let full = "Compiled regex exceeds size limit of 10485760 bytes.".to_owned();
        assert_eq!(error, SearchError::BadPattern { reason, full });
    }

    #[test]
    fn a_line_feed_in_a_pattern_is_refused_or_lets_matches_cross_lines() {
        let with = |multiline| Pattern { multiline, ..Pattern::new(r"a\nb") };
        let reason = r#"the literal "\n" is not allowed in a regex"#;
        let error = readings(&with(Multiline::Off)).unwrap_err();
        assert!(matches!(&error, SearchError::BadPattern { reason: given, .. } if given == reason));
        let crosses = |pattern: &Pattern| readings(pattern).unwrap().remove(0).multiline;
        assert!(crosses(&with(Multiline::Auto)));
        assert!(crosses(&Pattern::new("a\nb")));
        assert!(crosses(&Pattern { literal: true, ..Pattern::new("a\nb") }));
        for pattern in ["a", "a\n", r"[^a]\s", r"a\\n"] {
            assert!(!crosses(&Pattern::new(pattern)), "{pattern}");
        }
    }
}
