//! Questions of a session to its user, such as those of Pi, as elicitations.
//!
//! Only agents of revisions before 2026-07-28 get them: later ones take no requests from a server. The daemon repeats a
//! question to other clients too, and the first answer counts.

use crate::daemon_link::{DaemonLink, Question, REPLY_TIMEOUT};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ProtocolVersion};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Weak};
use tokio::sync::mpsc;

/// Starts to pass the questions of `session` to the agent, if it takes them. Only the first session of a connection
/// has its questions passed, because a connection follows one session.
pub(crate) async fn pass_on(
    link: &Arc<DaemonLink>,
    session: &str,
    context: &RequestContext<RoleServer>,
) {
    let takes_forms = context
        .client_capabilities()
        .and_then(|capabilities| capabilities.elicitation)
        .is_some_and(|elicitation| elicitation.form.is_some() || elicitation.url.is_none());
    let is_old = context
        .protocol_version()
        .is_some_and(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str());
    if !takes_forms || !is_old {
        return;
    }
    let Some(questions) = link.take_questions() else { return };
    let follow = json!({"sessionId": session, "answers": true});
    if link.client.request_raw("follow", follow, REPLY_TIMEOUT).await.is_ok() {
        let session = session.to_owned();
        tokio::spawn(answer_all(questions, Arc::downgrade(link), session, context.peer.clone()));
    }
}

/// Asks the agent one question after the other, until the connection to the daemon closes.
async fn answer_all(
    mut questions: mpsc::Receiver<Question>,
    link: Weak<DaemonLink>,
    session: String,
    peer: Peer<RoleServer>,
) {
    while let Some(question) = questions.recv().await {
        let Some(form) = form(&question) else { continue };
        let Ok(result) = peer.create_elicitation(form).await else { continue };
        let Some(link) = link.upgrade() else { return };
        let mut answer = answer(&question.method, &result);
        answer.insert("id".to_owned(), question.id);
        answer.insert("sessionId".to_owned(), session.clone().into());
        // A refusal means that another client was first or the question has timed out.
        link.client.request_raw("extension_ui_response", answer, REPLY_TIMEOUT).await.ok();
    }
}

/// Returns the form for a question. `None` for a message that needs no answer.
fn form(question: &Question) -> Option<ElicitRequestParams> {
    let (name, property) = match question.method.as_str() {
        "confirm" => {
            ("confirmed", json!({"type": "boolean", "title": question.title, "default": true}))
        }
        "select" => {
            ("value", json!({"type": "string", "title": question.title, "enum": question.options}))
        }
        "input" | "editor" => {
            let mut property = json!({"type": "string", "title": question.title});
            if let (Some(text), Some(property)) = (&question.prefill, property.as_object_mut()) {
                property.insert("default".to_owned(), text.as_str().into());
            }
            ("value", property)
        }
        _ => return None,
    };
    let properties = Map::from_iter([(name.to_owned(), property)]);
    let schema = json!({"type": "object", "properties": properties, "required": [name]});
    let parts = [question.title.as_str(), question.message.as_str()];
    let message = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
    let requested_schema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Returns the parameters of `extension_ui_response`.
fn answer(method: &str, result: &ElicitResult) -> Map<String, Value> {
    let content =
        |name: &str| result.content.as_ref().and_then(|content| content.get(name)).cloned();
    let (name, value) = match (&result.action, method) {
        (ElicitationAction::Accept, "confirm") => {
            ("confirmed", content("confirmed").unwrap_or(Value::Bool(true)))
        }
        (ElicitationAction::Decline, "confirm") => ("confirmed", Value::Bool(false)),
        (ElicitationAction::Accept, _) => match content("value") {
            Some(value) => ("value", value),
            None => ("cancelled", Value::Bool(true)),
        },
        _ => ("cancelled", Value::Bool(true)),
    };
    Map::from_iter([(name.to_owned(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(method: &str, action: ElicitationAction, content: Option<Value>) -> Value {
        let mut result = ElicitResult::new(action);
        result.content = content;
        answer(method, &result).into()
    }

    #[test]
    fn forms_ask_for_what_the_question_wants() {
        let asked = |question: Value| {
            let form = form(&serde_json::from_value(question).unwrap());
            form.map(|form| serde_json::to_value(form).unwrap())
        };
        let confirm =
            asked(json!({"id": "1", "method": "confirm", "title": "Sure?", "message": "Really?"}));
        let confirm = confirm.unwrap();
        assert_eq!(confirm["message"], "Sure?: Really?");
        assert_eq!(confirm["requestedSchema"]["properties"]["confirmed"]["type"], "boolean");
        let select =
            asked(json!({"id": 1, "method": "select", "title": "One", "options": ["a", "b"]}));
        let property = &select.unwrap()["requestedSchema"]["properties"]["value"];
        assert_eq!(property["enum"], json!(["a", "b"]));
        let editor = asked(json!({"id": 1, "method": "editor", "title": "Text", "prefill": "x"}));
        assert_eq!(editor.unwrap()["requestedSchema"]["properties"]["value"]["default"], "x");
        assert_eq!(asked(json!({"id": 1, "method": "notify", "message": "hello"})), None);
    }

    #[test]
    fn every_reaction_is_an_answer() {
        use ElicitationAction::{Accept, Cancel, Decline};
        let yes = json!({"confirmed": true});
        assert_eq!(answered("confirm", Accept, Some(json!({"confirmed": true}))), yes);
        assert_eq!(answered("confirm", Accept, None), yes);
        assert_eq!(answered("confirm", Decline, None), json!({"confirmed": false}));
        assert_eq!(answered("select", Accept, Some(json!({"value": "b"}))), json!({"value": "b"}));
        for (method, action) in [("confirm", Cancel), ("select", Decline), ("input", Accept)] {
            assert_eq!(answered(method, action, None), json!({"cancelled": true}), "{method}");
        }
    }
}
