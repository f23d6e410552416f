//! Questions as requests to the agent, for revisions before 2026-07-28.
//!
//! The questions of each session that the agent uses are passed on until the connection closes.

use crate::daemon_link::{DaemonLink, REPLY_TIMEOUT};
use crate::questions::{self, Questions, TakenQuestion};
use quackd_protocol::client::{ApprovalsParams, FollowParams};
use rmcp::model::{ClientResult, ElicitRequest, ElicitResult, ElicitationAction, ServerRequest};
use rmcp::service::{Peer, PeerRequestOptions, RoleServer, ServiceError};
use std::sync::{Arc, Weak};

/// Reason for the end of a request to the agent.
const ANSWERED: &str = "the question is closed";

/// Starts to pass the questions of `session` to the agent. Those of a Pi are passed for the first session only, because a
/// connection follows one.
pub(crate) async fn pass_on(link: &Arc<DaemonLink>, session: &str, peer: &Peer<RoleServer>) {
    if !link.askers.set(session, peer) {
        return;
    }

    let watch = ApprovalsParams { session_id: Some(session.to_owned()), watch: Some(true) };
    if link.client.call_within(watch, REPLY_TIMEOUT).await.is_err() {
        return link.askers.remove(session);
    }

    if link.is_first_asker() {
        let follow = FollowParams { session_id: session.into(), ..FollowParams::default() };
        // Without it, only questions of a Pi are missing.
        link.client.call_within(follow, REPLY_TIMEOUT).await.ok();
        let (weak, questions) = (Arc::downgrade(link), Arc::clone(&link.questions));
        let ended = link.ended.clone();
        tokio::spawn(async move { ended.run_until_cancelled(ask_all(weak, questions)).await });
    }
}

/// Passes on all questions. Several may be open, and each has a timeout.
async fn ask_all(link: Weak<DaemonLink>, questions: Arc<Questions>) {
    loop {
        let is_asked_here =
            |session: &str| link.upgrade().is_some_and(|link| link.askers.of(session).is_some());
        for question in questions.take(|question| is_asked_here(&question.session)).await {
            tokio::spawn(ask(Weak::clone(&link), question));
        }
    }
}

/// Asks the agent one question, until it answers or the question is closed.
async fn ask(link: Weak<DaemonLink>, TakenQuestion { question, closed }: TakenQuestion) {
    let Some(form) = questions::form(&question) else { return };
    let session = question.session.as_str();
    let Some(peer) = link.upgrade().and_then(|link| link.askers.of(session)) else { return };

    let request = ServerRequest::ElicitRequest(ElicitRequest::new(form));
    let options = PeerRequestOptions::no_options();
    let reply = match peer.send_cancellable_request(request, options).await {
        Ok(mut request) => tokio::select! {
            biased;
            // First: an answer to a question that was replaced must not answer the new one with its id.
            () = closed.cancelled() => {
                // The agent closes its dialog.
                request.cancel(Some(ANSWERED.to_owned())).await.ok();
                return;
            }
            reply = &mut request.rx => reply.unwrap_or(Err(ServiceError::TransportClosed)),
        },
        Err(error) => Err(error),
    };

    let Some(link) = link.upgrade() else { return };
    let result = match reply {
        Ok(ClientResult::ElicitResult(result)) => result,
        // A result of another form is no permission.
        Ok(_) => ElicitResult::new(ElicitationAction::Decline),
        // The agent cannot ask. Other clients still may.
        Err(error) => return stop(&link, session, &error).await,
    };

    let answer = questions::answer(&question, &result);
    // A refusal means that another client was first or the question has timed out.
    link.client.call_within(answer, REPLY_TIMEOUT).await.ok();
}

/// Ends the questions of a session to an agent that is gone or refuses them, so that no operation waits for it.
async fn stop(link: &DaemonLink, session: &str, error: &ServiceError) {
    match error {
        ServiceError::McpError(_) => link.askers.refuse(session),
        // It may come back with another connection.
        _ => link.askers.remove(session),
    }
    let unwatch = ApprovalsParams { session_id: Some(session.to_owned()), watch: Some(false) };
    // If the connection has closed, the watch has ended too.
    link.client.call_within(unwatch, REPLY_TIMEOUT).await.ok();
}
