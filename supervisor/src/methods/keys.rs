//! `quack.keys`: a client passes on the keys of model providers that its shell has and the daemon may not have.

use super::{Caller, Serve};
use crate::errors::MethodError;
use quackd_egress::models::provider_variables;
use quackd_protocol::client::{KeysData, KeysParams};
use quackd_protocol::environment::MAX_VALUE_BYTES;

impl Serve<KeysParams> for Caller {
    async fn serve(&self, params: KeysParams) -> Result<KeysData, MethodError> {
        let KeysParams { variables, reload } = params;
        let is_known = |name: &str| provider_variables().flatten().any(|known| known == name);
        let is_good = |value: &str| value.len() <= MAX_VALUE_BYTES && !value.contains('\0');
        for (name, value) in &variables {
            if !is_known(name) || !is_good(value) {
                // The error repeats the name, which may be any text.
                let name = name.chars().filter(|c| c.is_ascii_graphic()).take(64).collect();
                return Err(MethodError::BadKey(name, MAX_VALUE_BYTES));
            }
        }

        let login = &self.services.sessions.children.login;
        login.add_of_shell(variables);
        let models = &self.services.sessions.models;
        if reload == Some(true) {
            models.reload().await;
        }
        Ok(KeysData { names: login.names_of_shell(), in_use: models.variables().await })
    }
}
