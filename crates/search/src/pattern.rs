//! From a pattern to matchers: limits, alternatives, dialects and one-line reasons.

use crate::basic;
use crate::request::{Dialect, Request, SearchError};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};

/// Longest pattern, in bytes.
pub(crate) const MAX_BYTES: usize = 64 * 1024;

/// Compiled size of a pattern, in bytes: what a hostile pattern can make us build. A class of all
/// letters takes some 10 KiB.
const MAX_COMPILED_BYTES: usize = 10 * 1024 * 1024;

/// The readings of a request's pattern, to be tried in this order until one finds something. There
/// is at least one.
pub(crate) fn attempts(request: &Request) -> Result<Vec<(Dialect, RegexMatcher)>, SearchError> {
    if MAX_BYTES < request.pattern.len() {
        return Err(SearchError::PatternTooLong { max: MAX_BYTES });
    }
    let as_asked = compile(&request.pattern, request.dialect).map(|found| (request.dialect, found));
    if request.dialect == Dialect::Basic
        || !request.retry_as_basic
        || !basic::has_idioms(&request.pattern)
    {
        return Ok(vec![as_asked?]);
    }
    match (as_asked, compile(&request.pattern, Dialect::Basic)) {
        (Ok(rust), Ok(basic)) => Ok(vec![rust, (Dialect::Basic, basic)]),
        (Err(_), Ok(basic)) => Ok(vec![(Dialect::Basic, basic)]),
        (rust, Err(_)) => Ok(vec![rust?]),
    }
}

fn compile(pattern: &str, dialect: Dialect) -> Result<RegexMatcher, SearchError> {
    // A final newline ends the last alternative; it does not begin an empty one, which would match
    // every line.
    let alternatives = pattern.strip_suffix('\n').unwrap_or(pattern).split('\n');
    let alternatives: Vec<String> = match dialect {
        Dialect::Rust => alternatives.map(str::to_owned).collect(),
        Dialect::Basic => alternatives.map(basic::translate).collect(),
    };
    RegexMatcherBuilder::new()
        // The searcher looks at many lines at once: `^` and `$` must mean lines.
        .multi_line(true)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .build_many(&alternatives)
        .map_err(|error| SearchError::BadPattern { reason: last_line(&error.to_string()) })
}

/// The parser draws the pattern and a caret; the reason is its last line.
fn last_line(text: &str) -> String {
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or(text);
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_pattern_has_a_reason_of_one_line() {
        let cases = [
            ("foo(", "unclosed group"),
            ("[a", "unclosed character class"),
            ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
            (r"(a)\1", "backreferences are not supported"),
            ("*", "repetition operator missing expression"),
            (r"a\nb", r#"the literal "\n" is not allowed in a regex"#),
            (r"(\pL{1000}){1000}", "compiled regex exceeds size limit of 10485760"),
        ];
        for (pattern, expected) in cases {
            let error = compile(pattern, Dialect::Rust).unwrap_err();
            assert_eq!(error, SearchError::BadPattern { reason: expected.into() }, "{pattern}");
        }
    }
}
