//! Commands that the user runs in the session's shell. The model gets their results with the next prompt.

use super::agent::Shell;
use super::{Agent, Effect};
use crate::message::{BashExecution, Message};
use quackd_protocol::agent::{AgentToolCall, AgentToolDone};
use quackd_protocol::limits::MAX_ARGUMENTS_BYTES;
use quackd_protocol::tools;
use serde_json::json;

/// Maximum number of commands of the user that run at the same time.
const MAX_SHELLS: usize = 4;

/// Maximum number of commands of the user during one turn. Their results wait in memory for its
/// end.
const MAX_SHELLS_OF_TURN: usize = 64;

impl Agent {
    pub(super) fn shell(&mut self, number: u64, command: &str, cwd: &str, is_excluded: bool) {
        if command.trim().is_empty() {
            return self.refuse(number, "The command is empty");
        }

        if MAX_SHELLS <= self.shells.len() {
            return self.refuse(number, format!("At most {MAX_SHELLS} commands can run at once"));
        }

        let arguments = json!({ "command": command }).to_string();
        if MAX_ARGUMENTS_BYTES < arguments.len() {
            let length = arguments.len();
            let text = format!(
                "The command has {length} bytes, at most {MAX_ARGUMENTS_BYTES} are possible; put it into a file and run that"
            );
            return self.refuse(number, text);
        }

        if MAX_SHELLS_OF_TURN <= self.shell_messages.len() {
            let text = format!(
                "At most {MAX_SHELLS_OF_TURN} commands can run during a turn; wait for its end"
            );
            return self.refuse(number, text);
        }

        let call = self.next_call();
        let command = command.to_owned();
        self.effects.push(Effect::Call(Box::new(AgentToolCall {
            number: call,
            tool: tools::BASH.name.to_owned(),
            arguments,
            shown_tool: String::new(),
            tool_call_id: String::new(),
            cwd: cwd.to_owned(),
        })));
        self.shells.push(Shell { number, call, command, is_excluded });
    }

    pub(super) fn abort_shells(&mut self, number: u64) {
        for shell in &self.shells {
            self.effects.push(Effect::CancelCall { number: shell.call });
        }
        self.done(number);
    }

    /// Takes the result of a command of the user.
    pub(super) fn on_shell_done(&mut self, done: &AgentToolDone) {
        let Some(at) = self.shells.iter().position(|shell| shell.call == done.number) else {
            return;
        };
        let shell = self.shells.remove(at);

        let text: String = serde_json::from_str(done.text.get()).unwrap_or_default();
        let output = match done.exit_code {
            Some(code) => {
                // A client shows the code itself.
                let end = format!("\n[Exit code: {code}]");
                text.strip_suffix(&end).map(str::to_owned).unwrap_or(text)
            }
            None => text,
        };

        let mut data = json!({
            "output": output, "exitCode": done.exit_code, "cancelled": done.aborted,
            "truncated": done.truncated, "fullOutputPath": done.full_output_path,
        });
        if let Some(data) = data.as_object_mut() {
            data.retain(|_, value| !value.is_null());
        }

        let message = Message::BashExecution(BashExecution {
            command: shell.command,
            output,
            exit_code: done.exit_code,
            cancelled: done.aborted,
            truncated: done.truncated,
            full_output_path: done.full_output_path.clone(),
            exclude_from_context: shell.is_excluded.then_some(true),
            timestamp: self.now.unix_ms,
        });
        // No other message may be between a call and its result.
        if self.run.is_some() {
            self.shell_messages.push(message);
        } else {
            self.record(message);
        }
        self.answer(shell.number, Some(&data));
    }
}
