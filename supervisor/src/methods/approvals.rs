//! `quack.approvals` and `quack.answer`: lists the questions to the user about denied operations, and answers them. Clients
//! without these methods answer by `extension_ui_response`.

use super::attach::SAVE_LIMIT;
use super::directories::note_held;
use super::find::{id_of, label};
use super::{Caller, Serve, own_reference};
use crate::approvals::{Answering, NoAnswer, Subject};
use crate::errors::MethodError;
use crate::events::answerers::Answerer;
use crate::events::client_registry::Transport;
use crate::registry::{ChangeSession, FindSession, GrantChange, Purpose, SessionChange};
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
    async fn serve(&self, asked: ApprovalsParams) -> Result<ApprovalsData, MethodError> {
        let ApprovalsParams { watch, session_id } = asked;
        let session = match own_reference(session_id.as_deref())? {
            Some(reference) => Some(SessionId(id_of(self, reference).await?)),
            None => None,
        };
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
                left_ms: crate::clock::ms(open.until.saturating_duration_since(now)),
                request: open.with.request.clone(),
            });
            row.collect::<Vec<_>>()
        });
        for row in &mut pending {
            row.label = label(self, &row.session_id).await?;
        }
        let mut recent = services.approvals.recent();
        recent.retain(|record| is_meant(&record.session_id));
        Ok(ApprovalsData { pending, recent })
    }
}

impl Serve<AnswerParams> for Caller {
    async fn serve(&self, asked: AnswerParams) -> Result<AnswerData, MethodError> {
        let AnswerParams { id, decision, scope } = asked;
        remote_limit(self)?;
        let answering = take(&id, self)?;
        let scope = scope.unwrap_or_else(|| narrowest(&answering, decision));
        finish(answering, decision, scope, self).await
    }
}

/// `extension_ui_response` for a question about a permission.
pub(super) async fn by_option(
    id: &str,
    asked: UiResponseParams,
    caller: &Caller,
) -> Result<UiResponseData, MethodError> {
    remote_limit(caller)?;
    if asked.dismissed == Some(true) {
        let approvals = &caller.services.sessions.approvals;
        let session_id = approvals
            .dismissed(id, |session| caller.client.watched.count_for(session))
            .map_err(|why| no_answer(id, why))?;
        return Ok(UiResponseData { session_id });
    }
    let answering = take(id, caller)?;
    let is_denial =
        asked.cancelled == Some(Value::Bool(true)) || asked.confirmed == Some(Value::Bool(false));
    let option = asked.value.as_ref().and_then(Value::as_str);
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

/// Whether the client may answer questions at all.
pub(super) fn may_answer(caller: &Caller) -> bool {
    remote_limit(caller).is_ok()
}

/// The longest scope that a remote client may allow.
fn remote_limit(caller: &Caller) -> Result<Option<AnswerScope>, MethodError> {
    if caller.client.transport == Transport::Socket {
        return Ok(None);
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
    let checked = remote_limit(caller).and_then(|limit| {
        let is_offered = match decision {
            Decision::Allow => answering.request.permission.scopes.contains(&scope),
            Decision::Deny => scope <= AnswerScope::Session,
        };
        match limit {
            _ if !is_offered => Err(MethodError::NotOffered(scope.in_words())),
            Some(limit) if limit < scope => Err(MethodError::RemoteAnswer),
            _ => Ok(()),
        }
    });
    checked?;
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
    let find = FindSession { reference: Some(session.0.clone()), purpose: Purpose::Describe };
    let found = caller.registry.send(find).await??.ok_or(MethodError::NoSession)?;
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
        ) => {
            return Ok(());
        }
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
    let change = ChangeSession { session: session.clone(), change };
    caller.registry.send(change).timeout(SAVE_LIMIT).await??;
    if (*kind, decision) == (ApprovalKind::Write, Decision::Allow) {
        note_held(caller, vec![target.into()]).await;
    }
    // The session has handled the change when it answers this.
    found.actors.settle().await?;
    Ok(())
}
