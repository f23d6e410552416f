//! State of the link to a far worker, in its actor.

use quackd_protocol::far::FarWorkspace;
use quackd_protocol::isolate::CopiedTree;
use quackd_supervision::{ChildSpec, HeartbeatSpec, SESSION_WORKER, WORKER_HEARTBEAT};
use std::rc::Rc;
use std::time::Duration;

/// Time without an answer after which a far worker is taken as hanging. Answers wait behind other frames of a slow link; a
/// link process finds a lost link earlier.
const HANGING: Duration = Duration::from_secs(120);

/// Interval of the pings of an idle far worker. They measure the latency, and the link has keep-alives anyway.
const IDLE_PING: Duration = Duration::from_secs(5);

/// The link to a far worker.
#[derive(Debug)]
pub(super) struct FarLink {
    pub(super) workspace: FarWorkspace,
    /// The reason why the worker does not answer now, in words. `None` if nothing is known.
    pub(super) notice: Option<Rc<str>>,
}

impl FarLink {
    /// Returns the link of a session with this workspace and private copy. `None` if it works on this machine.
    pub(super) fn of(workspace: &str, isolated: Option<&CopiedTree>) -> Option<Self> {
        let workspace = FarWorkspace::of_session(workspace, isolated)?;
        Some(Self { workspace, notice: None })
    }

    /// The row of a far worker in the table of children.
    pub(super) fn spec() -> ChildSpec {
        let heartbeat = HeartbeatSpec { idle: IDLE_PING, kill: HANGING, ..WORKER_HEARTBEAT };
        ChildSpec { heartbeat: Some(heartbeat), ..SESSION_WORKER }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_far_workspace_has_a_link() {
        assert!(FarLink::of("/home/me/app", None).is_none());
        assert_eq!(FarLink::of("ssh:b:/w", None).unwrap().workspace.place(), "b");
        let heartbeat = FarLink::spec().heartbeat.unwrap();
        assert!(heartbeat.idle < SESSION_WORKER.heartbeat.unwrap().idle);
    }
}
