//! Confinement of macOS, as in the directory for Linux: the program of the system applies the profile.

use crate::confinement_result::ConfinementResult;
use crate::real_paths::HomeLink;
use crate::seatbelt_confinement;
use crate::start_error::WorkerStartError;
use quackd_process::{Group, SessionPaths};
use quackd_protocol::worker::Start;
use quackd_sandbox::SANDBOX_EXEC;
use std::path::Path;

/// Prepares the words in front of commands.
///
/// # Errors
/// Like [`seatbelt_confinement::enter`].
pub(crate) fn enter(
    start: &Start,
    _home_links: &[HomeLink],
    _cgroup: Option<&SessionPaths>,
    _group: Option<&Group>,
) -> Result<ConfinementResult, WorkerStartError> {
    seatbelt_confinement::enter(start, Path::new(SANDBOX_EXEC))
}
