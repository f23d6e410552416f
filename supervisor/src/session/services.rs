//! Services that the workers and Pis of all sessions share.

use crate::children::ChildServices;
use crate::daemon_info::DaemonInfo;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::session::SessionTable;
use crate::session::pi::LastFailure;
use quackd_egress::Egress;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct SessionServices {
    pub(crate) daemon: Rc<DaemonInfo>,
    pub(crate) children: ChildServices,
    pub(crate) pool: Pool,
    pub(crate) events: Rc<Events>,
    pub(crate) table: SessionTable,
    pub(crate) pi_failure: LastFailure,
    /// Web searches, with their API key.
    pub(crate) egress: Egress,
    pub(crate) metrics: Arc<Metrics>,
    /// Permits for directory lookups. A lookup on a dead mount keeps its permit and its thread.
    pub(crate) lookups: Arc<Semaphore>,
}
