//! Texts by which programs report denials: those of the C library, Node and Go, and those of tools with their
//! own texts for a missing network.

use memchr::memmem;

/// Maximum number of matches of one text: a command can print the same text a million times.
const MAX_HITS: usize = 64;

/// Maximum number of bytes of a line inspected before and after a text.
const MAX_LINE_BYTES: usize = 1024;

/// Number of lines before a text that may contain the name.
const MAX_LINES_BEFORE: usize = 4;

/// Part of git's message if it cannot write or lock a settings file.
pub(super) const SETTINGS: &[u8] = b" config file ";

/// Meaning of a phrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DenialCause {
    /// EROFS.
    ReadOnly,
    /// EACCES.
    NoRight,
    /// EPERM.
    NotPermitted,
    /// EBUSY.
    Busy,
    /// A host that cannot be resolved or reached.
    Network,
    /// A system call that the filter refuses, reported in a separate text.
    SystemCall,
    /// ENOENT: perhaps a directory that the worker does not show.
    Missing,
}

/// In lower case, as Node and Go write system errors.
const PHRASES: &[(&str, DenialCause)] = &[
    ("read-only file system", DenialCause::ReadOnly),
    ("permission denied", DenialCause::NoRight),
    ("operation not permitted", DenialCause::NotPermitted),
    ("device or resource busy", DenialCause::Busy),
    ("resource busy or locked", DenialCause::Busy),
    ("network is unreachable", DenialCause::Network),
    ("no route to host", DenialCause::Network),
    ("temporary failure in name resolution", DenialCause::Network),
    ("temporary failure resolving", DenialCause::Network),
    ("name or service not known", DenialCause::Network),
    ("could not resolve host", DenialCause::Network),
    ("couldn't resolve host", DenialCause::Network),
    ("unable to resolve host", DenialCause::Network),
    ("failed to lookup address", DenialCause::Network),
    // Newer versions of curl print this for every failed connection.
    ("couldn't connect to server", DenialCause::Network),
    ("eai_again", DenialCause::Network),
    ("getaddrinfo enotfound", DenialCause::Network),
    ("enetunreach", DenialCause::Network),
    ("no such file or directory", DenialCause::Missing),
    ("bad system call", DenialCause::SystemCall),
    // sudo.
    ("\"no new privileges\" flag is set", DenialCause::SystemCall),
];

/// A matched text with its context.
#[derive(Debug)]
pub(super) struct Hit<'a> {
    pub(super) cause: DenialCause,
    /// Line that contains the text.
    pub(super) line: &'a str,
    /// The line up to the text.
    pub(super) before: &'a str,
    /// The line after the text.
    pub(super) after: &'a str,
    /// Previous lines, nearest first.
    pub(super) earlier: Vec<&'a str>,
}

/// Returns the matches in text order.
pub(super) fn hits(text: &str) -> Vec<Hit<'_>> {
    // Lower case of ASCII keeps the length, so that positions also hold in the original text.
    let lower = text.to_ascii_lowercase();
    let mut matches = Vec::new();

    for (phrase, cause) in PHRASES {
        let at = memmem::find_iter(lower.as_bytes(), phrase.as_bytes()).take(MAX_HITS);
        matches.extend(at.map(|at| (at, phrase.len(), *cause)));
    }

    matches.sort_unstable();
    matches.into_iter().filter_map(|(at, len, cause)| Hit::new(text, at, len, cause)).collect()
}

impl<'a> Hit<'a> {
    fn new(text: &'a str, at: usize, len: usize, cause: DenialCause) -> Option<Self> {
        let (until, rest) = (text.get(..at)?, text.get(at + len..)?);
        let line_begin = until.rfind('\n').map_or(0, |end| end + 1);
        let begin = until.ceil_char_boundary(at.saturating_sub(MAX_LINE_BYTES)).max(line_begin);

        let line_len = rest.find('\n').unwrap_or(rest.len());
        let n_after = rest.floor_char_boundary(line_len.min(MAX_LINE_BYTES));

        let earlier = until.get(..line_begin)?.lines().rev().take(MAX_LINES_BEFORE);
        Some(Self {
            cause,
            line: text.get(begin..at + len + n_after)?,
            before: until.get(begin..)?,
            after: rest.get(..n_after)?,
            earlier: earlier.filter(|line| line.len() <= MAX_LINE_BYTES).collect(),
        })
    }

    /// Whether another machine refused a login.
    pub(super) fn is_about_login(&self) -> bool {
        // ssh writes "Permission denied (publickey)", and Rust programs write "(os error 13)".
        self.after.starts_with(" (") && !self.after.starts_with(" (os error")
    }

    pub(super) fn is_about_sockets(&self) -> bool {
        self.contains_any(&["connect", "socket"])
    }

    /// Whether the line is about owners or modes: changing the owner of a file, or the mode of other users'
    /// files, needs rights that no profile grants.
    pub(super) fn is_about_owners(&self) -> bool {
        self.contains_any(&["ownership", "changing permissions", "preserving "])
    }

    pub(super) fn is_reading(&self) -> bool {
        const READERS: &[&str] =
            &["cat:", "head:", "tail:", "grep:", "find:", "ls:", "wc:", "diff:", "stat:", "less:"];
        const WORDS: &[&str] =
            &["cannot open directory", "for reading", "cannot access", "cannot stat", "scandir"];
        READERS.iter().any(|reader| self.line.starts_with(reader)) || self.contains_any(WORDS)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.contains_any(&[
            "touch", "create", "mkdir", "writ", "remove", "unlink", "rmdir", "rename", "move",
            "copy", "delete", "link", "lock", "open",
        ])
    }

    fn contains_any(&self, words: &[&str]) -> bool {
        let line = self.line.to_ascii_lowercase();
        words.iter().any(|word| line.contains(word))
    }
}

/// The directory of objects that git misses, because the repository was cloned with `--shared` or `--reference`.
pub(super) fn unseen_alternate(text: &str) -> Option<&str> {
    let missing = text.lines().find_map(|line| {
        let (_, rest) = line.split_once("error: object directory ")?;
        Some(rest.split_once(" does not exist; check ")?.0)
    });

    let normalised = "error: unable to normalize alternate object path: ";
    let missing =
        missing.or_else(|| text.lines().find_map(|line| Some(line.split_once(normalised)?.1)));

    // In tier M the directory can be seen, and not opened.
    missing.or_else(|| {
        text.lines().find_map(|line| {
            let (_, rest) = line.split_once("error: unable to open object pack directory: ")?;
            Some(rest.rsplit_once("/pack: ")?.0)
        })
    })
}
