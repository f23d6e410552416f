//! Messages that a session's actors send to their owner, the registry. [`Owner`] keeps this folder independent of it.

use actix::WeakRecipient;
use actix::dev::ToEnvelope;
use actix::prelude::*;
use quackd_protocol::SessionId;
use std::path::PathBuf;

/// A worker has died. The count is kept over runs of the daemon; nobody waits for it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Crashed {
    pub(crate) session: SessionId,
}

/// Lists every directory that a command of any session may write: all workspaces, and the directories that
/// policies name.
#[derive(Debug, Message)]
#[rtype(result = "Vec<PathBuf>")]
pub(crate) struct ListWritable;

/// Pi told its state. Answered with the session's name, once it is changed in memory; nobody waits for the disk.
#[derive(Debug, Message)]
#[rtype(result = "Option<String>")]
pub(crate) struct PiTold {
    pub(crate) session: SessionId,
    pub(crate) session_file: Option<String>,
    pub(crate) session_name: Option<String>,
}

/// Address of the owner. Does not keep it alive.
#[derive(Clone)]
pub(crate) struct Owner {
    crashed: WeakRecipient<Crashed>,
    writable: WeakRecipient<ListWritable>,
    pi: WeakRecipient<PiTold>,
}

impl Owner {
    pub(crate) fn new<A>(owner: &Addr<A>) -> Self
    where
        A: Actor + Handler<Crashed> + Handler<ListWritable> + Handler<PiTold>,
        A::Context: ToEnvelope<A, Crashed> + ToEnvelope<A, ListWritable> + ToEnvelope<A, PiTold>,
    {
        Self {
            crashed: owner.clone().recipient().downgrade(),
            writable: owner.clone().recipient().downgrade(),
            pi: owner.clone().recipient().downgrade(),
        }
    }

    /// Counts a crash. A full mailbox loses the count.
    pub(crate) fn crashed(&self, session: &SessionId) {
        if let Some(owner) = self.crashed.upgrade() {
            owner.try_send(Crashed { session: session.clone() }).ok();
        }
    }

    /// See [`ListWritable`]. `None` if the owner is gone.
    pub(crate) async fn writable(&self) -> Option<Vec<PathBuf>> {
        self.writable.upgrade()?.send(ListWritable).await.ok()
    }

    /// See [`PiTold`]. `None` if the session or the owner is gone.
    pub(crate) async fn pi_told(&self, told: PiTold) -> Option<String> {
        self.pi.upgrade()?.send(told).await.ok().flatten()
    }
}
