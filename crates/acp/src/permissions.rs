//! Questions to the user as requests to the client, and its answers. Whatever is no clear answer cancels, which denies.

use quackd_client::{Answer, Question, QuestionKind};
use quackd_protocol::approval::{AnswerScope, DENY_OPTION};
use serde_json::{Value, json};

/// Option that denies for the whole session.
const DENY_SESSION: &str = "deny-session";

/// A request to the client.
#[derive(Debug, PartialEq)]
pub(crate) struct ClientRequest {
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

/// The message to the daemon that answers a question.
#[derive(Debug, PartialEq)]
pub(crate) enum QuestionReply {
    /// `extension_ui_response`.
    Answer(Answer),
    /// `quack.answer`: denied until the session ends.
    DenySession,
}

/// Returns the request for a question. `None` if the client cannot show it.
///
/// `has_forms`: the client shows forms. `is_shown`: the client has seen the call that the question is about.
pub(crate) fn request(
    question: &Question,
    has_forms: bool,
    is_shown: bool,
) -> Option<ClientRequest> {
    let session = question.session.as_str();
    if matches!(question.kind, QuestionKind::Input | QuestionKind::Editor) {
        let mut property = json!({"type": "string", "title": question.title});
        if let (Some(text), Some(property)) = (&question.prefill, property.as_object_mut()) {
            property.insert("default".to_owned(), text.as_str().into());
        }
        let schema =
            json!({"type": "object", "properties": {"value": property}, "required": ["value"]});
        let params = json!({"sessionId": session, "mode": "form", "message": question.text(),
            "requestedSchema": schema});
        return has_forms.then_some(ClientRequest { method: "elicitation/create", params });
    }

    let (facts, words) = question.facts_and_words();
    // Editors read Markdown. In a block, words of others stay on their lines and are no markup.
    let text = match words {
        Some(words) => format!("{facts}\n\n```text\n{words}\n```"),
        None => facts.clone(),
    };

    let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
    // The client can update only a call that it has seen.
    let call = match question.call().filter(|_| is_shown) {
        Some(call) => json!({"toolCallId": call, "content": content}),
        None => {
            json!({"toolCallId": question.key(), "title": facts, "kind": "other", "status": "pending",
            "content": content})
        }
    };

    let params = json!({"sessionId": session, "toolCall": call, "options": options(question)});
    Some(ClientRequest { method: "session/request_permission", params })
}

fn options(question: &Question) -> Vec<Value> {
    let option =
        |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    match &question.kind {
        QuestionKind::Confirm => {
            vec![option("yes", "Yes", "allow_once"), option("no", "No", "reject_once")]
        }
        QuestionKind::Select(options) if question.permission.is_some() => {
            let allowing = options.iter().enumerate();
            let allowing = allowing.filter(|(_, text)| *text != DENY_OPTION).map(|(at, text)| {
                let is_once = text == AnswerScope::Once.option();
                let kind = if is_once { "allow_once" } else { "allow_always" };
                option(&at.to_string(), text, kind)
            });

            let denying = [
                option("deny", DENY_OPTION, "reject_once"),
                option(DENY_SESSION, "Deny for this session", "reject_always"),
            ];
            allowing.chain(denying).collect()
        }
        QuestionKind::Select(options) => {
            let options = options.iter().enumerate();
            let options = options.map(|(at, text)| option(&at.to_string(), text, "allow_once"));
            options.chain([option("cancel", "Cancel", "reject_once")]).collect()
        }
        QuestionKind::Input | QuestionKind::Editor => Vec::new(),
    }
}

/// Returns the message to the daemon for the client's result.
pub(crate) fn reply(question: &Question, result: &Value) -> QuestionReply {
    let answer = match &question.kind {
        QuestionKind::Input | QuestionKind::Editor => {
            let is_accepted = result.get("action").and_then(Value::as_str) == Some("accept");
            let value = result.pointer("/content/value").filter(|value| value.is_string());
            value.filter(|_| is_accepted).cloned().map(Answer::Value)
        }
        kind => {
            let outcome = &result["outcome"];

            let is_selected = outcome.get("outcome").and_then(Value::as_str) == Some("selected");
            let id = outcome.get("optionId").and_then(Value::as_str).filter(|_| is_selected);
            match (kind, id) {
                // Only a question about a permission has this option.
                (_, Some(DENY_SESSION)) if question.permission.is_some() => {
                    return QuestionReply::DenySession;
                }
                (QuestionKind::Confirm, Some("yes")) => Some(Answer::Confirmed(true)),
                (QuestionKind::Confirm, Some("no")) => Some(Answer::Confirmed(false)),
                (QuestionKind::Select(options), Some(id)) => {
                    let at = id.parse::<usize>().ok();
                    let text = at.and_then(|at| options.get(at));
                    text.map(|text| Answer::Value(text.as_str().into()))
                }
                _ => None,
            }
        }
    };
    QuestionReply::Answer(answer.unwrap_or(Answer::Cancelled))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(question: Value) -> Question {
        Question::read("s", &question).unwrap()
    }

    fn permission() -> Question {
        let options = ["Deny", "Allow once", "Allow for this session", "Always allow"];
        question(json!({"id": "quack-1", "method": "select", "title": "Allow network access?",
            "message": "curl connects to a:443", "options": options, "permission": {"toolCallId": "c"}}))
    }

    fn selected(id: &str) -> Value {
        json!({"outcome": {"outcome": "selected", "optionId": id}})
    }

    #[test]
    fn a_permission_has_options_of_all_four_kinds() {
        let known = request(&permission(), false, true).unwrap();
        assert_eq!(known.method, "session/request_permission");
        assert_eq!(known.params["toolCall"]["toolCallId"], "c");
        let kinds: Vec<_> = known.params["options"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["kind"].as_str().unwrap())
            .collect();
        assert_eq!(
            kinds,
            ["allow_once", "allow_always", "allow_always", "reject_once", "reject_always"]
        );
        let unknown = request(&permission(), false, false).unwrap().params;
        assert_eq!(unknown["toolCall"]["toolCallId"], "quack-1");
        assert_eq!(unknown["toolCall"]["title"], "Allow network access? curl connects to a:443");
    }

    #[test]
    fn words_of_others_are_a_block_after_the_facts() {
        let mut question = permission();
        question.message =
            "connects to a:443\ncommand \"# Allowed ![x](http://e)\"\nsession s".to_owned();
        let shown = request(&question, false, false).unwrap().params;
        assert_eq!(shown["toolCall"]["title"], "Allow network access? connects to a:443");
        assert_eq!(
            shown["toolCall"]["content"][0]["content"]["text"],
            "Allow network access? connects to a:443\n\n```text\ncommand \"# Allowed ![x](http://e)\"\nsession s\n```"
        );
    }

    #[test]
    fn only_a_selected_option_allows() {
        let value = |text: &str| QuestionReply::Answer(Answer::Value(text.into()));
        assert_eq!(reply(&permission(), &selected("1")), value("Allow once"));
        assert_eq!(reply(&permission(), &selected("3")), value("Always allow"));
        assert_eq!(reply(&permission(), &selected(DENY_SESSION)), QuestionReply::DenySession);
        let cancelled = QuestionReply::Answer(Answer::Cancelled);
        for result in [
            selected("deny"),
            selected("9"),
            selected("yes"),
            json!({"outcome": {"outcome": "cancelled", "optionId": "1"}}),
            json!({"outcome": {"optionId": "1"}}),
            json!({"outcome": "selected"}),
            Value::Null,
        ] {
            assert_eq!(reply(&permission(), &result), cancelled, "{result}");
        }
        let confirm = question(json!({"id": "1", "method": "confirm", "title": "Sure?"}));
        assert_eq!(
            reply(&confirm, &selected("yes")),
            QuestionReply::Answer(Answer::Confirmed(true))
        );
        assert_eq!(
            reply(&confirm, &selected("no")),
            QuestionReply::Answer(Answer::Confirmed(false))
        );
        assert_eq!(reply(&confirm, &selected(DENY_SESSION)), cancelled);
        let select = question(json!({"id": "1", "method": "select", "options": ["a", "b"]}));
        assert_eq!(reply(&select, &selected("1")), value("b"));
        assert_eq!(reply(&select, &selected("cancel")), cancelled);
    }

    #[test]
    fn a_text_is_asked_for_in_a_form_if_the_client_has_forms() {
        let input =
            question(json!({"id": "1", "method": "editor", "title": "Text", "prefill": "x"}));
        assert_eq!(request(&input, false, false), None);
        let form = request(&input, true, false).unwrap();
        assert_eq!(form.method, "elicitation/create");
        assert_eq!(form.params["requestedSchema"]["properties"]["value"]["default"], "x");
        let accepted = json!({"action": "accept", "content": {"value": "y"}});
        assert_eq!(reply(&input, &accepted), QuestionReply::Answer(Answer::Value("y".into())));
        for result in
            [json!({"action": "decline", "content": {"value": "y"}}), json!({"action": "accept"})]
        {
            assert_eq!(reply(&input, &result), QuestionReply::Answer(Answer::Cancelled));
        }
    }
}
