//! Patterns of find. No pattern is slow, equivalent patterns match alike, and simple ones match like a simple
//! matcher.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_fuzz::flags_and_texts;
use quackd_search::fuzzing::glob_matches;

/// Matches a pattern of plain letters, `?`, `*` and `**`; `None` if the input has other characters.
fn simple_match(pattern: &str, path: &str, with_dot: bool) -> Option<bool> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-*?".contains(c);
    let is_usual = |name: &&str| !["", ".", ".."].contains(name) && name.chars().all(is_plain);
    let mut parts: Vec<&str> = pattern.split('/').collect();
    // Before the check for base-name patterns.
    parts.dedup_by(|a, b| *a == "**" && *b == "**");
    let names: Vec<&str> = path.split('/').collect();
    if !parts.iter().all(|part| is_usual(&part)) || !names.iter().all(|name| is_usual(&name)) {
        return None;
    }
    Some(match parts.as_slice() {
        [_] => path_matches(&parts, &names[names.len() - 1..], with_dot),
        _ => path_matches(&parts, &names, with_dot),
    })
}

fn path_matches(parts: &[&str], names: &[&str], with_dot: bool) -> bool {
    match (parts, names) {
        ([], names) => names.is_empty(),
        (["**"], []) => false,
        (["**", rest @ ..], names) => {
            (!rest.is_empty() && path_matches(rest, names, with_dot))
                || names.split_first().is_some_and(|(name, below)| {
                    (with_dot || !name.starts_with('.'))
                        && (path_matches(parts, below, with_dot)
                            || (rest.is_empty() && below.is_empty()))
                })
        }
        ([part, parts @ ..], [name, names @ ..]) => {
            name_matches(part.as_bytes(), name.as_bytes(), !with_dot && name.starts_with('.'))
                && path_matches(parts, names, with_dot)
        }
        (_, []) => false,
    }
}

/// `hides_dot`: the name starts with a dot, which only a dot in the pattern may match.
fn name_matches(part: &[u8], name: &[u8], hides_dot: bool) -> bool {
    match (part, name) {
        ([], name) => name.is_empty(),
        ([b'*' | b'?', ..], _) if hides_dot => false,
        ([b'*', rest @ ..], name) => {
            name_matches(rest, name, false)
                || (!name.is_empty() && name_matches(part, &name[1..], false))
        }
        ([b'?', rest @ ..], [_, below @ ..]) => name_matches(rest, below, false),
        ([c, rest @ ..], [n, below @ ..]) => {
            c.eq_ignore_ascii_case(n) && name_matches(rest, below, false)
        }
        (_, []) => false,
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((flags, pattern, path)) = flags_and_texts(data) else { return };
    let with_dot = flags & 1 == 1;
    let found = glob_matches(pattern, path, with_dot);
    let slashes = glob_matches(&pattern.replace('\\', "/"), path, with_dot);
    assert_eq!(slashes, found, "a backslash is a slash");
    let spaces = glob_matches(&format!(" {pattern}\t"), path, with_dot);
    assert!(spaces == found || pattern.len() > 4000, "space around a pattern is nothing");
    if pattern.starts_with(|c: char| c.is_alphanumeric() || ".*?/[{@+".contains(c)) {
        let negated = glob_matches(&format!("!{pattern}"), path, with_dot);
        let expected = found.map(|found| !found);
        assert!(negated == expected || pattern.len() > 4000, "an exclamation mark negates");
    }
    // Limit the length, because the simple matcher backtracks.
    if pattern.len() <= 24
        && path.len() <= 40
        && let Some(expected) = simple_match(pattern, path, with_dot)
    {
        assert_eq!(found, Some(expected), "{pattern:?} on {path:?}, with dots: {with_dot}");
    }
});
