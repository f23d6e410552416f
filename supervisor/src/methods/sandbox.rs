//! `quack.sandbox`: what a session's worker may do, where that comes from, what is really in force, and
//! changing it; and what the worker itself says of its confinement and of its workspace.

use super::attach::{SAVE_LIMIT, attach_path};
use super::{Caller, params};
use crate::clients::Transport;
use crate::errors::{CallError, MethodError};
use crate::registry::{FindPolicy, FindSession, FoundPolicy, FoundSession, PolicyChange, Purpose};
use crate::wire::Request;
use crate::worker_handle::{CallDone, CallTool, InForce, ListDenials, ReportPolicy};
use quackd_protocol::client::{DenialsData, SandboxData, SandboxParams, WorkerSays};
use quackd_protocol::limits::DEFAULT_TOOL_DEADLINE;
use quackd_protocol::tools::{AUDIT, EXPLAIN};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::path::PathBuf;

/// Longest path that can be asked about, in bytes: more is none of the kernel's.
const MAX_TARGET_BYTES: usize = 4096;

/// What the actions answer.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Policy(Box<SandboxData>),
    Denials(DenialsData),
    Worker(WorkerSays),
}

pub(super) async fn sandbox(request: &mut Request, caller: &Caller) -> Result<Answer, MethodError> {
    let asked: SandboxParams = params(request, "quack.sandbox")?;
    let change = match asked.action.as_deref() {
        None | Some("show") => None,
        Some("denials") => {
            let handle = session(&asked, caller).await?.handle;
            return Ok(Answer::Denials(handle.send(ListDenials).await?));
        }
        Some("audit") => return ask_worker(AUDIT, String::from("{}"), &asked, caller).await,
        Some("explain") => {
            let target = asked.target.as_deref().filter(|target| !target.is_empty());
            if target.is_some_and(|target| MAX_TARGET_BYTES < target.len()) {
                return Err(MethodError::LongTarget);
            }
            let arguments = target.map_or_else(|| json!({}), |path| json!({ "path": path }));
            return ask_worker(EXPLAIN, arguments.to_string(), &asked, caller).await;
        }
        // What a token is worth is decided where it was made.
        Some("set") if caller.client.transport != Transport::Socket => {
            return Err(MethodError::LocalPolicy);
        }
        Some("set") => Some(PolicyChange {
            scope: asked.scope.unwrap_or_default(),
            reset: asked.reset.unwrap_or(false),
            patch: asked.patch.clone(),
        }),
        Some(other) => {
            return Err(MethodError::SandboxAction(other.chars().take(100).collect()));
        }
    };
    let session = session(&asked, caller).await?;
    let find = FindPolicy { session: session.session_id.clone(), change };
    let FoundPolicy { policy, layers } = caller.registry.send(find).timeout(SAVE_LIMIT).await??;
    let InForce { report, is_outdated, waits_for } = session.handle.send(ReportPolicy).await?;
    Ok(Answer::Policy(Box::new(SandboxData {
        session_id: session.session_id,
        session_name: session.session_name,
        workspace_path: session.workspace_path,
        policy,
        layers,
        in_force: report,
        outdated: is_outdated,
        calls_running: if is_outdated { waits_for.calls } else { 0 },
        jobs_running: if is_outdated { waits_for.jobs } else { 0 },
    })))
}

/// Has the session's worker answer: it sees the user's files, and nothing here does.
async fn ask_worker(
    tool: &str,
    arguments: String,
    asked: &SandboxParams,
    caller: &Caller,
) -> Result<Answer, MethodError> {
    let session = session(asked, caller).await?;
    let call = CallTool {
        tool: tool.to_owned(),
        client_id: None,
        arguments,
        safe_mode: session.safe_mode,
        deadline: DEFAULT_TOOL_DEADLINE,
        background: false,
    };
    let done = session.handle.send(call).await.unwrap_or(Err(CallError::ShuttingDown));
    let (text, report) = match done {
        Ok(CallDone { text, data, .. }) => (text, data),
        // As a tool's text would be, so that clients show either in the same way.
        Err(error) => {
            let text = to_raw_value(&error.text(tool));
            (text.unwrap_or_else(|_| RawValue::NULL.to_owned()), None)
        }
    };
    Ok(Answer::Worker(WorkerSays {
        session_id: session.session_id,
        session_name: session.session_name,
        workspace_path: session.workspace_path,
        text,
        report,
    }))
}

async fn session(asked: &SandboxParams, caller: &Caller) -> Result<FoundSession, MethodError> {
    let reference = match (&asked.session_id, &asked.path) {
        (Some(reference), _) if !reference.is_empty() => Some(reference.clone()),
        (_, Some(path)) => {
            let attached = attach_path(caller, PathBuf::from(path), false, None).await?;
            Some(attached.session.id.0)
        }
        _ => None,
    };
    let find = FindSession { reference, purpose: Purpose::Look };
    caller.registry.send(find).await??.ok_or(MethodError::NoSession)
}
