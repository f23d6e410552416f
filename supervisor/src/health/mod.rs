//! Failures at startup and since then, for `doctor`.

pub(crate) mod executable;
pub(crate) mod loop_monitor;
pub(crate) mod next_daemon;
pub(crate) mod service_manager;

use quackd_rubber_duck::Watching;
use quackd_store::Origin;
use std::cell::RefCell;
use tokio::sync::watch;

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Health {
    /// Source of `metadata.json`, or the reason why the file must not be written.
    pub(crate) metadata: Result<Origin, String>,
    /// Like `metadata`, for `quackd-state.json`.
    pub(crate) state: Result<Origin, String>,
    /// Error of the last save. `None` if it succeeded.
    pub(crate) save_failed: RefCell<Option<String>>,
    /// Path of a quarantined `metadata.json` that was unusable at run time, and the reason.
    pub(crate) set_aside: RefCell<Option<(String, String)>>,
    /// Method of detecting external changes. `None` if it does not write the file.
    pub(crate) watch_mode: Option<watch::Receiver<Watching>>,
    /// Reason for missing control groups; `None` if they are available.
    pub(crate) no_cgroups: Option<String>,
    /// Description of the memory pressure. `None` without pressure.
    pub(crate) memory_pressure: RefCell<Option<String>>,
    /// Environment variables with a model provider's key. Their values are not kept.
    pub(crate) providers: Vec<&'static str>,
    /// Whether web searches have a key, and where they go.
    pub(crate) web_search: WebSearchHealth,
}

impl Health {
    /// Returns whether every existing session is known. False if the file was damaged: the user may
    /// restore a better one.
    pub(crate) fn are_all_sessions_known(&self) -> bool {
        matches!(self.metadata, Ok(Origin::File | Origin::Fresh))
    }
}

/// Details of [`Health::web_search`].
#[derive(Debug)]
pub(crate) struct WebSearchHealth {
    pub(crate) has_key: bool,
    /// The endpoint's host.
    pub(crate) endpoint: String,
}
