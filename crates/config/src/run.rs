//! Settings of terminals.

use crate::Setting;
use quackd_protocol::limits::{DEFAULT_SCROLLBACK_BYTES, MAX_SCROLLBACK_BYTES};

/// Largest size of the lines above the screen, in KiB.
pub(crate) const MAX_SCROLLBACK_KB: u64 = (MAX_SCROLLBACK_BYTES / 1024) as u64;

/// Programs on terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSettings {
    /// Size of the lines above the screen that are kept for one terminal, in KiB. 0 for none.
    pub scrollback_kb: Setting<usize>,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self { scrollback_kb: Setting::default_of(DEFAULT_SCROLLBACK_BYTES / 1024) }
    }
}
