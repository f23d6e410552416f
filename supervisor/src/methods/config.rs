//! `quack.config`: the configuration of this daemon.

use super::Caller;
use quackd_protocol::client::{ConfigData, ConfigSetting};

pub(super) fn config(caller: &Caller) -> ConfigData {
    let services = &caller.services;
    let entries = services.daemon.config.entries();
    ConfigData {
        path: services.daemon.config_file.path.display().to_string(),
        exists: services.daemon.config_file.modified.is_some(),
        settings: entries
            .into_iter()
            .map(|entry| ConfigSetting {
                key: entry.key.to_owned(),
                value: entry.value,
                origin: entry.origin,
            })
            .collect(),
    }
}
