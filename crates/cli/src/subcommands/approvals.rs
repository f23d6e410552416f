//! `quack approvals`, `quack allow` and `quack deny`: questions to the user about denied operations.

use crate::args::approvals::{AllowArgs, ApprovalsArgs, DenyArgs};
use crate::connect::{REPLY_TIMEOUT, start_and_connect};
use crate::display::{name, plain};
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput, DIM};
use crate::subcommands::approval_prompt::{Prompter, is_possible, notify};
use crate::subcommands::follow::session_view::Interrupts;
use crate::time_format::local;
use jiff::tz::TimeZone;
use quackd_client::Started;
use quackd_protocol::approval::{
    AnswerScope, ApprovalClosed, ApprovalRequest, Decision, PendingApproval, RecentApproval,
};
use quackd_protocol::client::{AnswerData, AnswerParams, ApprovalsData, ApprovalsParams};

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
    let params = ApprovalsParams::default();
    let data: ApprovalsData =
        daemon.client.request("quack.approvals", params, REPLY_TIMEOUT).await?;
    if output.is_json() {
        output.document(&data)?;
    } else if data.pending.is_empty() && data.recent.is_empty() {
        output.note("no questions since the daemon started");
    } else {
        let zone = TimeZone::system();
        let pending: String = data.pending.iter().map(pending).collect();
        let recent: String = data.recent.iter().map(|record| recent(record, &zone)).collect();
        output.text(&format!("{pending}{recent}"))?;
    }
    Ok(ExitCode::Ok)
}

fn pending(PendingApproval { label, left_ms, request, .. }: &PendingApproval) -> String {
    let (id, title) = (plain(&request.id), plain(&request.title));
    let (message, seconds) = (plain(&request.message), left_ms / 1000);
    format!(
        "{BOLD}{id}{BOLD:#}  {}  {title} {message}  {DIM}{seconds} s left{DIM:#}\n",
        name(label)
    )
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
        let asking = Prompter::start(None, notifies, output).await?;
        output.note("waiting for questions; Ctrl-C ends this");
        tokio::select! {
            () = interrupts.next() => return Ok(ExitCode::Ok),
            () = asking.run(output) => anyhow::bail!("the daemon has closed the connection"),
        }
    }
    let mut events = client.events().await?;
    let params = ApprovalsParams { watch: Some(true), session_id: None };
    let data: ApprovalsData = client.request("quack.approvals", params, REPLY_TIMEOUT).await?;
    for PendingApproval { request, .. } in &data.pending {
        show(request, notifies, output)?;
    }
    loop {
        let event = tokio::select! {
            () = interrupts.next() => return Ok(ExitCode::Ok),
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
    let (id, title, message) = (plain(&request.id), plain(&request.title), plain(&request.message));
    if !output.is_json() {
        output.text(&format!("{BOLD}{id}{BOLD:#}  {title} {message}\n"))?;
    }
    Ok(())
}

/// Allows the operation of a question.
pub(crate) async fn allow(args: AllowArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let scope = match () {
        () if args.session => Some(AnswerScope::Session),
        () if args.workspace => Some(AnswerScope::Workspace),
        () => args.always.then_some(AnswerScope::Always),
    };
    answer(args.id, (Decision::Allow, scope), output).await
}

/// Denies the operation of a question.
pub(crate) async fn deny(args: DenyArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let scope = args.session.then_some(AnswerScope::Session);
    answer(args.id, (Decision::Deny, scope), output).await
}

async fn answer(
    id: Option<String>,
    (decision, scope): (Decision, Option<AnswerScope>),
    output: CliOutput,
) -> anyhow::Result<ExitCode> {
    let daemon = start_and_connect(output).await?;
    // The daemon's choice could be a question that has come in this moment.
    let id = match id {
        Some(id) => Some(id),
        None => match only(&daemon.client, output).await? {
            Choice::Id(id) => Some(id),
            Choice::None => None,
            Choice::Refused => return Ok(ExitCode::Failed),
        },
    };
    let params = AnswerParams { id, decision, scope };
    let data: AnswerData = daemon.client.request("quack.answer", params, REPLY_TIMEOUT).await?;
    match &data.not_saved {
        Some(why) if data.scope == AnswerScope::Once => output
            .warning(&format!("the answer counts once, because it was not saved: {}", plain(why))),
        Some(why) => output.warning(&plain(why)),
        None => {}
    }
    if output.is_json() {
        output.document(&data)?;
    } else {
        let decision = match data.decision {
            Decision::Allow => format!("allowed {}", data.scope.in_words()),
            Decision::Deny => "denied".to_owned(),
        };
        output.text(&format!("{decision}: {} {}\n", data.kind.name(), plain(&data.target)))?;
    }
    Ok(ExitCode::Ok)
}

/// The question that an answer without an id is for.
enum Choice {
    Id(String),
    /// None, or several: the daemon's error says which.
    None,
    /// The user does not want to answer the question that has expired.
    Refused,
}

/// Returns the only open question. Without one, asks at a terminal about the one that expired last.
async fn only(client: &quackd_client::Client, output: CliOutput) -> anyhow::Result<Choice> {
    let params = ApprovalsParams::default();
    let data: ApprovalsData = client.request("quack.approvals", params, REPLY_TIMEOUT).await?;
    match data.pending.as_slice() {
        [] => {}
        [open] => return Ok(Choice::Id(open.request.id.clone())),
        _ => return Ok(Choice::None),
    }
    let expired = data.recent.iter().rev().find(|record| record.reason == "timeout");
    let Some(expired) = expired else { return Ok(Choice::None) };
    if CliOutput::can_ask() {
        let (kind, target) = (expired.kind.name(), plain(&expired.target));
        let question = format!("{} has expired: {kind} {target}. Answer it?", plain(&expired.id));
        if !tokio::task::spawn_blocking(move || output.ask_blocking(&question)).await?? {
            return Ok(Choice::Refused);
        }
    }
    Ok(Choice::Id(expired.id.clone()))
}
