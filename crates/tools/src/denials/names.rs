//! Parses paths and hosts in error lines. Best effort: the result is only used in texts.

use super::phrases::Hit;

/// Quotation marks around names: those of the C locale, of other locales, of C++ and Rust tools, and of JSON.
const QUOTES: &[(char, char)] =
    &[('\'', '\''), ('\u{2018}', '\u{2019}'), ('`', '`'), ('`', '\''), ('"', '"')];

/// Text before a host name, in lower case.
const BEFORE_HOSTS: &[&str] = &[
    "resolve hostname ",
    "resolve host: ",
    "resolve host address ",
    "getaddrinfo eai_again ",
    "getaddrinfo enotfound ",
    "connect enetunreach ",
    "connect eacces ",
    "failed to connect to ",
    "connect to host ",
    "lookup ",
    "temporary failure resolving ",
    "resolving ",
];

/// Returns the names that a line may be about, most likely first.
pub(super) fn candidates(hit: &Hit<'_>) -> Vec<String> {
    let mut names: Vec<String> = settings_file(hit).map(str::to_owned).into_iter().collect();
    names.extend(quoted(hit.after));
    // Of several names before the text, the last is the denied one, as in "cannot move 'a' to '/b'".
    names.extend(quoted(hit.before).into_iter().rev());
    names.extend(last_part(hit.before));
    let words = hit.before.split_whitespace().chain(hit.after.split_whitespace());
    names.extend(words.filter(|word| word.starts_with('/')).map(trimmed));

    // Rust programs describe the failed operation on separate lines.
    if names.is_empty() {
        let near = hit.earlier.iter().find_map(|line| {
            quoted(line).into_iter().find(|name| name.contains('/') && !name.contains("://"))
        });
        names.extend(near);
    }

    names.retain(|name| !name.is_empty());
    names
}

/// Returns the settings file that git could not write or lock. The path may contain spaces.
pub(super) fn settings_file<'a>(hit: &Hit<'a>) -> Option<&'a str> {
    let (_, path) = hit.before.split_once(" config file ")?;
    path.strip_suffix(": ")
}

/// Returns the quoted texts in order.
fn quoted(text: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut rest = text;
    let mut last = ' ';

    while let Some(first) = rest.chars().next() {
        rest = rest.get(first.len_utf8()..).unwrap_or_default();
        // An apostrophe within a word is not an opening quote.
        let opens = !last.is_alphanumeric();
        last = first;
        let ends = QUOTES.iter().filter(|(open, _)| opens && *open == first);
        let end = ends.filter_map(|(_, close)| closing(rest, *close)).min();
        if let Some((at, len)) = end {
            texts.push(rest.get(..at).unwrap_or_default().to_owned());
            rest = rest.get(at + len..).unwrap_or_default();
        }
    }

    texts
}

/// Returns the position and length of the closing quote. A mark within a word does not count.
fn closing(text: &str, close: char) -> Option<(usize, usize)> {
    let mut ends = text.match_indices(close);
    let (at, mark) = ends.find(|(at, mark)| {
        let next = text.get(at + mark.len()..).and_then(|rest| rest.chars().next());
        next.is_none_or(|next| !next.is_alphanumeric())
    })?;
    Some((at, mark.len()))
}

/// Returns the name in the last colon-separated part before the text: `/a` for `touch: /a: `.
fn last_part(before: &str) -> Option<String> {
    let before = before.trim_end().strip_suffix(':')?;
    let mut parts = before.rsplit(": ").peekable();
    while let Some(part) = parts.next() {
        let part = part.trim();
        // The first part is the program, or a position in its source.
        let is_first = parts.peek().is_none();
        let is_one_word = !part.contains(char::is_whitespace);
        if part.starts_with(['/', '.', '~']) || (is_one_word && !is_first) {
            return Some(part.to_owned());
        }

        let last = part.rsplit(char::is_whitespace).next().unwrap_or_default();
        if last.contains('/') && !last.contains("://") {
            return Some(last.to_owned());
        }
    }
    None
}

fn trimmed(word: &str) -> String {
    word.trim_end_matches([':', ',', ')', '.', ';']).to_owned()
}

/// Returns the host that a line is about.
pub(super) fn host(line: &str) -> Option<&str> {
    let lower = line.to_ascii_lowercase();
    BEFORE_HOSTS.iter().find_map(|before| {
        let mut begins = lower.match_indices(before).map(|(at, _)| at + before.len());
        begins.find_map(|begin| {
            let word = line.get(begin..)?.split_whitespace().next()?;
            let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            let host = match word.split_once(':') {
                Some((host, port)) if !port.contains(':') => host,
                _ => word,
            };

            let is_plain =
                |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '_');
            let is_host = host == "localhost" || host.contains(['.', ':']);
            (is_host && host.chars().all(is_plain)).then_some(host)
        })
    })
}

/// Whether the host is the machine itself. A confined command can reach it within its own network.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost") || host.starts_with("127.") || host == "::1"
}
