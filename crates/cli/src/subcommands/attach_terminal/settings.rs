//! The settings of a client that shows a terminal, from the configuration of this machine.

use super::watched_keys::WatchedKeys;
use anyhow::Context as _;
use quackd_config::ClipboardChoice;
use quackd_home::Home;

/// Settings of an attached client.
#[derive(Debug)]
pub(in crate::subcommands) struct TerminalSettings {
    /// Keys that detach.
    pub(in crate::subcommands) keys: WatchedKeys,
    /// Whether programs may set the clipboard.
    pub(in crate::subcommands) clipboard: ClipboardChoice,
}

impl TerminalSettings {
    /// Reads them.
    ///
    /// # Errors
    /// If the configuration or the keys in it are not valid.
    pub(in crate::subcommands) fn read() -> anyhow::Result<Self> {
        let home = Home::from_process_env_blocking()?;
        let read = quackd_supervisor::read_config(&home);
        let (config, _) = read.context("the configuration with the keys cannot be read")?;
        Ok(Self {
            keys: WatchedKeys::parse(&config.run.detach_keys.value)?,
            clipboard: config.run.clipboard.value,
        })
    }
}
