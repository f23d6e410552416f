//! Background jobs as tasks, for agents that declare the extension.

use super::{Agent, command, current, text};
use crate::harness::{Daemon, wait_for};
use serde_json::{Value, json};

fn extension() -> Value {
    json!({"extensions": {"io.modelcontextprotocol/tasks": {}}})
}

#[track_caller]
fn start(agent: &mut Agent, shell: &str, capabilities: Value) -> Value {
    let arguments = json!({"command": shell, "background": true});
    let call = current(json!({"name": "bash", "arguments": arguments}), capabilities);
    agent.request("tools/call", call)["result"].clone()
}

#[test]
fn a_job_is_a_task_that_ends_with_the_output_of_the_job() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
    let task =
        start(&mut agent, "until [ -e gate ]; do sleep 0.05; done; echo done; exit 3", extension());
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{task}"
    );
    let get = |agent: &mut Agent| {
        let params = current(json!({"taskId": task["taskId"]}), extension());
        agent.request("tasks/get", params)["result"].clone()
    };
    assert_eq!(get(&mut agent)["status"], "working");
    repo.write("gate", "");
    let ended = wait_for("the task to end", || {
        Some(get(&mut agent)).filter(|task| task["status"] != "working")
    });
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(text(&ended["result"]), "done\n\n[Exit code: 3]");
    agent.leave();
}

#[test]
fn a_cancelled_task_ends_its_job() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
    let task = start(&mut agent, "sleep 60", extension());
    let id = current(json!({"taskId": task["taskId"]}), extension());
    assert!(agent.request("tasks/cancel", id.clone())["error"].is_null());
    wait_for("the task to end", || {
        let task = agent.request("tasks/get", id.clone());
        (task["result"]["status"] == "cancelled").then_some(())
    });
    let jobs =
        agent.request("tools/call", current(json!({"name": "jobs", "arguments": {}}), json!({})));
    assert!(!text(&jobs["result"]).contains("running"), "{jobs}");
    let unknown = current(json!({"taskId": "nothing"}), extension());
    assert!(agent.request("tasks/get", unknown)["error"]["code"].is_i64());
    agent.leave();
}

#[test]
fn an_agent_without_the_extension_gets_the_job() {
    let daemon = Daemon::start();
    let repo = daemon.repo("project");
    let mut agent = Agent::spawn(command(&daemon, repo.path(), &[]));
    let result = start(&mut agent, "echo up; sleep 60", json!({}));
    assert!(text(&result).starts_with("Started background job job-1"), "{result}");
    assert_eq!(result["structuredContent"]["data"]["jobId"], "job-1");
    let output = json!({"name": "job_output", "arguments": {"job": "job-1", "wait_ms": 20_000}});
    let output = agent.request("tools/call", current(output, json!({})));
    assert!(text(&output["result"]).starts_with("up\n"), "{output}");
    agent.leave();
}
