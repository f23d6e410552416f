//! `quack approvals`, `quack allow` and `quack deny`: questions to the user about denied operations.

use crate::args::SessionArgs;
use crate::args::approvals::{AllowArgs, ApprovalsArgs, DenyArgs};
use crate::args::sandbox::SandboxAllowArgs;
use crate::connect::start_and_connect;
use crate::display::{name, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::{BOLD, CliOutput, DIM};
use crate::subcommands::approval_prompt::{AskedBy, Prompter, is_possible, notify};
use crate::subcommands::confirmation::{Confirmation, names};
use crate::subcommands::follow::session_view::Interrupts;
use crate::subcommands::follow::stdin_lines;
use crate::subcommands::sandbox;
use crate::time_format::local;
use jiff::tz::TimeZone;
use quackd_client::Started;
use quackd_protocol::approval::{
    AnswerScope, ApprovalClosed, ApprovalKind, ApprovalRequest, Decision, PendingApproval,
    REQUEST_PREFIX, RecentApproval,
};
use quackd_protocol::client::{AnswerParams, ApprovalsData, ApprovalsParams};

/// Lists the questions, or watches them.
pub(crate) async fn run(args: ApprovalsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let daemon = start_and_connect(output).await?;
    if args.watch {
        // Running a program ends the other children of this process, such as a daemon that it started.
        let may_notify = daemon.started == Started::AlreadyRunning;
        if args.notify && !may_notify {
            output.warning("no notifications: this command started the daemon; run it again");
        }
        return watch(&daemon.client, args.notify && may_notify, output).await;
    }

    let data = daemon.client.call(ApprovalsParams::default()).await?;
    if data.pending.is_empty() && data.recent.is_empty() {
        output.note("no questions since the daemon started");
    }
    output.show(&data, || {
        let zone = TimeZone::system();
        let recent = data.recent.iter().map(|record| recent(record, &zone));
        data.pending.iter().map(pending).chain(recent).collect()
    })?;
    Ok(ExitCode::Ok)
}

fn pending(PendingApproval { label, left_ms, request, .. }: &PendingApproval) -> String {
    let (id, seconds) = (plain(&request.id), left_ms / 1000);
    let (facts, details) = lines(request);
    let label = name(label);
    format!("{BOLD}{id}{BOLD:#}  {label}  {facts}  {DIM}{seconds} s left{DIM:#}\n{details}")
}

/// Returns the facts of a question, and its other lines.
fn lines(request: &ApprovalRequest) -> (String, String) {
    let mut lines = request.message.split('\n').map(plain);
    let facts = format!("{} {}", plain(&request.title), lines.next().unwrap_or_default());
    (facts, lines.map(|line| format!("  {line}\n")).collect())
}

fn recent(record: &RecentApproval, zone: &TimeZone) -> String {
    let end = match (record.decision, record.scope) {
        (Some(Decision::Allow), Some(scope)) => format!("allowed {}", scope.in_words()),
        (Some(Decision::Deny), _) => "denied".to_owned(),
        _ => record.reason.clone(),
    };

    let by = record.by.as_deref().map(|by| format!(" by {}", plain(by))).unwrap_or_default();
    let (at, target) = (local(&record.at, zone), plain(&record.target));
    format!(
        "{DIM}{at}{DIM:#}  {}  {} {target}  {}{by}\n",
        plain(&record.id),
        record.kind.name(),
        plain(&end)
    )
}

/// Prints questions and their ends until the user interrupts, and asks them at a terminal.
async fn watch(
    client: &quackd_client::Client,
    notifies: bool,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch_with_hangup()?;
    if is_possible(output) {
        let asking = Prompter::start(None, AskedBy::Watch { notifies }, output).await?;
        output.note("waiting for questions; Ctrl-C ends this");
        tokio::select! {
            _ = interrupts.next() => return Ok(ExitCode::Ok),
            () = asking.run() => anyhow::bail!("the daemon has closed the connection"),
        }
    }

    // Subscribed before the request, so that no question is missed between the two.
    let mut events = client.events().await?;
    let params = ApprovalsParams { watch: Some(true), session_id: None };
    let data = client.call(params).await?;
    for PendingApproval { request, .. } in &data.pending {
        show(request, notifies, output)?;
    }

    loop {
        let event = tokio::select! {
            _ = interrupts.next() => return Ok(ExitCode::Ok),
            event = events.recv() => event,
        };
        let Some(event) = event else { anyhow::bail!("the daemon has closed the connection") };

        let data = event.data.as_deref().map(serde_json::value::RawValue::get).unwrap_or_default();
        if output.is_json() {
            output.first_line(&event)?;
        } else if let Ok(request) = serde_json::from_str::<ApprovalRequest>(data) {
            show(&request, notifies, output)?;
        } else if let Ok(closed) = serde_json::from_str::<ApprovalClosed>(data) {
            let by = closed.by.as_deref().map(|by| format!(" by {}", plain(by)));
            let (id, reason) = (plain(&closed.id), plain(&closed.reason));
            output.text(&format!("{id}  {reason}{}\n", by.unwrap_or_default()))?;
        }
    }
}

fn show(request: &ApprovalRequest, notifies: bool, output: CliOutput) -> anyhow::Result<()> {
    if notifies {
        notify(request);
    }

    let (id, (facts, details)) = (plain(&request.id), lines(request));
    if !output.is_json() {
        output.text(&format!("{BOLD}{id}{BOLD:#}  {facts}\n{details}"))?;
    }
    Ok(())
}

/// Allows the operation of a question, or uses of credentials.
pub(crate) async fn allow(args: AllowArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if !args.credentials.is_empty() {
        let AllowArgs { credentials, workspace, always, .. } = args;
        let (rules, which) = (Vec::new(), SessionArgs::default());
        let args = SandboxAllowArgs { rules, credentials, workspace, always, which };
        return sandbox::allow(args, output).await;
    }

    let scope = match () {
        () if args.session => Some(AnswerScope::Session),
        () if args.workspace => Some(AnswerScope::Workspace),
        () => args.always.then_some(AnswerScope::Always),
    };
    answer(args.question, Decision::Allow, scope, output).await
}

/// Denies the operation of a question.
pub(crate) async fn deny(args: DenyArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let scope = args.session.then_some(AnswerScope::Session);
    answer(args.question, Decision::Deny, scope, output).await
}

async fn answer(
    named: Option<String>,
    decision: Decision,
    scope: Option<AnswerScope>,
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let can_ask = is_possible(output);
    if named.is_none() && !can_ask {
        let verb = if decision == Decision::Allow { "allow" } else { "deny" };
        let error = format!(
            "name the question, or its host or directory: quack {verb} ID, quack {verb} HOST; quack approvals lists them"
        );
        return Err(CliError::usage(error).into());
    }

    let daemon = start_and_connect(output).await?;
    let data = daemon.client.call(ApprovalsParams::default()).await?;
    let known = known(&data);

    let id = match choose(&known, named.as_deref())? {
        Chosen::Unknown(id) => id,
        Chosen::Known(question, is_named_by_target) => {
            let id = question.id.clone();
            // The waiting operation was denied: the answer can only make a rule, unless it counts once.
            let makes_rule = decision == Decision::Allow && question.narrowest != AnswerScope::Once;
            if !question.is_open && !can_ask && makes_rule && scope.is_none() {
                return Err(CliError::usage(format!(
                    "the question {} has expired; --session, --workspace or --always allows {} for the next attempts",
                    plain(&id),
                    plain(&question.target)
                ))
                .into());
            }
            let is_clear = is_named_by_target && question.is_open;
            if can_ask && !is_clear && !confirmed(question, decision, scope, output).await? {
                output.note("nothing was answered");
                return Ok(ExitCode::Failed);
            }
            id
        }
    };

    let data = daemon.client.call(AnswerParams { id, decision, scope }).await?;
    match &data.not_saved {
        Some(reason) if data.scope == AnswerScope::Once => output.warning(&format!(
            "the answer counts once, because it was not saved: {}",
            plain(reason)
        )),
        Some(reason) => output.warning(&plain(reason)),
        None => {}
    }

    if output.is_json() {
        output.document(&data)?;
    } else {
        let decision = match data.decision {
            Decision::Allow => format!("allowed {}", data.scope.in_words()),
            Decision::Deny => "denied".to_owned(),
        };
        let (kind, target) = (data.kind.name(), plain(&data.target));
        output.text(&format!("{decision}: {kind} {target}\n"))?;
        if data.expired {
            output.warning("the question had expired: the answer is for the next attempt");
        }
    }
    Ok(ExitCode::Ok)
}

/// A question that can be answered.
#[derive(Debug, Clone)]
struct Answerable {
    id: String,
    kind: ApprovalKind,
    target: String,
    /// Text for the user before the answer.
    text: String,
    is_open: bool,
    /// The narrowest scope of an answer that allows.
    narrowest: AnswerScope,
}

/// Returns the open questions, and after them those that have expired, the last one first.
fn known(data: &ApprovalsData) -> Vec<Answerable> {
    let open = data.pending.iter().map(|PendingApproval { request, .. }| {
        let (facts, details) = lines(request);
        let scopes = &request.permission.scopes;
        Answerable {
            id: request.id.clone(),
            kind: request.permission.kind,
            target: request.permission.target.clone(),
            text: format!("{facts}\n{details}"),
            is_open: true,
            narrowest: scopes.first().copied().unwrap_or(AnswerScope::Once),
        }
    });

    let expired = data.recent.iter().rev().filter(|record| record.reason == "timeout");
    let expired = expired.map(|record| Answerable {
        id: record.id.clone(),
        kind: record.kind,
        target: record.target.clone(),
        text: format!("expired: {} {}\n", record.kind.name(), plain(&record.target)),
        is_open: false,
        narrowest: record.kind.scopes(false).first().copied().unwrap_or(AnswerScope::Once),
    });
    open.chain(expired).collect()
}

/// The question that an answer is for.
#[derive(Debug)]
enum Chosen<'a> {
    /// And whether the user named its target.
    Known(&'a Answerable, bool),
    /// This id, which the daemon may know.
    Unknown(String),
}

/// Returns the question with this id or about this target. Without a name the only open one, or if none is open the one
/// that expired last.
///
/// # Errors
/// If there is none, or there are several.
fn choose<'a>(known: &'a [Answerable], named: Option<&str>) -> anyhow::Result<Chosen<'a>> {
    let Some(named) = named else {
        let open: Vec<_> = known.iter().filter(|question| question.is_open).collect();
        return match (open.as_slice(), known.first()) {
            ([only], _) => Ok(Chosen::Known(only, false)),
            ([], Some(expired)) => Ok(Chosen::Known(expired, false)),
            ([], None) => anyhow::bail!("No question to the user is open"),
            (several, _) => Err(ambiguous(several)),
        };
    };

    if let Some(question) = known.iter().find(|question| question.id == named) {
        return Ok(Chosen::Known(question, false));
    }

    // An open question wins over an expired one about the same target.
    for is_open in [true, false] {
        let is_about_name =
            |question: &&Answerable| question.is_open == is_open && names(named, &question.target);
        let meant: Vec<_> = known.iter().filter(is_about_name).collect();
        match meant.as_slice() {
            [] => {}
            // Of the expired ones about one target, the last counts.
            [first, others @ ..]
                if others.is_empty()
                    || !is_open && others.iter().all(|other| other.target == first.target) =>
            {
                return Ok(Chosen::Known(first, true));
            }
            several => return Err(ambiguous(several)),
        }
    }

    if named.starts_with(REQUEST_PREFIX) {
        Ok(Chosen::Unknown(named.to_owned()))
    } else {
        anyhow::bail!("no question is about {}; quack approvals lists them", plain(named))
    }
}

fn ambiguous(several: &[&Answerable]) -> anyhow::Error {
    let ids: Vec<_> = several.iter().map(|question| plain(&question.id)).collect();
    anyhow::anyhow!("Several questions are open, name one: {}", ids.join(", "))
}

/// Shows a question, and returns whether the user confirms the answer to it.
async fn confirmed(
    question: &Answerable,
    decision: Decision,
    scope: Option<AnswerScope>,
    output: CliOutput,
) -> anyhow::Result<bool> {
    output.to_stderr(&format!("{BOLD}{}{BOLD:#}  {}", plain(&question.id), question.text));

    // Typed before the question was shown.
    stdin_lines::forget();
    let scope = scope.unwrap_or(question.narrowest);

    // A directory or a command has words of others, and is shown above.
    let target = match question.kind {
        ApprovalKind::Network | ApprovalKind::Credential => {
            format!(" {}", plain(&question.target))
        }
        ApprovalKind::Write | ApprovalKind::Command | ApprovalKind::SafeMode => String::new(),
    };

    if decision == Decision::Deny {
        let end = if scope == AnswerScope::Session { " for this session" } else { "" };
        return output.ask(format!("Deny{target}{end}?")).await;
    }

    let prompt = match target.as_str() {
        "" => format!("{}?", scope.option()),
        target => format!("{}:{target}?", scope.option()),
    };

    if scope == AnswerScope::Once {
        return output.ask(prompt).await;
    }

    let confirmation = Confirmation::new(question.kind, &question.target);
    let prompt = format!("{prompt} {}: ", confirmation.request());
    let reading = tokio::task::spawn_blocking(move || output.read_line_blocking(&prompt));
    Ok(confirmation.is_given(&reading.await??))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str, target: &str, is_open: bool) -> Answerable {
        let (id, target) = (id.to_owned(), target.to_owned());
        let (kind, narrowest) = (ApprovalKind::Network, AnswerScope::Once);
        Answerable { id, kind, target, text: String::new(), is_open, narrowest }
    }

    fn chosen(known: &[Answerable], named: Option<&str>) -> Result<String, String> {
        match choose(known, named) {
            Ok(Chosen::Known(question, _)) => Ok(question.id.clone()),
            Ok(Chosen::Unknown(id)) => Ok(format!("daemon {id}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn an_answer_is_for_the_question_that_the_user_named() {
        let known = [
            question("quack-1", "a.example:443", true),
            question("quack-2", "b.example:443", true),
            question("quack-4", "c.example:443", false),
            question("quack-3", "c.example:443", false),
        ];
        let named = |name| chosen(&known, Some(name));
        assert_eq!(named("quack-2").unwrap(), "quack-2");
        assert_eq!(named("A.example").unwrap(), "quack-1");
        assert_eq!(named("c.example:443").unwrap(), "quack-4");
        assert_eq!(named("quack-9").unwrap(), "daemon quack-9");
        assert!(
            named("evil.example").unwrap_err().starts_with("no question is about evil.example")
        );
        assert!(named("a.example:80").is_err());
        let several = chosen(&known, None).unwrap_err();
        assert_eq!(several, "Several questions are open, name one: quack-1, quack-2");
        assert_eq!(chosen(&known[..1], None).unwrap(), "quack-1");
        assert_eq!(chosen(&known[2..], None).unwrap(), "quack-4");
        assert_eq!(chosen(&[], None).unwrap_err(), "No question to the user is open");
    }
}
