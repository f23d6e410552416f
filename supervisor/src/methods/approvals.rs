//! `quack.approvals` and `quack.answer`: lists the questions to the user about denied operations, and answers them. Clients
//! without these methods answer by `extension_ui_response`.

use super::attach::named;
use super::directories::note_held;
use super::find::label;
use super::{Caller, Serve};
use crate::approvals::{Answering, NoAnswer, Subject};
use crate::clock::ms;
use crate::errors::MethodError;
use crate::events::answerers::Answerer;
use crate::registry::{GrantChange, Purpose, SessionChange};
use crate::session::network::AllowOnce;
use quackd_config::RemoteApprovals;
use quackd_policy::hosts::HostPort;
use quackd_protocol::SessionId;
use quackd_protocol::approval::{AnswerScope, ApprovalKind, Decision};
use quackd_protocol::client::{
    AnswerData, AnswerParams, ApprovalsData, ApprovalsParams, PendingApproval, PolicyScope,
    UiResponseData, UiResponseParams,
};
use serde_json::Value;
use std::rc::Rc;
use std::time::Instant;

impl Serve<ApprovalsParams> for Caller {
    async fn serve(&self, params: ApprovalsParams) -> Result<ApprovalsData, MethodError> {
        let ApprovalsParams { watch, session_id } = params;
        let session = named(session_id.as_deref(), None, self).await?.map(SessionId);
        let services = &self.services.sessions;
        match watch {
            Some(true) if self.client.outbox.is_none() => return Err(MethodError::NoStream),
            Some(true) => {
                // A remote client that may not answer gets no questions.
                remote_limit(self)?;
                self.client.watched.keep(services.events.answerers.add(session.clone()));
            }
            Some(false) => self.client.watched.end(session.as_ref()),
            None => {}
        }

        let is_meant = |id: &SessionId| session.as_ref().is_none_or(|session| session == id);
        let now = Instant::now();
        let mut pending = services.approvals.with_pending(|open| {
            let of = open.iter().filter(|open| is_meant(&open.subject.session));
            let row = of.map(|open| PendingApproval {
                session_id: open.subject.session.clone(),
                label: String::new(),
                at: open.with.at.clone(),
                left_ms: ms(open.until.saturating_duration_since(now)),
                request: open.with.request.clone(),
            });
            row.collect::<Vec<_>>()
        });
        // After the table was read: its borrow must not last during a wait.
        for row in &mut pending {
            row.label = label(self, &row.session_id).await?;
        }

        let mut recent = services.approvals.recent();
        recent.retain(|record| is_meant(&record.session_id));
        Ok(ApprovalsData { pending, recent })
    }
}

impl Serve<AnswerParams> for Caller {
    async fn serve(&self, params: AnswerParams) -> Result<AnswerData, MethodError> {
        let AnswerParams { id, decision, scope } = params;
        // Before the question is looked up: a remote client that may not answer learns nothing about it.
        remote_limit(self)?;

        let answering = take(&id, self)?;
        let scope = scope.unwrap_or_else(|| narrowest(&answering, decision));
        finish(answering, decision, scope, self).await
    }
}

/// `extension_ui_response` for a question about a permission.
pub(super) async fn by_option(
    id: &str,
    params: UiResponseParams,
    caller: &Caller,
) -> Result<UiResponseData, MethodError> {
    remote_limit(caller)?;
    if params.dismissed == Some(true) {
        let approvals = &caller.services.sessions.approvals;
        let session_id = approvals
            .dismissed(id, |session| caller.client.watched.count_for(session))
            .map_err(|why| no_answer(id, why))?;
        return Ok(UiResponseData { session_id });
    }

    let answering = take(id, caller)?;
    let is_denial =
        params.cancelled == Some(Value::Bool(true)) || params.confirmed == Some(Value::Bool(false));
    let option = params.value.as_ref().and_then(Value::as_str);
    let answer = match (is_denial, option) {
        (true, _) => Some((Decision::Deny, AnswerScope::Once)),
        (false, Some(option)) => answering.request.answer_of(option),
        (false, None) => None,
    };
    let Some((decision, scope)) = answer else {
        let options = answering.request.options.join(", ");
        return Err(MethodError::NoOption(options));
    };

    let AnswerData { session_id, .. } = finish(answering, decision, scope, caller).await?;
    Ok(UiResponseData { session_id })
}

fn take(id: &str, caller: &Caller) -> Result<Answering, MethodError> {
    caller.services.sessions.approvals.take(id).map_err(|why| no_answer(id, why))
}

fn no_answer(id: &str, why: NoAnswer) -> MethodError {
    match why {
        NoAnswer::Unknown => MethodError::NoSuchRequest(id.chars().take(100).collect()),
        NoAnswer::Closed(record) => MethodError::RequestClosed(record),
    }
}

/// Returns the first scope that the question offers, if the answer allows. A denial counts once.
fn narrowest(answering: &Answering, decision: Decision) -> AnswerScope {
    let first = answering.request.permission.scopes.first().copied();
    first.filter(|_| decision == Decision::Allow).unwrap_or(AnswerScope::Once)
}

/// Lets the client answer questions about the session until the result is dropped.
pub(super) fn during_call(session: &SessionId, caller: &Caller) -> Option<Rc<Answerer>> {
    // A request without a connection only gets its reply.
    let can_answer = caller.client.outbox.is_some() && may_answer(caller);
    let answerers = &caller.services.sessions.events.answerers;
    can_answer.then(|| caller.client.watched.during_call(answerers.add(Some(session.clone()))))
}

/// Returns whether the client may answer questions at all.
pub(super) fn may_answer(caller: &Caller) -> bool {
    remote_limit(caller).is_ok()
}

/// Returns the longest scope that the client may allow. `None` for a local client, which has no limit.
///
/// # Errors
/// `RemoteAnswer` or `PageRight` if the client may not answer at all.
fn remote_limit(caller: &Caller) -> Result<Option<AnswerScope>, MethodError> {
    if caller.is_local() {
        return Ok(None);
    }
    if let Some(page) = caller.client.page.get() {
        let session = Some(AnswerScope::Session);
        return page.rights.approvals.then_some(session).ok_or(MethodError::PageRight("approvals"));
    }
    match caller.services.daemon.config.remote.approvals.value {
        RemoteApprovals::Off => Err(MethodError::RemoteAnswer),
        RemoteApprovals::Once => Ok(Some(AnswerScope::Once)),
        RemoteApprovals::Session => Ok(Some(AnswerScope::Session)),
    }
}

/// Checks an answer, puts it into force and passes it on. A question whose answer is refused stays open.
async fn finish(
    answering: Answering,
    decision: Decision,
    scope: AnswerScope,
    caller: &Caller,
) -> Result<AnswerData, MethodError> {
    let approvals = &caller.services.sessions.approvals;
    let limit = remote_limit(caller)?;
    let is_offered = match decision {
        Decision::Allow => answering.request.permission.scopes.contains(&scope),
        Decision::Deny => scope <= AnswerScope::Session,
    };
    if !is_offered {
        return Err(MethodError::NotOffered(scope.in_words()));
    }
    if limit.is_some_and(|limit| limit < scope) {
        let is_page = caller.client.page.get().is_some();
        return Err(if is_page { MethodError::PageScope } else { MethodError::RemoteAnswer });
    }

    let by = caller.client.shown_name();
    let in_force = apply(&answering, decision, scope, &by, caller).await;
    let (scope, not_saved) = match in_force {
        Ok(()) => (scope, None),
        // The change is in force, and may still be saved.
        Err(MethodError::Overloaded) => {
            (scope, Some("the save takes too long; it may still succeed".to_owned()))
        }
        // The answer counts for the waiting operation.
        Err(error) if answering.request.permission.scopes.contains(&AnswerScope::Once) => {
            (AnswerScope::Once, Some(error.to_string()))
        }
        Err(error) => return Err(error),
    };

    let Subject { session, kind, target, .. } = answering.subject.clone();
    let (id, expired) = (answering.request.id.clone(), answering.is_late());
    approvals.answered(answering, decision, scope, by);
    Ok(AnswerData { id, session_id: session, kind, target, decision, scope, not_saved, expired })
}

/// Puts an answer into force, before the waiting operation gets it.
async fn apply(
    answering: &Answering,
    decision: Decision,
    scope: AnswerScope,
    by: &str,
    caller: &Caller,
) -> Result<(), MethodError> {
    let Subject { session, kind, target, .. } = &answering.subject;
    let found = caller.session(Some(session.0.clone()), Purpose::Describe).await?;

    let change = match (kind, decision, scope) {
        (ApprovalKind::Network, Decision::Allow, AnswerScope::Once) => {
            // Also if nothing waits: the question has expired, or an agent asked before it tried.
            if let Some(target) = HostPort::read(target) {
                found.actors.worker.send(AllowOnce(target)).await?;
            }
            return Ok(());
        }
        (_, _, AnswerScope::Once) => return Ok(()),
        // Other denials are remembered by the questions.
        (
            ApprovalKind::Write | ApprovalKind::Command | ApprovalKind::SafeMode,
            Decision::Deny,
            _,
        ) => return Ok(()),
        (ApprovalKind::SafeMode, Decision::Allow, _) => SessionChange::SafeMode(false),
        (kind, decision, scope) => SessionChange::Grants(GrantChange::Answer {
            kind: *kind,
            target: target.clone(),
            decision,
            scope: match scope {
                AnswerScope::Once | AnswerScope::Session => PolicyScope::Session,
                AnswerScope::Workspace => PolicyScope::Workspace,
                AnswerScope::Always => PolicyScope::Always,
            },
            client: by.to_owned(),
        }),
    };

    caller.change(session, change).await?;
    if (*kind, decision) == (ApprovalKind::Write, Decision::Allow) {
        note_held(caller, vec![target.into()]).await;
    }
    // The session has handled the change when it answers this.
    found.actors.settle().await?;
    Ok(())
}
