//! The service manager that started the daemon, if one did, and the channel for notifications to it.

use quackd_service::{Manager, Notifier, watchdog_interval};
use std::ffi::OsString;
use std::time::Duration;

/// How often the status is told where nobody watches.
const STATUS_INTERVAL: Duration = Duration::from_secs(15);

/// A watchdog that wants to hear more often than this hears of us this often.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// One instance per daemon.
#[derive(Debug, Default)]
pub(crate) struct Managed {
    /// Who it is, as the daemon's arguments said.
    pub(crate) manager: Option<Manager>,
    /// It keeps the socket.
    pub(crate) is_activated: bool,
    pub(crate) notifier: Option<Notifier>,
    /// Interval within which the manager expects a notification.
    pub(crate) watchdog: Option<Duration>,
}

impl Managed {
    /// What the environment says of the manager. A wish that cannot be met is in the log.
    pub(crate) fn new(manager: Option<Manager>, is_activated: bool) -> Self {
        let variable = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        let notifier = Notifier::from_variables(&variable).unwrap_or_else(|error| {
            tracing::warn!(%error, "the service manager cannot be told how the daemon is");
            None
        });
        let watchdog = watchdog_interval(&variable).filter(|_| notifier.is_some());
        Self { manager, is_activated, notifier, watchdog }
    }

    /// What it is called on the wire.
    pub(crate) fn name(&self) -> Option<String> {
        self.manager.map(|manager| manager.name().to_owned())
    }

    /// The daemon is on its way out.
    pub(crate) fn stopping(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.stopping();
            notifier.status("stopping");
        }
    }

    /// How long between two words to it.
    pub(crate) fn interval(&self) -> Duration {
        self.watchdog.map_or(STATUS_INTERVAL, |limit| (limit / 2).max(SHORTEST_INTERVAL))
    }
}
