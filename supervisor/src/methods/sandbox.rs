//! `quack.sandbox`: shows and changes the policy of a session, and shows its sources and the policy in force. Also
//! returns the worker's report on its sandbox and workspace.

use super::Caller;
use super::attach::{SAVE_LIMIT, named};
use super::directories::{RESOLVE_LIMIT, held, note_held};
use super::find::label;
use super::hosts;
use super::presets;
use crate::approvals::words::for_display;
use crate::errors::MethodError;
use crate::events::client_registry::Transport;
use crate::obeyed::HeldFile;
use crate::registry::{
    ChangeSession, FindSession, FoundPolicy, GrantChange, PolicyChange, Purpose, SessionChange,
    TakeSnapshot,
};
use crate::session::FoundSession;
use crate::session::actor::NoLook;
use crate::session::describe::jobs;
use crate::session::messages::TellSession;
use crate::session::worker::{self, CallDone, CallTool};
use quackd_policy::{MAX_ROOTS, PolicyError, path_problem};
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    AuditReport, DenialsData, ExplainLayer, ExplainReport, HostExplained, LOCAL_POLICY,
    NetworkData, PresetsData, ProcessState, SandboxData, SandboxParams, WorkerSaid, WorkerSays,
};
use quackd_protocol::limits::{DEFAULT_TOOL_DEADLINE, MAX_HOST_RULES};
use quackd_protocol::policy::{NetworkMode, WebSearchRule};
use quackd_protocol::tools::{AUDIT, EXPLAIN};
use quackd_protocol::worker::SandboxReport;
use quackd_schema::shape_of;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Instant;

/// Maximum length of a path in a request, in bytes: the kernel's `PATH_MAX`.
const MAX_TARGET_BYTES: usize = 4096;

/// Most files that the daemon obeys in the report of an audit.
const MAX_HELD: usize = 64;

/// Replies of the actions.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum SandboxReply {
    Policy(Box<SandboxData>),
    Denials(DenialsData),
    Network(NetworkData),
    Presets(PresetsData),
    Host(HostExplained),
    Worker(WorkerSays),
}

/// The worker's report is forwarded unread, so its shape is that of the type that a client reads.
impl JsonSchema for SandboxReply {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SandboxReply".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            shape_of::<SandboxData>(generator),
            shape_of::<DenialsData>(generator),
            shape_of::<NetworkData>(generator),
            shape_of::<PresetsData>(generator),
            shape_of::<HostExplained>(generator),
            shape_of::<WorkerSaid<AuditReport>>(generator),
            shape_of::<WorkerSaid<ExplainReport>>(generator),
        ]})
    }
}

pub(super) async fn sandbox(
    asked: SandboxParams,
    caller: &Caller,
) -> Result<SandboxReply, MethodError> {
    let change = match asked.action.as_deref() {
        None | Some("show") => None,
        Some("denials") => return denials(&asked, caller).await,
        Some("presets") => return presets::list(&asked, caller).await.map(SandboxReply::Presets),
        Some("network") => {
            let (session, found) = session_and_policy(&asked, caller).await?;
            let data = hosts::requests(&asked, session, found, caller).await?;
            return Ok(SandboxReply::Network(data));
        }
        Some("explain") if asked.host.is_some() => {
            let (session, found) = session_and_policy(&asked, caller).await?;
            let host = asked.host.as_deref().unwrap_or_default();
            let snapshot = caller.registry.send(TakeSnapshot).await?;
            let label = label(caller, &session.session_id).await?;
            let (known, daemon) = (snapshot.presets(), &caller.services.daemon);
            return hosts::explain(host, session, found, &label, known, daemon)
                .map(SandboxReply::Host);
        }
        Some("audit") => return audit(&asked, caller).await.map(SandboxReply::Worker),
        Some("explain") => {
            let target = asked.target.as_deref().filter(|target| !target.is_empty());
            if target.is_some_and(|target| MAX_TARGET_BYTES < target.len()) {
                return Err(MethodError::LongTarget);
            }
            let arguments = target.map_or_else(|| json!({}), |path| json!({ "path": path }));
            let said = ask_worker(EXPLAIN, arguments.to_string(), &asked, caller).await?;
            if target.is_some() {
                return Ok(SandboxReply::Worker(said));
            }
            let FoundPolicy { policy, .. } = policy(caller, &said.session_id).await?;
            return Ok(SandboxReply::Worker(with_web_search(said, policy.web_search)));
        }
        // Only local clients may decide what the token permits.
        Some("set" | "allow" | "revoke") if caller.client.transport != Transport::Socket => {
            return Err(MethodError::LocalOnly(LOCAL_POLICY));
        }
        Some("set") => {
            check_roots(asked.patch.writable_roots.as_deref().unwrap_or_default(), caller).await?;
            Some(SessionChange::Policy(PolicyChange {
                scope: asked.scope.unwrap_or_default(),
                reset: asked.reset.unwrap_or(false),
                patch: asked.patch.clone(),
            }))
        }
        Some(action @ ("allow" | "revoke")) => Some(grants(action, &asked, caller)?),
        Some(other) => {
            return Err(MethodError::SandboxAction(other.chars().take(100).collect()));
        }
    };
    let ends_jobs = change.is_some() && asked.end_jobs == Some(true);
    let session = session(&asked, caller).await?;
    // Rules that cannot be used are refused before any tool is asked.
    let rules = asked_rules(&asked);
    quackd_policy::validate_hosts(rules).map_err(MethodError::Policy)?;
    let mut notes = presets::resolve(rules, caller).await?;
    let found = match change {
        None => policy(caller, &session.session_id).await?,
        Some(change) => {
            let change = ChangeSession { session: session.session_id.clone(), change };
            caller.registry.send(change).timeout(SAVE_LIMIT).await??
        }
    };
    if ends_jobs {
        session.handle.send(TellSession::EndJobs).await?;
    }
    if asked.action.as_deref() == Some("set") {
        notes.extend(note_held(caller, found.policy.writable_roots.clone()).await);
    }
    let data = in_force(session, found, caller).await?;
    Ok(SandboxReply::Policy(Box::new(SandboxData { notes, ..data })))
}

/// The rules that a request sets or allows.
fn asked_rules(asked: &SandboxParams) -> &[String] {
    let rules = match asked.action.as_deref() {
        Some("set") => asked.patch.hosts.as_deref(),
        Some("allow") => asked.rules.as_deref(),
        _ => None,
    };
    rules.unwrap_or_default()
}

/// The change of grants that a request means.
fn grants(
    action: &str,
    asked: &SandboxParams,
    caller: &Caller,
) -> Result<SessionChange, MethodError> {
    let rules = asked.rules.clone().filter(|rules| !rules.is_empty());
    let rules = rules.ok_or(MethodError::NoRules)?;
    if MAX_HOST_RULES < rules.len() {
        return Err(MethodError::Policy(PolicyError::TooManyRules(rules.len())));
    }
    Ok(SessionChange::Grants(match action {
        "allow" => {
            let (scope, client) = (asked.scope.unwrap_or_default(), caller.client.shown_name());
            GrantChange::Allow { scope, rules, client }
        }
        _ => GrantChange::Revoke { ids_or_rules: rules },
    }))
}

/// The policy of the next worker, and that of the running one.
async fn in_force(
    session: FoundSession,
    FoundPolicy { policy, layers, rules, grants }: FoundPolicy,
    caller: &Caller,
) -> Result<SandboxData, MethodError> {
    let label = label(caller, &session.session_id).await?;
    let snapshot = caller.services.sessions.table.snapshot(&session.session_id);
    let worker = &snapshot.worker;
    // The running worker keeps its policy until these calls and jobs end.
    let is_outdated = worker.is_outdated(&policy, &rules);
    // The proxy gets rules before the status of the worker is published.
    let hosts = if is_outdated {
        worker.has_hosts()
    } else {
        worker.has_sockets() && policy.network_mode() == NetworkMode::Hosts
    };
    let calls = worker.calls.iter().filter(|call| is_outdated && call.is_sent).count();
    let keeps = is_outdated && worker.state() != ProcessState::Draining;
    let jobs = if keeps { jobs(&worker.jobs, Instant::now()) } else { Vec::new() };
    Ok(SandboxData {
        label,
        session_id: session.session_id,
        session_name: session.session_name,
        workspace_path: session.workspace_path,
        layers,
        grants,
        in_force: worker
            .hello
            .as_ref()
            .map(|hello| SandboxReport { hosts, ..hello.sandbox.clone() }),
        policy,
        hosts_denied_unasked: rules.is_off,
        outdated: is_outdated,
        calls_running: calls,
        jobs_running: jobs.len(),
        jobs,
        notes: Vec::new(),
    })
}

async fn denials(asked: &SandboxParams, caller: &Caller) -> Result<SandboxReply, MethodError> {
    let found = session(asked, caller).await?;
    let label = label(caller, &found.session_id).await?;
    let session = caller.services.sessions.table.snapshot(&found.session_id);
    let denials = &session.worker.denials;
    Ok(SandboxReply::Denials(DenialsData {
        session_id: found.session_id,
        session_name: found.session_name,
        label,
        total: denials.total,
        denials: denials.last.iter().cloned().collect(),
    }))
}

async fn session_and_policy(
    asked: &SandboxParams,
    caller: &Caller,
) -> Result<(FoundSession, FoundPolicy), MethodError> {
    let session = session(asked, caller).await?;
    let policy = policy(caller, &session.session_id).await?;
    Ok((session, policy))
}

async fn policy(caller: &Caller, session: &SessionId) -> Result<FoundPolicy, MethodError> {
    let settings = &caller.services.daemon.config.sandbox;
    caller.registry.send(TakeSnapshot).await?.policy(settings, session)
}

/// Refuses system directories as writable directories. Runs on the blocking pool with a time limit, because a path on
/// a dead mount can block.
async fn check_roots(roots: &[PathBuf], caller: &Caller) -> Result<(), MethodError> {
    // `quackd_policy::validate` refuses unusable paths and too many of them.
    let is_path = |root: &&PathBuf| path_problem(root).is_none();
    let roots: Vec<PathBuf> = roots.iter().take(MAX_ROOTS).filter(is_path).cloned().collect();
    let places = caller.services.daemon.places();
    let look = move || roots.iter().try_for_each(|root| places.check_blocking(root));
    match caller.services.sessions.look(RESOLVE_LIMIT, look).await {
        Ok(checked) => checked.map_err(MethodError::NotWritable),
        Err(NoLook::Ended) => Err(MethodError::ShuttingDown),
        Err(NoLook::TimedOut) => Err(MethodError::Overloaded),
    }
}

/// Forwards the request to the session's worker, which sees the user's files. The supervisor does not read them.
async fn ask_worker(
    tool: &str,
    arguments: String,
    asked: &SandboxParams,
    caller: &Caller,
) -> Result<WorkerSays, MethodError> {
    let session = session(asked, caller).await?;
    let call = CallTool {
        tool: tool.to_owned(),
        client_id: None,
        caller: None,
        arguments,
        safe_mode: session.safe_mode,
        approved: false,
        deadline: DEFAULT_TOOL_DEADLINE,
        background: false,
        stream: None,
        stream_rows: false,
        cwd: String::new(),
        input: None,
        cancel: None,
        agents: None,
    };
    let (text, report) = match worker::call(&session.handle, call).await {
        Ok(CallDone { text, data, .. }) => (text, data),
        // In the format of a tool's text, so that clients show both in the same way.
        Err(error) => {
            let text = to_raw_value(&error.text(tool));
            (text.unwrap_or_else(|_| RawValue::NULL.to_owned()), None)
        }
    };
    Ok(WorkerSays {
        session_id: session.session_id,
        session_name: session.session_name,
        workspace_path: session.workspace_path,
        text,
        report,
    })
}

/// The worker's audit, with the files outside of the workspace that the daemon obeys and that the session could change.
async fn audit(asked: &SandboxParams, caller: &Caller) -> Result<WorkerSays, MethodError> {
    let said = ask_worker(AUDIT, String::from("{}"), asked, caller).await?;
    let FoundPolicy { policy, .. } = policy(caller, &said.session_id).await?;
    let workspace = PathBuf::from(&said.workspace_path);
    let writable = policy.writable_roots.into_iter().chain([workspace]).collect();
    let held = held(caller, writable).await;
    Ok(with_held(said, &held))
}

/// Adds the files outside of the workspace that the daemon obeys and that the session could change, to the worker's report
/// of an audit.
fn with_held(mut said: WorkerSays, held: &[HeldFile]) -> WorkerSays {
    let texts: Vec<String> =
        held.iter().take(MAX_HELD).map(|file| for_display(&file.to_string())).collect();
    let text: Option<String> = serde_json::from_str(said.text.get()).ok();
    let Some(text) = text.filter(|_| !texts.is_empty()) else { return said };
    let text = format!(
        "Files that quackd obeys and that this session could change:\n  {}\n{text}",
        texts.join("\n  ")
    );
    let report = said.report.as_ref().and_then(|report| serde_json::from_str(report.get()).ok());
    let report = report.map(|report: AuditReport| AuditReport {
        found: report.found.saturating_add(texts.len()),
        obeyed: texts,
        ..report
    });
    if let Ok(text) = to_raw_value(&text) {
        said.text = text;
        said.report = report.and_then(|report| to_raw_value(&report).ok()).or(said.report);
    }
    said
}

/// Adds the rule for web searches, which the supervisor enforces, to the worker's report.
fn with_web_search(mut said: WorkerSays, rule: WebSearchRule) -> WorkerSays {
    let (holds, other) = match rule {
        WebSearchRule::On => ("on: web_search sends queries, whatever the network is", "off"),
        WebSearchRule::Ask => ("ask: web_search is refused, since quackd cannot ask yet", "on"),
        WebSearchRule::Off => ("off: web_search sends nothing", "on"),
    };
    let change = format!("quack sandbox set --web-search {other}");
    let text: Option<String> = serde_json::from_str(said.text.get()).ok();
    let report = said.report.as_ref().and_then(|report| serde_json::from_str(report.get()).ok());
    let (Some(text), Some(report)) = (text, report) else { return said };
    let mut report: ExplainReport = report;
    let text = format!("{text}\nweb search: {holds}\n  to change it: {change}");
    let (name, holds) = ("web search".to_owned(), holds.to_owned());
    report.layers.push(ExplainLayer { name, holds, change: Some(change) });
    if let (Ok(text), Ok(report)) = (to_raw_value(&text), to_raw_value(&report)) {
        said.text = text;
        said.report = Some(report);
    }
    said
}

async fn session(asked: &SandboxParams, caller: &Caller) -> Result<FoundSession, MethodError> {
    let reference = named(asked.session_id.as_deref(), asked.path.as_deref(), caller).await?;
    let find = FindSession { reference, purpose: Purpose::Look };
    caller.registry.send(find).await??.ok_or(MethodError::NoSession)
}
