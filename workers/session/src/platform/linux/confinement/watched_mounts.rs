//! Mounts of a confined worker that its tools check before each call. Called by [`super`].

use quackd_protocol::policy::Policy;
use quackd_sandbox::Pin;
use quackd_sandbox::confine::{self, MountPlan};
use std::path::{Path, PathBuf};

/// Returns the pins that keep directories in their place with the hidden paths that have a mount, and the pins of files
/// that must not be changed.
pub(super) fn paths_to_watch(plan: &MountPlan, policy: &Policy) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let hidden = policy.hidden.iter().filter(|hidden| plan.mounts.contains_key(*hidden));
    let (read_only, others): (Vec<_>, Vec<_>) = plan.pins.iter().partition(|pin| pin.read_only);
    let path = |pin: &Pin| pin.at.clone();
    let others = others.into_iter().map(path).chain(hidden.cloned());
    (others.collect(), read_only.into_iter().map(path).collect())
}

/// Removes the pins that could not be mounted from the start, so that they are not reported as lost later.
pub(super) fn mounted(mut pins: Vec<PathBuf>) -> Vec<PathBuf> {
    while let Some(bare) = confine::first_unpinned_blocking(&pins).map(Path::to_owned) {
        pins.retain(|pin| *pin != bare);
    }
    pins
}
