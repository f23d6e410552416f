//! Masks keys in texts that are kept, such as the commands in the journal of calls. The supervisor calls it before it
//! writes a record.
//!
//! Only what is surely a key: tokens with the prefix and the length of a known provider, private key blocks, credentials
//! of HTTP headers and addresses, and values of names such as `password` or `api_key`. A key of another form stays.

use serde_json::Value;
use std::borrow::Cow;

/// Text in place of a key.
pub const MASK: &str = "[masked]";

/// Prefixes of tokens, and the least number of characters after the prefix.
const TOKENS: [(&str, usize); 37] = [
    ("sk-ant-", 20),
    ("sk-proj-", 20),
    ("sk-or-", 20),
    ("sk-svcacct-", 20),
    ("sk-", 20),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("gsk_", 30),
    ("xai-", 30),
    ("hf_", 30),
    ("r8_", 30),
    ("tvly-", 20),
    ("pplx-", 30),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("gldt-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xoxa-", 20),
    ("xoxs-", 20),
    ("xapp-", 20),
    ("npm_", 30),
    ("pypi-", 40),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("ya29.", 30),
    ("dop_v1_", 40),
    ("shpat_", 30),
    ("AGE-SECRET-KEY-1", 40),
    ("eyJ", 40),
];

/// Ends of names whose value is a key, in lower case with `_` for `-`.
const NAMES: [&str; 15] = [
    "password",
    "passwd",
    "passphrase",
    "api_key",
    "apikey",
    "access_key",
    "secret_key",
    "private_key",
    "client_secret",
    "secret",
    "access_token",
    "auth_token",
    "api_token",
    "token",
    "pgpassword",
];

/// Length of a text that is searched for the form of a key, in bytes. Without it, the time for a hostile text would grow
/// with the square of its length.
const MAX_FORM_BYTES: usize = 256;

/// Masks the keys in all texts of a value.
pub fn mask_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(masked) = masked(text) {
                *text = masked;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask_value),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match value {
                    Value::String(text) if is_secret(name) && !text.is_empty() => {
                        MASK.clone_into(text);
                    }
                    value => mask_value(value),
                }
            }
        }
        _ => {}
    }
}

/// Masks the keys in a text.
#[must_use]
pub fn masked(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let n_word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let before = text.get(..at).unwrap_or_default();
        let key = match n_word {
            0 => in_address(rest),
            n => key_at(before, rest, n),
        };

        if let Some((kept, end)) = key.filter(|(kept, end)| kept < end) {
            out.push_str(text.get(copied..at + kept).unwrap_or_default());
            out.push_str(MASK);
            copied = at + end;
            at = copied;
            continue;
        }

        // No key begins here.
        let n_other = rest.chars().next().map_or(1, char::len_utf8);
        at += n_word.max(n_other);
    }

    if copied == 0 && out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

/// Longest end of a word that [`cut_at_word`] removes, in bytes. A longer part of a token is recognized as one.
const MAX_CUT_WORD: usize = 64;

/// Returns the beginning of a text, of at most `max` bytes. Ends before the word that the limit cuts, because [`masked`] does
/// not recognize the first characters of a key.
#[must_use]
pub fn cut_at_word(text: &str, max: usize) -> &str {
    let (head, rest) = text.split_at(text.floor_char_boundary(max));
    let whole = head.trim_end_matches(is_word);
    if rest.starts_with(is_word) && head.len() - whole.len() <= MAX_CUT_WORD { whole } else { head }
}

/// Longest beginning of a cut word that [`end_at_word`] removes, in bytes: it may be the rest of any key.
const MAX_WORD_END: usize = 2048;

/// Returns the end of a text, of at most `max` bytes. Begins after the word that the limit cuts.
#[must_use]
pub fn end_at_word(text: &str, max: usize) -> &str {
    let (head, end) = text.split_at(text.ceil_char_boundary(text.len().saturating_sub(max)));
    let whole = end.trim_start_matches(is_word);
    if head.ends_with(is_word) && end.len() - whole.len() <= MAX_WORD_END { whole } else { end }
}

/// Returns the rest of a text after the private key that begins before it, if one ends in it.
#[must_use]
pub(crate) fn after_cut_key(text: &str) -> &str {
    let Some(at) = text.find("-----END") else { return text };
    let (before, rest) = text.split_at(at);
    let is_key = start_of(rest).lines().next().is_some_and(|line| line.contains("PRIVATE KEY"));
    if is_key && !before.contains("-----BEGIN") { rest } else { text }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns where a key begins and ends in `rest`, which begins with a word of `n_word` bytes.
fn key_at(before: &str, rest: &str, n_word: usize) -> Option<(usize, usize)> {
    let word = rest.get(..n_word)?;
    if word == "-----BEGIN" {
        return private_key(rest);
    }

    let token = |(prefix, least): &(&str, usize)| {
        let tail = word_or_dots(rest.strip_prefix(prefix)?);
        // A JSON Web Token has dots between its parts.
        let is_whole = *least <= tail && (*prefix != "eyJ" || rest.get(..tail)?.contains('.'));
        is_whole.then_some((prefix.len(), prefix.len() + tail))
    };

    if let Some(range) = TOKENS.iter().find_map(token) {
        return Some(range);
    }

    let is_scheme = |scheme: &str| word.eq_ignore_ascii_case(scheme);
    let is_of_header = || {
        let header = b"authorization:";
        let before = before.trim_end_matches(' ').as_bytes();
        before.last_chunk().is_some_and(|end: &[u8; 14]| end.eq_ignore_ascii_case(header))
    };
    if is_scheme("bearer") || ["basic", "token"].into_iter().any(is_scheme) && is_of_header() {
        let value = rest.get(n_word..)?;
        let blanks = value.len() - value.trim_start_matches(' ').len();
        let n = value_length(value.get(blanks..)?, 8)?;
        return (blanks != 0).then_some((n_word + blanks, n_word + blanks + n));
    }

    if is_secret(word) {
        return value_of(word, rest, n_word);
    }

    // `curl -u name:password`
    if ["-u", "--user", "--proxy-user"].contains(&word) {
        let value = rest.get(n_word..)?;
        let begin = value.len() - value.trim_start_matches([' ', '=', '"', '\'']).len();
        let name = start_of(value.get(begin..)?);
        let colon = name.find([':', ' ', '\n', '"', '\''])?;
        let after = value.get(begin + colon..)?.strip_prefix(':')?;
        let n = value_length(after, 1)?;
        let kept = n_word + begin + colon + 1;
        return (begin != 0).then_some((kept, kept + n));
    }
    None
}

/// The first [`MAX_FORM_BYTES`] of a text.
fn start_of(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_FORM_BYTES)).unwrap_or(text)
}

fn word_or_dots(text: &str) -> usize {
    text.find(|c| !is_word(c) && c != '.').unwrap_or(text.len())
}

/// The lines of a private key, up to its end or that of the text.
fn private_key(rest: &str) -> Option<(usize, usize)> {
    let start = start_of(rest);
    let (head, _) = start.split_once("-----\n").or_else(|| start.split_once("-----\\n"))?;
    if !head.ends_with("PRIVATE KEY") && !head.ends_with("PRIVATE KEY BLOCK") {
        return None;
    }

    let kept = head.len() + "-----".len();
    let end = rest.get(kept..)?.find("-----END").map_or(rest.len(), |at| kept + at);
    Some((kept, end))
}

/// Whether the value of this name is a key.
fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').as_bytes();
    let is_same = |(a, b): (&u8, &u8)| a.eq_ignore_ascii_case(b) || (*a, *b) == (b'-', b'_');
    NAMES.iter().any(|end| {
        let Some(n_start) = name.len().checked_sub(end.len()) else { return false };
        let (start, rest) = name.split_at(n_start);
        rest.iter().zip(end.as_bytes()).all(is_same)
            && start.last().is_none_or(|last| matches!(last, b'-' | b'_'))
    })
}

/// The value after a name: `name=value`, `"name": "value"`, `name: value` and `--name value`.
fn value_of(word: &str, rest: &str, n_word: usize) -> Option<(usize, usize)> {
    let after = rest.get(n_word..)?;
    let unquoted = after.trim_start_matches(['"', '\'', '\\']);
    let spaced = unquoted.trim_start_matches(' ');
    let (value, is_sure) = match spaced.chars().next() {
        Some('=') => (spaced.get(1..)?, spaced.len() == unquoted.len()),
        Some(':') => (spaced.get(1..)?, false),
        _ if word.starts_with("--") && after.starts_with(' ') => (spaced, true),
        _ => return None,
    };

    let trimmed = value.trim_start_matches(' ');
    let is_sure = is_sure && (trimmed.len() == value.len() || word.starts_with("--"));
    let quotes = trimmed.len() - trimmed.trim_start_matches(['"', '\'', '\\']).len();
    let begin = trimmed.get(quotes..)?;
    // A password may be short. A short value of another name is hardly a key.
    let least = if is_sure && word.to_ascii_lowercase().contains("pass") { 1 } else { 6 };

    let start = start_of(begin);
    let value = start.get(..value_length(start, least)?)?;
    let is_code = value.contains(['(', ')', '<', '{', '[']);
    // Without quotes, `password: string` is a type.
    let is_literal = quotes != 0 || is_sure || value.contains(|c: char| c.is_ascii_digit());
    if is_code || !is_literal {
        return None;
    }

    let kept = rest.len() - begin.len();
    Some((kept, kept + value_length(begin, least)?))
}

/// Length of a value, if it has at least this length and is no variable.
fn value_length(value: &str, least: usize) -> Option<usize> {
    let is_end = |c: char| c.is_whitespace() || "\"'`;&|\\,".contains(c);
    let n = value.find(is_end).unwrap_or(value.len());
    let is_name = value.starts_with(['$', '<', '%', '[']) || value.starts_with("process.env");
    (least <= n && !is_name).then_some(n)
}

/// The password of an address: `://name:password@`.
fn in_address(rest: &str) -> Option<(usize, usize)> {
    let inner = rest.strip_prefix("://")?;
    let end = inner.find(|c: char| c.is_whitespace() || "/\"'?#".contains(c));
    let (user, _) = inner.get(..end.unwrap_or(inner.len()))?.rsplit_once('@')?;
    let (name, password) = user.split_once(':')?;
    let kept = "://".len() + name.len() + 1;
    // A variable is not the password itself.
    (!password.starts_with('$')).then_some((kept, kept + password.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_masked_and_the_rest_of_the_text_stays() {
        let long = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
        for (text, expected) in [
            (format!("export OPENAI_API_KEY=sk-{long}; ls"), "export OPENAI_API_KEY=[masked]; ls"),
            (format!("echo sk-ant-{long} x"), "echo sk-ant-[masked] x"),
            (
                format!("curl -H \"Authorization: Bearer {long}\" https://a.example"),
                "curl -H \"Authorization: Bearer [masked]\" https://a.example",
            ),
            ("curl -H 'Authorization: Basic dXNlcjpwYXNz'".to_owned(), "curl -H 'Authorization: Basic [masked]'"),
            (format!("curl -H 'X-Api-Key: {long}'"), "curl -H 'X-Api-Key: [masked]'"),
            ("curl -u me:hunter2 https://x".to_owned(), "curl -u me:[masked] https://x"),
            ("git clone https://me:hunter2@a.example/x".to_owned(), "git clone https://me:[masked]@a.example/x"),
            ("mysql --password=hunter2 db".to_owned(), "mysql --password=[masked] db"),
            ("tool --token abcdef123 go".to_owned(), "tool --token [masked] go"),
            ("{\"password\": \"hunter22\", \"a\": 1}".to_owned(), "{\"password\": \"[masked]\", \"a\": 1}"),
            ("secret_key = 'abcdefgh'".to_owned(), "secret_key = '[masked]'"),
            (
                "x\n-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\nbnNz\n-----END OPENSSH PRIVATE KEY-----\ny".to_owned(),
                "x\n-----BEGIN OPENSSH PRIVATE KEY-----[masked]-----END OPENSSH PRIVATE KEY-----\ny",
            ),
            ("-----BEGIN PRIVATE KEY-----\nMIIE…".to_owned(), "-----BEGIN PRIVATE KEY-----[masked]"),
            (format!("echo ghp_{long} AKIAABCDEFGHIJKLMNOP"), "echo ghp_[masked] AKIA[masked]"),
            (format!("password=1{}x y", "ä".repeat(1_000)), "password=[masked] y"),
            ("curl -H \"AUTHORIZATION:  token abcdefgh\"".to_owned(), "curl -H \"AUTHORIZATION:  token [masked]\""),
            ("ä: PGPASSWORD=x psql".to_owned(), "ä: PGPASSWORD=[masked] psql"),
        ] {
            assert_eq!(masked(&text), expected, "{text}");
        }
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "",
            "make test",
            "max_tokens=1000000 tokenizer=abcdefgh",
            "password: string",
            "let password = get_password();",
            "export API_KEY=$OTHER_KEY_OF_MINE",
            "curl -H \"Authorization: Bearer $TOKEN_OF_MINE\"",
            "sk-learn is scikit-learn, task-force",
            "git log -u -p a:b",
            "https://a.example:8080/x@y",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
            "the token is checked",
            "const token: Token = x",
        ] {
            assert!(matches!(masked(text), Cow::Borrowed(_)), "{}", masked(text));
        }
    }

    #[test]
    fn texts_deep_in_a_value_are_masked() {
        let mut value =
            json!({"n": 1, "command": "PASSWORD=x y", "list": [{"api_key": "k", "b": true}]});
        mask_value(&mut value);
        let expected = json!({"n": 1, "command": "PASSWORD=[masked] y", "list": [{"api_key": MASK, "b": true}]});
        assert_eq!(value, expected);
    }

    #[test]
    fn a_key_is_never_cut_into_a_part_that_is_not_recognized() {
        let key = format!("sk-{}", "a1B2c3D4".repeat(5));
        let text = format!("echo {key} and more");
        for max in 0..text.len() {
            let cut = cut_at_word(&text, max);
            assert!(text.starts_with(cut) && cut.len() <= max, "{cut}");
            assert!(!masked(cut).contains("a1B2"), "{max}: {cut}");
        }
        for max in 0..text.len() {
            let end = end_at_word(&text, max);
            assert!(text.ends_with(end) && end.len() <= max, "{end}");
            assert!(!masked(end).contains("c3D4"), "{max}: {end}");
        }
        assert_eq!(end_at_word("one two", 5), " two");
        assert_eq!(cut_at_word("one two", 7), "one two");
        assert_eq!(cut_at_word("one two", 5), "one ");
        assert_eq!(cut_at_word(&"x".repeat(200), 100), "x".repeat(100));
    }
}
