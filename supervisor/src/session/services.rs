//! Services that the actors of all sessions share.

use super::agent::LastFailure;
use super::agent::native::tool_runner::ToolRunner;
use super::call_record::CallJournal;
use super::models::Models;
use super::spending::Spending;
use crate::approvals::Approvals;
use crate::children::ChildServices;
use crate::daemon_info::DaemonInfo;
use crate::events::Events;
use crate::log::journal::Journal;
use crate::metrics::Metrics;
use crate::pool::Pool;
use crate::pool::sessions::SessionTable;
use quackd_config::SSH_AGENT_AUTO;
use quackd_egress::Egress;
use quackd_protocol::SessionId;
use quackd_protocol::agent::Engine;
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Services that the workers and agents of all sessions share. One instance per daemon, on the actors' thread.
#[derive(Debug)]
pub(crate) struct SessionServices {
    pub(crate) daemon: Rc<DaemonInfo>,
    pub(crate) children: ChildServices,
    pub(crate) pool: Pool,
    pub(crate) events: Rc<Events>,
    pub(crate) approvals: Rc<Approvals>,
    /// Requests of commands for hosts.
    pub(crate) network_journal: Journal,
    /// Calls that were answered.
    pub(crate) call_journal: CallJournal,
    pub(crate) table: SessionTable,
    pub(crate) agent_failure: LastFailure,
    /// Runs tool calls of quackd's own agents. Set once at the start.
    pub(crate) tool_runner: OnceCell<Box<dyn ToolRunner>>,
    /// Web searches and model requests, with their keys.
    pub(crate) egress: Rc<Egress>,
    /// Models of quackd's own agent.
    pub(crate) models: Models,
    /// Cost of quackd's own agents.
    pub(crate) spending: Rc<Spending>,
    pub(crate) metrics: Arc<Metrics>,
    /// Permits for [`SessionServices::look`].
    pub(crate) lookups: Arc<Semaphore>,
}

/// The reason why [`SessionServices::look`] has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoLook {
    /// The daemon is stopping.
    Ended,
    TimedOut,
}

impl SessionServices {
    /// Reads changed models, so that a running agent of quackd that does not know them is replaced.
    pub(crate) async fn refresh_models(&self, session: &SessionId) {
        let agent = &self.table.snapshot(session).agent;
        if agent.engine == Engine::Native && agent.process.is_alive() {
            self.models.catalog().await;
        }
    }

    /// Returns the socket of the user's ssh agent. `None` also if it is not known yet.
    pub(crate) fn ssh_agent(&self) -> Option<String> {
        match self.daemon.config.credentials.ssh_agent.value.as_str() {
            "" => None,
            SSH_AGENT_AUTO => self.children.login.agent_socket(),
            path => Some(path.to_owned()),
        }
    }

    /// Whether commands may use keys of an ssh agent, and one is known.
    pub(crate) fn serves_ssh_agent(&self) -> bool {
        self.daemon.config.credentials.ssh.value && self.ssh_agent().is_some()
    }

    /// Runs file system access of users' directories on the blocking pool. An access that hangs, for example on a dead
    /// mount, keeps its permit, so that at most a few threads hang.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        limit: Duration,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoLook> {
        let lookups = Arc::clone(&self.lookups);
        let looking = async move {
            let permit = lookups.acquire_owned().await.ok()?;
            let look = move || {
                let _permit = permit;
                look()
            };
            actix_rt::task::spawn_blocking(look).await.ok()
        };
        let found = tokio::time::timeout(limit, looking).await.map_err(|_late| NoLook::TimedOut)?;
        found.ok_or(NoLook::Ended)
    }
}
