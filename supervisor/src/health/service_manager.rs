//! The service manager that started the daemon, if any, and the channel for notifications.

use quackd_service::{Manager, Notifier, watchdog_interval};
use std::ffi::OsString;
use std::time::Duration;

/// Interval of status notifications without a watchdog.
const STATUS_INTERVAL: Duration = Duration::from_secs(15);

/// Minimum interval of watchdog notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// One instance per daemon.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    /// The service manager, from the daemon's arguments.
    pub(crate) manager: Option<Manager>,
    /// Whether the service manager owns the socket.
    pub(crate) is_activated: bool,
    pub(crate) notifier: Option<Notifier>,
    /// Interval within which the manager expects a notification.
    pub(crate) watchdog: Option<Duration>,
}

impl ServiceManager {
    /// Reads the manager's settings from the environment. Logs settings that cannot be used.
    pub(crate) fn new(manager: Option<Manager>, is_activated: bool) -> Self {
        let variable = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        let notifier = Notifier::from_variables(&variable).unwrap_or_else(|error| {
            tracing::warn!(%error, "service manager notifications unavailable");
            None
        });

        // Without a notifier, nothing can be sent in time.
        let watchdog = watchdog_interval(&variable).filter(|_| notifier.is_some());
        Self { manager, is_activated, notifier, watchdog }
    }

    /// Returns the name of the manager on the wire. `None` if the daemon was started by hand.
    pub(crate) fn name(&self) -> Option<String> {
        self.manager.map(|manager| manager.name().to_owned())
    }

    /// Notifies the manager that the daemon is shutting down.
    pub(crate) fn stopping(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.stopping();
            notifier.status("stopping");
        }
    }

    /// Returns the interval between two notifications: half of the one that the watchdog expects,
    /// so that one may be late.
    pub(crate) fn interval(&self) -> Duration {
        self.watchdog.map_or(STATUS_INTERVAL, |limit| (limit / 2).max(MIN_INTERVAL))
    }
}
