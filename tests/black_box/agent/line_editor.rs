//! The prompt of `quack` on a terminal: keys, pastes, earlier prompts, prompts during a turn, questions in its place, and
//! what is shown.

use super::World;
use super::prompt::{at_repo, last_request};
use crate::harness::tier;
use crate::harness::{Terminal, wait_for};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

const RETURN: &str = "\r";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const ESC: &str = "\x1b";
const UP: &str = "\x1b[A";

/// Starts `quack` in the world's repository, on a terminal of 80 columns and 24 rows.
fn person(world: &World) -> Terminal {
    let person = Terminal::sized(at_repo(world, &[]), Some((80, 24)));
    person.stands("> ");
    person
}

fn echoing() -> World {
    World::new(&json!({"on_exhausted": "echo"}))
}

fn pasted(text: &str) -> String {
    format!("\x1b[200~{text}\x1b[201~")
}

/// Waits for this number of requests. Returns the last message of the last one.
#[track_caller]
fn sent(world: &World, count: usize) -> String {
    wait_for("the request", || (count <= world.model.requests().len()).then_some(()));
    assert_eq!(world.model.requests().len(), count);
    last_request(world).pop().unwrap()
}

#[test]
fn a_paste_is_one_prompt_and_keys_edit_it() {
    let world = echoing();
    let person = person(&world);
    let lines = "a pasted line\r".repeat(1001);
    person.press(&pasted(&lines));
    person.stands("> [1,001 lines pasted]");
    person.press(" explain this");
    person.stands("pasted] explain this");
    person.press(RETURN);
    let text = sent(&world, 1);
    assert_eq!(text.matches("a pasted line").count(), 1001);
    assert!(text.ends_with(" explain this"));

    // Left, word keys, the ends of the line, and a new line.
    person.press("fix the bgu\x7f\x7fug\x01please \x05\x1b\rnow\x17then");
    person.stands("  then");
    person.press(RETURN);
    assert_eq!(sent(&world, 2), "user: please fix the bug\nthen");

    // Keys of a terminal that tells them apart, here with a Cyrillic layout for Ctrl-A.
    person.press("now\x1b[13;2uthen\x1b[1092::97;5uand ");
    person.stands("  and then");
    person.press(RETURN);
    assert_eq!(sent(&world, 3), "user: now\nand then");

    // A long line, which a terminal in its usual mode would cut at 4,095 bytes.
    let long = format!("{}END", "y".repeat(9000));
    person.press(&long);
    person.stands("END");
    person.press(RETURN);
    assert_eq!(sent(&world, 4), format!("user: {long}"));
    // A paste that the terminal does not mark arrives at once, with several returns.
    person.press("one\rtwo\rthree");
    person.stands("  three");
    person.press(RETURN);
    assert_eq!(sent(&world, 5), "user: one\ntwo\nthree");
    person.press(CTRL_D);
    assert_eq!(person.end().1, Some(0));
}

#[test]
fn what_the_person_cannot_see_is_not_sent() {
    let world = echoing();
    let person = person(&world);
    person.press(&pasted("a\x1b[31mb\u{7}\u{202e}c\u{e0041}d"));
    person.stands("control and invisible characters were left out");
    // Keys without a meaning add nothing.
    person.press("\x1b[24~\x1bOP\x07\x1b[5;5~e");
    person.stands("> a[31mbcde");
    person.press(RETURN);
    assert_eq!(sent(&world, 1), "user: a[31mbcde");
    person.press(RETURN);
    person.press("  \r");
    person.press("last\r");
    assert_eq!(sent(&world, 2), "user: last", "nothing is no prompt");
}

#[test]
fn an_answer_of_the_terminal_is_no_text_of_the_prompt() {
    let world = echoing();
    let person = person(&world);
    let answers = [
        "\x1b[?62;22c",
        "\x1b[>0;276;0c",
        "\x1b[?2004;1$y",
        "\x1b[?0u",
        "\x1b[24;80R",
        "\x1b[0;0R",
        "\x1b[0n",
        "\x1b]11;rgb:1e1e/1e1e/2e2e\x07",
        "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
        "\x1bP>|XTerm(388)\x1b\\",
        "\x1bP1+r544e=787465726d\x1b\\",
        "\x1b_Gi=31;OK\x1b\\",
        "\x1b[I",
        "\x1b[8;24;80t",
    ];
    for (n, answer) in answers.iter().enumerate() {
        person.press("w");
        // In two pieces, which the program may read one after the other.
        let (one, other) = answer.split_at(1 + n % (answer.len() - 1));
        person.press(one);
        person.press(other);
        person.press("x");
        person.stands(&format!("> {}", "wx".repeat(n + 1)));
    }
    person.press(&answers.concat());
    // Keys still are keys.
    person.press("y\x1b[Dz\x1b[F!");
    let text = format!("{}zy!", "wx".repeat(answers.len()));
    person.stands(&format!("> {text}\n"));
    person.press(RETURN);
    assert_eq!(sent(&world, 1), format!("user: {text}"));
    // Within a turn, no answer is Esc, which would abort it.
    person.stands("\n> \n");
}

#[test]
fn earlier_prompts_of_the_directory_come_back_in_another_session() {
    let world = echoing();
    {
        let person = person(&world);
        for (n, text) in ["build the tool", "test the tool"].iter().enumerate() {
            person.press(text);
            person.stands(text);
            person.press(RETURN);
            sent(&world, n + 1);
            person.stands("\n> \n");
        }
        person.press("two\\");
        person.stands("> two\\");
        person.press(RETURN);
        person.stands_no_more("> two\\");
        person.press("lines");
        person.stands("  lines");
        person.press(RETURN);
        sent(&world, 3);
        person.stands("\n> \n");
        person.press(CTRL_D);
        assert_eq!(person.end().1, Some(0));
    }
    let mut files = std::fs::read_dir(world.daemon.app().join("prompts")).unwrap();
    let file = files.next().unwrap().unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    assert!(
        at_repo(&world, &["new"]).stdout(std::process::Stdio::null()).status().unwrap().success()
    );
    let person = person(&world);
    person.press(UP);
    person.stands("> two\n  lines");
    // Within the prompt the key moves; at its first line it goes on to an older prompt.
    person.press(UP);
    person.press(UP);
    person.stands("> test the tool");
    person.press("\x12build");
    person.stands("(search) build: build the tool");
    person.press(RETURN);
    person.stands("> build the tool");
    person.press(" again\r");
    assert_eq!(sent(&world, 4), "user: build the tool again");
}

/// A world whose first turn runs a command that waits for the gate `go`.
fn waiting(more: &Value) -> World {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    let command = world.daemon.gated("go", "echo gone");
    let calls = json!([{"name": "bash", "arguments": {"command": command}}]);
    world.model.script(&json!({"replies": [{"tool_calls": calls}, more], "on_exhausted": "echo"}));
    std::fs::write(world.agent.join("settings.json"), "{}").unwrap();
    world.configure("");
    world.boot(&[]);
    world
}

#[test]
fn return_during_a_turn_sends_the_text_to_that_turn() {
    let world = waiting(&json!({"text": "I have read both"}));
    let person = person(&world);
    person.press("begin\r");
    person.stands("[tool] bash");
    person.press("and also this\r");
    person.stands("queued: and also this");
    person.press("half a thought");
    person.stands("> half a thought");
    world.daemon.open_gate("go");
    person.stands("I have read both");
    person.stands_no_more("queued:");
    // The text that was not sent is still in the line.
    person.stands("> half a thought");
    let messages = last_request(&world);
    assert!(messages.ends_with(&["user: and also this".to_owned()]), "{messages:?}");
    assert_eq!(messages.iter().filter(|it| it.starts_with("user:")).count(), 2);
}

#[test]
fn esc_aborts_the_turn_and_the_text_stays() {
    for key in [ESC, CTRL_C] {
        let world = waiting(&json!({"text": "never"}));
        let person = person(&world);
        person.press("begin\r");
        person.stands("[tool] bash");
        person.press("queued one\r");
        person.stands("queued: queued one");
        person.press("half");
        person.stands("> half");
        person.press(key);
        person.stands_no_more("Esc aborts");
        // The prompt that the agent had not read is back in the line.
        person.stands("> queued one\n  half");
        person.press(RETURN);
        assert_eq!(sent(&world, 2), "user: queued one\nhalf");
    }
}

#[test]
fn ctrl_c_twice_leaves_and_the_terminal_is_as_before() {
    let world = echoing();
    let mut command = at_repo(&world, &[]);
    // Ctrl-Z suspends the process group.
    command.process_group(0);
    let person = Terminal::sized(command, Some((80, 24)));
    person.stands("> ");
    person.press("a text");
    person.stands("> a text");
    person.press(CTRL_C);
    person.stands_no_more("a text");
    person.press("other");
    person.stands("> other");
    assert!(!person.is_cooked());
    // Suspended, the terminal belongs to the shell.
    person.press("\x1a");
    wait_for("the program to stop", || person.is_stopped().then_some(()));
    assert!(person.is_cooked());
    person.signal(Signal::SIGCONT);
    person.press("!");
    person.stands("> other!");
    person.press(CTRL_C);
    person.stands_no_more("other!");
    person.press(CTRL_C);
    let (shown, code) = person.end();
    assert_eq!(code, Some(0), "{shown}");
}

#[test]
fn a_question_takes_no_key_that_was_pressed_before_it_was_visible() {
    let mut world = World::absent(&json!({"on_exhausted": "echo"}));
    let connect = "curl -sS -m 60 http://asked.example/ || echo refused";
    let command = world.daemon.gated("go", connect);
    let calls = json!([{"name": "bash", "arguments": {"command": command}}]);
    world.model.script(&json!({"replies": [{"tool_calls": calls}], "on_exhausted": "echo"}));
    std::fs::write(world.agent.join("settings.json"), "{}").unwrap();
    // In the tier of macOS nothing sees what is refused by default.
    let hosts = "[sandbox]\nnetwork = \"hosts\"\n";
    world.configure(if tier::is_macos() { hosts } else { "" });
    world.boot(&[]);
    let person = person(&world);
    person.press("connect\r");
    person.stands("[tool] bash");
    person.press("2");
    person.stands("> 2");
    world.daemon.open_gate("go");
    person.stands("Allow network access? connects to asked.example:80");
    person.stands("asked.example:80 [number, Enter denies] ");
    person.press("5\r");
    person.stands("Always allow? Type asked.example to confirm, Enter denies: ");
    person.press("5\r");
    person.stands("nothing was allowed");
    person.press("1\r");
    person.stands("-- Deny: asked.example:80 --");
    // The text of the prompt was not touched.
    person.stands("> 2\n");
    let grants = at_repo(&world, &["sandbox", "show", "--json"]).output().unwrap();
    let grants = String::from_utf8(grants.stdout).unwrap();
    assert!(!grants.contains("asked.example"), "{grants}");
}

#[test]
fn commands_of_the_prompt_do_what_the_subcommands_do() {
    let world = echoing();
    let person = person(&world);
    person.press("hello\r");
    sent(&world, 1);
    person.stands("echo: hello");
    for (line, shown) in [
        ("/help", "list the commands and keys"),
        ("!echo from-the-shell; exit 3", "exit code 3"),
        ("/cost", "tokens in"),
        ("/model fake/fake-2", " uses fake/fake-2 from now on"),
        ("/model", "fake-1"),
        ("/thinking", "thinking levels: off"),
        ("/sessions", "SESSION"),
        ("/undo", "No turn of the agent changed"),
        ("/allow docs.example", "docs.example"),
        ("/nosuch", "there is no /nosuch; /help lists the commands"),
        ("/allow", "/allow needs HOST"),
        ("/fork", "repo/2"),
        ("/new", "this is the new session repo/"),
    ] {
        person.press("\x0c");
        person.press(line);
        person.stands(&format!("> {line}"));
        person.press(RETURN);
        person.stands(shown);
        person.stands("\n> \n");
    }
    person.press("/etc/hosts is a path\r");
    assert_eq!(sent(&world, 2), "user: /etc/hosts is a path");
    assert_eq!(last_request(&world).len(), 1, "the new session has its own conversation");
    assert_eq!(world.model.requests()[1]["body"]["model"], "fake-1");
    person.press("/qu\t\r");
    assert_eq!(person.end().1, Some(0));
}

#[test]
fn answers_are_rendered_edits_are_diffs_and_the_last_row_has_the_state() {
    let text = "# Title\n\nA **bold** word.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nls\n```\n";
    let calls = json!([{"name": "write_file", "arguments": {"path": "n.txt", "content": "one\ntwo\n"}},
        {"name": "edit_file", "arguments": {"path": "n.txt", "old_text": "two", "new_text": "2"}},
        {"name": "bash", "arguments": {"command": "seq 100 140"}}]);
    let world = World::new(&json!({"replies": [{"tool_calls": calls}, {"text": text}]}));
    let mut command = at_repo(&world, &[]);
    command.env("NO_COLOR", "1");
    let person = Terminal::sized(command, Some((80, 60)));
    person.stands("> ");
    person.press("work\r");
    person.stands("    ls\n");
    person.stands_no_more("Esc aborts");
    person.stands("fake-1 · ");
    let shown = person.text();
    for part in [
        "> work\n",
        "[tool] write_file n.txt [",
        "  2 lines\n",
        "   1 one\n  -2 two\n  +2 2\n",
        "[tool] bash seq 100 140 [",
        "  103\n  … 31 more lines; ",
        "  140\n",
        "\nTitle\n\nA bold word.\n\na │ b\n──┼──\n1 │ 2\n",
        "fake-1 · ",
        "% of 128k · $0.0",
        "network: ",
    ] {
        assert!(shown.contains(part), "no {part:?} in\n{shown}");
    }
    assert!(!person.raw().contains("\x1b[1m"), "NO_COLOR");
    // Without a terminal, the text is as the model wrote it.
    world.model.script(&json!({"replies": [{"text": text}]}));
    let output = |args: &[&str]| {
        let output = at_repo(&world, args).stdin(std::process::Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(output(&["say", "again"]), text);
    // The history looks like the turn did.
    let (history, code) = Terminal::sized(at_repo(&world, &["history"]), Some((80, 60))).end();
    assert_eq!(code, Some(0), "{history}");
    for part in [
        " --\n> work\n",
        "[tool] write_file n.txt\n  2 lines\n",
        "[tool] edit_file n.txt\n   1 one\n  -2 two\n  +2 2\n",
        "  103\n  … 33 more lines; ",
        "\nTitle\n\nA bold word.\n\na │ b\n──┼──\n1 │ 2\n",
        "\n> again\n",
        "\n\n8 messages, ",
    ] {
        assert!(history.contains(part), "no {part:?} in\n{history}");
    }
    let list = output(&["history"]);
    assert!(list.starts_with("TIME ") && !list.contains("bold word"), "{list}");
    let page = output(&["export", "--html"]);
    for part in [
        "<h3>Title</h3>\n<p>A <strong>bold</strong> word.</p>\n<table>\n",
        "<summary>bash seq 100 140</summary>",
        "<summary>edit_file n.txt</summary>\n<pre class=\"diff\">\n<del>- two</del>\n<ins>+ 2</ins>\n</pre>",
    ] {
        assert!(page.contains(part), "no {part:?} in\n{page}");
    }
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_has_a_plain_prompt() {
    let world = echoing();
    let mut command = at_repo(&world, &[]);
    command.env("TERM", "dumb");
    let person = Terminal::start(command);
    person.see("> ");
    assert!(person.is_cooked());
    person.type_line("hello");
    person.see("echo: hello");
    person.type_line("/cost");
    person.see("tokens in");
    assert!(!person.raw().contains('\x1b'));
    person.ctrl_d();
    assert_eq!(person.end().1, Some(0));
}
