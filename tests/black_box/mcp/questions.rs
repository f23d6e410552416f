//! Questions about permissions at an agent: as requests before revision 2026-07-28, as results of calls in it.

use super::{Agent, calls_running, command, current, text};
use crate::approvals::connect;
use crate::first_hour_network::can_test_network;
use crate::harness::{Daemon, Repo, wait_for};
use serde_json::{Value, json};

pub(super) fn with_hosts(test: impl FnOnce(&Daemon, &Repo)) {
    let mut daemon = Daemon::absent();
    let settings = "[sandbox]\nnetwork = \"hosts\"\n";
    daemon.configure(settings);
    daemon.boot();
    let probe = daemon.repo("probe");
    if can_test_network(&daemon.wire().attach(probe.path())) {
        test(&daemon, &daemon.repo("project"));
    }
}

/// An agent of revision 2025-11-25 that shows forms.
fn asking(daemon: &Daemon, repo: &Repo, arguments: &[&str]) -> Agent {
    let mut agent = Agent::spawn(command(daemon, repo.path(), arguments));
    agent.initialize(json!({"elicitation": {}}));
    agent
}

pub(super) fn bash(host: &str) -> Value {
    json!({"name": "bash", "arguments": {"command": format!("echo ran >> ran; {}", connect(host))}})
}

pub(super) fn accept(option: &str) -> Value {
    json!({"action": "accept", "content": {"value": option}})
}

impl Agent {
    #[track_caller]
    fn asked(&mut self) -> Value {
        self.message(|message| message["method"] == "elicitation/create")
    }

    fn react(&mut self, asked: &Value, result: Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": result}));
    }

    /// The text of a call of revision 2025-11-25.
    #[track_caller]
    fn text_of(&mut self, id: u64) -> String {
        text(&self.answer(id)["result"]).to_owned()
    }

    /// Calls in revision 2026-07-28, and returns the result.
    #[track_caller]
    fn call_now(&mut self, params: Value) -> Value {
        let answer = self.request("tools/call", current(params, json!({"elicitation": {}})));
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    #[track_caller]
    fn refused_now(&mut self, params: Value) {
        let answer = self.request("tools/call", current(params, json!({"elicitation": {}})));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let text = answer["error"]["message"].as_str().expect("a text");
        assert!(text.contains("nothing was run"), "{text}");
    }
}

/// The parameters of the next call with answers to all questions of a result.
#[track_caller]
pub(super) fn answered(call: &Value, result: &Value, answer: Option<Value>) -> Value {
    assert_eq!(result["resultType"], "input_required", "{result}");
    let questions = result["inputRequests"].as_object().expect("questions");
    let mut call = call.clone();
    call["requestState"] = result["requestState"].clone();
    if let Some(answer) = answer {
        let answers = questions.keys().map(|key| (key.clone(), answer.clone()));
        call["inputResponses"] = Value::Object(answers.collect());
    }
    call
}

fn lines(repo: &Repo, file: &str) -> usize {
    std::fs::read_to_string(repo.path().join(file)).map_or(0, |text| text.lines().count())
}

#[test]
fn an_older_agent_shows_the_question_and_the_call_goes_on_with_the_answer() {
    with_hosts(|daemon, repo| {
        let mut agent = asking(daemon, repo, &[]);
        let call = agent.begin("tools/call", bash("a.example:443"));
        let asked = agent.asked();
        let message = asked["params"]["message"].as_str().expect("a message");
        assert!(
            message.starts_with("Allow network access? ")
                && message.contains("connects to a.example:443"),
            "{message}"
        );
        let schema = &asked["params"]["requestedSchema"];
        let property = &schema["properties"]["value"];
        let options: Vec<_> = property["enum"].as_array().unwrap().iter().collect();
        assert_eq!(options[..2], ["Allow once", "Allow for this session"]);
        assert_eq!(
            (options.last().unwrap().as_str(), property.get("default")),
            (Some("Deny"), None)
        );
        assert_eq!(schema["required"], json!(["value"]));
        agent.react(&asked, accept("Allow for this session"));
        let text = agent.text_of(call);
        // The name does not exist, but the connection was allowed.
        assert!(text.starts_with("HTTP/1.1 502 "), "{text}");
        assert!(
            text.contains("(a.example:443) was allowed by the user for this session]"),
            "{text}"
        );

        for (host, reaction) in [
            ("b.example:443", json!({"action": "decline"})),
            ("d.example:443", accept("Allow everything")),
        ] {
            let call = agent.begin("tools/call", bash(host));
            let asked = agent.asked();
            agent.react(&asked, reaction);
            let text = agent.text_of(call);
            assert!(text.contains(&format!("({host}) was denied by the user]")), "{text}");
        }
        agent.leave();
    });
}

#[test]
fn a_cancelled_form_is_no_answer() {
    with_hosts(|daemon, repo| {
        let mut agent = asking(daemon, repo, &[]);
        let cancelled = json!({"action": "cancel"});
        let unanswered = json!({"action": "accept", "content": {}});
        // No other client can answer. Nothing is remembered as denied.
        for reaction in [&cancelled, &unanswered, &cancelled, &unanswered] {
            let call = agent.begin("tools/call", bash("a.example:443"));
            let asked = agent.asked();
            agent.react(&asked, reaction.clone());
            let text = agent.text_of(call);
            assert!(
                text.contains(
                    "To allow it: quack sandbox allow a.example --session project/test-agent]"
                ),
                "{text}"
            );
        }
        // The question stays open for another client.
        let watcher = daemon.wire();
        watcher.request("quack.approvals", json!({"watch": true}));
        let call = agent.begin("tools/call", bash("b.example:443"));
        let asked = agent.asked();
        let open = watcher.request("quack.approvals", json!({}));
        agent.react(&asked, cancelled);
        let id = open["pending"][0]["request"]["id"].clone();
        let allowed = json!({"id": id, "decision": "allow", "scope": "session"});
        watcher.request("quack.answer", allowed);
        let text = agent.text_of(call);
        assert!(
            text.contains("(b.example:443) was allowed by the user for this session]"),
            "{text}"
        );
        agent.leave();
    });
}

#[test]
fn an_agent_without_forms_is_not_asked_and_nothing_waits() {
    with_hosts(|daemon, repo| {
        let mut agent = Agent::start(daemon, repo, &[]);
        let call = agent.begin("tools/call", bash("a.example:443"));
        let told = agent.text_of(call);
        assert!(
            told.contains(
                "To allow it: quack sandbox allow a.example --session project/test-agent]"
            ),
            "{told}"
        );
        agent.leave();
        // A new agent whose user can open pages only, and a new one without elicitation.
        let mut agent = Agent::spawn(command(daemon, repo.path(), &[]));
        for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
            let answer = agent.request("tools/call", current(bash("a.example:443"), capabilities));
            let told = text(&answer["result"]);
            assert!(
                told.contains(
                    "To allow it: quack sandbox allow a.example --session project/test-agent]"
                ),
                "{told}"
            );
        }
        agent.leave();
        let data = daemon.wire().request("quack.approvals", json!({}));
        assert_eq!(data, json!({"pending": [], "recent": []}));
    });
}

#[test]
fn an_older_agent_gets_the_questions_of_all_its_sessions_and_of_their_jobs() {
    with_hosts(|daemon, one| {
        let two = daemon.repo("two");
        let mut agent = asking(daemon, one, &["--any-workspace"]);
        let mut other = bash("b.example:443");
        other["arguments"]["workspace"] = json!(two.path());
        let calls = [
            (agent.begin("tools/call", bash("a.example:443")), "a.example:443"),
            (agent.begin("tools/call", other), "b.example:443"),
        ];
        // Both are asked at once.
        let asked = [agent.asked(), agent.asked()];
        for asked in &asked {
            agent.react(asked, accept("Allow once"));
        }
        for (call, host) in calls {
            let text = agent.text_of(call);
            assert!(text.contains(&format!("({host}) was allowed by the user once]")), "{text}");
        }
        assert_eq!((lines(one, "ran"), lines(&two, "ran")), (1, 1));
        let mut job = bash("c.example:443");
        job["arguments"]["background"] = json!(true);
        let started = agent.begin("tools/call", job);
        agent.text_of(started);
        let asked = agent.asked();
        assert!(asked["params"]["message"].as_str().expect("a text").contains("c.example:443"));
        agent.react(&asked, accept("Deny"));
        wait_for("the answer", || {
            let data = daemon.wire().request("quack.approvals", json!({}));
            data["recent"].as_array()?.iter().find(|one| one["decision"] == "deny").map(drop)
        });
        agent.leave();
    });
}

#[test]
fn another_client_may_answer_first_and_the_dialog_ends() {
    with_hosts(|daemon, repo| {
        let mut agent = asking(daemon, repo, &[]);
        let call = agent.begin("tools/call", bash("a.example:443"));
        let asked = agent.asked();
        assert_eq!(daemon.quack(&["allow", "a.example", "--session"]).code(), Some(0));
        let ended = agent.message(|message| message["method"] == "notifications/cancelled");
        assert_eq!(ended["params"]["requestId"], asked["id"]);
        agent.react(&asked, json!({"action": "decline"}));
        let text = agent.text_of(call);
        assert!(
            text.contains("(a.example:443) was allowed by the user for this session]"),
            "{text}"
        );
        let call = agent.begin("tools/call", bash("a.example:443"));
        assert!(agent.text_of(call).starts_with("HTTP/1.1 502 "));
        agent.leave();
    });
}

#[test]
fn an_agent_that_refuses_a_question_is_not_asked_again() {
    with_hosts(|daemon, repo| {
        let mut agent = asking(daemon, repo, &[]);
        let call = agent.begin("tools/call", bash("a.example:443"));
        let asked = agent.asked();
        let error = json!({"code": -32601, "message": "no forms"});
        agent.send(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}));
        // The refusal was read before the answer to this. Otherwise the other client's answer could be first.
        let ping = agent.begin("ping", json!({}));
        agent.answer(ping);
        // Another client answers the question that is open.
        assert_eq!(daemon.quack(&["deny", "a.example"]).code(), Some(0));
        assert!(agent.text_of(call).contains("was denied by the user]"));
        wait_for("the next connection to be refused at once", || {
            let call = agent.begin("tools/call", bash("b.example:443"));
            agent
                .text_of(call)
                .contains(
                    "To allow it: quack sandbox allow b.example --session project/test-agent]",
                )
                .then_some(())
        });
        agent.leave();
    });
}

#[test]
fn a_call_of_the_current_revision_returns_the_question_and_goes_on() {
    with_hosts(|daemon, repo| {
        let mut agent = Agent::spawn(command(daemon, repo.path(), &[]));
        let call = bash("a.example:443");
        let asked = agent.call_now(call.clone());
        let (key, request) =
            asked["inputRequests"].as_object().expect("questions").iter().next().expect("one");
        assert!(key.starts_with("quack-"), "{key}");
        assert_eq!(request["method"], "elicitation/create");
        let property = &request["params"]["requestedSchema"]["properties"]["value"];
        assert_eq!((&property["enum"][0], property.get("default")), (&json!("Allow once"), None));
        // The call runs on.
        assert_eq!(calls_running(daemon), 1);
        // Another state, other arguments and another tool find no call and run nothing.
        let next = answered(&call, &asked, Some(accept("Allow for this session")));
        let mut forged = next.clone();
        forged["requestState"] = json!("AAAAAAAAAAAAAAAAAAAAAA");
        agent.refused_now(forged);
        let mut other = next.clone();
        other["arguments"]["command"] = json!("echo ran >> other");
        agent.refused_now(other);
        // Without an answer the user is asked again.
        let asked = agent.call_now(answered(&call, &asked, None));
        let next = answered(&call, &asked, Some(accept("Allow for this session")));
        let done = agent.call_now(next.clone());
        assert_eq!(done["resultType"], "complete", "{done}");
        let told = text(&done);
        assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
        assert!(
            told.contains("(a.example:443) was allowed by the user for this session]"),
            "{told}"
        );
        agent.refused_now(next);
        assert_eq!((lines(repo, "ran"), lines(repo, "other")), (1, 0));

        for (host, answer) in [
            ("b.example:443", json!({"action": "decline"})),
            ("c.example:443", json!("not a result")),
        ] {
            let asked = agent.call_now(bash(host));
            let done = agent.call_now(answered(&bash(host), &asked, Some(answer)));
            assert!(text(&done).contains(&format!("({host}) was denied by the user]")), "{done}");
        }
        agent.leave();
    });
}

#[test]
fn a_call_of_the_current_revision_ends_without_the_agent_and_keeps_its_result() {
    with_hosts(|daemon, repo| {
        let mut agent = Agent::spawn(command(daemon, repo.path(), &[]));
        let call = bash("a.example:443");
        let asked = agent.call_now(call.clone());
        assert_eq!(daemon.quack(&["allow", "a.example", "--session"]).code(), Some(0));
        wait_for("the end of the call", || (calls_running(daemon) == 0).then_some(()));
        // The late answer counts for nothing.
        let done = agent.call_now(answered(&call, &asked, Some(json!({"action": "decline"}))));
        let told = text(&done);
        assert!(
            told.contains("(a.example:443) was allowed by the user for this session]"),
            "{told}"
        );

        // Two calls. The proxy cannot tell which of them connects, so one may return the question of the other.
        let now = |params: Value| current(params, json!({"elicitation": {}}));
        let mut running: Vec<_> = ["b.example:443", "c.example:443"]
            .map(|host| (agent.begin("tools/call", now(bash(host))), bash(host)))
            .into();
        while !running.is_empty() {
            let answer = agent.message(|message| message["id"].is_u64());
            let at = running.iter().position(|(id, _)| answer["id"] == *id).expect("a call");
            let (_, call) = running.remove(at);
            let result = &answer["result"];
            if result["resultType"] == "complete" {
                assert!(text(result).starts_with("HTTP/1.1 502 "), "{result}");
            } else {
                let next = now(answered(&call, result, Some(accept("Allow once"))));
                running.push((agent.begin("tools/call", next), call));
            }
        }
        // The agent leaves with a question open.
        agent.call_now(bash("e.example:443"));
        agent.leave();
        wait_for("no call", || (calls_running(daemon) == 0).then_some(()));
    });
}

#[test]
fn an_agent_asks_for_a_permission_before_it_tries() {
    with_hosts(|daemon, repo| {
        let mut agent = Agent::spawn(command(daemon, repo.path(), &[]));
        let target = json!({"kind": "network", "target": "a.example:443", "reason": "to test"});
        let call = json!({"name": "request_permission", "arguments": target});
        let asked = agent.call_now(call.clone());
        let done = agent.call_now(answered(&call, &asked, Some(accept("Allow for this session"))));
        assert_eq!(
            text(&done),
            "[Sandbox: the network (a.example:443) was allowed by the user for this session]"
        );
        assert!(text(&agent.call_now(bash("a.example:443"))).starts_with("HTTP/1.1 502 "));
        agent.leave();
    });
}
