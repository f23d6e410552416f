//! Pinned sessions: their processes are exempt from idle eviction. Stored with the session's safe mode.

use super::Registry;

impl Registry {
    /// Publishes the pinned sessions to the eviction.
    pub(super) fn tell_pins(&self) {
        let pinned = self.state.sessions.iter().filter(|(_, state)| state.pinned);
        self.services.table.set_pinned(pinned.map(|(id, _)| id.clone()));
    }
}
