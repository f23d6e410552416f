//! Settings of sessions whose worker runs on another machine or in a container.

use crate::Setting;
use std::time::Duration;

/// Settings of far workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FarSettings {
    /// Path of a build of quack to send, absolute; empty for the running executable.
    pub program: Setting<String>,
    /// Time for which a lost link may be resumed, up to 3 hours; zero: its worker ends at once.
    pub resume_grace: Setting<Duration>,
    /// Maximum wait for a place in the queue of an engine, 1 s to 7 days.
    pub queue: Setting<Duration>,
}

impl Default for FarSettings {
    fn default() -> Self {
        Self {
            program: Setting::default_of(String::new()),
            resume_grace: Setting::default_of(Duration::ZERO),
            queue: Setting::default_of(Duration::from_secs(60 * 60)),
        }
    }
}
