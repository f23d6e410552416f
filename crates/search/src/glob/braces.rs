//! Expands braces: `{a,b}` and `{1..9}` become several patterns before anything else is parsed.

use super::error::GlobError;

/// Maximum number of patterns that one pattern expands to.
const MAX_PATTERNS: usize = 1024;

/// Maximum length of all expanded patterns together, in bytes. Every file is compared with all of them.
const MAX_TOTAL_BYTES: usize = 64 * 1024;

/// Maximum nesting depth of braces. Deeper braces are text.
const MAX_DEPTH: usize = 16;

/// Expands `pattern`. Returns the pattern itself if it contains no group.
pub(super) fn expand(pattern: &str) -> Result<Vec<String>, GlobError> {
    expand_below(pattern, 0)
}

fn expand_below(pattern: &str, depth: usize) -> Result<Vec<String>, GlobError> {
    let mut expanded = vec![String::new()];
    let mut rest = pattern;

    while let Some((before, body, after)) = first_group(rest) {
        rest = after;
        // `${` looks like a shell variable and is left alone.
        let choices = if before.ends_with('$') || depth == MAX_DEPTH {
            vec![format!("{{{body}}}")]
        } else {
            choices(body, depth + 1)?
        };

        let choices = choices.iter().map(|choice| [before, choice.as_str()].concat());
        expanded = product(&expanded, &choices.collect::<Vec<_>>())?;
    }
    product(&expanded, &[rest.to_owned()])
}

/// Expands one group. A group without a comma or a range is text, including its braces.
fn choices(body: &str, depth: usize) -> Result<Vec<String>, GlobError> {
    let parts = split_at_commas(body);
    if parts.len() == 1 {
        if let Some(range) = range(body) {
            return range;
        }
        let inner = expand_below(body, depth)?;
        return Ok(inner.iter().map(|inner| format!("{{{inner}}}")).collect());
    }

    let mut all = Vec::new();
    // Groups multiply, so the size is checked after each part.
    for part in parts {
        all.extend(expand_below(part, depth)?);
        check_size(&all)?;
    }
    Ok(all)
}

fn product(heads: &[String], tails: &[String]) -> Result<Vec<String>, GlobError> {
    // Checked before the patterns are built: their number is a product.
    if MAX_PATTERNS < heads.len().saturating_mul(tails.len()) {
        return Err(GlobError::TooManyPatterns { max: MAX_PATTERNS });
    }

    let pairs = heads.iter().flat_map(|head| tails.iter().map(move |tail| head.clone() + tail));
    let all: Vec<String> = pairs.collect();
    check_size(&all)?;
    Ok(all)
}

fn check_size(all: &[String]) -> Result<(), GlobError> {
    let bytes: usize = all.iter().map(String::len).sum();
    if MAX_PATTERNS < all.len() || MAX_TOTAL_BYTES < bytes {
        return Err(GlobError::TooManyPatterns { max: MAX_PATTERNS });
    }
    Ok(())
}

/// Returns the text before, inside and after the first closed `{`.
fn first_group(text: &str) -> Option<(&str, &str, &str)> {
    let mut open = Vec::new();
    // Position of the outermost closed group that begins first.
    let mut group: Option<(usize, usize)> = None;

    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open.push(at),
            b'}' => {
                if let Some(begin) = open.pop() {
                    if group.is_none_or(|(first, _)| begin < first) {
                        group = Some((begin, at));
                    }
                    if open.is_empty() {
                        break;
                    }
                }
            }
            _ => (),
        }
    }

    let (begin, end) = group?;
    Some((text.get(..begin)?, text.get(begin + 1..end)?, text.get(end + 1..)?))
}

fn split_at_commas(body: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    body.split(|c| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        c == ',' && depth == 0
    })
    .collect()
}

/// Expands a range such as `1..9`, `01..10..2` or `a..e`. `None` if the text is not a range.
fn range(body: &str) -> Option<Result<Vec<String>, GlobError>> {
    let mut ends = body.split("..");
    let (first, last, step) = (ends.next()?, ends.next()?, ends.next());
    if ends.next().is_some() {
        return None;
    }

    let step = match step {
        Some(step) => number(step)?.unsigned_abs().max(1),
        None => 1,
    };

    if let (Some(from), Some(to)) = (number(first), number(last)) {
        let is_padded = [first, last].iter().any(|end| {
            let digits = end.trim_start_matches('-');
            1 < digits.len() && digits.starts_with('0')
        });
        let width = if is_padded { first.len().max(last.len()) } else { 0 };
        return Some(Ok(steps(from, to, step)?.map(|n| format!("{n:0width$}")).collect()));
    }

    let letter = |end: &str| match end.as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some(i64::from(*letter)),
        _ => None,
    };
    let letters = steps(letter(first)?, letter(last)?, step)?;
    Some(Ok(letters.filter_map(|n| Some(char::from(u8::try_from(n).ok()?).to_string())).collect()))
}

/// Parses at most seven digits. Longer numbers are mistakes, and the limit keeps sums far from overflow.
fn number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = (1..=7).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns the numbers from `from` to `to`, up or down. One number more than the limit is enough to be
/// rejected.
fn steps(from: i64, to: i64, step: u64) -> Option<impl Iterator<Item = i64>> {
    let step = i64::try_from(step).ok()?;
    let (direction, distance) = (if from <= to { step } else { -step }, (to - from).abs());
    let count = distance / step;
    Some((0..=count).map(move |n| from + n * direction).take(MAX_PATTERNS + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_several_patterns() {
        let cases: &[(&str, &[&str])] = &[
            ("a", &["a"]),
            ("*.{ts,tsx}", &["*.ts", "*.tsx"]),
            ("{a,b}{c,d}", &["ac", "ad", "bc", "bd"]),
            ("{a,{b,c}d}e", &["ae", "bde", "cde"]),
            ("a{,b}", &["a", "ab"]),
            ("{1..3}", &["1", "2", "3"]),
            ("{3..1}", &["3", "2", "1"]),
            ("{01..3}", &["01", "02", "03"]),
            ("{-1..1}", &["-1", "0", "1"]),
            ("{0..10..5}", &["0", "5", "10"]),
            ("{a..e..2}", &["a", "c", "e"]),
            ("{a..1}", &["{a..1}"]),
            ("{a}", &["{a}"]),
            ("{}", &["{}"]),
            ("{a{b,c}}", &["{ab}", "{ac}"]),
            ("{a,b", &["{a,b"]),
            ("a,b}", &["a,b}"]),
            ("{x{a,b}", &["{xa", "{xb"]),
            ("${a,b}", &["${a,b}"]),
            ("ä{ö,ü}", &["äö", "äü"]),
        ];
        for (pattern, expected) in cases {
            assert_eq!(expand(pattern).unwrap(), *expected, "{pattern}");
        }
    }

    #[test]
    fn a_hostile_pattern_is_refused_instead_of_expanded() {
        let nested = format!("{}a,b{}", "{".repeat(1000), "}".repeat(1000));
        assert!(expand(&nested).unwrap().len() <= 2);
        for pattern in [
            "{a,b}".repeat(11),
            "{1..1025}".to_owned(),
            "{1..9999999}".to_owned(),
            format!("{{a,b}}{{c,d}}{}", "x".repeat(20_000)),
            format!("{{{}}}", ",".repeat(2000)),
        ] {
            assert!(expand(&pattern).is_err(), "{pattern:.40}");
        }
        // More digits than any range needs.
        assert_eq!(expand("{1..99999999}").unwrap(), ["{1..99999999}"]);
    }
}
