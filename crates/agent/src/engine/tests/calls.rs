//! Calls of tools.

use super::*;
use serde_json::json;

#[test]
fn calls_of_one_answer_run_at_once_and_results_keep_the_order_of_the_answer() {
    let mut bench = Bench::new();
    bench.prompt("two tools");
    bench.call(&[
        ("bash", json!({ "command": "sleep 1", "timeout": 2 })),
        ("ls", json!({})),
        ("nosuch", json!({})),
    ]);
    let calls = bench.calls();
    assert_eq!(calls[0].1, "bash");
    assert_eq!(calls[0].2["timeout_ms"], 2000);
    assert_eq!(calls[1].1, "find");
    bench.done(calls[1].0, "(empty)", false);
    bench.done(calls[0].0, "out", false);
    bench.say("done");
    let expected = format!(
        "{BEGIN} (assistant toolcall_start toolcall_delta toolcall_end toolcall_start toolcall_delta toolcall_end \
         toolcall_start toolcall_delta toolcall_end assistant) \
         [bash [ls [nosuch nosuch] ls] bash] (toolResult toolResult) (toolResult toolResult) \
         (toolResult toolResult) turn_end turn_start {SAID} agent_end agent_settled"
    );
    let (_, body) = bench.request();
    let contents: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|it| &it["content"]).collect();
    assert_eq!(
        contents[3..],
        [&json!("out"), &json!("(empty)"), &json!("Tool nosuch not found. The tools are: ")]
    );
    assert_eq!(bench.events(), expected);
}

#[test]
fn sequential_calls_have_the_order_of_early_versions_of_pi() {
    let settings = AgentSettings { parallel_tools: false, ..AgentSettings::default() };
    let mut bench = Bench::with(settings, Transcript::new(header()));
    bench.prompt("two tools");
    bench.call(&[("read", json!({ "path": "a" })), ("read", json!({ "path": "b" }))]);
    assert_eq!(bench.calls().len(), 1);
    bench.done(bench.calls()[0].0, "A", false);
    bench.done(bench.calls()[1].0, "B", false);
    let events = bench.events();
    let expected = "[read read] (toolResult toolResult) [read read] (toolResult toolResult) turn_end turn_start";
    assert!(events.ends_with(expected), "{events}");
}

#[test]
fn changes_of_one_file_wait_for_each_other() {
    let mut bench = Bench::new();
    bench.prompt("edit");
    let edit = |path: &str| json!({ "path": path, "edits": [{ "oldText": "a", "newText": "b" }] });
    bench.call(&[("edit", edit("./f")), ("edit", edit("f")), ("write", json!({ "path": "g" }))]);
    let tools: Vec<_> = bench.calls().into_iter().map(|call| call.1).collect();
    assert_eq!(tools, ["edit_file", "write_file"]);
    assert_eq!(bench.calls()[0].2["edits"][0], json!({ "old_text": "a", "new_text": "b" }));
    bench.done(bench.calls()[0].0, "ok", false);
    assert_eq!(bench.calls().len(), 3);
}

#[test]
fn arguments_that_are_not_json_do_not_run() {
    let mut bench = Bench::new();
    bench.prompt("go");
    bench.head(200);
    let call = json!({ "tool_calls": [{ "index": 0, "id": "c", "function": { "name": "bash", "arguments": "{\"command\": \"rm -rf" } }] });
    bench.bytes(&chunk(&call, Some("tool_calls")));
    bench.bytes("data: [DONE]\n\n");
    assert_eq!(bench.calls().len(), 0);
    let end = bench.event("tool_execution_end");
    assert_eq!(end["isError"], true);
    assert!(end["result"]["content"][0]["text"].as_str().unwrap().starts_with("Not run:"));
}

#[test]
fn tools_of_mcp_servers_are_listed_before_the_first_request_and_called_by_their_names() {
    let mut bench = Bench::new();
    bench.agent.servers = servers::ServerTools::new(true);
    bench.prompt("hi");
    let loading: Vec<_> = bench
        .effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Call(call) => Some((call.number, call.tool.clone())),
            _ => None,
        })
        .collect();
    let [(instructions, _), (list, tool)] = &*loading else { panic!("{loading:?}") };
    assert_eq!(tool, run::MCP_LIST);
    let no_request =
        |bench: &Bench| !bench.effects.iter().any(|it| matches!(it, Effect::Request(_)));
    bench.done(*instructions, "", false);
    assert!(no_request(&bench), "the list is missing");
    let tool = json!({ "server": "db", "name": "query", "description": "", "parameters": {} });
    let data = json!({ "tools": [tool], "problems": ["gone: cannot\nstart"] });
    bench.take(Input::ToolDone(Box::new(AgentToolDone {
        number: *list,
        text: to_raw_value("").unwrap(),
        hint: None,
        data: Some(to_raw_value(&data).unwrap()),
        is_error: false,
        exit_code: None,
        signal: None,
        aborted: false,
        truncated: false,
        full_output_path: None,
        duration_ms: 3,
        user_instructions: None,
    })));
    let body = bench.request().1;
    assert_eq!(body["tools"][0]["function"]["name"], "mcp__db__query");
    assert!(body["messages"][0].to_string().contains("MCP servers: gone: cannot start"), "{body}");
    bench.call(&[("mcp__db__query", json!({ "sql": "x" }))]);
    let (_, tool, arguments) = bench.calls().pop().unwrap();
    let expected = json!({ "server": "db", "tool": "query", "arguments": { "sql": "x" } });
    assert_eq!((tool.as_str(), arguments), ("quack_mcp_call", expected));
}

#[test]
fn an_aborted_list_of_tools_is_asked_for_again_and_a_failed_one_is_not() {
    for is_aborted in [true, false] {
        let mut bench = Bench::new();
        bench.agent.servers = servers::ServerTools::new(true);
        bench.prompt("hi");
        bench.done(1, "", false);
        let done = AgentToolDone {
            number: 2,
            text: to_raw_value("Error: no").unwrap(),
            hint: None,
            data: None,
            is_error: true,
            exit_code: None,
            signal: None,
            aborted: is_aborted,
            truncated: false,
            full_output_path: None,
            duration_ms: 3,
            user_instructions: None,
        };
        bench.take(Input::ToolDone(Box::new(done)));
        bench.say("fine");
        bench.effects.clear();
        bench.send(json!({ "type": "prompt", "message": "again" }));
        let lists_again =
            |effect: &Effect| matches!(effect, Effect::Call(call) if call.tool == run::MCP_LIST);
        assert_eq!(bench.effects.iter().any(lists_again), is_aborted);
    }
}
