//! Trees of files for the cases, including random trees with ignore files.

use crate::random::Random;
use quackd_testkit::write_file;
use std::fs;
use tempfile::TempDir;

/// Files by their path relative to the root; a path that ends with a slash is an empty directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files(pub(crate) Vec<(String, Vec<u8>)>);

impl Files {
    pub(crate) fn of(files: &[(&str, &[u8])]) -> Self {
        Self(files.iter().map(|(path, text)| ((*path).to_owned(), text.to_vec())).collect())
    }

    /// Adds a file, unless the path exists, is inside a file or is a parent of one.
    pub(crate) fn add(&mut self, path: &str, content: Vec<u8>) {
        let is_beneath = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|r| r.starts_with('/'));
        let is_taken = self
            .0
            .iter()
            .any(|(other, _)| other == path || is_beneath(path, other) || is_beneath(other, path));
        if !is_taken {
            self.0.push((path.to_owned(), content));
        }
    }

    /// Writes the files into a new directory.
    pub(crate) fn lay(&self) -> TempDir {
        let dir = tempfile::Builder::new().prefix("quackd-diff-").tempdir().expect("a directory");
        for (path, content) in &self.0 {
            let absolute = dir.path().join(path);
            if path.ends_with('/') {
                fs::create_dir_all(&absolute).expect("make a directory");
                continue;
            }
            write_file(absolute, content);
        }
        dir
    }

    /// The smallest repository that git accepts.
    pub(crate) fn add_repository(&mut self, at: &str) {
        let config = b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n";
        self.0.push((format!("{at}.git/HEAD"), b"ref: refs/heads/main\n".to_vec()));
        self.0.push((format!("{at}.git/config"), config.to_vec()));
        self.0.push((format!("{at}.git/objects/"), Vec::new()));
        self.0.push((format!("{at}.git/refs/heads/"), Vec::new()));
    }

    /// Formats the tree as shell commands, for the report of a difference.
    pub(crate) fn shown(&self) -> String {
        let mut shown = String::new();
        for (path, content) in &self.0 {
            let text = content.escape_ascii();
            shown.push_str(&format!("  {path:?}: b\"{text}\"\n"));
        }
        shown
    }
}

const DIRECTORIES: &[&str] =
    &["a", "b", "src", "target", ".hid", "foo", "a b", "ü", "vendor", "Foo", "x.d", "ab"];
const NAMES: &[&str] = &[
    "a", "b", "c", "foo", "bar", "foo.rs", "bar.rs", "a.log", "b.log", ".env", ".hid", "Makefile",
    "a b", "ü", "#x", "!x", "x[1]", "a-b", "ab", "abc", "x.c", "foo.o", "end ", "a\\b", "FOO",
    "manifest",
];

/// A path of one to four components.
fn random_path(random: &mut Random) -> String {
    let mut path = String::new();
    for _ in 0..random.below(4) {
        path.push_str(random.pick(DIRECTORIES));
        path.push('/');
    }
    path + random.pick(NAMES)
}

/// Generates names and ignore files. The other contents do not matter.
pub(crate) fn with_ignore_files(random: &mut Random, ignore_names: &[&str]) -> Files {
    let mut files = Files::default();
    for _ in 0..4 + random.below(16) {
        let path = random_path(random);
        files.add(&path, b"x\n".to_vec());
    }
    let mut places: Vec<String> = vec![String::new()];
    for (path, _) in &files.0 {
        places.extend(path.match_indices('/').map(|(at, _)| path[..=at].to_owned()));
    }
    places.sort();
    places.dedup();
    for _ in 0..1 + random.below(3) {
        let at = if random.chance(50) { 0 } else { random.below(places.len()) };
        let path = format!("{}{}", places[at], random.pick(ignore_names));
        let rules = ignore_file(random);
        files.add(&path, rules);
    }
    files
}

fn ignore_file(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    if random.chance(4) {
        text.push('\u{feff}');
    }
    let end = if random.chance(8) { "\r\n" } else { "\n" };
    for _ in 0..1 + random.below(5) {
        text.push_str(&rule(random));
        text.push_str(end);
    }
    if random.chance(15) {
        text.truncate(text.len() - end.len());
    }
    text.into_bytes()
}

/// Generates one rule of an ignore file, without braces: git and ripgrep interpret them differently.
pub(crate) fn rule(random: &mut Random) -> String {
    if random.chance(6) {
        return random
            .pick(&["", "# comment", "   ", "/", "!", "*", "**", "/*", "!/src", "!*/"])
            .to_owned();
    }
    let mut rule = String::new();
    if random.chance(22) {
        rule.push('!');
    }
    if random.chance(25) {
        rule.push('/');
    }
    let n = [1, 1, 1, 2, 2, 3][random.below(6)];
    for i in 0..n {
        if 0 < i {
            rule.push('/');
        }
        rule.push_str(&segment(random));
    }
    if random.chance(20) {
        rule.push('/');
    }
    if random.chance(4) {
        rule.push_str(random.pick(&[" ", "\\ ", "  ", "\t"]));
    }
    rule
}

fn segment(random: &mut Random) -> String {
    match random.below(14) {
        0..=3 => random.pick(DIRECTORIES).to_owned(),
        4..=6 => {
            let name = random.pick(NAMES);
            let is_special = name.starts_with(['#', '!']);
            let escaped = name.replace('\\', "\\\\").replace('[', "\\[");
            if is_special { format!("\\{escaped}") } else { escaped }
        }
        7 | 8 => "**".to_owned(),
        9 => "*".to_owned(),
        10 => {
            random.pick(&["*.rs", "*.log", "*.o", "*.*", ".*", "*.", "a*", "*b", "*o*"]).to_owned()
        }
        11 => random
            .pick(&["[ab]", "[!a]*", "[^a]*", "[a-c]", "*.[co]", "[A-Z]*", "[[]*", "[]]"])
            .to_owned(),
        12 => random.pick(&["?", "??", "a?", "?oo", "foo.?s", "???"]).to_owned(),
        _ => random
            .pick(&["a**", "**b", "a**b", "**.rs", "f\\oo", "\\*", "foo*bar", "***"])
            .to_owned(),
    }
}
