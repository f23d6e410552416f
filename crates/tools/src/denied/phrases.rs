//! The texts by which programs say that something was denied: those of the C library, of Node and of Go, and
//! those of tools that have their own words for a network that is not there.

use memchr::memmem;

/// Most places looked at for one text: one command can say the same a million times.
const MAX_HITS: usize = 64;

/// Bytes of a line that are looked at before and after a text.
const MAX_LINE_BYTES: usize = 1024;

/// Lines before a text that may hold the name it is about.
const MAX_LINES_BEFORE: usize = 4;

/// Part of what git prints if it cannot write or lock a settings file.
pub(super) const SETTINGS: &[u8] = b" config file ";

/// What a text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// EROFS.
    ReadOnly,
    /// EACCES.
    NoRight,
    /// EPERM.
    NotPermitted,
    /// EBUSY.
    Busy,
    /// A host that cannot be found or reached.
    Network,
    /// A call that the filter of system calls refuses, in words of its own.
    SystemCall,
}

/// In lower case: Node and Go write the system's words so.
const PHRASES: &[(&str, Cause)] = &[
    ("read-only file system", Cause::ReadOnly),
    ("permission denied", Cause::NoRight),
    ("operation not permitted", Cause::NotPermitted),
    ("device or resource busy", Cause::Busy),
    ("resource busy or locked", Cause::Busy),
    ("network is unreachable", Cause::Network),
    ("no route to host", Cause::Network),
    ("temporary failure in name resolution", Cause::Network),
    ("temporary failure resolving", Cause::Network),
    ("name or service not known", Cause::Network),
    ("could not resolve host", Cause::Network),
    ("couldn't resolve host", Cause::Network),
    ("unable to resolve host", Cause::Network),
    ("failed to lookup address", Cause::Network),
    // What newer versions of curl say of every connection that fails.
    ("couldn't connect to server", Cause::Network),
    ("eai_again", Cause::Network),
    ("getaddrinfo enotfound", Cause::Network),
    ("enetunreach", Cause::Network),
    ("bad system call", Cause::SystemCall),
    // sudo.
    ("\"no new privileges\" flag is set", Cause::SystemCall),
];

/// A text that was found, with what is around it.
#[derive(Debug)]
pub(super) struct Hit<'a> {
    pub(super) cause: Cause,
    /// Its line.
    pub(super) line: &'a str,
    /// The line up to the text.
    pub(super) before: &'a str,
    /// The line after the text.
    pub(super) after: &'a str,
    /// Lines before, the nearest first.
    pub(super) earlier: Vec<&'a str>,
}

/// What was found, in the order of the text.
pub(super) fn hits(text: &str) -> Vec<Hit<'_>> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for (phrase, cause) in PHRASES {
        let at = memmem::find_iter(lower.as_bytes(), phrase.as_bytes()).take(MAX_HITS);
        found.extend(at.map(|at| (at, phrase.len(), *cause)));
    }
    found.sort_unstable();
    found.into_iter().filter_map(|(at, len, cause)| Hit::new(text, at, len, cause)).collect()
}

impl<'a> Hit<'a> {
    fn new(text: &'a str, at: usize, len: usize, cause: Cause) -> Option<Self> {
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

    /// A login that another machine refused.
    pub(super) fn is_about_login(&self) -> bool {
        self.after.starts_with(" (") && !self.after.starts_with(" (os error")
    }

    pub(super) fn is_about_sockets(&self) -> bool {
        self.says(&["connect", "socket"])
    }

    /// Giving files away and changing the modes of others' files need rights that no profile gives.
    pub(super) fn is_about_owners(&self) -> bool {
        self.says(&["ownership", "changing permissions", "preserving "])
    }

    pub(super) fn is_reading(&self) -> bool {
        const READERS: &[&str] =
            &["cat:", "head:", "tail:", "grep:", "find:", "ls:", "wc:", "diff:", "stat:", "less:"];
        const WORDS: &[&str] =
            &["cannot open directory", "for reading", "cannot access", "cannot stat", "scandir"];
        READERS.iter().any(|reader| self.line.starts_with(reader)) || self.says(WORDS)
    }

    pub(super) fn is_writing(&self) -> bool {
        self.says(&[
            "touch", "create", "mkdir", "writ", "remove", "unlink", "rmdir", "rename", "move",
            "copy", "delete", "link", "lock", "open",
        ])
    }

    fn says(&self, words: &[&str]) -> bool {
        let line = self.line.to_ascii_lowercase();
        words.iter().any(|word| line.contains(word))
    }
}
