//! Messages that a session's actors send to their owner, the registry. [`Owner`] keeps this folder independent of it.

use actix::WeakRecipient;
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::state::TerminalProgram;
use std::path::PathBuf;

/// The session's worker or agent crashed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Crashed(pub(crate) SessionId);

/// Fields of the agent's state that the metadata keeps. `None` if the agent reported none. The reply is the session's
/// name, changed in memory already, and `None` if the session is gone.
#[derive(Debug, Message)]
#[rtype(result = "Option<String>")]
pub(crate) struct AgentReport {
    pub(crate) session: SessionId,
    /// Path of the file with the conversation.
    pub(crate) session_file: Option<String>,
    /// Name that the user gave the session in the agent.
    pub(crate) session_name: Option<String>,
}

/// The programs on the session's terminals, which the next daemon names if they end with this one.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct ProgramsChanged {
    pub(crate) session: SessionId,
    pub(crate) programs: Vec<TerminalProgram>,
}

/// Lists every directory that a command of any session may write.
#[derive(Debug, Message)]
#[rtype(result = "Vec<PathBuf>")]
pub(crate) struct ListWritable;

/// Address of the owner. Does not keep it alive.
#[derive(Clone)]
pub(crate) struct Owner {
    crashed: WeakRecipient<Crashed>,
    report: WeakRecipient<AgentReport>,
    programs: WeakRecipient<ProgramsChanged>,
    writable: WeakRecipient<ListWritable>,
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl Owner {
    pub(crate) fn new<A>(owner: &Addr<A>) -> Self
    where
        A: Actor<Context = Context<A>>
            + Handler<Crashed>
            + Handler<AgentReport>
            + Handler<ProgramsChanged>
            + Handler<ListWritable>,
    {
        Self {
            crashed: owner.clone().recipient().downgrade(),
            report: owner.clone().recipient().downgrade(),
            programs: owner.clone().recipient().downgrade(),
            writable: owner.clone().recipient().downgrade(),
        }
    }

    /// Counts a crash. A full mailbox loses the count.
    pub(crate) fn crashed(&self, session: &SessionId) {
        if let Some(owner) = self.crashed.upgrade() {
            owner.try_send(Crashed(session.clone())).ok();
        }
    }

    /// Records the programs on the session's terminals. A full mailbox loses the record.
    pub(crate) fn programs_changed(&self, session: &SessionId, programs: Vec<TerminalProgram>) {
        if let Some(owner) = self.programs.upgrade() {
            owner.try_send(ProgramsChanged { session: session.clone(), programs }).ok();
        }
    }

    /// Directories that a command of any session may write. `None` if the owner is gone.
    pub(crate) async fn writable(&self) -> Option<Vec<PathBuf>> {
        self.writable.upgrade()?.send(ListWritable).await.ok()
    }

    /// Stores the agent's state. Returns the session's name; `None` if the session or the owner is gone.
    pub(crate) async fn agent_report(&self, report: AgentReport) -> Option<String> {
        self.report.upgrade()?.send(report).await.ok()?
    }
}
