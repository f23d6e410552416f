//! `remote_configure`: changes remote control, and the order of the steps.
//!
//! If the listener is open, it is changed first and the configuration saved afterwards. A change that fails leaves
//! everything as it was, on disk too. If the listener is closed, the configuration is saved in any case. The state then
//! contains the reason why the listener did not open, as in upstream.

use super::RemoteControl;
use super::config::{DaemonConfig, RemoteState, port, trimmed};
use crate::errors::MethodError;
use quackd_protocol::client::RemoteData;
use quackd_protocol::limits::MIN_REMOTE_TOKEN_BYTES;
use quackd_remote::TokenHash;
use quackd_remote::gate::{MAX_TOKEN_BYTES, new_token};
use secrecy::SecretString;
use serde_json::{Map, Value};
use std::io;

impl RemoteControl {
    /// Opens the listener with the saved configuration.
    pub(crate) async fn open(&self) {
        // Closed at shutdown.
        let Ok(_turn) = self.turn.acquire().await else { return };

        self.known_token().await;
        let state = self.state.borrow().clone();
        let opened = self.apply(&state).await;
        self.note(opened);
    }

    /// Carries out `remote_configure`. Absent values and values of the wrong type do not change.
    pub(crate) async fn configure(
        &self,
        params: Map<String, Value>,
    ) -> Result<RemoteData, MethodError> {
        let _turn = self.turn.acquire().await.map_err(|_closed| MethodError::ShuttingDown)?;

        let old = self.state.borrow().clone();
        // The file must not be written, so no change can be kept.
        if old.is_locked {
            return Err(MethodError::RemoteLocked(old.last_error.unwrap_or_default()));
        }

        let mut new = RemoteState { config: changed(&old.config, &params), ..old.clone() };
        let issued = issued(&params, &new.config)?;
        if let Some(token) = &issued {
            let hash = hash(token.clone()).await?;
            let remote = &mut new.config.remote;
            remote.auth_token_hash = Some(hash.hash);
            remote.auth_token_salt = Some(hash.salt);
            remote.auth_token_updated_at = Some(now_text());
            new.token = Some(token.clone());
        }

        // Without the plaintext token, the first check of each client would be slow.
        if new.token.is_none() {
            new.token = self.known_token().await;
        }

        let was_open = old.port.is_some();
        let applied = self.apply(&new).await;
        // The listener still serves with the old settings, so nothing is saved.
        if let (Err(why), true) = (&applied, was_open)
            && self.door.port().await.is_some()
        {
            return Err(MethodError::RemoteNotOpened(why.clone()));
        }

        if let Err(why) = self.save(&new, issued).await {
            // The listener must not serve with settings that the file does not have.
            let back = self.apply(&old).await;
            self.note(back);
            return Err(MethodError::RemoteNotSaved(why));
        }

        *self.state.borrow_mut() = new;
        self.note(applied);

        let has_token = params.get("includeToken") == Some(&Value::Bool(true));
        Ok(self.with_token(self.status_now(), has_token).await)
    }

    /// Applies the state to the listener. Returns its port, or the reason why it has none.
    async fn apply(&self, state: &RemoteState) -> Result<Option<u16>, String> {
        let remote = &state.config.remote;
        if !remote.enabled {
            self.door.close().await;
            return Ok(None);
        }
        let settings = remote.settings(state.token.clone(), &self.files.histories)?;
        self.door.apply(settings).await.map(Some).map_err(|error| error.to_string())
    }

    /// Records and logs the result of an attempt.
    fn note(&self, applied: Result<Option<u16>, String>) {
        let (port, last_error) = match applied {
            Ok(port) => (port, None),
            Err(why) => (None, Some(why)),
        };

        // The borrow ends before the state is read again.
        {
            let mut state = self.state.borrow_mut();
            state.port = port;
            state.last_error.clone_from(&last_error);
        }

        match (last_error, self.status_now().http_url) {
            (Some(why), _) => tracing::error!("Remote control failed to start: {why}"),
            (None, Some(url)) => tracing::info!("Remote control listening on {url}"),
            (None, None) => tracing::info!("Remote control is off"),
        }
    }

    async fn save(&self, state: &RemoteState, issued: Option<SecretString>) -> io::Result<()> {
        let (files, config) = (self.files.clone(), state.config.clone());
        let save = move || files.save_blocking(&config, issued.as_ref());
        actix_rt::task::spawn_blocking(save).await.map_err(io::Error::other)?
    }
}

/// Returns the configuration after the change, without the token.
fn changed(old: &DaemonConfig, params: &Map<String, Value>) -> DaemonConfig {
    let mut new = old.clone();
    let remote = &mut new.remote;

    if let Some(Value::Bool(enabled)) = params.get("enabled") {
        remote.enabled = *enabled;
    }
    if let Some(host) = params.get("host").and_then(trimmed) {
        remote.host = host;
    }
    if let Some(number @ Value::Number(_)) = params.get("port") {
        remote.port = port(number);
    }

    for (key, path) in
        [("tlsCertPath", &mut remote.tls_cert_path), ("tlsKeyPath", &mut remote.tls_key_path)]
    {
        // A blank value clears it.
        if let Some(value @ (Value::Null | Value::String(_))) = params.get(key) {
            *path = trimmed(value);
        }
    }
    new
}

/// Returns the new token, if one is requested or missing.
fn issued(
    params: &Map<String, Value>,
    new: &DaemonConfig,
) -> Result<Option<SecretString>, MethodError> {
    if let Some(token) = params.get("authToken").and_then(trimmed) {
        // The token must fit into an HTTP header.
        let is_printable = token.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if MAX_TOKEN_BYTES < token.len() || !is_printable {
            return Err(MethodError::BadToken);
        }
        if token.len() < MIN_REMOTE_TOKEN_BYTES {
            return Err(MethodError::ShortToken);
        }
        return Ok(Some(token.into()));
    }

    let is_rotated = params.get("rotateToken") == Some(&Value::Bool(true));
    let is_missing = new.remote.enabled && new.remote.token().is_none();
    if is_rotated || is_missing {
        return new_token().map(Some).map_err(MethodError::NoRandom);
    }
    Ok(None)
}

async fn hash(token: SecretString) -> Result<TokenHash, MethodError> {
    // Slow by design, so not on the actors' thread.
    let hashing = move || TokenHash::new_blocking(&token);
    let hashed = actix_rt::task::spawn_blocking(hashing).await;
    hashed.map_err(|_ended| MethodError::ShuttingDown)?.map_err(MethodError::NoRandom)
}

/// Current time in upstream's format for this file: milliseconds, UTC. For display only.
fn now_text() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;
    use serde_json::json;

    fn params(value: Value) -> Map<String, Value> {
        let Value::Object(params) = value else { panic!("an object") };
        params
    }

    #[test]
    fn only_what_is_said_and_makes_sense_is_changed() {
        let old = changed(
            &DaemonConfig::default(),
            &params(json!({
                "enabled": true, "host": " ::1 ", "port": 99999, "tlsCertPath": " /c ", "tlsKeyPath": "/k",
            })),
        );
        let remote = &old.remote;
        assert_eq!((remote.enabled, remote.host.as_str(), remote.port), (true, "::1", 65535));
        assert_eq!(remote.tls_cert_path.as_deref(), Some("/c"));
        let nothing =
            json!({"enabled": "no", "host": " ", "port": "80", "tlsCertPath": 5, "other": {}});
        assert_eq!(changed(&old, &params(nothing)), old);
        let cleared = changed(&old, &params(json!({"tlsCertPath": null, "tlsKeyPath": "  "})));
        assert_eq!(cleared.remote.tls_cert_path, None);
        assert_eq!(cleared.remote.tls_key_path, None);
    }

    #[test]
    fn a_token_is_made_when_it_is_wanted_or_missing() {
        let off = DaemonConfig::default();
        let on = changed(&off, &params(json!({"enabled": true})));
        let token = |config: &DaemonConfig, value| {
            let token = issued(&params(value), config);
            token.map(|token| token.map(|token| token.expose_secret().to_owned())).ok()
        };
        assert_eq!(token(&off, json!({})), Some(None));
        assert_eq!(token(&off, json!({"rotateToken": "yes", "authToken": " "})), Some(None));
        let (own, short) = ("sixteen-letters!", "fifteen-letters");
        assert_eq!(token(&off, json!({"authToken": format!(" {own} ")})), Some(Some(own.into())));
        assert_eq!(token(&on, json!({})).flatten().map(|token| token.len()), Some(32));
        assert_eq!(token(&off, json!({"rotateToken": true})).flatten().map(|t| t.len()), Some(32));
        for bad in [short, "a\nb", "ä", &"x".repeat(MAX_TOKEN_BYTES + 1)] {
            assert_eq!(token(&off, json!({"authToken": bad})), None, "{bad}");
        }
    }
}
