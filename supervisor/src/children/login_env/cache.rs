//! The captured login environment, and the file that caches it for the next daemon.

use crate::children::command_env::EnvAllowList;
use quackd_home::own_file::read_blocking;
use quackd_protocol::environment::LoginEnvironment;
use quackd_protocol::foreign_text::first_unsafe;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Version of the file format. A file with another version is ignored and soon replaced.
const VERSION: u32 = 1;

/// Maximum file size in bytes: the largest environment with every character escaped.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Maximum length of the shell's path and of the time, in bytes.
const MAX_SHELL_BYTES: usize = 4096;
const MAX_TIME_BYTES: usize = 64;

/// A login environment and when it was captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CapturedEnv {
    version: u32,
    /// ISO 8601 UTC, for display only.
    pub(crate) captured_at: String,
    /// Contains only allowed names, so the file holds no key that the user did not list.
    pub(crate) environment: LoginEnvironment,
}

impl CapturedEnv {
    /// Keeps the allowed part of `environment`. Returns `None` if it is too large.
    pub(crate) fn new(
        environment: LoginEnvironment,
        captured_at: String,
        allowed: &EnvAllowList,
    ) -> Option<Self> {
        let texts = [&environment.shell, &captured_at];
        let is_plain = texts.into_iter().all(|text| first_unsafe(text).is_none());
        if !is_plain
            || MAX_SHELL_BYTES < environment.shell.len()
            || MAX_TIME_BYTES < captured_at.len()
        {
            return None;
        }
        let variables = allowed.foreign(environment.variables)?;
        let environment = LoginEnvironment { variables, ..environment };
        Some(Self { version: VERSION, captured_at, environment })
    }

    /// Writes the cache with mode 0600. Not synced: after a crash, the next daemon ignores a partial file and captures
    /// again.
    ///
    /// # Errors
    /// The system's errors. No usable file exists then.
    pub(crate) fn save_blocking(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        // Always create a new file, so that an existing file or link with this name is not written to.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&text)
    }
}

/// Reads the cache of the last daemon from `path`. Ignores an unusable file, which the next capture replaces. The
/// variables are not yet filtered, see [`CapturedEnv::new`].
pub(crate) fn load_cached_blocking(path: &Path) -> Option<CapturedEnv> {
    match read(path) {
        Ok(captured) if captured.version == VERSION => Some(captured),
        Ok(_other) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "ignoring the cached login environment");
            None
        }
    }
}

fn read(path: &Path) -> io::Result<CapturedEnv> {
    Ok(serde_json::from_slice(&read_blocking(path, MAX_FILE_BYTES)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn environment() -> LoginEnvironment {
        LoginEnvironment {
            shell: "/bin/zsh".into(),
            interactive: true,
            variables: [("OPENAI_API_KEY", "secret"), ("PATH", "/a:/b\n")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            took_ms: 12,
            confined: false,
        }
    }

    fn captured() -> CapturedEnv {
        CapturedEnv::new(environment(), "2026-01-02T03:04:05Z".into(), &EnvAllowList::default())
            .unwrap()
    }

    #[test]
    fn what_was_kept_is_what_is_found_and_it_is_private_and_without_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login-environment.json");
        assert_eq!(load_cached_blocking(&path), None);
        captured().save_blocking(&path).unwrap();
        assert_eq!(load_cached_blocking(&path), Some(captured()));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!fs::read_to_string(&path).unwrap().contains("secret"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_ignored_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("login-environment.json");
        let good = serde_json::to_string(&captured()).unwrap();
        let padded = format!("{good}{}", " ".repeat(1024 * 1024));
        for bad in ["", "{", "[]", "{}", &good.replace("\"version\":1", "\"version\":2"), &padded] {
            fs::write(&path, bad).unwrap();
            assert_eq!(load_cached_blocking(&path), None, "{bad:.40}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(load_cached_blocking(&path), None);
        captured().save_blocking(&path).unwrap();
        assert_eq!(load_cached_blocking(&path), Some(captured()));
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn an_answer_without_measure_is_of_no_use() {
        let of = |environment, time: &str| {
            CapturedEnv::new(environment, time.into(), &EnvAllowList::default())
        };
        let long = "x".repeat(60_000);
        let variables = ["PATH", "HOME", "SHELL"].map(|name| (name.to_owned(), long.clone()));
        assert_eq!(of(LoginEnvironment { variables: variables.into(), ..environment() }, ""), None);
        assert_eq!(of(LoginEnvironment { shell: long, ..environment() }, ""), None);
        assert_eq!(of(environment(), &"1".repeat(65)), None);
    }
}
