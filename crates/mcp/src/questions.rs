//! Questions to the user about a session: those about permissions, and those of its Pi. As forms for agents, and the
//! answers.
//!
//! The daemon sends a question to other clients too, and the first answer counts. Agents of revisions before 2026-07-28
//! get a question as a request ([`crate::elicitations`]), others as the result of a call ([`crate::parked_calls`]).

use crate::lock;
use quackd_client::{Answer, OpenQuestion, OpenQuestions, Question, QuestionKind};
use quackd_protocol::approval::DENY_OPTION;
use quackd_protocol::client::UiResponseParams;
use quackd_protocol::limits::MAX_WATCHED_SESSIONS;
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction, ProtocolVersion};
use rmcp::service::{Peer, RequestContext, RoleServer};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Form in which an agent gets questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// As requests of the server, before revision 2026-07-28.
    Request,
    /// As results of calls, from revision 2026-07-28 on.
    Result,
}

/// Returns how the agent gets questions. `None` if it cannot show forms.
pub(crate) fn way(context: &RequestContext<RoleServer>) -> Option<Way> {
    let elicitation = context.client_capabilities()?.elicitation?;
    if elicitation.form.is_none() && elicitation.url.is_some() {
        return None;
    }

    let version = context.protocol_version()?;
    if version.as_str() < ProtocolVersion::V_2026_07_28.as_str() {
        Some(Way::Request)
    } else {
        Some(Way::Result)
    }
}

/// Returns the form of a question. `None` if rmcp refuses its schema.
pub(crate) fn form(question: &Question) -> Option<ElicitRequestParams> {
    let (name, property) = match &question.kind {
        QuestionKind::Confirm => {
            ("confirmed", json!({"type": "boolean", "title": question.title, "default": true}))
        }
        QuestionKind::Select(options) => {
            // Without a default, because hosts preselect it. A host that preselects the first option gets the shortest permission.
            let (deny, allow): (Vec<_>, Vec<_>) = options
                .iter()
                .partition(|option| question.permission.is_some() && *option == DENY_OPTION);
            let options = [allow, deny].concat();
            ("value", json!({"type": "string", "title": question.title, "enum": options}))
        }
        QuestionKind::Input | QuestionKind::Editor => {
            let mut property = json!({"type": "string", "title": question.title});
            if let (Some(text), Some(fields)) = (&question.prefill, property.as_object_mut()) {
                fields.insert("default".to_owned(), text.as_str().into());
            }
            ("value", property)
        }
    };

    let properties = Map::from_iter([(name.to_owned(), property)]);
    let schema = json!({"type": "object", "properties": properties, "required": [name]});
    let (message, requested_schema) = (question.text(), serde_json::from_value(schema).ok()?);
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Returns the parameters of `extension_ui_response` for the result of the form. An agent without a user cancels every
/// form at once, so that a cancelled form is not an answer, nor is a form without a choice. Any other result denies a permission
/// once.
pub(crate) fn answer(question: &Question, result: &ElicitResult) -> UiResponseParams {
    let content =
        |name: &str| result.content.as_ref().and_then(|content| content.get(name)).cloned();
    question.reply(match (&result.action, &question.kind) {
        (ElicitationAction::Accept, QuestionKind::Confirm) => {
            Answer::Confirmed(content("confirmed").is_none_or(|value| value == Value::Bool(true)))
        }
        (ElicitationAction::Decline, QuestionKind::Confirm) => Answer::Confirmed(false),
        (ElicitationAction::Cancel, _) => Answer::Dismissed,
        // A form that was sent without a choice is no answer either.
        (ElicitationAction::Accept, _)
            if question.permission.is_some() && content("value").is_none() =>
        {
            Answer::Dismissed
        }
        (ElicitationAction::Accept, _) => content("value").map_or(Answer::Cancelled, Answer::Value),
        _ => Answer::Cancelled,
    })
}

/// The open questions of one connection to the daemon.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Mutex<OpenQuestions<Taken>>,
    changed: Notify,
}

#[derive(Debug)]
struct Taken {
    is_taken: bool,
    /// When the daemon closes the question, if it does.
    until: Option<Instant>,
}

/// A question for the agent.
#[derive(Debug, Clone)]
pub(crate) struct TakenQuestion {
    pub(crate) question: Arc<Question>,
    /// Cancelled when the question is closed.
    pub(crate) closed: CancellationToken,
}

impl Questions {
    /// Adds a question, and wakes the callers of `take`. If there are too many, the oldest is dropped, and another client
    /// has to answer it.
    pub(crate) fn opened(&self, question: Question) {
        let until = question.timeout.map(|ms| Instant::now() + Duration::from_millis(ms));
        let mut open = lock(&self.open);
        let is_new = open.get_mut(&question.id).is_none();
        if is_new && OpenQuestions::<Taken>::MAX <= open.list.len() {
            open.list.pop_front();
        }
        open.open(Arc::new(question), Taken { is_taken: false, until });
        drop(open);
        self.changed.notify_waiters();
    }

    /// Removes a question that was answered elsewhere or timed out, and ends its dialog.
    pub(crate) fn closed(&self, id: &Value) {
        lock(&self.open).close(id);
    }

    /// Removes all questions when the connection has closed.
    pub(crate) fn close_all(&self) {
        lock(&self.open).list.clear();
    }

    /// Waits for questions without a taker, and takes them. Cancel-safe.
    pub(crate) async fn take(&self, is_wanted: impl Fn(&Question) -> bool) -> Vec<TakenQuestion> {
        loop {
            // Before the look, so that no question is missed.
            let changed = self.changed.notified();
            let taken = self.take_now(&is_wanted);
            if !taken.is_empty() {
                return taken;
            }
            changed.await;
        }
    }

    fn take_now(&self, is_wanted: impl Fn(&Question) -> bool) -> Vec<TakenQuestion> {
        let mut open = lock(&self.open);
        // After its call, this client does not get the end of a question.
        let now = Instant::now();
        open.list.retain(|OpenQuestion { state, .. }| {
            state.is_taken || state.until.is_none_or(|until| now < until)
        });

        let is_free =
            |open: &&mut OpenQuestion<Taken>| !open.state.is_taken && is_wanted(&open.question);
        let take = |open: &mut OpenQuestion<Taken>| {
            open.state.is_taken = true;
            TakenQuestion { question: Arc::clone(&open.question), closed: open.closed.clone() }
        };
        open.list.iter_mut().filter(is_free).map(take).collect()
    }

    /// Lets a question be taken again, because the agent has not answered it.
    pub(crate) fn put_back(&self, question: &Question) {
        if let Some(open) = lock(&self.open).get_mut(&question.id) {
            open.state.is_taken = false;
        }
        self.changed.notify_waiters();
    }
}

/// The agents that get the questions of a session as requests. `None` if the agent refused one, so it gets no more.
#[derive(Debug, Default)]
pub(crate) struct Askers(Mutex<HashMap<String, Option<Peer<RoleServer>>>>);

impl Askers {
    /// Sets the agent of a session. Returns true if the daemon must send the questions of the session from now on.
    pub(crate) fn set(&self, session: &str, peer: &Peer<RoleServer>) -> bool {
        let mut all = lock(&self.0);
        if let Some(agent) = all.get_mut(session) {
            // The agent may have connected again.
            if let Some(known) = agent {
                *known = peer.clone();
            }
            return false;
        }

        if MAX_WATCHED_SESSIONS <= all.len() {
            // Sessions in use come again.
            all.clear();
        }
        all.insert(session.to_owned(), Some(peer.clone()));
        true
    }

    /// Returns the agent of a session.
    pub(crate) fn of(&self, session: &str) -> Option<Peer<RoleServer>> {
        lock(&self.0).get(session).cloned().flatten()
    }

    /// Removes the agent of a session.
    pub(crate) fn remove(&self, session: &str) {
        lock(&self.0).remove(session);
    }

    /// Gives the agent of a session no more questions.
    pub(crate) fn refuse(&self, session: &str) {
        lock(&self.0).insert(session.to_owned(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn question(question: Value) -> Question {
        Question::read("s", &question).unwrap()
    }

    fn permission(id: &str) -> Question {
        let options = ["Deny", "Allow once"];
        question(
            json!({"id": format!("quack-{id}"), "method": "select", "title": "Allow network access?",
            "message": "curl connects to a:443", "options": options, "timeout": 28000,
            "permission": {"toolCallId": "c"}}),
        )
    }

    fn answered(question: &Question, action: ElicitationAction, content: Option<Value>) -> Value {
        let mut result = ElicitResult::new(action);
        result.content = content;
        let mut answer = serde_json::to_value(answer(question, &result)).unwrap();
        let fields = answer.as_object_mut().unwrap();
        assert_eq!(fields.remove("sessionId"), Some("s".into()));
        assert_eq!(fields.remove("id").as_ref(), Some(&question.id));
        answer
    }

    #[test]
    fn forms_ask_for_what_the_question_wants() {
        let asked =
            |asked: Value| form(&question(asked)).map(|form| serde_json::to_value(form).unwrap());
        let confirm =
            asked(json!({"id": "1", "method": "confirm", "title": "Sure?", "message": "Really?"}));
        let confirm = confirm.unwrap();
        assert_eq!(confirm["message"], "Sure?: Really?");
        assert_eq!(confirm["requestedSchema"]["properties"]["confirmed"]["type"], "boolean");
        let select =
            asked(json!({"id": "1", "method": "select", "title": "One", "options": ["a", "b"]}));
        let property = &select.unwrap()["requestedSchema"]["properties"]["value"];
        assert_eq!(property["enum"], json!(["a", "b"]));
        assert_eq!(property.get("default"), None);
        let editor = asked(json!({"id": "1", "method": "editor", "title": "Text", "prefill": "x"}));
        assert_eq!(editor.unwrap()["requestedSchema"]["properties"]["value"]["default"], "x");
        let form = serde_json::to_value(form(&permission("q")).unwrap()).unwrap();
        assert_eq!(form["message"], "Allow network access? curl connects to a:443");
        let property = &form["requestedSchema"]["properties"]["value"];
        assert_eq!(
            (&property["enum"], property.get("default")),
            (&json!(["Allow once", "Deny"]), None)
        );
    }

    #[test]
    fn every_reaction_is_an_answer() {
        use ElicitationAction::{Accept, Cancel, Decline};
        let of = |method: &str| question(json!({"id": "7", "method": method}));
        let yes = json!({"confirmed": true});
        let cancelled = json!({"cancelled": true});
        assert_eq!(answered(&of("confirm"), Accept, Some(yes.clone())), yes);
        assert_eq!(answered(&of("confirm"), Accept, None), yes);
        assert_eq!(answered(&of("confirm"), Decline, None), json!({"confirmed": false}));
        let value = |value: &str| json!({"value": value});
        assert_eq!(answered(&of("select"), Accept, Some(value("b"))), value("b"));
        for (method, action) in [("confirm", Cancel), ("select", Decline), ("input", Accept)] {
            assert_eq!(answered(&of(method), action, None), cancelled, "{method}");
        }
        let asked = permission("q");
        assert_eq!(answered(&asked, Accept, Some(value("Allow once"))), value("Allow once"));
        for (action, content) in
            [(Accept, Some(value("Always allow"))), (Decline, Some(value("Allow once")))]
        {
            assert_eq!(answered(&asked, action, content), cancelled);
        }
        for action in [Cancel, Accept] {
            assert_eq!(answered(&asked, action, None), json!({"dismissed": true}));
        }
    }

    #[test]
    fn a_question_is_taken_once_and_closed_for_its_taker() {
        let questions = Questions::default();
        let keys = |taken: Vec<TakenQuestion>| {
            taken.iter().map(|it| it.question.key()).collect::<Vec<_>>()
        };
        let mut waiting = Box::pin(questions.take(|question| question.key() != "quack-b"));
        assert!(waiting.as_mut().now_or_never().is_none());
        questions.opened(permission("a"));
        questions.opened(permission("b"));
        let taken = waiting.now_or_never().unwrap();
        let [a] = taken.as_slice() else { panic!("{taken:?}") };
        assert_eq!(keys(questions.take(|_| true).now_or_never().unwrap()), ["quack-b"]);
        assert!(questions.take(|_| true).now_or_never().is_none());
        questions.put_back(&a.question);
        assert_eq!(keys(questions.take(|_| true).now_or_never().unwrap()), ["quack-a"]);
        assert!(!a.closed.is_cancelled());
        questions.closed(&a.question.id);
        assert!(a.closed.is_cancelled());
        questions.put_back(&a.question);
        assert!(questions.take(|_| true).now_or_never().is_none());
        let mut expired = permission("late");
        expired.timeout = Some(0);
        questions.opened(expired);
        assert!(questions.take(|_| true).now_or_never().is_none());
        for n in 0..100 {
            questions.opened(permission(&n.to_string()));
        }
        let taken = questions.take(|_| true).now_or_never().unwrap();
        assert_eq!(taken.last().unwrap().question.key(), "quack-99");
        assert_eq!(taken.len(), 64);
        questions.close_all();
        assert!(taken.iter().all(|question| question.closed.is_cancelled()));
    }
}
