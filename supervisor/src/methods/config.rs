//! `quack.config`: the configuration of this daemon.

use super::{Caller, Serve};
use crate::errors::MethodError;
use quackd_protocol::client::{ConfigData, ConfigParams, ConfigSetting};

impl Serve<ConfigParams> for Caller {
    async fn serve(&self, _: ConfigParams) -> Result<ConfigData, MethodError> {
        let services = &self.services;
        let entries = services.daemon.config.entries();
        Ok(ConfigData {
            path: services.daemon.config_file.path.display().to_string(),
            exists: services.daemon.config_file.modified.is_some(),
            settings: entries
                .into_iter()
                .map(|entry| ConfigSetting {
                    key: entry.key.into_owned(),
                    value: entry.value,
                    origin: entry.origin,
                })
                .collect(),
        })
    }
}
