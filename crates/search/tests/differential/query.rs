//! Queries for the library and the programs, and their conversion to arguments.

use crate::shrink::Smaller;
use std::ffi::OsString;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Lines,
    OnlyMatching,
    Files,
    FilesWithout,
    CountLines,
    CountMatches,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    Sensitive,
    Insensitive,
    Smart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Boundary {
    None,
    Word,
    Line,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Multiline {
    Off,
    On,
    DotAll,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    None,
    /// By byte order marks.
    Auto,
    Label(&'static str),
}

/// A search for contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) patterns: Vec<String>,
    /// A basic regular expression, as grep reads it without options.
    pub(crate) basic: bool,
    pub(crate) fixed: bool,
    pub(crate) boundary: Boundary,
    pub(crate) case: Case,
    pub(crate) multiline: Multiline,
    pub(crate) invert: bool,
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) mode: Mode,
    pub(crate) max_per_file: Option<u64>,
    pub(crate) types: Vec<String>,
    pub(crate) types_not: Vec<String>,
    pub(crate) encoding: Encoding,
    /// Search files with NUL bytes too.
    pub(crate) binary_too: bool,
}

impl Query {
    pub(crate) fn of(pattern: &str) -> Self {
        Self {
            patterns: vec![pattern.to_owned()],
            basic: false,
            fixed: false,
            boundary: Boundary::None,
            case: Case::Sensitive,
            multiline: Multiline::Off,
            invert: false,
            before: 0,
            after: 0,
            mode: Mode::Lines,
            max_per_file: None,
            types: Vec::new(),
            types_not: Vec::new(),
            encoding: Encoding::None,
            binary_too: true,
        }
    }

    /// Whether both answers have columns: only for lines that are found one by one.
    pub(crate) fn has_columns(&self) -> bool {
        matches!(self.mode, Mode::Lines | Mode::OnlyMatching)
            && !self.invert
            && self.multiline == Multiline::Off
    }

    /// Arguments for ripgrep. Searches everything, without automatic detection.
    pub(crate) fn for_rg(&self) -> Vec<OsString> {
        let mut args = words("--no-config --color=never --sort=path -uuu -a --no-mmap -0 -H");
        let mode = match self.mode {
            Mode::Lines => "-n --no-heading",
            Mode::OnlyMatching => "-n --no-heading -o",
            Mode::Files => "-l",
            Mode::FilesWithout => "--files-without-match",
            Mode::CountLines => "-c",
            Mode::CountMatches => "--count-matches",
        };
        args.extend(words(mode));
        let multiline = match self.multiline {
            Multiline::Off => "",
            Multiline::On => "-U",
            Multiline::DotAll => "-U --multiline-dotall",
        };
        args.extend(words(multiline));
        let boundary = match self.boundary {
            Boundary::None => "",
            Boundary::Word => "-w",
            Boundary::Line => "-x",
        };
        args.extend(words(boundary));
        let case = match self.case {
            Case::Sensitive => "-s",
            Case::Insensitive => "-i",
            Case::Smart => "-S",
        };
        args.extend(words(case));
        for (is_on, word) in
            [(self.has_columns(), "--column"), (self.fixed, "-F"), (self.invert, "-v")]
        {
            args.extend(words(if is_on { word } else { "" }));
        }
        match self.encoding {
            Encoding::Auto => (),
            Encoding::None => args.push("-Enone".into()),
            Encoding::Label(label) => args.push(format!("-E{label}").into()),
        }
        for (n, option) in [(self.before, "-B"), (self.after, "-A")] {
            if 0 < n {
                args.push(format!("{option}{n}").into());
            }
        }
        args.extend(self.max_per_file.map(|n| format!("-m{n}").into()));
        args.extend(self.types.iter().map(|name| format!("-t{name}").into()));
        args.extend(self.types_not.iter().map(|name| format!("-T{name}").into()));
        for pattern in &self.patterns {
            args.extend(["-e".into(), pattern.into()]);
        }
        args.push(".".into());
        args
    }

    /// Arguments for GNU grep, for lines and for counts of lines.
    pub(crate) fn for_grep(&self) -> Vec<OsString> {
        let mut args = words("-r -a -Z -H --color=never --binary-files=text");
        let mode = match self.mode {
            Mode::CountLines => "-c",
            Mode::Files => "-l",
            Mode::FilesWithout => "-L",
            Mode::Lines | Mode::OnlyMatching | Mode::CountMatches => "-n",
        };
        args.extend(words(mode));
        for (is_on, word) in [
            (!self.basic && !self.fixed, "-E"),
            (self.fixed, "-F"),
            (self.invert, "-v"),
            (self.boundary == Boundary::Word, "-w"),
            (self.boundary == Boundary::Line, "-x"),
            (self.case == Case::Insensitive, "-i"),
        ] {
            args.extend(words(if is_on { word } else { "" }));
        }
        for (n, option) in [(self.before, "-B"), (self.after, "-A")] {
            if 0 < n {
                args.push(format!("{option}{n}").into());
            }
        }
        args.extend(self.max_per_file.map(|n| format!("-m{n}").into()));
        for pattern in &self.patterns {
            args.extend(["-e".into(), pattern.into()]);
        }
        args.push(".".into());
        args
    }
}

impl Smaller for Query {
    fn smaller(&self) -> Vec<Self> {
        let mut smaller = Vec::new();
        let mut without = |change: &dyn Fn(&mut Self)| {
            let mut query = self.clone();
            change(&mut query);
            if query != *self {
                smaller.push(query);
            }
        };
        without(&|q| q.fixed = false);
        without(&|q| q.boundary = Boundary::None);
        without(&|q| q.case = Case::Sensitive);
        without(&|q| q.multiline = Multiline::Off);
        without(&|q| q.invert = false);
        without(&|q| q.before /= 2);
        without(&|q| q.after /= 2);
        without(&|q| q.mode = Mode::Lines);
        without(&|q| q.max_per_file = None);
        without(&|q| q.types.clear());
        without(&|q| q.types_not.clear());
        without(&|q| q.encoding = Encoding::None);
        without(&|q| q.binary_too = true);
        for i in 0..self.patterns.len() {
            if 1 < self.patterns.len() {
                without(&|q| drop(q.patterns.remove(i)));
            }
            for shorter in shorter_text(&self.patterns[i]) {
                without(&|q| q.patterns[i].clone_from(&shorter));
            }
        }
        smaller
    }
}

/// Returns variants of a text without one or two of its characters. An escaped character and its backslash
/// count as one.
pub(crate) fn shorter_text(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let escaped = if c == '\\' { chars.next() } else { None };
        units.push([Some(c), escaped].into_iter().flatten().collect());
    }
    let mut shorter = Vec::new();
    for n in [2, 1] {
        for at in 0..=units.len().saturating_sub(n) {
            let kept = units.iter().enumerate().filter(|(i, _)| *i < at || at + n <= *i);
            shorter.push(kept.map(|(_, unit)| unit.as_str()).collect());
        }
    }
    shorter.retain(|candidate: &String| candidate != text && !candidate.is_empty());
    shorter
}

/// Words of a command line.
pub(crate) fn words(line: &str) -> Vec<OsString> {
    line.split_ascii_whitespace().map(OsString::from).collect()
}
