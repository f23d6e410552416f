//! Tests of MCP servers: listing and calling, every way in which a server fails, and their ends.

// Processes are found in /proc.
#![cfg(target_os = "linux")]

#[cfg(test)]
mod tests {
    use quackd_process::{Role, harden};
    use quackd_protocol::CallId;
    use quackd_protocol::mcp::McpTools;
    use quackd_protocol::worker::CallSpec;
    use quackd_testkit::{TestDir, Turn, alone, runs, wait_until_async};
    use quackd_tools::{Call, Output, Toolbox, execute};
    use serde_json::{Value, json};
    use std::fs;
    use std::rc::Rc;

    const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/mcp_server.py");

    /// A session with exclusive execution: a command that runs alone also kills orphans of unknown origin.
    struct Bench {
        toolbox: Rc<Toolbox>,
        base: TestDir,
        _turn: Turn,
    }

    impl Bench {
        async fn new(is_safe: bool) -> Self {
            let turn = alone(|| harden(Role::Worker).unwrap()).await;
            let base = TestDir::with(&["ws", "run"]);
            let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
            let env = vec![("PATH".to_owned(), path), ("BOTH".to_owned(), "command".to_owned())];
            let toolbox = Toolbox::new(base.join("ws"), base.join("run"), env, is_safe);
            Self { toolbox: Rc::new(toolbox), base, _turn: turn }
        }

        fn start(&self, tool: &str, arguments: &Value) -> (Call, Rc<Toolbox>) {
            let call = Call {
                spec: CallSpec {
                    call_id: CallId(format!("c{tool}{arguments}")),
                    tool: tool.into(),
                    arguments: arguments.to_string(),
                    deadline_ms: 30_000,
                    ..CallSpec::default()
                },
                ..Call::default()
            };
            (call, Rc::clone(&self.toolbox))
        }

        async fn list(&self, servers: &[Value]) -> McpTools {
            let (call, toolbox) = self.start("quack_mcp_list", &json!({ "servers": servers }));
            let output = execute(toolbox, call).await;
            serde_json::from_value(output.data.expect("data").value()).unwrap()
        }

        async fn call(&self, server: &Value, tool: &str, arguments: Value) -> Output {
            let (call, toolbox) = self.start("quack_mcp_call", &call(server, tool, &arguments));
            execute(toolbox, call).await
        }

        fn starts(&self) -> usize {
            let text = fs::read_to_string(self.base.join("ws/starts")).unwrap_or_default();
            text.lines().count()
        }
    }

    fn call(server: &Value, tool: &str, arguments: &Value) -> Value {
        let name = &server["name"];
        json!({ "servers": [server], "server": name, "tool": tool, "arguments": arguments })
    }

    fn server(name: &str, modes: &[&str]) -> Value {
        let args: Vec<&str> = [SERVER].into_iter().chain(modes.iter().copied()).collect();
        json!({ "name": name, "command": "python3", "args": args, "env": [] })
    }

    fn is_alive(pid: &str) -> bool {
        runs(pid.parse().unwrap())
    }

    #[tokio::test]
    async fn tools_are_listed_and_called_and_a_broken_server_costs_one_line() {
        let bench = Bench::new(false).await;
        let good = server("good", &["log"]);
        let missing = json!({ "name": "missing", "command": "no-such-program" });
        let listed = bench.list(&[good.clone(), server("bad", &["broken"]), missing]).await;
        // The list has two pages.
        assert_eq!(listed.tools.len(), 12, "{:?}", listed.problems);
        assert_eq!(
            (listed.tools[0].name.as_str(), listed.tools[0].server.as_str()),
            ("echo", "good")
        );
        assert_eq!(listed.tools[0].description, "Test tool echo.");
        let stderr = bench.base.join("run/mcp-bad.stderr");
        assert_eq!(
            listed.problems,
            [
                format!(
                    "bad: it has ended; its last line on stderr: cannot find its settings; stderr: {}",
                    stderr.display()
                ),
                "missing: cannot start it: spawn no-such-program ENOENT".to_owned(),
            ]
        );
        let kept = fs::read_to_string(stderr).unwrap();
        assert_eq!(kept, "connecting with no token\ncannot find its settings\n");
        assert_eq!(bench.call(&good, "echo", json!({ "text": "hi" })).await.text, "echo: hi");
        let failed = bench.call(&good, "fail", json!({})).await;
        assert_eq!((failed.text.as_str(), failed.report.is_error), ("Error: it went wrong", true));
        let unknown = bench.call(&good, "none", json!({})).await;
        assert_eq!(unknown.text, "Error: MCP server good: no such tool");
        let image = bench.call(&good, "image", json!({})).await;
        assert_eq!(image.data.unwrap().value()["image"]["mime_type"], "image/png");
        assert_eq!(bench.starts(), 1);
    }

    #[tokio::test]
    async fn variables_of_a_server_are_added_to_those_of_commands() {
        let bench = Bench::new(false).await;
        let mut given = server("s", &[]);
        given["env"] = json!([{ "name": "OWN", "value": "1" }]);
        for (name, value) in [("OWN", "1"), ("BOTH", "command"), ("HOME", "None")] {
            let told = bench.call(&given, "env", json!({ "name": name })).await;
            assert_eq!(told.text, value, "{name}");
        }
        // Another definition means another server.
        given["env"] = json!([{ "name": "BOTH", "value": "server" }]);
        assert_eq!(bench.call(&given, "env", json!({ "name": "BOTH" })).await.text, "server");
        assert_eq!(bench.call(&given, "env", json!({ "name": "OWN" })).await.text, "None");
    }

    #[tokio::test]
    async fn tools_beyond_the_bounds_are_left_out_and_the_list_says_so() {
        let bench = Bench::new(false).await;
        let listed = bench.list(&[server("s", &["many"])]).await;
        assert!(listed.tools.len() <= 128);
        assert!(listed.tools.iter().all(|tool| tool.name != "echo"), "its schema is too large");
        assert_eq!(listed.problems.len(), 1);
        assert!(listed.problems[0].ends_with("too large or too many and are not available"));
    }

    #[tokio::test]
    async fn a_canceled_call_is_canceled_at_the_server_and_one_past_its_deadline_too() {
        let bench = Bench::new(false).await;
        let given = server("s", &[]);
        bench.call(&given, "echo", json!({})).await;
        let (slow, toolbox) = bench.start("quack_mcp_call", &call(&given, "slow", &json!({})));
        let cancel = slow.cancel.clone();
        let (canceled, ()) = tokio::join!(execute(toolbox, slow), async {
            wait_until_async("the call to arrive", || bench.base.join("ws/slow-call").exists())
                .await;
            cancel.cancel();
        });
        assert_eq!(canceled.text, "Error: slow was aborted");
        assert!(canceled.report.aborted);
        let (mut slow, toolbox) =
            bench.start("quack_mcp_call", &call(&given, "slow", &json!({ "n": 2 })));
        slow.spec.deadline_ms = 200;
        let late = execute(toolbox, slow).await;
        assert_eq!(late.text, "Error: slow timed out after 0.2s");
        assert!(late.report.timed_out);
        let told = bench.call(&given, "cancelled", json!({})).await;
        let told: Vec<u64> = serde_json::from_str(&told.text).unwrap();
        // The numbers of both calls, after the greeting and the first call.
        assert_eq!(told, [3, 4]);
    }

    #[tokio::test]
    async fn a_crash_fails_the_call_and_the_next_call_starts_the_server_again_but_not_forever() {
        let bench = Bench::new(false).await;
        let given = server("s", &["log"]);
        let crashed =
            "Error: MCP server s: it has ended; its last line on stderr: the reason of the crash";
        for n in 1..=3 {
            let echo = bench.call(&given, "echo", json!({ "text": n })).await;
            assert_eq!(echo.text, format!("echo: {n}"));
            assert_eq!(bench.call(&given, "crash", json!({})).await.text, crashed);
            assert_eq!(bench.starts(), n);
        }
        let refused = bench.call(&given, "echo", json!({})).await.text;
        assert!(refused.contains("it ended 3 times within a minute"), "{refused}");
        assert!(refused.ends_with("the reason of the crash"), "{refused}");
        assert_eq!(bench.starts(), 3);
    }

    #[tokio::test]
    async fn long_results_are_cut_and_a_line_beyond_the_limit_fails_its_call_only() {
        let bench = Bench::new(false).await;
        let given = server("s", &["log"]);
        let long = bench.call(&given, "huge", json!({})).await;
        assert!(long.report.truncated && long.text.len() < 110_000);
        let line = bench.call(&given, "line", json!({})).await;
        assert_eq!(line.text, "Error: MCP server s: it sent more than 8 MiB on one line");
        assert_eq!(bench.call(&given, "echo", json!({ "text": 1 })).await.text, "echo: 1");
        assert_eq!(bench.starts(), 1);
    }

    #[tokio::test]
    async fn a_process_that_a_server_left_holds_nothing_up_and_ends_with_the_server() {
        let bench = Bench::new(false).await;
        let given = server("s", &[]);
        let child = bench.call(&given, "fork", json!({})).await.text;
        assert!(is_alive(&child), "{child}");
        // The child holds the pipes of the server that exits.
        let crashed = bench.call(&given, "crash", json!({})).await;
        assert!(crashed.text.contains("it has ended"), "{}", crashed.text);
        wait_until_async("the child to end", || !is_alive(&child)).await;
        let child = bench.call(&given, "fork", json!({})).await.text;
        // A server that is in the list no more ends.
        assert_eq!(bench.list(&[]).await, McpTools::default());
        wait_until_async("the child to end", || !is_alive(&child)).await;
    }

    #[tokio::test]
    async fn safe_mode_starts_no_server() {
        let bench = Bench::new(true).await;
        let given = server("s", &["log"]);
        let (listing, toolbox) = bench.start("quack_mcp_list", &json!({ "servers": [given] }));
        for refused in
            [execute(toolbox, listing).await, bench.call(&given, "echo", json!({})).await]
        {
            assert_eq!(refused.text, "Error: MCP servers do not run in safe mode");
        }
        assert_eq!(bench.starts(), 0);
    }

    #[tokio::test]
    async fn what_is_no_call_is_refused() {
        let bench = Bench::new(false).await;
        let (other, toolbox) = bench.start("quack_mcp_call", &json!({ "server": 7 }));
        assert_eq!(
            execute(toolbox, other).await.text,
            "Error: The call of an MCP server is invalid"
        );
        let gone = json!({ "servers": [], "server": "gone", "tool": "t" });
        let (gone, toolbox) = bench.start("quack_mcp_call", &gone);
        assert_eq!(
            execute(toolbox, gone).await.text,
            "Error: There is no MCP server 'gone' any more"
        );
    }
}
