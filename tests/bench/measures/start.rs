//! Start of the daemon: time from the process start to the first reply, and memory afterwards.

use super::Effort;
use crate::daemon::Daemon;
use crate::processes::{pause, resident};
use crate::report::{MIB, Row, Target, Unit};
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use std::time::Duration;

/// Number of sessions in the metadata of the larger measures.
const MANY: usize = 1000;
const SOME: usize = 100;

/// Time after which an idle daemon has given back the memory that only its start needed.
const SETTLE_TIME: Duration = Duration::from_secs(2);

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let rounds = effort.rounds(20);
    let (fresh, stops, _) = starts(0, rounds, Duration::ZERO)?;
    let (many, ..) = starts(MANY, rounds, Duration::ZERO)?;
    let (.., idle) = starts(SOME, effort.rounds(5), SETTLE_TIME)?;
    let start = Target::must(0.05);
    let start_many = Target::must_aim(0.2, 0.05);
    let memory = Target::must_aim(20.0 * MIB, 8.0 * MIB);
    Ok(vec![
        Row::new("daemon start to first answered ping", Unit::Seconds, start, fresh)?,
        Row::new(format!("the same, {MANY} sessions known"), Unit::Seconds, start_many, many)?,
        Row::new("daemon stop, no workers", Unit::Seconds, Target::NONE, stops)?,
        Row::new(format!("idle supervisor RSS, {SOME} sessions known"), Unit::Bytes, memory, idle)?,
    ])
}

/// Returns the times of `rounds` starts and stops, and the resident memory `settle` after each start.
fn starts(
    sessions: usize,
    rounds: usize,
    settle: Duration,
) -> anyhow::Result<(Vec<f64>, Vec<f64>, Vec<f64>)> {
    let mut daemon = Daemon::absent()?;
    // The first start creates the directory.
    daemon.boot()?;
    daemon.stop()?;
    if sessions != 0 {
        let metadata = serde_json::to_vec_pretty(&metadata(sessions))?;
        std::fs::write(daemon.app().join("metadata.json"), metadata)?;
    }
    let (mut starts, mut stops, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        starts.push(daemon.boot()?.as_secs_f64());
        pause(settle);
        memory.push(resident(daemon.pid()?)?);
        stops.push(daemon.stop()?.as_secs_f64());
    }
    Ok((starts, stops, memory))
}

/// Returns metadata with one session in each of `n` workspaces.
fn metadata(n: usize) -> Metadata {
    const TIME: &str = "2026-01-02T03:04:05Z";
    let mut metadata = Metadata::default();
    for n in 0..n {
        let (workspace, session) = (format!("{n:016x}"), format!("session-{n:014}"));
        let workspace = Workspace {
            id: workspace.as_str().into(),
            path: format!("/nowhere/project-{n}"),
            created_at: TIME.to_owned(),
            last_active_session_id: Some(session.as_str().into()),
            other: serde_json::Map::new(),
        };
        let session = Session {
            id: session.as_str().into(),
            workspace_id: workspace.id.clone(),
            name: "duck-1".to_owned(),
            pi_session_file: String::new(),
            created_at: TIME.to_owned(),
            last_active_at: TIME.to_owned(),
            is_voice_active: false,
            other: serde_json::Map::new(),
        };
        metadata.workspaces.push(workspace.into());
        metadata.sessions.push(session.into());
    }
    metadata
}
