//! Patterns for every spelling of a path that a volume of macOS takes for the same name. APFS ignores case and the
//! normalization of letters outside of ASCII, and HFS+ also ignores invisible characters. Pure. Called by the profile.
//!
//! macOS reports an existing file by the spelling on the disk, so the path itself is enough for it. A missing name is
//! reported as the command spells it: without a pattern, `.git/HOOKS` could be created, and git would read it as `hooks`.
//!
//! A pattern has letters, digits and a few signs only. Every other character becomes a class, so no directory name can
//! be parsed as a rule.

use std::collections::BTreeMap;
use std::path::{Component, Path};

/// Extent of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The path alone.
    Name,
    /// The path and everything in it.
    Tree,
}

/// Any byte outside of printable ASCII. Every character outside of ASCII has these bytes only.
const FOREIGN: &str = "[^ -~]";

/// Characters that mean themselves in a pattern.
const PLAIN: &str = "/-_ ,=@%~";

/// Returns the pattern of `names`, relative paths, in each of the directories; without names, of the directories.
///
/// Letters outside of ASCII are not compared: each stands for every other one, with or without a letter of ASCII under
/// an accent. So a pattern can also match a similar name.
pub(super) fn pattern_of(
    directories: &[impl AsRef<Path>],
    names: &[&str],
    extent: Extent,
) -> String {
    let mut pattern = format!("^{}", any_of(directories.iter().map(AsRef::as_ref)));
    if !names.is_empty() {
        pattern.push_str(&any_of(names.iter().map(Path::new)));
    }
    pattern + end(extent)
}

/// Returns the pattern of a name at any depth of a directory.
pub(super) fn pattern_at_any_depth(above: &Path, name: &str, extent: Extent) -> String {
    let (above, name) = (any_of([above]), any_of([Path::new(name)]));
    format!("^{above}(/[^/]+)*{name}{}", end(extent))
}

fn end(extent: Extent) -> &'static str {
    match extent {
        Extent::Name => "$",
        Extent::Tree => "(/|$)",
    }
}

/// Names that a pattern matches one after the other.
#[derive(Default)]
struct Names {
    next: BTreeMap<String, Self>,
    is_end: bool,
}

/// Returns the pattern of one of several paths. What their beginnings have in common is in it once.
fn any_of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> String {
    let mut all = Names::default();
    for path in paths {
        let mut last = &mut all;
        for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
            let name = part.as_os_str().to_string_lossy().into_owned();
            last = last.next.entry(name).or_default();
        }
        last.is_end = true;
    }
    all.pattern()
}

impl Names {
    fn pattern(&self) -> String {
        let all = self.next.iter().map(|(name, rest)| spelled(name) + &rest.pattern());
        let all: Vec<String> = all.collect();
        match all.as_slice() {
            [] => String::new(),
            [only] if !self.is_end => only.clone(),
            _ => format!("({}){}", all.join("|"), if self.is_end { "?" } else { "" }),
        }
    }
}

/// Returns the pattern of a name after a slash.
fn spelled(name: &str) -> String {
    let mut pattern = String::new();
    let all: Vec<char> = std::iter::once('/').chain(name.chars()).collect();
    for (index, &one) in all.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|index| all.get(index));
        let after = all.get(index + 1);
        push(&mut pattern, one, before.copied(), after.copied());
    }
    pattern
}

/// Returns false if the last name of a path consists of ideographs, which have neither case nor accents. A pattern would
/// match every other name of as many of them.
pub(super) fn has_other_spellings(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.chars().any(|one| !matches!(one, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}'))
}

/// Adds one character. Invisible characters may follow each.
fn push(pattern: &mut String, one: char, before: Option<char>, after: Option<char>) {
    match one {
        'a'..='z' | 'A'..='Z' => {
            let (lower, upper) = (one.to_ascii_lowercase(), one.to_ascii_uppercase());
            let letter = format!("[{lower}{upper}]");
            if has_foreign_case(lower, before.map(|before| before.to_ascii_lowercase())) {
                pattern.push_str(&format!("({letter}|{FOREIGN})"));
            } else {
                pattern.push_str(&letter);
            }
            // It may be the base of a letter with an accent, which can also be one character.
            if after.is_some_and(|after| !after.is_ascii()) {
                pattern.push('?');
            }
        }
        '0'..='9' => pattern.push(one),
        '.' => pattern.push_str("[.]"),
        _ if PLAIN.contains(one) => pattern.push(one),
        _ if one.is_ascii() => pattern.push_str("[^/]"),
        _ => pattern.push_str(&format!("[a-zA-Z]?{FOREIGN}")),
    }

    pattern.push_str(FOREIGN);
    pattern.push('*');
}

/// Whether a character outside of ASCII is the same letter in another case, alone or as a part of a ligature
/// (CaseFolding.txt of Unicode): the Kelvin sign, the long s, ß, and the ligatures of ff, fi, fl and st.
fn has_foreign_case(letter: char, before: Option<char>) -> bool {
    match letter {
        'k' | 's' | 'f' => true,
        'i' | 'l' => before == Some('f'),
        't' => before == Some('s'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::bytes::RegexBuilder;

    fn matches(path: &str, extent: Extent, other: &str) -> bool {
        let pattern = pattern_of(&[path], &[], extent);
        let regex = RegexBuilder::new(&pattern).unicode(false).build().unwrap();
        regex.is_match(other.as_bytes())
    }

    #[test]
    fn every_spelling_of_a_name_is_matched() {
        for (path, other) in [
            ("/w/.git", "/w/.git"),
            ("/w/.git", "/w/.GIT"),
            ("/w/.git", "/W/.giT"),
            ("/w/.git", "/w/.g\u{200c}it"),
            ("/w/.git", "/w/\u{feff}.git"),
            ("/w/.git/hooks", "/w/.git/hoo\u{212a}\u{17f}"),
            ("/w/.git/config", "/w/.git/con\u{fb01}g"),
            ("/w/office", "/w/o\u{fb03}ce"),
            ("/w/pass", "/w/pa\u{df}"),
            ("/w/cl\u{e9}s", "/w/cle\u{301}s"),
            ("/w/cle\u{301}s", "/w/cl\u{e9}s"),
            ("/w/cl\u{e9}s", "/w/CL\u{c9}S"),
            ("/w/cl\u{e9}s", "/w/CLE\u{301}S"),
            ("/w/\u{304c}", "/w/\u{304b}\u{3099}"),
            ("/w/\u{304b}\u{3099}", "/w/\u{304c}"),
            ("/w/\u{ac00}", "/w/\u{1100}\u{1161}"),
        ] {
            assert!(matches(path, Extent::Name, other), "{path} {other}");
            assert!(matches(path, Extent::Tree, &format!("{other}/x")), "{path} {other}");
        }
    }

    #[test]
    fn other_names_are_not_matched() {
        for (path, other) in [
            ("/w/.git", "/w/.gitignore"),
            ("/w/.git", "/w/xgit"),
            ("/w/.git", "/w/a/.git"),
            ("/w/.git", "/v/w/.git"),
            ("/w/secrets", "/w/\u{8cc7}\u{6599}\u{8cc7}\u{6599}"),
            ("/w/secrets", "/w/secret"),
            ("/w/a b", "/w/a_b"),
            ("/w/cl\u{e9}s", "/w/cles"),
            ("/w/cl\u{e9}s", "/w/c/les"),
        ] {
            assert!(!matches(path, Extent::Tree, other), "{path} {other}");
        }
        assert!(!matches("/w/.git", Extent::Name, "/w/.git/x"));
    }

    #[test]
    fn a_pattern_of_several_paths_matches_each_of_them_and_no_other() {
        let directories = ["/w/.git", "/w/a/.git", "/w/a/b/.git", "/w/c"];
        let regex = |pattern: String| RegexBuilder::new(&pattern).unicode(false).build().unwrap();
        let names = regex(pattern_of(&directories, &["hooks", "objects/info"], Extent::Tree));
        let alone = regex(pattern_of(&directories, &[], Extent::Name));
        let deep = pattern_at_any_depth(Path::new("/w"), ".git", Extent::Tree);
        let deep = regex(deep);
        for directory in directories {
            for (name, is_one) in [("hooks", true), ("Hooks/x", true), ("objects", false)] {
                let path = format!("{directory}/{name}");
                assert_eq!(names.is_match(path.as_bytes()), is_one, "{path}");
                assert_eq!(deep.is_match(path.as_bytes()), directory.ends_with(".git"), "{path}");
                assert!(!alone.is_match(path.as_bytes()), "{path}");
            }
            assert!(alone.is_match(directory.to_uppercase().as_bytes()), "{directory}");
        }
        assert!(deep.is_match(b"/w/a\nb/.GIT/config"));
        for other in ["/w/a/hooks", "/w/hooks", "/v/w/.git/hooks", "/w/x.git/hooks"] {
            assert!(!names.is_match(other.as_bytes()), "{other}");
            assert!(!deep.is_match(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_name_of_ideographs_has_one_spelling() {
        let path = Path::new("/w/\u{79d8}\u{5bc6}");
        assert!(!has_other_spellings(path) && has_other_spellings(&path.join("a")));
    }

    #[test]
    fn no_sign_of_a_name_has_a_meaning_in_a_pattern_or_in_the_profile() {
        let signs: String = (1_u8..0x80).map(char::from).filter(|one| *one != '/').collect();
        let path = format!("/{signs}\u{e9}");
        let found = pattern_of(&[&path], &[], Extent::Tree);
        assert!(matches(&path, Extent::Tree, &path));
        let used = "/-_ ,=@%~^$[].()|*?";
        let is_known = |one: char| one.is_ascii_alphanumeric() || used.contains(one);
        assert!(found.chars().all(is_known), "{found}");
    }
}
