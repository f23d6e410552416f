//! The settings of a client that shows a terminal, from the configuration of this machine.

use super::watched_keys::WatchedKeys;
use anyhow::Context as _;
use quackd_config::ClipboardChoice;
use quackd_home::Home;

/// Settings of an attached client.
#[derive(Debug)]
pub(crate) struct TerminalSettings {
    /// Keys that detach.
    pub(crate) keys: WatchedKeys,
    /// Whether programs may set the clipboard.
    pub(crate) clipboard: ClipboardChoice,
}

impl TerminalSettings {
    /// Reads them.
    ///
    /// # Errors
    /// If the configuration or the keys in it are not valid.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let home = Home::from_process_env_blocking()?;
        let read = quackd_supervisor::read_config(&home);
        let (config, _) = read.context("the configuration with the keys cannot be read")?;
        Ok(Self {
            keys: WatchedKeys::parse(&config.run.detach_keys.value)?,
            clipboard: config.run.clipboard.value,
        })
    }
}
