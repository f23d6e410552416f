//! Messages that a session's actors send to their owner, the registry. [`Owner`] keeps this folder independent of it.

use actix::WeakRecipient;
use actix::dev::ToEnvelope;
use actix::prelude::*;
use quackd_protocol::SessionId;
use quackd_protocol::state::{FoundPreset, HeldConfig};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Report or question of a session's actor.
#[derive(Debug, Message)]
#[rtype(result = "OwnerReply")]
pub(crate) enum TellOwner {
    /// The session's worker or agent crashed.
    Crashed(SessionId),
    /// The agent reported its state.
    AgentReport(AgentReport),
    /// The user's tools reported hosts of derived presets, by preset. Sent by the request that asked the tools.
    KeepHosts(BTreeMap<String, FoundPreset>),
    /// Commands of sessions could change the configuration file. Sent by the start, and by requests that let a session
    /// write another directory.
    ConfigHeld(HeldConfig),
    /// Lists every directory that a command of any session may write.
    ListWritable,
}

/// Fields of the agent's state that the metadata keeps. `None` if the agent reported none.
#[derive(Debug)]
pub(crate) struct AgentReport {
    pub(crate) session: SessionId,
    /// Path of the file with the conversation.
    pub(crate) session_file: Option<String>,
    /// Name that the user gave the session in the agent.
    pub(crate) session_name: Option<String>,
}

/// Answer to [`TellOwner`].
#[derive(Debug, MessageResponse)]
pub(crate) enum OwnerReply {
    Done,
    /// The session's name, changed in memory already. `None` if the session is gone.
    Name(Option<String>),
    Writable(Vec<PathBuf>),
}

/// Address of the owner. Does not keep it alive.
#[derive(Clone)]
pub(crate) struct Owner(WeakRecipient<TellOwner>);

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

impl Owner {
    pub(crate) fn new<A>(owner: &Addr<A>) -> Self
    where
        A: Actor + Handler<TellOwner>,
        A::Context: ToEnvelope<A, TellOwner>,
    {
        Self(owner.clone().recipient().downgrade())
    }

    /// Counts a crash. A full mailbox loses the count.
    pub(crate) fn crashed(&self, session: &SessionId) {
        if let Some(owner) = self.0.upgrade() {
            owner.try_send(TellOwner::Crashed(session.clone())).ok();
        }
    }

    /// Directories that a command of any session may write. `None` if the owner is gone.
    pub(crate) async fn writable(&self) -> Option<Vec<PathBuf>> {
        match self.0.upgrade()?.send(TellOwner::ListWritable).await.ok()? {
            OwnerReply::Writable(directories) => Some(directories),
            OwnerReply::Done | OwnerReply::Name(_) => None,
        }
    }

    /// Stores the agent's state. Returns the session's name; `None` if the session or the owner is gone.
    pub(crate) async fn agent_report(&self, report: AgentReport) -> Option<String> {
        match self.0.upgrade()?.send(TellOwner::AgentReport(report)).await.ok()? {
            OwnerReply::Name(name) => name,
            OwnerReply::Done | OwnerReply::Writable(_) => None,
        }
    }
}
