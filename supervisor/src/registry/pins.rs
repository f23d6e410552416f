//! Pinned sessions: their processes stay however long nobody uses them. Durable, beside the session's safe mode.

use super::Registry;

impl Registry {
    /// Tells who must not be ended.
    pub(super) fn tell_pins(&self) {
        let pinned = self.state.sessions.iter().filter(|(_, state)| state.pinned);
        self.services.pool.statuses.set_pinned(pinned.map(|(id, _)| id.clone()));
    }
}
