//! `POST /token`: exchanges the one-time code of a page for its token. `DELETE /token`: revokes the page's own token.

use crate::host_header::DialedHost;
use crate::reply::{self, HttpReply};
use crate::state::{ListenerState, RouteContext};
use crate::{Ask, CodeAnswer, Page, rpc};
use hyper::body::Incoming;
use hyper::header::USER_AGENT;
use hyper::http::request::Parts;
use hyper::{HeaderMap, StatusCode};
use quackd_protocol::client::PageRights;
use quackd_protocol::limits::MAX_TOKEN_BODY_BYTES;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// Most characters of a browser's name that are kept.
const MAX_AGENT_CHARS: usize = 120;

#[derive(Deserialize)]
struct TokenRequest {
    code: String,
}

#[derive(Serialize)]
struct TokenReply<'a> {
    token: &'a str,
    id: &'a str,
    rights: PageRights,
}

/// Answers `POST /token`. A wrong code counts as a wrong token of the address.
pub(crate) async fn answer(
    parts: &Parts,
    body: Incoming,
    context: &RouteContext,
    listener: &ListenerState,
    seen: Option<&DialedHost>,
) -> HttpReply {
    if context.is_foreign(&parts.headers, listener, seen) {
        rpc::discard(parts, body).await;
        return reply::foreign();
    }

    let body = match rpc::read(parts, body, &context.state, MAX_TOKEN_BODY_BYTES).await {
        Ok(body) => body,
        Err(refusal) => return *refusal,
    };
    let Ok(TokenRequest { code }) = serde_json::from_slice(&body) else {
        return reply::error(StatusCode::BAD_REQUEST, "The body must be {\"code\":\"…\"}");
    };

    // A code is too long to be guessed, so a block applies to wrong ones only: other programs of this machine, which has
    // one count, must not keep the user out.
    if !context.state.pages.borrow().has_code(&code) {
        if let Some(wait) = listener.verifier.blocked(context.peer) {
            return reply::too_many(wait);
        }
        return wrong(context, listener);
    }

    let (answer, answered) = oneshot::channel();
    let ask = Ask::Code { code, agent: agent(&parts.headers), answer };
    // A closed channel means that the daemon is shutting down.
    context.state.asks.send(ask).await.ok();
    match answered.await {
        Ok(CodeAnswer::Token { token, page }) => {
            listener.verifier.record(context.peer, true);
            let (token, id) = (token.expose_secret(), &*page.id);
            reply::json(StatusCode::OK, &TokenReply { token, id, rights: page.rights })
        }
        Ok(CodeAnswer::Wrong) => wrong(context, listener),
        Ok(CodeAnswer::NotSaved(why)) => {
            let text = format!("The token cannot be saved: {why}");
            reply::error(StatusCode::SERVICE_UNAVAILABLE, &text)
        }
        Err(_gone) => shutting_down(),
    }
}

/// Answers `DELETE /token` of the holder of a valid token.
pub(crate) async fn end(page: Option<Page>, context: &RouteContext) -> HttpReply {
    let Some(page) = page else {
        let text =
            "Only a page can give its token up; `quack remote token --rotate` replaces this one";
        return reply::error(StatusCode::FORBIDDEN, text);
    };
    let (answer, answered) = oneshot::channel();
    // A closed channel means that the daemon is shutting down.
    context.state.asks.send(Ask::SignOut { page, answer }).await.ok();
    match answered.await {
        Ok(Ok(())) => reply::empty(StatusCode::NO_CONTENT),
        Ok(Err(why)) => reply::error(StatusCode::SERVICE_UNAVAILABLE, &why),
        Err(_gone) => shutting_down(),
    }
}

fn wrong(context: &RouteContext, listener: &ListenerState) -> HttpReply {
    listener.verifier.record(context.peer, false);
    let text = "The code is wrong, used or older than 10 minutes; `quack open` makes a new one";
    reply::error(StatusCode::UNAUTHORIZED, text)
}

fn shutting_down() -> HttpReply {
    reply::last_error(StatusCode::SERVICE_UNAVAILABLE, "The daemon is shutting down")
}

/// Returns the name of the browser: its printable ASCII characters, cut. Empty if unknown.
fn agent(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    agent.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(MAX_AGENT_CHARS).collect()
}
