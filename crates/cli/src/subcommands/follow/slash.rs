//! The commands of the prompt: `/name` and `!command`. Used by [`super::session_view`], which runs them.

use crate::display;
use serde_json::{Value, json};

/// A command that begins with a slash.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: &'static str,
    /// Argument; empty without one.
    argument: &'static str,
    about: &'static str,
}

const fn command(name: &'static str, argument: &'static str, about: &'static str) -> Command {
    Command { name, argument, about }
}

/// All commands, in the order of `/help`.
pub(super) const COMMANDS: [Command; 12] = [
    command("help", "", "list the commands and keys"),
    command("new", "", "begin another session of this directory, with an empty conversation"),
    command("model", "[PROVIDER/NAME]", "list the models, or use this one from now on"),
    command("thinking", "[LEVEL]", "list the thinking levels, or use this one from now on"),
    command("compact", "", "summarize the conversation to make room"),
    command("fork", "", "copy the conversation to a session of its own"),
    command("undo", "", "take back what the last turn changed in files"),
    command("diff", "", "show what differs from the last commit"),
    command("sessions", "", "list the sessions"),
    command("allow", "HOST", "let this session connect to a host"),
    command("cost", "", "show tokens and cost of this session"),
    command("quit", "", "leave"),
];

/// Keys of the prompt, for `/help`.
const KEYS: [(&str, &str); 8] = [
    ("Enter", "send; during a turn, the agent reads it before its next step"),
    ("Shift/Alt-Enter, \\ Enter", "a new line"),
    ("Esc, Ctrl-C", "abort the turn; the text stays"),
    ("Ctrl-D, Ctrl-C twice", "leave"),
    ("Up, Down, Ctrl-R", "earlier prompts of this directory, and search in them"),
    ("Tab", "complete a /command or an @file"),
    ("Ctrl-A -E -W -K -U -Y", "edit the line as in a shell"),
    ("!COMMAND", "run a command in the session"),
];

/// A line of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    /// A prompt for the agent: every line that is not a command.
    Prompt(String),
    /// A command for the session's shell.
    Shell(String),
    /// A command of the agent, and what its answer is about.
    Agent(Value, AgentRequest),
    /// A subcommand of `quack`, with its arguments.
    Verb(Vec<String>),
    /// Another session of the workspace.
    New,
    Help,
    Quit,
    /// The line is not valid.
    Wrong(String),
}

/// Purpose of a command to the agent, which decides what its reply is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentRequest {
    Thinking,
    Levels,
    Compact,
    Cost,
}

impl Line {
    /// Reads a line that is not empty. `session`: the id for the subcommands.
    pub(super) fn read(line: &str, session: &str) -> Self {
        if let Some(command) = line.strip_prefix('!') {
            return match command.trim() {
                "" => Self::Wrong("which command? for example !git status".to_owned()),
                command => Self::Shell(command.to_owned()),
            };
        }

        // A path is no command.
        let name = line.strip_prefix('/').and_then(|rest| rest.split(char::is_whitespace).next());
        let is_name =
            |name: &&str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase());
        let Some(name) = name.filter(is_name) else {
            return Self::Prompt(line.to_owned());
        };
        let Some(known) = COMMANDS.iter().find(|known| known.name == name) else {
            let text = format!("there is no /{name}; /help lists the commands");
            return Self::Wrong(text);
        };

        let rest = line.get(1 + name.len()..).unwrap_or_default().trim();
        match (known.argument, rest) {
            ("", "") => {}
            ("", _) => return Self::Wrong(format!("/{name} takes nothing after it")),
            (argument, "") if !argument.starts_with('[') => {
                return Self::Wrong(format!("/{name} needs {argument}"));
            }
            // An option would change what the subcommand does.
            (_, rest) if rest.contains(char::is_whitespace) || rest.starts_with('-') => {
                return Self::Wrong(format!("/{name} takes one {}", known.argument));
            }
            _ => {}
        }

        let verb =
            |words: &[&str]| Self::Verb(words.iter().map(|word| (*word).to_owned()).collect());
        match (name, rest) {
            ("help", _) => Self::Help,
            ("quit", _) => Self::Quit,
            ("new", _) => Self::New,
            ("model", "") => verb(&["models"]),
            // Also for models that no list has, and for the next process of the agent.
            ("model", model) => verb(&["models", "use", "--session", session, model]),
            ("thinking", "") => {
                Self::Agent(json!({"type": "get_available_thinking_levels"}), AgentRequest::Levels)
            }
            ("thinking", level) => {
                let command = json!({"type": "set_thinking_level", "level": level});
                Self::Agent(command, AgentRequest::Thinking)
            }
            ("compact", _) => Self::Agent(json!({"type": "compact"}), AgentRequest::Compact),
            ("cost", _) => Self::Agent(json!({"type": "get_session_stats"}), AgentRequest::Cost),
            ("fork", _) => verb(&["fork", "--session", session]),
            ("undo", _) => verb(&["undo", "--turn", "--session", session]),
            ("sessions", _) => verb(&["sessions"]),
            ("allow", host) => verb(&["sandbox", "allow", "--session", session, host]),
            // The output of a pager would wait for keys.
            _ => Self::Shell("git --no-pager diff HEAD".to_owned()),
        }
    }
}

/// Returns the rows of `/help`.
pub(super) fn help() -> Vec<String> {
    let commands = COMMANDS.iter().map(|command| {
        let name = format!("/{} {}", command.name, command.argument);
        format!("  {name:<24} {}", command.about)
    });
    let keys = KEYS.iter().map(|(keys, about)| format!("  {keys:<24} {about}"));
    commands.chain(keys).collect()
}

/// Returns the remark about the reply to an agent's command.
pub(super) fn reply_text(purpose: AgentRequest, data: &Value) -> String {
    let field = |key: &str| data.get(key).unwrap_or(&Value::Null);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();

    match purpose {
        AgentRequest::Thinking => "the thinking level is set".to_owned(),
        AgentRequest::Levels => {
            let levels = field("levels").as_array().into_iter().flatten().map(text);
            format!("thinking levels: {}", levels.collect::<Vec<_>>().join(", "))
        }
        AgentRequest::Compact => "the conversation was summarized".to_owned(),
        AgentRequest::Cost => {
            let tokens = |key: &str| field("tokens").get(key).and_then(Value::as_u64).unwrap_or(0);
            let cost = display::cost_of(data);
            let (input, output) = (tokens("input"), tokens("output"));
            let cached = tokens("cacheRead");
            format!("{input} tokens in, {cached} from the cache, {output} out: {cost}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prompts_commands_or_wrong() {
        let read = |line: &str| Line::read(line, "s");
        let verb = |words: &str| Line::Verb(words.split(' ').map(str::to_owned).collect());
        for text in ["fix it", "/etc/hosts is wrong", "/ what", "a !b", "//x"] {
            assert_eq!(read(text), Line::Prompt(text.to_owned()));
        }
        assert_eq!(read("! git status "), Line::Shell("git status".to_owned()));
        assert_eq!(read("/undo"), verb("undo --turn --session s"));
        assert_eq!(read("/allow npm.example"), verb("sandbox allow --session s npm.example"));
        assert_eq!(read("/model a/b/c"), verb("models use --session s a/b/c"));
        for wrong in ["/nosuch", "/allow", "/allow --workspace", "/quit now", "!", "/model a b"] {
            assert!(matches!(read(wrong), Line::Wrong(_)), "{wrong}");
        }
        for known in &COMMANDS {
            let line =
                format!("/{} {}", known.name, if known.argument.is_empty() { "" } else { "x" });
            let read = read(line.trim());
            assert!(!matches!(read, Line::Wrong(_) | Line::Prompt(_)), "{line}");
        }
    }
}
