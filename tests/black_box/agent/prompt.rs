//! `quack` with a prompt, and `quack say`: stop a turn, leave, input from a pipe, prompts that fail.

use super::World;
use crate::harness::{Terminal, wait_for, write_file};
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Stdio;

pub(super) fn at_repo(world: &World, args: &[&str]) -> std::process::Command {
    let mut command = world.daemon.command(args);
    command.current_dir(&world.repo);
    command
}

/// Runs `quack say` with this input. Returns the exit code and stderr.
#[track_caller]
fn piped(world: &World, args: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = at_repo(world, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The messages of the last request, each as its role and its text.
#[track_caller]
pub(super) fn last_request(world: &World) -> Vec<String> {
    let request = world.model.requests().pop().expect("a request");
    let messages = request["body"]["messages"].as_array().expect("messages").clone();
    let shown = |message: &Value| {
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            other => other
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|it| it["text"].as_str())
                .collect(),
        };
        format!("{}: {text}", message["role"].as_str().unwrap_or_default())
    };
    messages
        .iter()
        .filter(|it| it["role"] != "system" && it["role"] != "developer")
        .map(shown)
        .collect()
}

#[test]
fn a_prompt_in_a_subdirectory_works_there_and_the_model_is_told() {
    let calls = json!([
        {"name": "bash", "arguments": {"command": "pwd"}},
        {"name": "read_file", "arguments": {"path": "here.txt"}},
        {"name": "grep", "arguments": {"pattern": "of the"}},
    ]);
    let turn = json!({"tool_calls": calls});
    let script = json!({"replies": [turn, {"text": "done"}, turn, {"text": "done"}, turn, {"text": "done"}]});
    let world = World::new(&script);
    let deep = world.repo.join("src/deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("here.txt"), "of the subdirectory\n").unwrap();
    std::fs::write(world.repo.join("here.txt"), "of the root\n").unwrap();
    let check = |directory: &std::path::Path, told: &str, is_below: bool| {
        let request = world.model.requests().pop().expect("a request");
        let system = request["body"]["messages"][0]["content"].to_string();
        assert_eq!(system.contains("subdirectory src/deep"), is_below, "{system}");
        let messages = last_request(&world).join("\n");
        let last = messages.rsplit_once("user:").unwrap().1;
        let pwd = format!("tool: {}\n\n[Exit code: 0]", directory.display());
        assert!(last.contains(&pwd) && last.contains(&format!("tool: {told}")), "{last}");
        assert!(last.contains(&format!("tool: here.txt:1:{told}")), "{last}");
    };
    let mut say = world.daemon.command(&["say", "look"]);
    assert!(say.current_dir(&deep).stdin(Stdio::null()).status().unwrap().success());
    check(&deep, "of the subdirectory", true);
    // The next prompt has its own directory.
    assert!(at_repo(&world, &["say", "look"]).stdin(Stdio::null()).status().unwrap().success());
    check(&world.repo, "of the root", false);
    let person = Terminal::start({
        let mut command = world.daemon.command(&[]);
        command.current_dir(&deep);
        command
    });
    person.see("> ");
    person.type_line("look");
    person.see("done");
    check(&deep, "of the subdirectory", true);
    // A directory outside of the workspace is refused before the model gets anything.
    let wire = world.daemon.wire();
    let outside = json!({"message": "look", "preferPi": true, "cwd": "/etc"});
    let error = wire.refused("say", outside);
    assert!(error.contains("cwd must be an absolute path in the workspace"), "{error}");
    assert_eq!(world.model.requests().len(), 6);
}

#[test]
fn an_editor_in_a_subdirectory_works_there_and_the_model_is_told() {
    let calls = json!([
        {"name": "bash", "arguments": {"command": "pwd; cat here.txt"}},
        {"name": "read_file", "arguments": {"path": "here.txt"}},
        {"name": "read_file", "arguments": {"path": "../../here.txt"}},
        {"name": "write_file", "arguments": {"path": "new.txt", "content": "new"}},
    ]);
    let world = World::new(&json!({}));
    let deep = world.repo.join("src/deep");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("here.txt"), "of the subdirectory\n").unwrap();
    std::fs::write(world.repo.join("here.txt"), "of the root\n").unwrap();
    let mut editor = crate::mcp::Agent::spawn(world.daemon.command(&["acp"]));
    let begin = |editor: &mut crate::mcp::Agent| {
        let init = json!({"protocolVersion": 1, "clientCapabilities": {}});
        editor.request("initialize", init);
    };
    begin(&mut editor);
    let new = editor.request("session/new", json!({"cwd": deep, "mcpServers": []}));
    let session = new["result"]["sessionId"].clone();
    // A prompt with an image takes another way.
    let image = json!({"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="});
    let text = json!({"type": "text", "text": "look"});
    let check = |editor: &mut crate::mcp::Agent, prompt: Value, is_below: bool| {
        world.model.script(&json!({"replies": [{"tool_calls": calls}, {"text": "done"}]}));
        let prompt = json!({"sessionId": session, "prompt": prompt});
        let done = editor.request("session/prompt", prompt);
        assert_eq!(done["result"]["stopReason"], "end_turn", "{done}");
        let request = world.model.requests().pop().expect("a request");
        let system = request["body"]["messages"][0]["content"].to_string();
        assert_eq!(system.contains("subdirectory src/deep"), is_below, "{system}");
        let messages = last_request(&world).join("\n");
        messages.rsplit_once("user:").expect("the prompt").1.to_owned()
    };
    let pwd = format!("tool: {}\nof the subdirectory\n\n[Exit code: 0]", deep.display());
    for prompt in [json!([text]), json!([text, image])] {
        let told = check(&mut editor, prompt, true);
        assert!(told.contains(&pwd) && told.contains("tool: of the subdirectory"), "{told}");
        assert!(told.contains("tool: of the root"), "{told}");
        std::fs::remove_file(deep.join("new.txt")).expect("the written file");
    }
    // The session of an editor that comes back has the directory that it names then.
    editor.leave();
    let mut editor = crate::mcp::Agent::spawn(world.daemon.command(&["acp"]));
    begin(&mut editor);
    let resume = json!({"sessionId": session, "cwd": world.repo, "mcpServers": []});
    let resumed = editor.request("session/resume", resume);
    assert!(resumed["error"].is_null(), "{resumed}");
    let told = check(&mut editor, json!([text]), false);
    let pwd = format!("tool: {}\nof the root\n\n[Exit code: 0]", world.repo.display());
    assert!(told.contains(&pwd), "{told}");
    std::fs::remove_file(world.repo.join("new.txt")).expect("the written file");
    editor.leave();
}

#[test]
fn ctrl_c_ends_the_turn_and_its_command_and_ctrl_d_leaves() {
    let calls = json!([{"name": "bash", "arguments": {"command": "sleep 1000"}}]);
    let world = World::new(&json!({"replies": [{"tool_calls": calls}], "on_exhausted": "echo"}));
    let person = Terminal::start(at_repo(&world, &[]));
    person.see("Ctrl+C=stop the turn");
    person.see("> ");
    let wire = world.follower();
    person.type_line("long work");
    person.see("sleep 1000");
    person.interrupt();
    wire.events_until("agent_settled");
    wait_for("the command to end", || {
        world.daemon.descendants().into_iter().all(|it| it.name != "sleep").then_some(())
    });
    person.type_line("what now");
    person.see("echo: what now");
    // The turn has ended, and the prompt knows it: its next reply comes after the event.
    wire.events_until("agent_settled");
    person.type_line("/cost");
    person.see("tokens in");
    // Nothing runs: Ctrl-C stops nothing, and does not leave.
    person.interrupt();
    person.see("Ctrl-D leaves");
    person.type_line("still here");
    person.see("echo: still here");
    person.ctrl_d();
    let (shown, code) = person.end();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn an_interrupted_and_a_failed_prompt_are_not_glued_to_the_next_one() {
    let script = json!({"replies": [{"text": "a long answer that hangs in its middle", "hang_after": 1}], "on_exhausted": "echo"});
    let world = World::new(&script);
    let mut command = at_repo(&world, &["say", "delete all files"]);
    let mut say = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("the request", || (!world.model.requests().is_empty()).then_some(()));
    let pid = nix::unistd::Pid::from_raw(i32::try_from(say.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(say.wait().unwrap().code(), Some(130));
    assert_eq!(piped(&world, &["say", "what time is it"], "").0, Some(0));
    let expected = [
        "user: delete all files",
        "assistant: [The user interrupted this turn.]",
        "user: what time is it",
    ];
    assert_eq!(last_request(&world), expected);

    world.model.script(&json!({"replies": [{"status": 401}], "on_exhausted": "echo"}));
    assert_eq!(piped(&world, &["say", "bad key"], "").0, Some(1));
    assert_eq!(piped(&world, &["say", "good key"], "").0, Some(0));
    let sent = last_request(&world);
    let expected = [
        "user: bad key",
        "assistant: [This turn has failed. The user saw the error.]",
        "user: good key",
    ];
    assert_eq!(sent.get(sent.len() - 3..).unwrap(), expected);
}

#[test]
fn what_comes_from_a_pipe_is_added_to_the_words() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    assert_eq!(piped(&world, &["say", "review", "this"], "+ a line\n").0, Some(0));
    assert_eq!(last_request(&world), ["user: review this\n\n+ a line"]);
    // An empty pipe adds nothing, and nothing at all is an error.
    assert_eq!(piped(&world, &["say", "again"], "").0, Some(0));
    assert_eq!(last_request(&world).pop().unwrap(), "user: again");
    assert_eq!(piped(&world, &["say"], "only piped").0, Some(0));
    assert_eq!(last_request(&world).pop().unwrap(), "user: only piped");
    assert_eq!(piped(&world, &["say", "-"], "by dash").0, Some(0));
    assert_eq!(last_request(&world).pop().unwrap(), "user: by dash");
    assert_eq!(piped(&world, &["say"], " \n").0, Some(2));

    // A pipe that stays open without data does not hold the prompt.
    let mut command = at_repo(&world, &["say", "open pipe"]);
    let mut say = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _open = say.stdin.take();
    let output = say.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("nothing came from stdin"));
}

#[test]
fn a_prompt_that_the_model_cannot_read_is_refused_and_does_not_block_the_next_one() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let (code, stderr) = piped(&world, &["say"], &"word ".repeat(140_000));
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("reads at most 128000") && stderr.contains("It was not sent"),
        "{stderr}"
    );
    assert!(world.model.requests().is_empty());
    assert_eq!(piped(&world, &["say", "small"], "").0, Some(0));
    assert_eq!(last_request(&world), ["user: small"]);
}

#[test]
fn instructions_of_the_user_and_down_to_the_directory_are_read_before_each_turn() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    let write = |path: std::path::PathBuf, text: &str| {
        write_file(path, text);
    };
    write(world.agent.join("AGENTS.md"), "OF-THE-USER");
    write(world.repo.join("AGENTS.md"), "OF-THE-ROOT @docs/style.md @../outside.md @~/of-home.md");
    write(world.repo.join("docs/style.md"), "IMPORTED");
    write(world.repo.join("sub/deep/AGENTS.md"), "OF-THE-DIRECTORY");
    write(world.repo.join("../outside.md"), "OUTSIDE");
    write(world.daemon.home().join("of-home.md"), "OF-THE-HOME");
    std::fs::write(world.agent.join("settings.json"), "{}").unwrap();
    world.configure("");
    world.boot(&[]);
    let system = |directory: &str| {
        let mut say = world.daemon.command(&["say", "hi"]);
        say.current_dir(world.repo.join(directory)).stdin(Stdio::null()).stdout(Stdio::null());
        assert!(say.status().unwrap().success());
        let request = world.model.requests().pop().unwrap();
        request["body"]["messages"][0]["content"].to_string()
    };
    let deep = system("sub/deep");
    let order = ["OF-THE-USER", "OF-THE-ROOT", "IMPORTED", "OF-THE-DIRECTORY"];
    let found: Vec<usize> = order.iter().map(|it| deep.find(it).expect(it)).collect();
    assert!(found.is_sorted(), "{deep}");
    assert!(!deep.contains("OUTSIDE") && !deep.contains("OF-THE-HOME"), "{deep}");
    write(world.repo.join("AGENTS.md"), "CHANGED");
    write(
        world.agent.join("AGENTS.md"),
        "NOW-OF-THE-USER @more/rules.md @../models.json @~/of-home.md",
    );
    write(world.agent.join("more/rules.md"), "MORE-OF-THE-USER");
    let root = system("");
    assert!(root.contains("CHANGED") && root.contains("NOW-OF-THE-USER"), "{root}");
    assert!(root.contains("MORE-OF-THE-USER") && !root.contains("sk-fake"), "{root}");
    assert!(root.contains("OF-THE-HOME"), "{root}");
    assert!(!root.contains("OF-THE-ROOT") && !root.contains("OF-THE-DIRECTORY"), "{root}");
    let state = at_repo(&world, &["state"]).output().unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    assert!(state.contains("AGENTS.md") && state.contains("agent/more/rules.md"), "{state}");
}

#[test]
fn the_model_knows_system_shell_branch_and_changes_and_no_program_of_the_repository_runs() {
    let world = World::new(&json!({"on_exhausted": "echo"}));
    let script = "rm -r .git && git init -q -b topic . && git config user.name n && git config user.email n@x \
        && echo 'touch ran-monitor' > monitor && chmod +x monitor && echo text > a.txt \
        && git add . && git commit -qm first && echo changed > a.txt && echo new > new.txt \
        && git config core.fsmonitor ./monitor && git config filter.own.clean './monitor; cat' \
        && git config filter.own.required true && echo '*.txt filter=own' > .git/info/attributes";
    let git = |script: &str| {
        let mut shell = world.daemon.program_for_tests("/bin/sh");
        shell.args(["-c", script]).current_dir(&world.repo);
        assert!(shell.status().unwrap().success());
    };
    git(script);
    let facts = || {
        assert!(at_repo(&world, &["say", "hi"]).stdin(Stdio::null()).status().unwrap().success());
        let request = world.model.requests().pop().unwrap();
        let system = request["body"]["messages"][0]["content"].as_str().unwrap().to_owned();
        system.split_once("\nFacts:\n").expect("facts").1.to_owned()
    };
    let first = facts();
    let shell = "The tool bash runs commands with bash.";
    assert!(first.contains("- The system is linux on ") && first.contains(shell), "{first}");
    let branch = "branch \"topic\", 1 changed and 1 untracked files. `git status`";
    assert!(first.contains(branch), "{first}");
    assert!(!world.repo.join("ran-monitor").exists(), "a program of the repository ran");
    // The prompt stays the same, so that the provider can cache it, until the branch changes.
    git("echo more > more.txt");
    assert_eq!(facts(), first);
    git("git branch other && git symbolic-ref HEAD refs/heads/other");
    let other = facts();
    assert!(other.contains("branch \"other\", "), "{other}");
    assert!(!world.repo.join("ran-monitor").exists(), "a program of the repository ran");
}
