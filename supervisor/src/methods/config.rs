//! `quack.config`: the configuration of this daemon.

use super::{Caller, NoParams};
use crate::errors::MethodError;
use quackd_protocol::client::{ConfigData, ConfigSetting};

pub(super) async fn config(_: NoParams, caller: &Caller) -> Result<ConfigData, MethodError> {
    let services = &caller.services;
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
