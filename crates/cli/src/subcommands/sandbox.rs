//! `quack sandbox`: shows and changes the permissions of a session's worker.

mod credentials;
mod network;
pub(super) mod request;

use crate::args::SessionArgs;
use crate::args::sandbox::{
    SandboxAllowArgs, SandboxArgs, SandboxAuditArgs, SandboxExplainArgs, SandboxRevokeArgs,
    SandboxSetArgs, SandboxVerb,
};
use crate::connect::start_and_connect;
use crate::display::{self, count, full_path, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{BOLD, CliOutput, DIM};
use crate::session_ref::{self, Missing, Wanted};
use quackd_protocol::approval::{ApprovalKind, Decision, ScopedGrant};
use quackd_protocol::client::{
    Method, PolicyLayers, PolicyScope, RunningJob, SandboxAllow, SandboxAudit, SandboxData,
    SandboxDenials, SandboxExplain, SandboxRevoke, SandboxSession, SandboxSet, SandboxShow,
    TimedDenial, WorkerSaid,
};
use quackd_protocol::credentials::CredentialUse;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::limits::REPLY_TIMEOUT;
use quackd_protocol::policy::{NetworkMode, Policy, PolicyPatch, Profile};
use quackd_protocol::tiers::{self, Tier};
use request::{WORKER_TIMEOUT, ask, ask_about, check_rules, network_patch};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};

/// Runs the subcommand.
pub(crate) async fn run(args: SandboxArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match args.verb {
        SandboxVerb::Show(args) => {
            show_policy(&policy(&args.which.into_which(), output).await?, output)
        }
        SandboxVerb::Denials(args) => denials(&args.which.into_which(), output).await,
        SandboxVerb::Audit(args) => audit(args, output).await,
        SandboxVerb::Explain(args) => explain(args, output).await,
        SandboxVerb::Network(args) => network::network(args, output).await,
        SandboxVerb::Presets(args) => network::presets(args, output).await,
        SandboxVerb::Set(args) if args.changes_paths() => set_paths(args, output).await,
        SandboxVerb::Set(args) => {
            let choice = Wanted::of(&args.which)?;
            let params = settings(args)?;
            change(choice, |session| SandboxSet { session, ..params }, output).await
        }
        SandboxVerb::Allow(args) => allow(args, output).await,
        SandboxVerb::Revoke(args) => revoke(args, output).await,
    }
}

/// Carries out a change, and shows the new policy.
async fn change<M: Method<Reply = SandboxData>>(
    choice: Wanted,
    params: impl FnOnce(SandboxSession) -> M,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let daemon = start_and_connect(output).await?;
    let session = choice.one(&daemon.client, Missing::Create).await?;
    session_ref::tell(&session, output);
    // A rule with a preset may ask the user's tools.
    let params = params(SandboxSession::of(session.session_id.0));
    show_policy(&daemon.client.call_within(params, WORKER_TIMEOUT).await?, output)
}

/// Returns the policy of an existing session.
async fn policy(choice: &SessionArgs, output: CliOutput) -> anyhow::Result<SandboxData> {
    ask(choice, Missing::Refuse, |session| SandboxShow { session }, REPLY_TIMEOUT, output).await
}

fn show_policy(data: &SandboxData, output: CliOutput) -> anyhow::Result<ExitCode> {
    for note in &data.notes {
        output.warning(&plain(note));
    }
    output.show(data, || lines(data))?;
    Ok(ExitCode::Ok)
}

/// Removes grants: the given ones, or with `--all` every grant that is in force for the session.
async fn revoke(args: SandboxRevokeArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let revoke =
        |rules| move |session| SandboxRevoke { session, rules: Some(rules), end_jobs: None };
    if !args.all {
        return change(Wanted::of(&args.which)?, revoke(args.rules), output).await;
    }

    let data = policy(&args.which, output).await?;
    let ids: Vec<String> = data.grants.iter().map(|scoped| scoped.grant.id.clone()).collect();
    if ids.is_empty() {
        output.note("nothing was granted");
        return show_policy(&data, output);
    }

    // The session of the ids, also if the directory has another one by now.
    change(Wanted::reference(Some(data.session_id.0)), revoke(ids), output).await
}

async fn denials(choice: &SessionArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = |session| SandboxDenials { session };
    let data = ask(choice, Missing::Refuse, params, REPLY_TIMEOUT, output).await?;

    if data.denials.is_empty() {
        output.note("no denials since the daemon started");
    }
    let line = |TimedDenial { at, tool, denial, hint }: &TimedDenial| {
        let likely = if denial.likely { "  (probably)" } else { "" };
        let description = plain(&hint.clone().unwrap_or_else(|| denial.to_string()));
        format!("{DIM}{}{DIM:#}  {}  {description}{likely}\n", plain(at), plain(tool))
    };
    output.show(&data, || data.denials.iter().map(line).collect())?;
    Ok(ExitCode::Ok)
}

async fn audit(args: SandboxAuditArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let since_ms = args.since.map(|time| time.as_millisecond().try_into().unwrap_or(0));
    let params = |session| SandboxAudit { session, since_ms };
    let choice = args.which.into_which();
    let reply = ask(&choice, Missing::Create, params, WORKER_TIMEOUT, output).await?;
    let is_clean = reply.report.as_ref().is_some_and(|report| report.found == 0 && report.complete);

    show(&reply, output)?;
    Ok(if is_clean { ExitCode::Ok } else { ExitCode::Failed })
}

async fn explain(args: SandboxExplainArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let text = args.path.as_deref().and_then(Path::to_str);
    if let Some(used) = text.and_then(|text| text.parse::<CredentialUse>().ok()) {
        return credentials::explain(&used, &args.which, output).await;
    }
    if let Some(host) = text.filter(|text| network::is_host(text)) {
        return network::explain_host(host.to_owned(), &args.which, output).await;
    }

    // Do not follow links: the worker resolves them.
    let here = args.path.as_deref().map(std::path::absolute).transpose()?;
    let typed = args.path;
    let params = |session, workspace: &str| {
        let target = match FarWorkspace::of(workspace) {
            Some(far) => typed.map(|path| Path::new(&far.path).join(path)),
            None => here,
        };
        let target = target.map(|path| path.to_string_lossy().into_owned());
        SandboxExplain { session, target }
    };
    let reply = ask_about(&args.which, Missing::Create, params, WORKER_TIMEOUT, output).await?;
    show(&reply, output)?;
    Ok(if reply.report.is_some() { ExitCode::Ok } else { ExitCode::Failed })
}

/// Prints a worker's report, or the reason for its absence.
fn show<T: Serialize>(reply: &WorkerSaid<T>, output: CliOutput) -> anyhow::Result<()> {
    let text = reply.text.lines().map(|line| plain(line) + "\n").collect::<String>();
    if output.is_json() {
        output.document(reply)?;
    } else if reply.report.is_some() {
        output.text(&text)?;
    } else {
        output.failure(&plain(reply.text.strip_prefix("Error: ").unwrap_or(&reply.text)));
    }
    Ok(())
}

/// Allows hosts and uses of credentials.
pub(super) async fn allow(args: SandboxAllowArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let choice = Wanted::of(&args.which)?;
    check_rules(&args.rules)?;
    let scope = match () {
        () if args.always => Some(PolicyScope::Always),
        () => args.workspace.then_some(PolicyScope::Workspace),
    };
    let rules = (!args.rules.is_empty()).then_some(args.rules);
    let credentials: Vec<_> = args.credentials.iter().map(ToString::to_string).collect();
    let credentials = (!credentials.is_empty()).then_some(credentials);
    let params = |session| SandboxAllow { session, rules, credentials, scope, end_jobs: None };
    change(choice, params, output).await
}

/// Returns the change of the policy, without its session.
fn settings(args: SandboxSetArgs) -> anyhow::Result<SandboxSet> {
    if args.is_empty() {
        return Err(CliError::usage("give a profile or an option; see --help").into());
    }

    let patch = PolicyPatch {
        profile: args.profile,
        web_search: args.web_search,
        ..network_patch(args.network, args.hosts)?
    };

    Ok(SandboxSet {
        scope: args.workspace.then_some(PolicyScope::Workspace),
        reset: args.reset.then_some(true),
        end_jobs: args.end_jobs.then_some(true),
        patch,
        ..SandboxSet::default()
    })
}

/// Changes the lists of writable directories and hidden paths of a scope. Earlier entries stay: a list that is
/// replaced would show a hidden file again.
async fn set_paths(args: SandboxSetArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let choice = Wanted::of(&args.which)?;
    let paths = ChangedPaths::resolved(&args);
    // Only a session that is named by a reference may be on another machine.
    let paths = if args.which.session.is_none() { Ok(paths?) } else { paths };
    let mut params = settings(args)?;

    let daemon = start_and_connect(output).await?;
    let session = choice.one(&daemon.client, Missing::Create).await?;
    session_ref::tell(&session, output);
    if FarWorkspace::of(&session.workspace_path).is_some() {
        let text =
            "a session on another machine can write its workspace only, and hides nothing there";
        return Err(CliError::failed(text).into());
    }
    let ChangedPaths { writable, not_writable, hidden, unhidden } = paths?;
    params.session = SandboxSession::of(session.session_id.0);

    let show = SandboxShow { session: params.session.clone() };
    // The lists are replaced as a whole, so the present ones are needed.
    let layers = daemon.client.call(show).await?.layers;
    for path in &unhidden {
        check_unhidden(path, &layers, params.scope)?;
    }

    let PolicyLayers { configuration, workspace, session, .. } = layers;
    let is_reset = params.reset == Some(true);
    // A list of writable directories replaces those of weaker layers.
    let (own, weaker) = match params.scope {
        Some(PolicyScope::Workspace) => (workspace, configuration.writable_roots),
        _ => (session, workspace.writable_roots.or(configuration.writable_roots)),
    };

    let own = if is_reset { PolicyPatch::default() } else { own };
    let (old_writable, old_hidden) = (own.writable_roots.or(weaker), own.hidden);
    params.patch.writable_roots = changed(old_writable, writable, &not_writable);
    params.patch.hidden = changed(old_hidden, hidden, &unhidden);

    let data = daemon.client.call_within(params, WORKER_TIMEOUT).await?;
    show_policy(&data, output)
}

/// Paths of this machine in the options of `quack sandbox set`, resolved.
struct ChangedPaths {
    writable: Vec<PathBuf>,
    not_writable: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    unhidden: Vec<PathBuf>,
}

impl ChangedPaths {
    fn resolved(args: &SandboxSetArgs) -> anyhow::Result<Self> {
        let all = |paths: &[PathBuf], resolve: fn(&Path) -> anyhow::Result<PathBuf>| {
            paths.iter().map(|path| resolve(path)).collect::<anyhow::Result<Vec<_>>>()
        };
        Ok(Self {
            writable: all(&args.writable, absolute)?,
            not_writable: all(&args.not_writable, maybe_absent)?,
            hidden: all(&args.hidden, maybe_absent)?,
            unhidden: all(&args.unhide, maybe_absent)?,
        })
    }
}

/// Refuses to show a path that stays hidden, because another layer hides it.
fn check_unhidden(
    path: &Path,
    layers: &PolicyLayers,
    scope: Option<PolicyScope>,
) -> Result<(), CliError> {
    let hides =
        |patch: &PolicyPatch| patch.hidden.iter().flatten().any(|hidden| path.starts_with(hidden));
    let is_of_workspace = scope == Some(PolicyScope::Workspace);
    let own = if is_of_workspace { &layers.workspace } else { &layers.session };
    let around = own.hidden.iter().flatten();
    let around =
        around.filter(|hidden| path != hidden.as_path()).find(|hidden| path.starts_with(hidden));

    let path = full_path(path);
    if let Some(around) = around {
        let around = full_path(around);
        return Err(CliError::failed(format!(
            "{path} is in {around}, which is hidden: --unhide {around}"
        )));
    }

    let reason = match () {
        () if hides(&layers.configuration) => {
            "is hidden by `sandbox.hidden` in the configuration: `quack config edit`"
        }
        () if hides(&layers.workspace) && !is_of_workspace => {
            "is hidden for all sessions of the workspace: add --workspace"
        }
        () if hides(&layers.session) && is_of_workspace => {
            "is hidden for the session: leave out --workspace"
        }
        () => return Ok(()),
    };
    Err(CliError::failed(format!("{path} {reason}")))
}

/// Returns a list with more entries and without some. `None` if nothing changes.
fn changed(
    old: Option<Vec<PathBuf>>,
    more: Vec<PathBuf>,
    without: &[PathBuf],
) -> Option<Vec<PathBuf>> {
    if more.is_empty() && without.is_empty() {
        return None;
    }

    let mut all = old.unwrap_or_default();
    for path in more {
        if !all.contains(&path) {
            all.push(path);
        }
    }
    all.retain(|path| !without.contains(path));
    Some(all)
}

/// Resolves a path that need not exist: one that is hidden from the call after it has appeared.
fn maybe_absent(path: &Path) -> anyhow::Result<PathBuf> {
    match (path.symlink_metadata(), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::NotFound => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Ok(absolute(parent)?.join(name))
        }
        _ => absolute(path),
    }
}

/// Resolves all links of a path, because the worker does not see links outside of its directories.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    let real = std::fs::canonicalize(path);
    real.map_err(|error| CliError::usage(format!("{}: {error}", path.display())).into())
}

fn lines(data: &SandboxData) -> String {
    let name = display::name(display::label(&data.label, &data.session_name));
    let path = display::user_path(&data.workspace_path);
    let id = plain(data.session_id.as_str());

    let mut text = format!("{BOLD}{name}{BOLD:#}  {path}  {DIM}{id}{DIM:#}\n");
    let mut row = |name: &str, value: &str| text.push_str(&format!("{name:<15}{value}\n"));

    let layers = &data.layers;
    let of_profile = if layers.safe_mode {
        "safe mode"
    } else {
        origin(layers, |patch| patch.profile.is_some())
    };

    let policy = &data.policy;
    let Policy { profile, web_search, writable_roots, hidden, .. } = policy;
    row("profile", &format!("{profile}  {DIM}{of_profile}{DIM:#}"));

    // Full access confines nothing: the network is on and no path is hidden.
    let has_all = *profile == Profile::FullAccess;
    let of_network =
        if has_all { "full-access" } else { origin(layers, |patch| patch.network.is_some()) };
    let network = if has_all { NetworkMode::On } else { policy.network_mode() };
    row("network", &format!("{network}  {DIM}{of_network}{DIM:#}"));
    for (name, value) in host_rows(data) {
        row(name, &value);
    }

    // A layer's rule about searches holds in safe mode too.
    let patches = [&layers.configuration, &layers.workspace, &layers.session];
    let has_rule = patches.iter().any(|patch| patch.web_search.is_some());
    let of_web = if layers.safe_mode && !has_rule {
        "safe mode"
    } else {
        origin(layers, |patch| patch.web_search.is_some())
    };
    row("web search", &format!("{web_search}  {DIM}{of_web}{DIM:#}"));

    let of_roots = origin(layers, |patch| patch.writable_roots.is_some());
    for path in writable_roots {
        row("writable", &format!("{}  {DIM}{of_roots}{DIM:#}", full_path(path)));
    }
    for path in hidden {
        let not = if has_all { "  not hidden by full-access" } else { "" };
        row("hidden", &format!("{}{DIM}{not}{DIM:#}", full_path(path)));
    }

    for (name, value) in in_force_rows(data) {
        row(name, &value);
    }

    if data.outdated {
        let (calls, jobs) = (data.calls_running, data.jobs_running);
        let running = match (calls, jobs) {
            (0, 0) => "from the next call on".to_owned(),
            (calls, 0) => format!("after {}", count(calls, "call")),
            (0, jobs) => format!("after {}", count(jobs, "background job")),
            (calls, jobs) => {
                format!("after {} and {}", count(calls, "call"), count(jobs, "background job"))
            }
        };
        row("", &format!("the new permissions are in force {running}"));
        for RunningJob { job_id, command, .. } in &data.jobs {
            row("", &format!("{}  {DIM}{}{DIM:#}", plain(job_id), plain(command)));
        }
        if jobs != 0 {
            row("", "to kill them now: quack sandbox set --end-jobs");
        }
    }
    text
}

/// Returns the origin of a setting: the strongest layer that has it.
fn origin(layers: &PolicyLayers, has: impl Fn(&PolicyPatch) -> bool) -> &'static str {
    if has(&layers.session) {
        "set for the session"
    } else if has(&layers.workspace) {
        "set for the workspace"
    } else {
        "configuration"
    }
}

/// Returns the rows of the rules for hosts and of the grants.
fn host_rows(data: &SandboxData) -> Vec<(&'static str, String)> {
    let SandboxData { policy, layers, grants, .. } = data;
    let mut rows = Vec::new();
    for rule in policy.hosts.iter().flatten() {
        let has = |patch: &PolicyPatch| patch.hosts.as_ref().is_some_and(|all| all.contains(rule));
        rows.push(("host", format!("{}  {DIM}{}{DIM:#}", plain(rule), origin(layers, has))));
    }

    for ScopedGrant { scope, grant } in grants {
        let mark = if grant.decision == Decision::Deny { "!" } else { "" };
        let client = grant.client.as_deref().map(|client| format!(" by {}", plain(client)));
        let prefix = match grant.kind {
            ApprovalKind::Network => "",
            ApprovalKind::Write => "writing ",
            ApprovalKind::Command => "the command ",
            ApprovalKind::SafeMode => "safe mode ",
            ApprovalKind::Credential => "the credential ",
        };

        let (target, id) = (format!("{prefix}{}", plain(&grant.target)), plain(&grant.id));
        let (when, client) = (scope.in_words(), client.unwrap_or_default());
        let is_idle = grant.kind == ApprovalKind::Network
            && grant.decision == Decision::Allow
            && policy.network_mode() == NetworkMode::Off;
        let idle = if is_idle { "  not in force: the network is off" } else { "" };
        rows.push(("granted", format!("{mark}{target}  {DIM}{id} {when}{client}{DIM:#}{idle}")));
    }
    rows
}

fn in_force_rows(data: &SandboxData) -> Vec<(&'static str, String)> {
    let Some(report) = &data.in_force else {
        return vec![("in force", "nothing: no worker is running".to_owned())];
    };
    let confinement = report.tier.map_or(tiers::UNKNOWN, Tier::in_words);
    let policy = report.policy.map_or("unknown", Profile::name);
    let network = display::network(report.network, report.hosts);
    let mut rows = vec![("in force", format!("{confinement}, {policy}, network {network}"))];
    rows.extend(report.git.map(|git| ("git", git.in_words().to_owned())));
    rows.extend(data.credentials.map(|usable| ("credentials", credentials::in_words(usable))));
    rows.extend(report.notes.iter().map(|note| ("note", plain(note))));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_is_shown_with_where_it_comes_from() {
        let data: SandboxData = serde_json::from_value(json!({
            "sessionId": "abc", "sessionName": "duck-1", "workspacePath": "/src/app",
            "policy": {"profile": "read-only", "network": true, "writableRoots": ["/srv/x"],
                "hidden": ["/srv/x/keys"]},
            "layers": {"configuration": {"profile": "workspace-write", "network": false},
                "workspace": {"network": true, "hidden": ["/srv/x/keys"]},
                "session": {"profile": "read-only", "writableRoots": ["/srv/x"]}, "safeMode": false},
            "grants": [{"scope": "always", "id": "g3", "kind": "credential", "target": "ssh git@github.com",
                "decision": "allow", "at": ""}],
            "inForce": {"tier": "B", "policy": "workspace-write", "git": "top"}, "outdated": true, "jobsRunning": 1,
            "credentials": {"ssh": true, "git": false},
            "jobs": [{"jobId": "job-1", "command": "npm run dev", "elapsedMs": 1}],
        }))
        .unwrap();
        let text = anstream::adapter::strip_str(&lines(&data)).to_string();
        assert_eq!(
            text,
            "duck-1  /src/app  abc\n\
             profile        read-only  set for the session\n\
             network        on  set for the workspace\n\
             granted        the credential ssh git@github.com  g3 always\n\
             web search     on  configuration\n\
             writable       /srv/x  set for the session\n\
             hidden         /srv/x/keys\n\
             in force       confined, workspace-write, network off\n\
             git            read-only mounts; the worker carries out what git may change\n\
             credentials    ssh\n\
             \x20              the new permissions are in force after 1 background job\n\
             \x20              job-1  npm run dev\n\
             \x20              to kill them now: quack sandbox set --end-jobs\n"
        );
    }
}
