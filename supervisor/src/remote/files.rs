//! Files of remote control: `config.json`, and the plaintext token with mode 0600.
//!
//! All functions block. They run at startup before the actors, and later on the blocking pool.

use super::config::{DaemonConfig, RemoteState};
use quackd_home::Home;
use quackd_home::own_file::read_blocking;
use quackd_remote::TokenHash;
use quackd_store::{replace_file_blocking, set_aside_blocking};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::io;
use std::path::PathBuf;

/// Maximum size of the configuration and of the token, in bytes.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
const MAX_TOKEN_BYTES: u64 = 4096;

#[derive(Debug, Clone)]
pub(crate) struct RemoteFiles {
    config: PathBuf,
    token: PathBuf,
    pub(crate) histories: PathBuf,
}

impl RemoteFiles {
    pub(crate) fn of(home: &Home) -> Self {
        Self {
            config: home.daemon_config(),
            token: home.remote_token(),
            histories: home.app_histories(),
        }
    }

    /// Reads `config.json`. Quarantines a file that is not a JSON object and does not overwrite it, because it may
    /// contain the only copy of a token's hash.
    pub(crate) fn load_blocking(&self) -> RemoteState {
        let text = match read_blocking(&self.config, MAX_CONFIG_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return RemoteState::default();
            }
            Err(error) => {
                return RemoteState::unusable(format!("config.json cannot be read: {error}"), true);
            }
        };

        let why = match serde_json::from_slice(&text) {
            Ok(Value::Object(file)) => {
                let config = DaemonConfig::normalised(file);
                return RemoteState { config, ..RemoteState::default() };
            }
            Ok(_other) => "it is no JSON object".to_owned(),
            Err(error) => error.to_string(),
        };

        // Once its content is kept, the file may be written again.
        match set_aside_blocking(&self.config) {
            Ok(kept) => {
                let kept = kept.display();
                let problem = format!("config.json was damaged ({why}) and is kept as {kept}");
                RemoteState::unusable(problem, false)
            }
            Err(error) => {
                let problem =
                    format!("config.json is damaged ({why}) and cannot be set aside: {error}");
                RemoteState::unusable(problem, true)
            }
        }
    }

    /// Returns the plaintext token if its file matches `hash`. Skips the check for `known`, which matched earlier.
    pub(crate) fn token_blocking(
        &self,
        hash: Option<&TokenHash>,
        known: Option<&SecretString>,
    ) -> Option<SecretString> {
        let hash = hash?;
        // A missing file is usual: the user may have removed it, and the hash suffices.
        let text = read_blocking(&self.token, MAX_TOKEN_BYTES).ok()?;
        let token = SecretString::from(std::str::from_utf8(&text).ok()?.trim());

        let is_known = known.is_some_and(|known| known.expose_secret() == token.expose_secret());
        (is_known || hash.verifies_blocking(&token)).then_some(token)
    }

    /// Writes the new token first, then the configuration. If the second write fails, the old token stays valid, and
    /// the file with the new token is useless.
    pub(crate) fn save_blocking(
        &self,
        config: &DaemonConfig,
        issued: Option<&SecretString>,
    ) -> io::Result<()> {
        if let Some(token) = issued {
            let line = format!("{}\n", token.expose_secret());
            replace_file_blocking(&self.token, line.as_bytes())?;
        }
        replace_file_blocking(&self.config, &config.to_text()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn files(dir: &Path) -> RemoteFiles {
        RemoteFiles {
            config: dir.join("config.json"),
            token: dir.join("remote-auth-token"),
            histories: dir.join("sessions"),
        }
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_one_that_cannot_be_read_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        assert!(files.load_blocking().last_error.is_none());
        for (n, damaged) in ["{\"remote\":", "[]", ""].into_iter().enumerate() {
            std::fs::write(&files.config, damaged).unwrap();
            let loaded = files.load_blocking();
            assert!(loaded.last_error.unwrap().contains("damaged"), "{damaged}");
            assert!(!loaded.is_locked && !files.config.exists());
            let kept = dir.path().join(format!("config.json.corrupt-{}", n + 1));
            assert_eq!(std::fs::read_to_string(kept).unwrap(), damaged);
        }
        std::fs::create_dir(&files.config).unwrap();
        let loaded = files.load_blocking();
        assert!(loaded.is_locked && loaded.last_error.is_some());
        assert!(files.config.is_dir());
    }

    #[test]
    fn what_was_saved_is_found_and_a_token_that_is_not_the_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path());
        let token = SecretString::from("a token");
        let hash = TokenHash::new_blocking(&token).unwrap();
        let mut config = DaemonConfig::default();
        config.remote.auth_token_hash = Some(hash.hash.clone());
        config.remote.auth_token_salt = Some(hash.salt.clone());
        files.save_blocking(&config, Some(&token)).unwrap();
        assert_eq!(files.load_blocking().config, config);
        assert_eq!(std::fs::read_to_string(&files.token).unwrap(), "a token\n");
        let found =
            |known| files.token_blocking(Some(&hash), known).map(|t| t.expose_secret().to_owned());
        assert_eq!(found(None).as_deref(), Some("a token"));
        assert_eq!(found(Some(&token)).as_deref(), Some("a token"));
        assert!(files.token_blocking(None, Some(&token)).is_none());
        std::fs::write(&files.token, "another\n").unwrap();
        assert_eq!(found(Some(&token)), None);
    }
}
