//! What went wrong, at the start and since, for `doctor`.

pub(crate) mod executable;
pub(crate) mod loop_monitor;
pub(crate) mod next_daemon;
pub(crate) mod service_manager;

use quackd_store::{Origin, Watching};
use std::cell::RefCell;
use tokio::sync::watch;

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct Health {
    /// Where `metadata.json` came from; `Err` with the reason if it must not be written.
    pub(crate) metadata: Result<Origin, String>,
    /// The same of `quackd-state.json`.
    pub(crate) state: Result<Origin, String>,
    /// Why the last save failed; `None` if it did not.
    pub(crate) save_failed: RefCell<Option<String>>,
    /// Where a `metadata.json` is that could not be used while the daemon ran, and what was wrong with it.
    pub(crate) set_aside: RefCell<Option<(String, String)>>,
    /// How changes of another program are noticed; `None` if the file is not written.
    pub(crate) watching: Option<watch::Receiver<Watching>>,
    /// Reason for missing control groups; `None` if they are available.
    pub(crate) no_cgroups: Option<String>,
    /// Why memory is short; `None` if it is not.
    pub(crate) memory_short: RefCell<Option<String>>,
    /// Which environment variables hold a model provider's key. Their values are not kept.
    pub(crate) providers: Vec<&'static str>,
    /// Whether web searches have a key, and where they go.
    pub(crate) web_search: WebSearchHealth,
}

impl Health {
    /// Whether every session that exists is known: if the file was damaged, somebody may put a better one back.
    pub(crate) fn are_all_sessions_known(&self) -> bool {
        matches!(self.metadata, Ok(Origin::File | Origin::Fresh))
    }
}

/// See [`Health::web_search`].
#[derive(Debug)]
pub(crate) struct WebSearchHealth {
    pub(crate) has_key: bool,
    /// The endpoint's host.
    pub(crate) endpoint: String,
}
