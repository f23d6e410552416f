//! Errors of reading the configuration. The command line, the daemon and `doctor` show each as one line.

use quackd_protocol::foreign_text::one_line;
use std::io;
use std::path::{Path, PathBuf};

/// Largest configuration file that is read, in bytes. A typical file has a few hundred.
pub const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// Maximum length of an excerpt of the file in an error, in characters.
const MAX_SHOWN_CHARS: usize = 100;

/// Error of reading the configuration. Each text is one line that names the position and the fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read: it was requested but does not exist, it is not a regular file, or access was denied.
    // The reason is part of the text and not a source, so that every caller prints one line.
    #[error("cannot read {}: {reason}", shown(path))]
    Read {
        /// Path of the configuration file.
        path: PathBuf,
        /// Error of the system call.
        reason: io::Error,
    },
    /// The file is larger than [`MAX_CONFIG_BYTES`].
    #[error("{} is larger than {} MiB", shown(path), MAX_CONFIG_BYTES / (1024 * 1024))]
    TooBig {
        /// Path of the configuration file.
        path: PathBuf,
    },
    /// The file is not TOML.
    #[error("{}:{line}:{column}: {message}", shown(path))]
    Syntax {
        /// Path of the configuration file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// The syntax error.
        message: String,
    },
    /// The file has an unknown key.
    #[error("{}:{line}: unknown key `{key}`; {}", shown(path), way_out(nearest.as_deref()))]
    UnknownKey {
        /// Path of the configuration file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The key as written in the file, from the root.
        key: String,
        /// The nearest known key.
        nearest: Option<String>,
    },
    /// A key of the file has an invalid value.
    #[error("{}:{line}: `{key}` {message}", shown(path))]
    Value {
        /// Path of the configuration file.
        path: PathBuf,
        /// Line of the value, from 1.
        line: usize,
        /// The key, from the root.
        key: String,
        /// The requirement and the actual value, as a verb phrase.
        message: String,
    },
    /// An environment variable has an invalid value.
    #[error("{variable} {message}")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// The requirement and the actual value, as a verb phrase.
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

/// Returns a piece of the file for an error: one line of limited length.
pub(crate) fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut excerpt: String = chars.by_ref().take(MAX_SHOWN_CHARS).collect();
    if chars.next().is_some() {
        excerpt.push('…');
    }
    one_line(&excerpt)
}

/// Returns one part of a name, quoted if necessary and cut if long.
pub(crate) fn quoted(part: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !part.is_empty() && part.chars().all(is_bare) {
        excerpt(part)
    } else {
        format!("\"{}\"", excerpt(part))
    }
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
            // Printing an error with its causes must not repeat a text.
            assert!(std::error::Error::source(&error).is_none(), "{line}");
        }
    }

    #[test]
    fn what_is_repeated_of_a_file_is_short_and_steers_no_terminal() {
        assert_eq!(excerpt("a\x1b[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
        let long = excerpt(&"ä".repeat(5000));
        assert_eq!((long.chars().count(), long.ends_with("ä…")), (101, true));
    }

    #[test]
    fn a_name_in_quotes_with_a_dot_is_no_key() {
        assert_eq!(quoted("worker.idle_minutes"), "\"worker.idle_minutes\"");
        assert_eq!(
            [quoted(""), quoted("a-B_9"), quoted("a\nb")],
            ["\"\"", "a-B_9", "\"a\u{fffd}b\""]
        );
    }
}
