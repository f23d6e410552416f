//! Loads metadata and state at startup, and records their problems. Called by [`crate::service::daemon`] before the
//! actors' thread starts.

use crate::errors::chain;
use crate::health::{Health, WebSearchHealth};
use crate::registry::Saving;
use crate::registry::tombstones::{trim_sessions, trim_workspaces};
use quackd_home::Home;
use quackd_store::{Duplicate, Origin as Loaded, Paths, Snapshot, StoreError, Writer};
use std::cell::RefCell;
use std::ffi::OsString;
use std::sync::Arc;

/// Loads metadata and state. A file that can neither be used nor quarantined, such as one of a newer version, is not
/// touched. The daemon then serves without saving, and clients that request a change get the reason.
pub(crate) fn load(
    home: &Home,
    web_search: WebSearchHealth,
    no_cgroups: Option<String>,
) -> (Snapshot, Saving, Health) {
    let paths = Paths { metadata: home.metadata(), state: home.state_file() };
    let metadata = quackd_store::load_blocking(&paths.metadata).map(|loaded| {
        if loaded.restored != 0 {
            let restored = loaded.restored;
            tracing::warn!(restored, "restored sessions that another program overwrote");
        }
        (loaded.metadata, loaded.origin, loaded.duplicates)
    });
    let state = quackd_store::load_state_blocking(&paths.state)
        .map(|loaded| (loaded.state, loaded.origin, loaded.duplicates));
    let (metadata, metadata_origin) = said("metadata.json", metadata);
    let (mut state, state_origin) = said("quackd-state.json", state);
    // Remove quackd's own entries about deleted sessions and workspaces. Keep them if sessions may be missing, because
    // the user may restore the file.
    if matches!(metadata_origin, Ok(Loaded::File | Loaded::Fresh)) {
        trim_sessions(&mut state, &metadata, |_| false);
        trim_workspaces(&mut state, &metadata, |_| false);
    }
    let snapshot = Snapshot { metadata: Arc::new(metadata), state: Arc::new(state) };
    let why =
        [&metadata_origin, &state_origin].into_iter().find_map(|loaded| loaded.as_ref().err());
    let saving = match why {
        Some(why) => Saving::Off { why: why.clone() },
        None => match Writer::start(paths, snapshot.clone()) {
            Ok(writer) => Saving::To(writer),
            Err(error) => Saving::Off { why: chain(&error) },
        },
    };
    let health = Health {
        metadata: metadata_origin,
        state: state_origin,
        save_failed: RefCell::new(None),
        set_aside: RefCell::new(None),
        watch_mode: match &saving {
            Saving::To(writer) => Some(writer.watching()),
            Saving::Off { .. } => None,
        },
        no_cgroups,
        memory_pressure: RefCell::new(None),
        providers: providers(|name| std::env::var_os(name)),
        web_search,
    };
    (snapshot, saving, health)
}

/// Logs the result of loading a file.
fn said<T: Default>(
    file: &str,
    loaded: Result<(T, Loaded, Vec<Duplicate>), StoreError>,
) -> (T, Result<Loaded, String>) {
    let (content, origin, duplicates) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let why = chain(&error);
            tracing::error!(file, why, "read-only: nothing will be saved");
            return (T::default(), Err(why));
        }
    };
    if !matches!(origin, Loaded::Fresh | Loaded::File) {
        tracing::error!(?origin, "{file} was recovered");
    }
    for duplicate in &duplicates {
        tracing::warn!(file, %duplicate, "left out an entry");
    }
    (content, Ok(origin))
}

/// Model providers with a key. Only the presence of the key is checked.
fn providers(variable: impl Fn(&str) -> Option<OsString>) -> Vec<&'static str> {
    [("OPENAI_API_KEY", "openai"), ("ANTHROPIC_API_KEY", "anthropic")]
        .into_iter()
        .filter(|(name, _)| variable(name).is_some_and(|key| !key.is_empty()))
        .map(|(_, provider)| provider)
        .collect()
}
