//! Questions to the user about a call that was refused, before its client gets the reply: a command that safe mode does not
//! run, a tool that safe mode disables, and a directory that a command could not write. And the tool
//! `request_permission`, by which an agent asks before it tries.

use super::Caller;
use crate::approvals::words::{self, for_display};
use crate::approvals::{Outcome, Question, Subject};
use crate::events::SessionCall;
use crate::registry::FoundPolicy;
use crate::session::FoundSession;
use crate::workspaces::Places;
use quackd_policy::hosts::{Host, SessionRules, askable};
use quackd_protocol::approval::{ApprovalKind, Decision};
use quackd_protocol::denial::{DenialKind, of_session};
use quackd_protocol::limits::MAX_APPROVALS_PER_MINUTE;
use quackd_protocol::places;
use quackd_protocol::policy::{NetworkMode, Policy};
use quackd_protocol::surrogates::without_lone_surrogates;
use quackd_protocol::tools::RequestPermissionArguments;
use quackd_protocol::worker::ToolFinished;
use serde_json::value::{RawValue, to_raw_value};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time before the deadline of a call at which it no longer waits for the user.
const BEFORE_DEADLINE: Duration = Duration::from_secs(2);

/// Shortest time for an answer. With less time left, nothing is asked.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Time for the lookup of a directory.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

/// Longest command that the user is asked about, in bytes. The question must show the whole command.
const MAX_COMMAND: usize = 200;

/// Longest directory that the user is asked about, in bytes.
const MAX_DIRECTORY: usize = 150;

/// Longest reason of an agent in a question, in bytes.
const MAX_REASON: usize = 120;

/// A call that was refused or asks for a permission, as far as questions need it.
#[derive(Debug)]
pub(super) struct EndedCall<'a> {
    pub(super) session: &'a FoundSession,
    pub(super) call: &'a SessionCall,
    /// Whether the client requested safe mode for the call.
    pub(super) is_safe_call: bool,
    /// Time until the deadline.
    pub(super) left: Duration,
    pub(super) cancel: Option<&'a CancellationToken>,
}

impl EndedCall<'_> {
    fn tool(&self) -> &str {
        &self.call.spec.tool
    }

    /// Whether safe mode may have refused the command.
    fn is_refusable(&self) -> bool {
        self.call.spec.safe_mode && !self.call.spec.approved && self.call.runs_commands()
    }
}

/// Result of a question about a call.
#[derive(Debug)]
pub(super) enum After {
    /// Nothing was asked.
    Unchanged,
    /// Add this line to the text.
    Line(String),
    /// Run the call again, without the list of safe mode.
    RunAgain,
}

/// Asks the user about a call that was refused, if a client can answer.
pub(super) async fn after_call(call: EndedCall<'_>, done: &ToolFinished, caller: &Caller) -> After {
    if !done.report.is_error {
        return After::Unchanged;
    }
    let operation = match done.report.may_ask {
        // The worker reports this, and is hostile: only such a call cannot have run.
        Some(ApprovalKind::Command) if call.is_refusable() => command(&call),
        Some(ApprovalKind::SafeMode) if call.session.safe_mode && !call.is_safe_call => {
            let facts = format!("{} changes files, and the session is in safe mode", call.tool());
            Some(Operation::new(ApprovalKind::SafeMode, call.tool().to_owned(), facts))
        }
        Some(_) => None,
        // Without a client that can answer, no directory is read.
        None if caller.services.sessions.approvals.may_ask(&call.session.session_id) => {
            directory(&call, done, caller).await
        }
        None => None,
    };
    let Some(operation) = operation else { return After::Unchanged };
    let (kind, given, is_hidden) = (operation.kind, operation.given.clone(), operation.is_hidden);
    if !caller.services.daemon.config.sandbox.asks_about(kind) {
        return After::Unchanged;
    }

    let outcome = ask(&call, operation, caller).await;
    match (kind, outcome) {
        (_, None | Some(Outcome::NoAnswerer | Outcome::Ended | Outcome::RulesChanged)) => {
            After::Unchanged
        }
        (ApprovalKind::Command, Some(Outcome::Allowed(_))) => After::RunAgain,
        // A refusal would tell that the directory exists.
        (_, Some(outcome)) if is_hidden && !matches!(outcome, Outcome::Allowed(_)) => {
            After::Unchanged
        }
        (kind, Some(outcome)) => After::Line(line(kind, &given, outcome, waited(&call, caller))),
    }
}

/// The operation that the user is asked about.
#[derive(Debug)]
struct Operation {
    kind: ApprovalKind,
    /// Host and port, directory, command or tool.
    target: String,
    /// The target as the agent or the command named it, for the reply: the resolved one would tell what exists.
    given: String,
    /// First line of the question.
    facts: String,
    /// Lines with words of others.
    quotes: Vec<(&'static str, String)>,
    likely: bool,
    is_possible: bool,
    /// Whether the session sees nothing of the target.
    is_hidden: bool,
}

impl Operation {
    fn new(kind: ApprovalKind, target: String, facts: String) -> Self {
        let (given, quotes) = (target.clone(), Vec::new());
        let (likely, is_possible, is_hidden) = (false, true, false);
        Self { kind, target, given, facts, quotes, likely, is_possible, is_hidden }
    }

    fn directory(directory: String, given: String) -> Self {
        // A name that cannot be shown is not asked about.
        let quoted = words::exact(&directory).unwrap_or_default();
        let facts = format!("write in {}", if is_plain(&directory) { &directory } else { &quoted });
        Self { given, ..Self::new(ApprovalKind::Write, directory, facts) }
    }
}

/// Whether a path needs no quotes, in a sentence and for a shell.
fn is_plain(path: &str) -> bool {
    path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:,=@%".contains(c))
}

/// Returns the question about a command that safe mode does not run.
fn command(call: &EndedCall<'_>) -> Option<Operation> {
    let command = call.call.facts.command.as_ref().filter(|it| it.len() <= MAX_COMMAND)?;
    // The user must see all of it.
    let quotes = vec![("command", words::exact(command)?)];
    let facts = "run a command in safe mode".to_owned();
    Some(Operation { quotes, ..Operation::new(ApprovalKind::Command, command.clone(), facts) })
}

/// Returns the question about a directory that a command could not write.
async fn directory(
    call: &EndedCall<'_>,
    done: &ToolFinished,
    caller: &Caller,
) -> Option<Operation> {
    let denials = done.report.denials.iter();
    let mut targets = denials.filter(|denial| denial.kind == DenialKind::Write);
    let denied = targets.find_map(|denial| denial.target.clone());
    let is_hidden = denied.is_none();
    let path = denied.or_else(|| done.report.missing.clone())?;

    let policy = policy(call.session, caller).await?.policy;
    let directory = writable(PathBuf::from(&path), &policy, call.session, caller).await?;

    // The reply must not contain where a link leads.
    let mut named = Path::new(&path).ancestors().take(2);
    let given = if named.any(|it| it == Path::new(&directory)) {
        directory.clone()
    } else {
        Path::new(&path).parent()?.to_str()?.to_owned()
    };

    let command = call.call.facts.command.as_deref().unwrap_or_else(|| call.tool());
    let quotes = vec![("command", words::quoted(command))];
    Some(Operation { quotes, likely: true, is_hidden, ..Operation::directory(directory, given) })
}

/// Returns the existing directory of a path, if `quack sandbox set --writable` would accept it.
async fn writable(
    path: PathBuf,
    policy: &Policy,
    session: &FoundSession,
    caller: &Caller,
) -> Option<String> {
    if session.is_far() || !path.is_absolute() || !policy.may_write() {
        return None;
    }
    let places = caller.services.daemon.places();
    let look = move || writable_blocking(&path, &places);
    let directory = caller.services.sessions.look(LOOKUP_LIMIT, look).await.ok()??;
    if !may_be_writable(&directory, policy, caller) {
        return None;
    }

    let text = directory.to_str()?.to_owned();
    let is_showable = text.len() <= MAX_DIRECTORY && words::exact(&text).is_some();
    (!is_writable(&directory, policy, session) && is_showable).then_some(text)
}

/// Returns whether a policy with this writable directory is valid.
fn may_be_writable(directory: &Path, policy: &Policy, caller: &Caller) -> bool {
    let mut policy = policy.clone();
    policy.writable_roots.push(directory.to_owned());
    let daemon = &caller.services.daemon;
    quackd_policy::validate(&policy, &daemon.user_home, daemon.home.dir()).is_ok()
}

/// Returns whether the policy makes a path writable already, by its name.
fn is_writable(path: &Path, policy: &Policy, session: &FoundSession) -> bool {
    policy.writable_roots.iter().any(|root| path.starts_with(root))
        || path.starts_with(&session.workspace_path)
}

fn writable_blocking(path: &Path, places: &Places) -> Option<PathBuf> {
    let directory = if path.is_dir() { path } else { path.parent()? };
    let directory = directory.canonicalize().ok().filter(|it| it.is_dir())?;
    places.check_blocking(&directory).ok()?;
    Some(directory)
}

async fn policy(session: &FoundSession, caller: &Caller) -> Option<FoundPolicy> {
    let settings = &caller.services.daemon.config.sandbox;
    let snapshot = caller.snapshot().await.ok()?;
    snapshot.policy(settings, &session.session_id).ok()
}

/// Returns the time that a question about the call may wait.
fn waited(call: &EndedCall<'_>, caller: &Caller) -> Duration {
    let wait = caller.services.daemon.config.sandbox.ask_wait.value;
    wait.min(call.left.saturating_sub(BEFORE_DEADLINE))
}

/// Asks the user. `None` if too little time is left, or the call was canceled.
async fn ask(call: &EndedCall<'_>, operation: Operation, caller: &Caller) -> Option<Outcome> {
    let wait = waited(call, caller);
    if wait < SHORTEST_WAIT {
        return None;
    }

    let Operation { kind, target, given, facts, mut quotes, likely, is_possible, .. } = operation;
    let id = call.call.client_id.as_deref();
    quotes.extend(id.map(|id| ("call", words::name(id))));
    // Without a label, the session was deleted.
    let label = super::find::label(caller, &call.session.session_id).await.unwrap_or_default();
    quotes.push(("session", words::name(&label)));
    let question = Question {
        subject: Subject { session: call.session.session_id.clone(), kind, target, given },
        title: match kind {
            ApprovalKind::Network => "Allow network access?",
            ApprovalKind::Write => "Allow writing?",
            ApprovalKind::Command => "Allow the command?",
            ApprovalKind::SafeMode => "End safe mode?",
            ApprovalKind::Credential => "Allow the use of a credential?",
        },
        message: words::message(&facts, &quotes),
        preset: None,
        tool_call_id: id.map(for_display),
        likely,
        is_possible,
    };

    let outcome = caller.services.sessions.approvals.ask(question, wait);
    // An equal question of another call may wait longer.
    let outcome = tokio::time::timeout(wait, outcome);
    let cancel = call.cancel.cloned().unwrap_or_default();
    let outcome = cancel.run_until_cancelled(outcome).await?;
    Some(outcome.unwrap_or(Outcome::TimedOut))
}

/// Returns the line at the end of the text.
fn line(kind: ApprovalKind, target: &str, outcome: Outcome, wait: Duration) -> String {
    let what = match kind {
        ApprovalKind::Network => format!("the network ({target})"),
        ApprovalKind::Write => format!("writing {target}"),
        ApprovalKind::Command => format!("the command {target:?}"),
        ApprovalKind::SafeMode => format!("{target} in safe mode"),
        ApprovalKind::Credential => format!("the credential ({target})"),
    };
    let what = for_display(&what);

    match outcome {
        Outcome::Allowed(scope) => {
            let scope = scope.in_words();
            format!("[Sandbox: {what} was allowed by the user {scope}; call again]")
        }
        Outcome::Denied => format!("[Sandbox: {what} was denied by the user]"),
        Outcome::TimedOut => {
            // The user names what is allowed. A command is named by the id of its question.
            let next = match kind {
                ApprovalKind::Network => format!("quack allow {target}"),
                ApprovalKind::Write if is_plain(target) => format!("quack allow {target}"),
                _ => "quack approvals, then quack allow ID".to_owned(),
            };
            let wait_s = wait.as_secs();
            format!(
                "[Sandbox: {what} was denied: no answer within {wait_s} s. To allow the next attempt: {next}]"
            )
        }
        Outcome::TooMany => format!("[Sandbox: {what} was denied: too many open requests]"),
        Outcome::RulesChanged => format!(
            "[Sandbox: the rules about {what} were changed while the user was asked; call again]"
        ),
        Outcome::NoAnswerer | Outcome::Ended => {
            format!("[Sandbox: {what} was denied: no client can answer]")
        }
    }
}

/// Adds a line to a text, before its last line with the exit code. Both are JSON strings.
pub(super) fn with_line(text: &RawValue, line: &str) -> Box<RawValue> {
    const EXIT: &str = "\n[Exit code: ";

    let Ok(mut plain) = serde_json::from_str::<String>(text.get()) else { return text.to_owned() };
    // Only in the last line: a command may print the same text.
    let end =
        plain.rfind(EXIT).filter(|at| !plain.get(at + 1..).unwrap_or_default().contains('\n'));
    plain.insert_str(end.unwrap_or(plain.len()), &format!("\n{line}"));
    to_raw_value(&plain).unwrap_or_else(|_| text.to_owned())
}

/// The tool `request_permission`: returns its text, and whether the operation is allowed now. The text depends on the
/// arguments, the policy and the user, and never on the files outside of the sandbox.
pub(super) async fn request(call: EndedCall<'_>, caller: &Caller) -> (String, bool) {
    let approvals = &caller.services.sessions.approvals;
    // First, so that refused requests count too.
    if !approvals.count_request(&call.session.session_id) {
        let text =
            format!("Error: too many requests: at most {MAX_APPROVALS_PER_MINUTE} in a minute");
        return (text, false);
    }
    let (mut operation, policy) = match requested(&call, caller).await {
        Ok(requested) => requested,
        Err(text) => return (text, false),
    };

    let (kind, given) = (operation.kind, operation.given.clone());
    if call.session.is_far() && matches!(kind, ApprovalKind::Network | ApprovalKind::Write) {
        let text = "Error: the session is on another machine, where no single host and no other directory can be allowed";
        return (text.to_owned(), false);
    }

    let is_asked = caller.services.daemon.config.sandbox.asks_about(kind)
        && approvals.may_ask(&call.session.session_id);
    let outcome = if is_asked {
        if kind == ApprovalKind::Write {
            operation = resolved(operation, &policy, &call, caller).await;
        }
        ask(&call, operation, caller).await
    } else {
        Some(Outcome::NoAnswerer)
    };

    let outcome = outcome.unwrap_or(Outcome::Ended);
    let line = line(kind, &given, outcome, waited(&call, caller));
    match outcome {
        // The agent has asked before its first attempt, so there is no call to repeat.
        Outcome::Allowed(_) => (line.replace("; call again]", "]"), true),
        Outcome::NoAnswerer if kind == ApprovalKind::Network || is_plain(&given) => {
            let option = if kind == ApprovalKind::Write { "set --writable" } else { "allow" };
            // Without a label, the session was deleted.
            let label = super::find::label(caller, &call.session.session_id).await;
            let of = of_session(&label.unwrap_or_default());
            (format!("Error: {line}\nTo allow it: quack sandbox {option} {given}{of}"), false)
        }
        _ => (format!("Error: {line}"), false),
    }
}

/// Looks at the requested directory, for the user only. A directory that cannot be made writable is asked about too: an
/// immediate refusal would tell the agent that it exists, or where a link leads.
async fn resolved(
    operation: Operation,
    policy: &Policy,
    call: &EndedCall<'_>,
    caller: &Caller,
) -> Operation {
    let Operation { given, quotes, .. } = operation;
    match writable(PathBuf::from(&given), policy, call.session, caller).await {
        Some(directory) => Operation { quotes, ..Operation::directory(directory, given) },
        None => {
            let refused = Operation::directory(given.clone(), given);
            let facts =
                format!("{}, which is no directory that can be made writable", refused.facts);
            Operation { quotes, facts, is_possible: false, ..refused }
        }
    }
}

/// Checks the arguments. The error is the text for the agent.
async fn requested(call: &EndedCall<'_>, caller: &Caller) -> Result<(Operation, Policy), String> {
    let arguments = without_lone_surrogates(&call.call.spec.arguments);
    let arguments = serde_json::from_str(&arguments).unwrap_or_default();
    let RequestPermissionArguments { kind, target, reason } =
        RequestPermissionArguments::of(&arguments);
    let (target, reason) = (target.0.unwrap_or_default(), reason.0.unwrap_or_default());

    let policy = policy(call.session, caller).await;
    let FoundPolicy { policy, rules, .. } = policy.ok_or("Error: the session has no policy")?;
    let operation = match kind.0.as_deref() {
        Some("network") => requested_host(&target, &policy, &rules)?,
        Some("write") => requested_directory(&target, &policy, call, caller)?,
        _ => return Err("Error: kind must be network or write".to_owned()),
    };

    let reason: String = for_display(&reason).chars().take(MAX_REASON).collect();
    let quotes = (!reason.is_empty()).then(|| ("the agent says:", words::quoted(&reason)));
    Ok((Operation { quotes: quotes.into_iter().collect(), ..operation }, policy))
}

fn requested_host(
    target: &str,
    policy: &Policy,
    rules: &SessionRules,
) -> Result<Operation, String> {
    if policy.network_mode() == NetworkMode::On {
        return Err("Error: the network is on; the user is not asked about hosts".to_owned());
    }
    if rules.is_off() {
        return Err(
            "Error: the network was turned off; the user is not asked about hosts".to_owned()
        );
    }

    let (host, port) = target.rsplit_once(':').unwrap_or((target, "443"));
    let (host, port) = match (Host::read(host), port.parse::<u16>()) {
        (Ok(host), Ok(port)) if port != 0 => (host, port),
        _ => return Err(format!("Error: not a host or host:port: {}", for_display(target))),
    };
    let rule = askable(&host, port).ok_or_else(|| {
        let target = for_display(target);
        format!("Error: {target} is this machine, a local network, or too long; the user is not asked about it")
    })?;

    let facts = format!("connect to {rule}");
    Ok(Operation::new(ApprovalKind::Network, rule, facts))
}

/// Checks the name of a directory, and reads no files.
fn requested_directory(
    target: &str,
    policy: &Policy,
    call: &EndedCall<'_>,
    caller: &Caller,
) -> Result<Operation, String> {
    let refuse = |why: &str| Err(format!("Error: {} {why}", for_display(target)));

    let path = Path::new(target);
    let is_usual = |part| matches!(part, Component::RootDir | Component::Normal(_));
    let is_showable = target.len() <= MAX_DIRECTORY && words::exact(target).is_some();
    if !path.is_absolute() || !path.components().all(is_usual) || !is_showable {
        return refuse("is not an absolute directory that can be made writable");
    }
    if !policy.may_write() {
        return refuse("cannot be made writable: the session only reads");
    }
    if is_writable(path, policy, call.session) {
        return refuse(
            "is in the workspace or another writable directory, and cannot be made writable",
        );
    }
    let is_system_directory = places::refusal(path, &caller.services.daemon.user_home).is_some();
    if is_system_directory || !may_be_writable(path, policy, caller) {
        return refuse("cannot be made writable");
    }
    Ok(Operation::directory(target.to_owned(), target.to_owned()))
}

/// Returns whether the user has allowed this command for the session.
pub(super) async fn is_allowed_command(
    session: &FoundSession,
    call: &SessionCall,
    caller: &Caller,
) -> bool {
    let Some(command) = &call.facts.command else { return false };
    let Some(policy) = policy(session, caller).await else { return false };

    policy.grants.iter().any(|scoped| {
        let grant = &scoped.grant;
        grant.kind == ApprovalKind::Command
            && grant.decision == Decision::Allow
            && grant.target == *command
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::approval::AnswerScope;

    #[test]
    fn a_line_is_added_before_the_exit_code_and_the_text_stays_json() {
        let with = |text: &str| {
            let text = to_raw_value(text).unwrap();
            serde_json::from_str::<String>(with_line(&text, "[x]").get()).unwrap()
        };
        assert_eq!(with("out\n\n[Exit code: 1]"), "out\n\n[x]\n[Exit code: 1]");
        assert_eq!(with("a\\n[Exit code: 1]\nb"), "a\\n[Exit code: 1]\nb\n[x]");
        assert_eq!(with("Error: no"), "Error: no\n[x]");
    }

    #[test]
    fn every_outcome_has_its_line() {
        let line =
            |outcome| line(ApprovalKind::Write, "/srv/out", outcome, Duration::from_secs(28));
        assert_eq!(
            line(Outcome::Allowed(AnswerScope::Session)),
            "[Sandbox: writing /srv/out was allowed by the user for this session; call again]"
        );
        assert_eq!(line(Outcome::Denied), "[Sandbox: writing /srv/out was denied by the user]");
        assert_eq!(
            line(Outcome::TimedOut),
            "[Sandbox: writing /srv/out was denied: no answer within 28 s. To allow the next attempt: quack allow \
             /srv/out]"
        );
    }
}
