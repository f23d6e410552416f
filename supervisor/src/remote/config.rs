//! `config.json`, upstream's configuration file of its daemon. Only its section `remote` matters here.
//!
//! Invalid values are handled like in upstream, with two exceptions. Unknown keys are kept. A missing host means this
//! machine only, not all addresses; a file with `0.0.0.0` means all addresses.

use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use quackd_remote::{Settings, TlsPaths, TokenHash};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Map, Number, Value};
use std::path::{Path, PathBuf};

/// Default host: only programs of this machine can connect.
pub(crate) const DEFAULT_HOST: &str = "127.0.0.1";

pub(crate) const DEFAULT_PORT: u16 = 43111;

/// The complete file. Serializes like upstream, with the same key order, followed by unknown keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DaemonConfig {
    version: Number,
    /// Copy the log to stderr.
    pub(crate) log_to_stderr: bool,
    pub(crate) remote: RemoteConfig,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The section `remote`.
#[derive(Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RemoteConfig {
    pub(crate) enabled: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) auth_token_hash: Option<String>,
    pub(crate) auth_token_salt: Option<String>,
    pub(crate) auth_token_updated_at: Option<String>,
    pub(crate) tls_cert_path: Option<String>,
    pub(crate) tls_key_path: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// The configuration in force, and the state of the listener. The default is that of a missing file.
#[derive(Debug, Clone, Default)]
pub(crate) struct RemoteState {
    pub(crate) config: DaemonConfig,
    /// Port of the listener.
    pub(super) port: Option<u16>,
    /// The reason why the listener is not open, or the problem of the file. For display.
    pub(super) last_error: Option<String>,
    /// Plaintext token, if known.
    pub(super) token: Option<SecretString>,
    /// Whether the file must not be written, because it exists and its content is unknown.
    pub(super) is_locked: bool,
}

impl RemoteState {
    /// Returns the defaults, because the file cannot be used.
    pub(super) fn unusable(problem: String, is_locked: bool) -> Self {
        Self { last_error: Some(problem), is_locked, ..Self::default() }
    }

    /// Returns whether the token is a short one from an earlier version. False if only its hash is known.
    pub(super) fn has_short_token(&self) -> bool {
        let is_short = |token: &SecretString| token.expose_secret().len() < MIN_REMOTE_TOKEN_BYTES;
        self.token.as_ref().is_some_and(is_short)
    }
}

/// Leaves out the token's hash and salt.
impl std::fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteConfig")
            .field("enabled", &self.enabled)
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self::normalised(Map::new())
    }
}

impl DaemonConfig {
    /// Reads each value of the file. An invalid value counts as absent.
    pub(crate) fn normalised(mut file: Map<String, Value>) -> Self {
        let version = match file.remove("version") {
            Some(Value::Number(version)) => version,
            _ => 2.into(),
        };

        let log_to_stderr = file.remove("logToStderr") == Some(Value::Bool(true));

        let mut remote = match file.remove("remote") {
            Some(Value::Object(remote)) => remote,
            _ => Map::new(),
        };

        let mut take = |key| remote.remove(key).unwrap_or_default();
        let remote = RemoteConfig {
            enabled: take("enabled") == Value::Bool(true),
            host: trimmed(&take("host")).unwrap_or_else(|| DEFAULT_HOST.to_owned()),
            port: port(&take("port")),
            auth_token_hash: text(take("authTokenHash")),
            auth_token_salt: text(take("authTokenSalt")),
            auth_token_updated_at: text(take("authTokenUpdatedAt")),
            tls_cert_path: trimmed(&take("tlsCertPath")),
            tls_key_path: trimmed(&take("tlsKeyPath")),
            // The keys that are left are unknown, and are kept.
            others: remote,
        };
        Self { version, log_to_stderr, remote, others: file }
    }

    /// Returns the content of the file: upstream indents by two spaces and writes no final newline.
    pub(crate) fn to_text(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(self)
    }
}

impl RemoteConfig {
    /// Returns the hash of the token. `None` if there is no token.
    pub(crate) fn token(&self) -> Option<TokenHash> {
        let (hash, salt) = (self.auth_token_hash.clone()?, self.auth_token_salt.clone()?);
        Some(TokenHash { hash, salt })
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls_cert_path.is_some() && self.tls_key_path.is_some()
    }

    /// Returns the settings of the listener.
    ///
    /// # Errors
    /// Upstream's text for a missing setting.
    pub(crate) fn settings(
        &self,
        plain_token: Option<SecretString>,
        histories: &Path,
    ) -> Result<Settings, &'static str> {
        let token = self.token().ok_or("Remote control auth token is not configured")?;

        let tls = match (&self.tls_cert_path, &self.tls_key_path) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                Some(TlsPaths { certificate: PathBuf::from(certificate), key: PathBuf::from(key) })
            }
            _ => return Err("Remote TLS requires both cert and key paths"),
        };

        Ok(Settings {
            host: self.host.clone(),
            port: self.port,
            tls,
            token,
            plain_token,
            token_updated_at: self.auth_token_updated_at.clone(),
            histories: histories.to_owned(),
        })
    }
}

/// Returns a string that is not empty.
fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Returns a string without surrounding white space, if it is not empty.
pub(crate) fn trimmed(value: &Value) -> Option<String> {
    let text = value.as_str()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Clamps a whole number to the range of ports. Other values mean the default port.
pub(crate) fn port(value: &Value) -> u16 {
    let number = value.as_f64().filter(|number| number.fract() == 0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from a float saturates, which is the rule here, and the fraction is zero"
    )]
    number.map_or(DEFAULT_PORT, |number| number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(file: Value) -> DaemonConfig {
        let Value::Object(file) = file else { panic!("an object") };
        DaemonConfig::normalised(file)
    }

    #[test]
    fn an_empty_file_is_off_and_local() {
        let text = DaemonConfig::default().to_text().unwrap();
        let expected = "{\n  \"version\": 2,\n  \"logToStderr\": false,\n  \"remote\": {\n    \
            \"enabled\": false,\n    \"host\": \"127.0.0.1\",\n    \"port\": 43111,\n    \
            \"authTokenHash\": null,\n    \"authTokenSalt\": null,\n    \"authTokenUpdatedAt\": null,\n    \
            \"tlsCertPath\": null,\n    \"tlsKeyPath\": null\n  }\n}";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_file_of_upstream_stays_as_it_is_and_keeps_what_we_do_not_know() {
        let file = json!({
            "version": 3, "logToStderr": true, "new": {"a": [1]},
            "remote": {
                "enabled": true, "host": "0.0.0.0", "port": 0, "authTokenHash": "ab", "authTokenSalt": "c",
                "authTokenUpdatedAt": "2026-01-01T00:00:00.000Z", "tlsCertPath": "/c", "tlsKeyPath": "/k",
                "later": null,
            },
        });
        let config = read(file.clone());
        assert_eq!(serde_json::to_value(&config).unwrap(), file);
        assert_eq!(config.remote.host, "0.0.0.0");
        let settings = config.remote.settings(None, Path::new("/h")).unwrap();
        assert_eq!(settings.tls.unwrap().key, Path::new("/k"));
    }

    #[test]
    fn values_that_are_wrong_count_as_not_said() {
        let config = read(json!({
            "version": "x", "logToStderr": 1,
            "remote": {
                "enabled": "yes", "host": "  ", "port": 1.5, "authTokenHash": "", "authTokenSalt": 7,
                "tlsCertPath": " ", "tlsKeyPath": false,
            },
        }));
        assert_eq!(config, DaemonConfig::default());
        assert_eq!(read(json!({"remote": []})), DaemonConfig::default());
        assert_eq!(read(json!({"remote": {"host": " a "}})).remote.host, "a");
        for (value, expected) in [
            (json!(1), 1),
            (json!(8080.0), 8080),
            (json!(-1), 0),
            (json!(1e9), 65535),
            (json!("80"), DEFAULT_PORT),
            (json!(null), DEFAULT_PORT),
        ] {
            assert_eq!(port(&value), expected, "{value}");
        }
    }

    #[test]
    fn what_is_missing_for_listening_is_said() {
        let mut config = DaemonConfig::default().remote;
        let why = |config: &RemoteConfig| config.settings(None, Path::new("/")).unwrap_err();
        assert_eq!(why(&config), "Remote control auth token is not configured");
        config.auth_token_hash = Some("a".into());
        config.auth_token_salt = Some("b".into());
        config.tls_key_path = Some("/k".into());
        assert_eq!(why(&config), "Remote TLS requires both cert and key paths");
        assert!(!format!("{config:?}").contains("auth"));
    }
}
