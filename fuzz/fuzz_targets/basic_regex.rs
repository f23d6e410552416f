//! Translation of basic regular expressions into Rust's syntax. It never fails, and patterns of `.`, `*` and
//! anchors match like a simple matcher.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_fuzz::flags_and_texts;
use quackd_search::fuzzing::translate_basic;
use regex::Regex;

/// A regular expression with no other operators.
struct Simple {
    is_from_start: bool,
    /// A character, or `None` for any; and whether it may repeat.
    atoms: Vec<(Option<char>, bool)>,
    is_to_end: bool,
}

impl Simple {
    /// Parses by POSIX: `^` is an anchor only at the start, `$` only at the end, and a leading `*` is a
    /// character.
    fn parse(pattern: &str) -> Option<Self> {
        if pattern.contains(['\\', '[']) {
            return None;
        }
        let (is_from_start, pattern) =
            pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
        let (is_to_end, pattern) =
            pattern.strip_suffix('$').map_or((false, pattern), |rest| (true, rest));
        let mut atoms: Vec<(Option<char>, bool)> = Vec::new();
        for c in pattern.chars() {
            match (c, atoms.last_mut()) {
                ('*', Some((_, is_many))) => *is_many = true,
                ('.', _) => atoms.push((None, false)),
                (c, _) => atoms.push((Some(c), false)),
            }
        }
        Some(Self { is_from_start, atoms, is_to_end })
    }

    fn is_match(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        // Positions at which a match of the atoms so far may end.
        let mut ends: Vec<bool> =
            (0..=text.len()).map(|at| at == 0 || !self.is_from_start).collect();
        for (wanted, is_many) in &self.atoms {
            let mut next = if *is_many { ends.clone() } else { vec![false; ends.len()] };
            for (at, c) in text.iter().enumerate() {
                let is_it = wanted.is_none_or(|wanted| wanted == *c);
                let was_here = if *is_many { next[at] } else { ends[at] };
                next[at + 1] |= is_it && was_here;
            }
            ends = next;
        }
        if self.is_to_end { ends.last() == Some(&true) } else { ends.contains(&true) }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((_, pattern, text)) = flags_and_texts(data) else { return };
    let rust = translate_basic(pattern);
    if 200 < pattern.len() || text.contains(['\n', '\r']) {
        return;
    }
    let regex = Regex::new(&rust);
    if let Some(simple) = Simple::parse(pattern) {
        let regex = regex.unwrap_or_else(|error| panic!("{pattern:?} became {rust:?}: {error}"));
        let expected = simple.is_match(text);
        assert_eq!(regex.is_match(text), expected, "{pattern:?} became {rust:?} on {text:?}");
    }
});
