//! Loads metadata and state at startup, and records their problems. Called by [`crate::service::daemon`] before the
//! actors' thread starts.

use crate::errors::chain;
use crate::health::{Health, WebSearchHealth};
use crate::registry::Saving;
use quackd_home::Home;
use quackd_rubber_duck::{Opened, Paths, Writer, open_blocking, trim_sessions, trim_workspaces};
use quackd_store::{Duplicate, Origin, Snapshot, StoreError};
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
    let Opened { mut snapshot, metadata, state, restored, files } = open_blocking(paths);

    let metadata = checked_origin("metadata.json", metadata);
    let state = checked_origin("quackd-state.json", state);
    if restored != 0 && matches!(metadata, Ok(Origin::File)) {
        tracing::warn!(restored, "restored sessions that metadata.json lacked");
    }

    // Remove quackd's own entries about deleted sessions and workspaces. Keep them if sessions may be missing, because
    // the user may restore the file.
    if matches!(metadata, Ok(Origin::File | Origin::Fresh)) {
        let state = Arc::make_mut(&mut snapshot.state);
        trim_sessions(state, &snapshot.metadata, |_| false);
        trim_workspaces(state, &snapshot.metadata, |_| false);
    }

    let why = [&metadata, &state].into_iter().find_map(|loaded| loaded.as_ref().err());
    let saving = match files.map(Writer::start) {
        Some(Ok(writer)) => Saving::To(writer),
        Some(Err(error)) => Saving::Off { why: chain(&error) },
        // One of the files must not be written.
        None => Saving::Off { why: why.cloned().unwrap_or_default() },
    };

    let health = Health {
        metadata,
        state,
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

/// Logs the result of loading a file. Returns the origin, or the reason why the file must not be
/// written.
fn checked_origin(
    file: &str,
    loaded: Result<(Origin, Vec<Duplicate>), StoreError>,
) -> Result<Origin, String> {
    let (origin, duplicates) = loaded.map_err(|error| {
        let why = chain(&error);
        tracing::error!(file, why, "read-only: nothing will be saved");
        why
    })?;

    if !matches!(origin, Origin::Fresh | Origin::File) {
        tracing::error!(?origin, "{file} was recovered");
    }
    for duplicate in &duplicates {
        tracing::warn!(file, %duplicate, "left out an entry");
    }
    Ok(origin)
}

/// Returns the model providers with a key. Only the presence of the key is checked.
fn providers(variable: impl Fn(&str) -> Option<OsString>) -> Vec<&'static str> {
    [("OPENAI_API_KEY", "openai"), ("ANTHROPIC_API_KEY", "anthropic")]
        .into_iter()
        .filter(|(name, _)| variable(name).is_some_and(|key| !key.is_empty()))
        .map(|(_, provider)| provider)
        .collect()
}
