//! `quack.sandbox`: shows and changes the policy of a session, and shows its sources and the policy in force. Also
//! returns the worker's report on its sandbox and workspace.

use super::attach::named;
use super::directories::{RESOLVE_LIMIT, held, note_held};
use super::find::label;
use super::{Caller, Serve, hosts, presets};
use crate::approvals::words::for_display;
use crate::errors::MethodError;
use crate::events::SessionCall;
use crate::obeyed::HeldFile;
use crate::registry::{FoundPolicy, GrantChange, PolicyChange, Purpose, SessionChange};
use crate::session::FoundSession;
use crate::session::describe::jobs;
use crate::session::worker::{self, CallTool};
use quackd_policy::{MAX_ROOTS, PolicyError, path_problem};
use quackd_protocol::SessionId;
use quackd_protocol::approval::{Decision, ScopedGrant};
use quackd_protocol::client::{
    AuditReport, DenialsData, ExplainLayer, ExplainReport, HostExplained, LOCAL_POLICY,
    NetworkData, PresetsData, ProcessState, SandboxAllow, SandboxAudit, SandboxData,
    SandboxDenials, SandboxExplain, SandboxExplainHost, SandboxNetwork, SandboxParams,
    SandboxPresets, SandboxRevoke, SandboxSession, SandboxSet, SandboxShow, WorkerSays,
};

use quackd_protocol::credentials::{CredentialUse, UsableCredentials};
use quackd_protocol::limits::{DEFAULT_TOOL_DEADLINE, MAX_HOST_RULES};
use quackd_protocol::policy::{NetworkMode, WebSearchRule};
use quackd_protocol::tiers::Tier;
use quackd_protocol::tools::{AUDIT, AuditArguments, EXPLAIN};
use quackd_protocol::worker::{CallSpec, SandboxReport};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use std::path::PathBuf;
use std::time::Instant;

/// Maximum length of a path in a request, in bytes: the kernel's `PATH_MAX`.
const MAX_TARGET_BYTES: usize = 4096;

/// Most files that the daemon obeys in the report of an audit.
const MAX_HELD: usize = 64;

impl Serve<SandboxShow> for Caller {
    /// Shows the policy, and refuses an unknown action.
    async fn serve(&self, params: SandboxParams) -> Result<SandboxData, MethodError> {
        if let Some(other) = params.action.as_deref().filter(|action| *action != "show") {
            return Err(MethodError::SandboxAction(other.chars().take(100).collect()));
        }
        let SandboxShow { session } = params.into();
        let (session, found) = session_and_policy(&session, self).await?;
        in_force(session, found, Vec::new(), self).await
    }
}

impl Serve<SandboxSet> for Caller {
    async fn serve(&self, params: SandboxSet) -> Result<SandboxData, MethodError> {
        let SandboxSet { session, scope, reset, end_jobs, patch } = params;
        check_roots(patch.writable_roots.as_deref().unwrap_or_default(), self).await?;
        let session = find(&session, self).await?;

        let rules = patch.hosts.clone().unwrap_or_default();
        let (scope, reset) = (scope.unwrap_or_default(), reset.unwrap_or(false));
        let change = SessionChange::Policy(PolicyChange { scope, reset, patch });
        let (found, mut notes) = changed(&session, change, &rules, end_jobs, self).await?;
        notes.extend(note_held(self, found.policy.writable_roots.clone()).await);
        in_force(session, found, notes, self).await
    }
}

impl Serve<SandboxAllow> for Caller {
    async fn serve(&self, params: SandboxAllow) -> Result<SandboxData, MethodError> {
        let SandboxAllow { session, rules, credentials, scope, end_jobs } = params;
        let credentials = uses_of(credentials.unwrap_or_default())?;
        let rules = match rules {
            None if !credentials.is_empty() => Vec::new(),
            rules => checked_rules(rules)?,
        };
        let session = find(&session, self).await?;

        let (scope, client) = (scope.unwrap_or_default(), self.client.shown_name());
        let change = GrantChange::Allow { scope, rules: rules.clone(), credentials, client };
        let change = SessionChange::Grants(change);
        let (found, notes) = changed(&session, change, &rules, end_jobs, self).await?;
        in_force(session, found, notes, self).await
    }
}

impl Serve<SandboxRevoke> for Caller {
    async fn serve(&self, params: SandboxRevoke) -> Result<SandboxData, MethodError> {
        let SandboxRevoke { session, rules, end_jobs } = params;
        let rules = checked_rules(rules)?;
        let session = find(&session, self).await?;
        if !self.is_local() {
            check_narrows(&rules, &session, end_jobs, self).await?;
        }

        let change = GrantChange::Revoke { ids_or_rules: rules };

        let change = SessionChange::Grants(change);
        let (found, notes) = changed(&session, change, &[], end_jobs, self).await?;
        in_force(session, found, notes, self).await
    }
}

impl Serve<SandboxDenials> for Caller {
    async fn serve(&self, params: SandboxDenials) -> Result<DenialsData, MethodError> {
        let found = find(&params.session, self).await?;
        let label = label(self, &found.session_id).await?;

        let session = self.services.sessions.table.snapshot(&found.session_id);
        let denials = &session.worker.denials;
        let network = self.services.sessions.pool.networks.get(&found.session_id);
        let refused = network.map(|network| network.refused_credentials.borrow().clone());
        let (n_refused, refused) = refused.unwrap_or_default();
        let mut last: Vec<_> = denials.last.iter().cloned().chain(refused).collect();
        last.sort_by_cached_key(|denial| denial.at.clone());
        Ok(DenialsData {
            session_id: found.session_id,
            session_name: found.session_name,
            label,
            total: denials.total.saturating_add(n_refused),
            denials: last,
        })
    }
}

impl Serve<SandboxNetwork> for Caller {
    async fn serve(&self, params: SandboxNetwork) -> Result<NetworkData, MethodError> {
        let (session, found) = session_and_policy(&params.session, self).await?;
        hosts::requests(params.after.unwrap_or(0), session, found, self).await
    }
}

impl Serve<SandboxPresets> for Caller {
    async fn serve(&self, params: SandboxPresets) -> Result<PresetsData, MethodError> {
        presets::list(&params.rules.unwrap_or_default(), self).await
    }
}

impl Serve<SandboxExplainHost> for Caller {
    async fn serve(&self, params: SandboxExplainHost) -> Result<HostExplained, MethodError> {
        let (session, found) = session_and_policy(&params.session, self).await?;
        hosts::explain(&params.host.unwrap_or_default(), session, found, self).await
    }
}

impl Serve<SandboxAudit> for Caller {
    /// Returns the worker's audit, with the files outside of the workspace that the daemon obeys and that the session
    /// could change.
    async fn serve(&self, params: SandboxAudit) -> Result<WorkerSays, MethodError> {
        let session = find(&params.session, self).await?;
        let arguments = AuditArguments::builder().since_ms(params.since_ms).build();
        let answer = ask_worker(AUDIT, json!(arguments).to_string(), session).await;

        let FoundPolicy { policy, .. } = policy(self, &answer.session_id).await?;
        let workspace = PathBuf::from(&answer.workspace_path);
        let writable = policy.writable_roots.into_iter().chain([workspace]).collect();
        let held = held(self, writable).await;
        Ok(with_held(answer, &held))
    }
}

impl Serve<SandboxExplain> for Caller {
    async fn serve(&self, params: SandboxExplain) -> Result<WorkerSays, MethodError> {
        let target = params.target.as_deref().filter(|target| !target.is_empty());
        if target.is_some_and(|target| MAX_TARGET_BYTES < target.len()) {
            return Err(MethodError::LongTarget);
        }
        let arguments = target.map_or_else(|| json!({}), |path| json!({ "path": path }));
        let session = find(&params.session, self).await?;
        let answer = ask_worker(EXPLAIN, arguments.to_string(), session).await;
        if target.is_some() {
            return Ok(answer);
        }

        let FoundPolicy { policy, .. } = policy(self, &answer.session_id).await?;
        Ok(with_web_search(answer, policy.web_search))
    }
}

/// Carries out a change. Returns the new policy and notes for the user. `end_jobs`: also ends the background jobs.
async fn changed(
    session: &FoundSession,
    change: SessionChange,
    rules: &[String],
    end_jobs: Option<bool>,
    caller: &Caller,
) -> Result<(FoundPolicy, Vec<String>), MethodError> {
    // Rules that cannot be used are refused before any tool is asked.
    quackd_policy::validate_hosts(rules).map_err(MethodError::Policy)?;
    let notes = presets::resolve(rules, caller).await?;

    let found = caller.change(&session.session_id, change).await?;
    if end_jobs == Some(true) {
        session.actors.worker.send(worker::EndJobs).await?;
    }
    Ok((found, notes))
}

/// Returns the rules and ids of a request.
///
/// # Errors
/// There are none, or too many.
fn checked_rules(rules: Option<Vec<String>>) -> Result<Vec<String>, MethodError> {
    let rules = rules.filter(|rules| !rules.is_empty()).ok_or(MethodError::NoRules)?;
    if MAX_HOST_RULES < rules.len() {
        return Err(MethodError::Policy(PolicyError::TooManyRules(rules.len())));
    }
    Ok(rules)
}

/// Returns the decisions about uses of credentials, of which a text with `!` denies one.
///
/// # Errors
/// A text is no use of a credential, or there are too many.
fn uses_of(texts: Vec<String>) -> Result<Vec<(Decision, CredentialUse)>, MethodError> {
    if MAX_HOST_RULES < texts.len() {
        return Err(MethodError::Policy(PolicyError::TooManyRules(texts.len())));
    }
    let read = |text: String| {
        let (decision, purpose) = match text.strip_prefix('!') {
            Some(purpose) => (Decision::Deny, purpose),
            None => (Decision::Allow, text.as_str()),
        };
        match purpose.parse::<CredentialUse>() {
            Ok(purpose) => Ok((decision, purpose)),
            Err(_) => Err(MethodError::NoCredentialUse(text.chars().take(100).collect())),
        }
    };
    texts.into_iter().map(read).collect()
}

/// Returns the policy of the next worker, and that of the running one.
async fn in_force(
    session: FoundSession,
    FoundPolicy { policy, layers, rules, grants }: FoundPolicy,
    notes: Vec<String>,
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

    let hello = worker.hello.as_ref();
    let config = &caller.services.daemon.config.credentials;
    // Only a worker in namespaces has sockets for a proxy before its first command, also while the network is off.
    let serves = |tier: Tier| matches!(tier, Tier::A | Tier::B) && worker.has_sockets();
    let credentials = hello.map(|hello| {
        let is_served = hello.sandbox.tier.is_some_and(serves);
        let ssh = is_served && caller.services.sessions.serves_ssh_agent();
        UsableCredentials { ssh, git: is_served && config.git.value }
    });
    Ok(SandboxData {
        label,
        session_id: session.session_id,
        session_name: session.session_name,
        workspace_path: session.workspace_path,
        layers,
        grants,
        in_force: hello.map(|hello| SandboxReport { hosts, ..hello.sandbox.clone() }),
        credentials,
        policy,
        hosts_denied_unasked: rules.is_off(),
        outdated: is_outdated,
        calls_running: calls,
        jobs_running: jobs.len(),
        jobs,
        notes,
    })
}

/// Refuses a remote client that would take back anything but grants that allow something.
async fn check_narrows(
    rules: &[String],
    session: &FoundSession,
    end_jobs: Option<bool>,
    caller: &Caller,
) -> Result<(), MethodError> {
    let page = caller.client.page.get().ok_or(MethodError::LocalOnly(LOCAL_POLICY))?;
    if !page.rights.approvals {
        return Err(MethodError::PageRight("approvals"));
    }
    let grants = policy(caller, &session.session_id).await?.grants;
    let allows = |id: &String| {
        let of_id = |it: &&ScopedGrant| it.grant.id == *id;
        grants.iter().find(of_id).is_some_and(|it| it.grant.decision == Decision::Allow)
    };
    let is_narrower = end_jobs != Some(true) && rules.iter().all(allows);
    is_narrower.then_some(()).ok_or(MethodError::LocalOnly(LOCAL_POLICY))
}

async fn session_and_policy(
    session: &SandboxSession,
    caller: &Caller,
) -> Result<(FoundSession, FoundPolicy), MethodError> {
    let session = find(session, caller).await?;
    let policy = policy(caller, &session.session_id).await?;
    Ok((session, policy))
}

async fn policy(caller: &Caller, session: &SessionId) -> Result<FoundPolicy, MethodError> {
    let settings = &caller.services.daemon.config.sandbox;
    caller.snapshot().await?.policy(settings, session)
}

/// Refuses system directories as writable directories. Runs on the blocking pool with a time limit, because a path on
/// a dead mount can block.
async fn check_roots(roots: &[PathBuf], caller: &Caller) -> Result<(), MethodError> {
    // `quackd_policy::validate` refuses unusable paths and too many of them.
    let is_path = |root: &&PathBuf| path_problem(root).is_none();
    let roots: Vec<PathBuf> = roots.iter().take(MAX_ROOTS).filter(is_path).cloned().collect();

    let places = caller.services.daemon.places();
    let look = move || roots.iter().try_for_each(|root| places.check_blocking(root));
    let checked = caller.services.sessions.look(RESOLVE_LIMIT, look).await?;
    checked.map_err(MethodError::NotWritable)
}

/// Forwards the request to the session's worker, which sees the user's files. The supervisor does not read them.
async fn ask_worker(tool: &str, arguments: String, session: FoundSession) -> WorkerSays {
    let (tool_name, safe_mode) = (tool.to_owned(), session.safe_mode);
    let mut spec = CallSpec { tool: tool_name, arguments, safe_mode, ..CallSpec::default() };
    spec.set_deadline(DEFAULT_TOOL_DEADLINE);
    let call = CallTool { call: SessionCall::new(spec), stream: None, input: None, cancel: None };

    let (text, report) = match worker::call(&session.actors.worker, call).await {
        Ok(done) => (done.finished.text, done.finished.data),
        // In the format of a tool's text, so that clients show both in the same way.
        Err(error) => {
            let text = to_raw_value(&error.text(tool));
            (text.unwrap_or_else(|_| RawValue::NULL.to_owned()), None)
        }
    };

    WorkerSays {
        session_id: session.session_id,
        session_name: session.session_name,
        workspace_path: session.workspace_path,
        text,
        report,
    }
}

/// Adds the files outside of the workspace that the daemon obeys and that the session could change, to the worker's report
/// of an audit.
fn with_held(mut answer: WorkerSays, held: &[HeldFile]) -> WorkerSays {
    let texts: Vec<String> =
        held.iter().take(MAX_HELD).map(|file| for_display(&file.to_string())).collect();
    let text: Option<String> = serde_json::from_str(answer.text.get()).ok();
    let Some(text) = text.filter(|_| !texts.is_empty()) else { return answer };

    let text = format!(
        "Files that quackd obeys and that this session could change:\n  {}\n{text}",
        texts.join("\n  ")
    );
    let report = answer.report.as_ref().and_then(|report| serde_json::from_str(report.get()).ok());
    let report = report.map(|report: AuditReport| AuditReport {
        found: report.found.saturating_add(texts.len()),
        obeyed: texts,
        ..report
    });

    // A report that cannot be read stays as it is: the text has the files in any case.
    if let Ok(text) = to_raw_value(&text) {
        answer.text = text;
        answer.report = report.and_then(|report| to_raw_value(&report).ok()).or(answer.report);
    }
    answer
}

/// Adds the rule for web searches, which the supervisor enforces, to the worker's report.
fn with_web_search(mut answer: WorkerSays, rule: WebSearchRule) -> WorkerSays {
    let (holds, other) = match rule {
        WebSearchRule::On => ("on: web_search sends queries, whatever the network is", "off"),
        WebSearchRule::Ask => ("ask: web_search is refused, since quackd cannot ask yet", "on"),
        WebSearchRule::Off => ("off: web_search sends nothing", "on"),
    };
    let change = format!("quack sandbox set --web-search {other}");

    let text: Option<String> = serde_json::from_str(answer.text.get()).ok();
    let report = answer.report.as_ref();
    let report: Option<ExplainReport> =
        report.and_then(|report| serde_json::from_str(report.get()).ok());
    let (Some(text), Some(mut report)) = (text, report) else { return answer };

    let text = format!("{text}\nweb search: {holds}\n  to change it: {change}");
    let (name, holds) = ("web search".to_owned(), holds.to_owned());
    report.layers.push(ExplainLayer { name, holds, change: Some(change) });
    if let (Ok(text), Ok(report)) = (to_raw_value(&text), to_raw_value(&report)) {
        answer.text = text;
        answer.report = Some(report);
    }
    answer
}

async fn find(session: &SandboxSession, caller: &Caller) -> Result<FoundSession, MethodError> {
    let SandboxSession { session_id, path } = session;
    let reference = named(session_id.as_deref(), path.as_deref(), caller).await?;
    caller.session(reference, Purpose::Look).await
}
