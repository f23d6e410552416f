//! Why there is no configuration. Shown by the command line, the daemon and `doctor`, each as one line.

use std::io;
use std::path::{Path, PathBuf};

/// Longest piece of the file that an error repeats, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// Why there is no configuration. Each is one line that names the place and what to do there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read: it is missing although it was named, not a regular file, or refused.
    // The reason is part of the text and not a source: there is one line, whoever prints it.
    #[error("cannot read {}: {reason}", shown(path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// The file is larger than [`crate::MAX_CONFIG_BYTES`].
    #[error("{} is larger than {} MiB", shown(path), crate::MAX_CONFIG_BYTES / (1024 * 1024))]
    TooBig {
        /// The file.
        path: PathBuf,
    },
    /// The file is not TOML.
    #[error("{}:{line}:{column}: {message}", shown(path))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// The file has a key that means nothing.
    #[error("{}:{line}: unknown key `{key}`; {}", shown(path), way_out(nearest.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// As it stands there, from the root.
        key: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// A key of the file has a value that it cannot have.
    #[error("{}:{line}: `{key}` {message}", shown(path))]
    Value {
        /// The file.
        path: PathBuf,
        /// From 1, of the value.
        line: usize,
        /// From the root.
        key: String,
        /// What it must be and what it is, a verb phrase.
        message: String,
    },
    /// An environment variable has a value that it cannot have.
    #[error("{variable} {message}")]
    Environment {
        /// The variable's name.
        variable: &'static str,
        /// What it must be and what it is, a verb phrase.
        message: String,
    },
}

fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

fn way_out(nearest: Option<&str>) -> String {
    nearest.map_or_else(
        || "docs/configuration.md has the list".to_owned(),
        |key| format!("did you mean `{key}`?"),
    )
}

/// `text` without line ends and whatever else steers a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A piece of somebody's file as an error repeats it: one line, and not a long one.
pub(crate) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut excerpt: String = chars.by_ref().take(MAX_SHOWN_CHARS).collect();
    if chars.next().is_some() {
        excerpt.push('…');
    }
    one_line(&excerpt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_one_line_that_names_the_place() {
        let path = || PathBuf::from("/x/quackd.toml");
        let key = || "worker.idle_minuts".to_owned();
        let message = || "must be a string".to_owned();
        let reason = io::Error::other("it is a directory");
        for (error, line) in [
            (
                ConfigError::Read { path: path(), reason },
                "cannot read /x/quackd.toml: it is a directory",
            ),
            (ConfigError::TooBig { path: path() }, "/x/quackd.toml is larger than 1 MiB"),
            (
                ConfigError::Syntax { path: path(), line: 3, column: 9, message: "bad".into() },
                "/x/quackd.toml:3:9: bad",
            ),
            (
                ConfigError::UnknownKey {
                    path: path(),
                    line: 7,
                    key: key(),
                    nearest: Some("worker.idle_minutes".into()),
                },
                "/x/quackd.toml:7: unknown key `worker.idle_minuts`; did you mean `worker.idle_minutes`?",
            ),
            (
                ConfigError::UnknownKey { path: path(), line: 7, key: key(), nearest: None },
                "/x/quackd.toml:7: unknown key `worker.idle_minuts`; docs/configuration.md has the list",
            ),
            (
                ConfigError::Value { path: path(), line: 7, key: key(), message: message() },
                "/x/quackd.toml:7: `worker.idle_minuts` must be a string",
            ),
            (
                ConfigError::Environment { variable: "QUACKD_LOG", message: message() },
                "QUACKD_LOG must be a string",
            ),
        ] {
            assert_eq!(error.to_string(), line);
            // Who prints an error with its causes prints nothing twice.
            assert!(std::error::Error::source(&error).is_none(), "{line}");
        }
    }

    #[test]
    fn what_is_repeated_of_a_file_is_short_and_steers_no_terminal() {
        assert_eq!(excerpt("a\x1b[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
        let long = excerpt(&"ä".repeat(5000));
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (101, true));
    }
}
