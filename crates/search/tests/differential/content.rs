//! Generates random file contents, and random patterns that may occur in them.

use crate::random::Random;
use crate::tree::Files;

const WORDS: &[&str] = &[
    "a", "b", "c", "ab", "abc", "foo", "bar", "Foo", "FOO", "aa", "é", "x1", "_", "-", " ", "  ",
    "\t", ".", "a.b", "(", ")", "+", "?", "*", "|", "{", "}", "[", "]", "^", "$", "\\", "ü", "1",
    "foo_bar", "ß",
];

/// Content that a file may contain in addition to lines of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Valid UTF-8; CRLF and missing final newlines too.
    Text,
    /// Bytes that are not UTF-8 and NUL bytes too.
    Bytes,
    /// Byte order marks and UTF-16 too.
    Marks,
}

fn line(random: &mut Random, kinds: Kinds) -> Vec<u8> {
    let mut line = Vec::new();
    for _ in 0..random.below(6) {
        line.extend(random.pick(WORDS).bytes());
        if kinds != Kinds::Text && random.chance(6) {
            line.extend_from_slice(
                random.pick::<[u8]>(&[b"\xe9", b"\xff", b"\0", b"\xc3", b"\r", b"\x0b"]),
            );
        }
    }
    line
}

/// The content of one file.
pub(crate) fn file(random: &mut Random, kinds: Kinds) -> Vec<u8> {
    let mut content = Vec::new();
    let crlf = random.below(4);
    for _ in 0..random.below(9) {
        content.extend(line(random, kinds));
        let is_crlf = crlf == 0 || (crlf == 1 && random.chance(50));
        content.extend_from_slice(if is_crlf { b"\r\n" } else { b"\n" });
    }
    if random.chance(25) {
        content.extend(line(random, kinds));
    }
    if kinds == Kinds::Marks {
        match random.below(6) {
            0 => content.splice(0..0, *b"\xef\xbb\xbf").for_each(drop),
            1 => content = utf16(&content, false),
            2 => content = utf16(&content, true),
            3 => {
                content.splice(0..0, *b"\xff\xfe").for_each(drop);
                if content.len() % 2 == 1 {
                    content.push(b'x');
                }
            }
            _ => (),
        }
    }
    content
}

fn utf16(text: &[u8], is_big_endian: bool) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    let bytes = |unit: u16| if is_big_endian { unit.to_be_bytes() } else { unit.to_le_bytes() };
    units.flat_map(bytes).collect()
}

/// Generates some files with such contents.
pub(crate) fn files(random: &mut Random, kinds: Kinds) -> Files {
    let mut files = Files::default();
    for _ in 0..2 + random.below(7) {
        let directory = random.pick(&["", "", "", "d/", "d/e/", ".h/", "D/"]);
        let name = random.pick(&[
            "a", "b.rs", "c.py", "d.txt", "d", "d-e", ".x", "z.md", "Makefile", "e.c", "f.h",
        ]);
        let content = file(random, kinds);
        files.add(&format!("{directory}{name}"), content);
    }
    files
}

/// A pattern that means the same to the regex crate and to `grep -E`.
pub(crate) fn pattern(random: &mut Random) -> String {
    let mut pattern = alternatives(random, 2);
    if random.chance(10) {
        pattern.insert(0, '^');
    }
    if random.chance(12) {
        pattern.push('$');
    }
    pattern
}

fn alternatives(random: &mut Random, depth: usize) -> String {
    let n = if random.chance(20) { 2 } else { 1 };
    let branches: Vec<String> = (0..n).map(|_| sequence(random, depth)).collect();
    branches.join("|")
}

fn sequence(random: &mut Random, depth: usize) -> String {
    let mut sequence = String::new();
    for _ in 0..1 + random.below(3) {
        sequence.push_str(&atom(random, depth));
        if random.chance(22) {
            sequence.push_str(random.pick(&["*", "+", "?", "{2}", "{1,2}", "{2,}", "{0,1}"]));
        }
    }
    sequence
}

fn atom(random: &mut Random, depth: usize) -> String {
    match random.below(12) {
        0..=5 => random
            .pick(&["a", "b", "c", "foo", "o", "bar", "é", "1", "_", "-", " ", "F"])
            .to_owned(),
        6 => ".".to_owned(),
        7 => random
            .pick(&["[ab]", "[a-c]", "[^a]", "[^ab ]", "[[:space:]]", "[0-9]", "[[:alpha:]]"])
            .to_owned(),
        8 => random.pick(&["\\.", "\\(", "\\+", "\\*", "\\|", "\\$", "\\^", "\\["]).to_owned(),
        9 => random.pick(&["o", "ab", "aa", "x1"]).to_owned(),
        _ if 0 < depth => format!("({})", alternatives(random, depth - 1)),
        _ => "b".to_owned(),
    }
}

/// A literal that may occur.
pub(crate) fn literal(random: &mut Random) -> String {
    let mut literal = String::new();
    while literal.is_empty() {
        for _ in 0..1 + random.below(2) {
            literal.push_str(random.pick(WORDS));
        }
    }
    literal
}
