//! Settings of the private copies of isolated sessions, and of the recorded states of files.

use crate::Setting;
use quackd_protocol::isolate::{
    MAX_COPIED_BYTES, MAX_COPIED_FILES, MAX_COPIES_BYTES, MAX_COPY_BYTES,
};

/// Limits of the private copies of isolated sessions. None of them is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IsolatedSettings {
    /// Most files of a new copy.
    pub copy_files: Setting<usize>,
    /// Largest size of the files of a new copy, in MiB.
    pub copy_mb: Setting<usize>,
    /// Disk space of one copy without its checkpoints, in MiB.
    pub max_mb: Setting<usize>,
    /// Disk space of all copies together with their checkpoints, in MiB.
    pub total_mb: Setting<usize>,
}

impl Default for IsolatedSettings {
    fn default() -> Self {
        let count = |n: u64| Setting::default_of(usize::try_from(n).unwrap_or(usize::MAX));

        let mebibytes = |bytes: u64| count(bytes / (1024 * 1024));
        Self {
            copy_files: count(MAX_COPIED_FILES),
            copy_mb: mebibytes(MAX_COPIED_BYTES),
            max_mb: mebibytes(MAX_COPY_BYTES),
            total_mb: mebibytes(MAX_COPIES_BYTES),
        }
    }
}

/// Sessions whose files' states are recorded after calls that may change them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CheckpointChoice {
    /// Those with a private copy.
    #[default]
    Isolated,
    /// All.
    All,
    /// None.
    Off,
}

impl CheckpointChoice {
    pub(crate) const ALL: [Self; 3] = [Self::Isolated, Self::All, Self::Off];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Isolated => "isolated",
            Self::All => "all",
            Self::Off => "off",
        }
    }
}
