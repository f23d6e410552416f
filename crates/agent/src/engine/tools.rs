//! The tool calls of one answer: which ones run at the same time, and what their results mean for the run.

use super::call_batch::{Batch, CallState, Slot};
use super::loops::Loop;
use super::routes::{ToolRoute, route};
use super::run_state::Phase;
use super::{Agent, Effect, results};
use crate::message::{AssistantMessage, Block, Message, ToolCall, ToolResultMessage};
use quackd_protocol::agent::{AgentToolCall, AgentToolDone, EventName};
use quackd_protocol::limits::{MAX_ARGUMENTS_BYTES, MAX_CALLS_PER_SESSION, MAX_TOOL_NAME_BYTES};
use quackd_protocol::output::with_signal;
use quackd_protocol::tools::{self, READ_FILE};
use serde_json::{Map, Value, json};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Maximum number of calls in one answer. Further calls get an error.
const MAX_CALLS: usize = 64;

/// Maximum number of calls of one answer that run at the same time. Commands of the user and the
/// calls before the first request also count for the supervisor's limit of a session.
const MAX_RUNNING: usize = 24;
const _: () = assert!(MAX_RUNNING < MAX_CALLS_PER_SESSION);

/// The result of a call of a tool that does not exist.
fn not_found(name: &str, known: &str) -> String {
    let name: String = name.chars().take(MAX_TOOL_NAME_BYTES).collect();
    format!("Tool {name} not found. The tools are: {known}")
}

/// Returns a hash of a result and of its place in the answer.
fn hash_of(index: usize, done: &AgentToolDone) -> u64 {
    let mut hasher = DefaultHasher::new();
    (index, done.text.get()).hash(&mut hasher);
    hasher.finish()
}

impl Agent {
    /// Starts the calls of an answer.
    pub(super) fn run_calls(&mut self, message: AssistantMessage, calls: Vec<ToolCall>) {
        let watched = self.watch_loop(&calls);
        let hint = match watched {
            Loop::Tell(n) => Some(format!(
                "[The same call was made {n} times in a row with the same arguments. Try something else, or ask the user.]"
            )),
            Loop::No | Loop::End => None,
        };

        let (servers, options) = (&self.servers, &self.setup.options);
        let of_server = |call: &ToolCall| {
            let arguments = servers.route(&call.name, &call.arguments)?;
            Some(ToolRoute { tool: tools::MCP_CALL, arguments, writes: None })
        };
        let slots = calls.into_iter().map(|call| Slot {
            // A tool that is not offered does not run either.
            route: of_server(&call).or_else(|| {
                let route = route(&call.name, &call.arguments)?;
                options.permits_call(&call.name, route.tool).then_some(route)
            }),
            call,
            state: CallState::New,
            result: None,
        });

        let slots = slots.collect();
        let is_last = watched == Loop::End;
        self.set_phase(Phase::Calling(Box::new(Batch {
            message,
            slots,
            hint,
            results: 0,
            is_last,
        })));
        self.start_calls();
    }

    /// Returns the names of the tools that the model was given, for an error text.
    fn tool_names(&self) -> String {
        let names = self.setup.tools.iter().map(|tool| tool.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    /// Starts every call that may run now.
    fn start_calls(&mut self) {
        let is_parallel = self.setup.settings.parallel_tools;
        let is_aborted = self.run.as_ref().is_some_and(|run| run.is_aborted);
        let mut index = 0;
        loop {
            let Some(Phase::Calling(batch)) = self.run.as_ref().map(|run| &run.phase) else {
                return;
            };
            let Some(slot) = batch.slots.get(index) else { break };

            let earlier = batch.slots.get(..index).unwrap_or_default();
            let is_done = |slot: &Slot| slot.state == CallState::Done;
            let is_running = |slot: &&Slot| matches!(slot.state, CallState::Running(_));
            // After an abort every call must end, so the limit does not hold the rest back: they
            // end without running.
            let is_full = MAX_RUNNING <= batch.slots.iter().filter(is_running).count();
            let must_wait = match &slot.route {
                _ if !is_parallel => !earlier.iter().all(is_done),
                _ if is_full && !is_aborted => true,
                // Two writers of a file must run in the order of the answer.
                Some(ToolRoute { writes: Some(path), .. }) => earlier.iter().any(|earlier| {
                    let same = earlier.route.as_ref().and_then(|route| route.writes.as_ref());
                    !is_done(earlier) && same == Some(path)
                }),
                _ => false,
            };

            let state = slot.state;
            if state == CallState::New && (is_parallel || !must_wait) {
                let call = slot.call.clone();
                self.tool_start(&call);
            }

            match state {
                CallState::New | CallState::Queued if !must_wait => {
                    self.start_call(index, is_aborted);
                }
                CallState::New if is_parallel => self.set_state(index, CallState::Queued),
                CallState::New => break,
                _ => {}
            }
            index += 1;
        }
        self.finish_calls();
    }

    fn slot(&mut self, index: usize) -> Option<&mut Slot> {
        match self.run.as_mut().map(|run| &mut run.phase) {
            Some(Phase::Calling(batch)) => batch.slots.get_mut(index),
            _ => None,
        }
    }

    fn set_state(&mut self, index: usize, state: CallState) {
        if let Some(slot) = self.slot(index) {
            slot.state = state;
        }
    }

    fn start_call(&mut self, index: usize, is_aborted: bool) {
        let number = self.last_call + 1;
        let is_last = matches!(
            self.run.as_ref().map(|run| &run.phase),
            Some(Phase::Calling(batch)) if batch.is_last
        );

        let is_unknown = self.slot(index).is_some_and(|slot| slot.route.is_none());
        let known = if is_unknown { self.tool_names() } else { String::new() };
        let most = results::file_bytes(self.model.context_window);

        // A result above the window's share would be cut afterwards, so the tool reads less.
        let Some(slot) = self.slot(index) else { return };
        if let Some(route) = slot.route.as_mut().filter(|route| route.tool == READ_FILE.name) {
            let given = route.arguments.get("max_bytes").and_then(Value::as_u64);
            route.arguments.insert("max_bytes".to_owned(), given.unwrap_or(most).min(most).into());
        }

        let given = slot.route.as_ref().map(|route| json!(route.arguments).to_string());
        let problem = match (&slot.route, &slot.call.invalid) {
            _ if is_aborted => Some("Operation aborted".to_owned()),
            _ if is_last => Some("Not run: the model repeats the same call".to_owned()),
            _ if MAX_CALLS <= index => {
                Some(format!("Not run: at most {MAX_CALLS} calls in one answer"))
            }
            (_, Some(why)) => {
                Some(format!("Not run: the arguments of {} are invalid: {why}", slot.call.name))
            }
            (None, None) => Some(not_found(&slot.call.name, &known)),
            (Some(_), None) => {
                let length = given.as_ref().map_or(0, String::len);
                (MAX_ARGUMENTS_BYTES < length).then(|| {
                    format!(
                        "Not run: the arguments have {length} bytes, more than {MAX_ARGUMENTS_BYTES}"
                    )
                })
            }
        };

        if let Some(text) = problem {
            return self.call_ended(index, vec![Block::text(text)], None, true, None, None);
        }

        let (Some(route), Some(arguments)) = (&slot.route, given) else { return };
        let (tool, tool_call_id) = (route.tool.to_owned(), slot.call.id.clone());

        // The supervisor refuses a longer name.
        let mut shown_tool = slot.call.name.clone();
        shown_tool.truncate(shown_tool.floor_char_boundary(MAX_TOOL_NAME_BYTES));

        slot.state = CallState::Running(number);
        self.last_call = number;
        self.effects.push(Effect::Call(Box::new(AgentToolCall {
            number,
            tool,
            arguments,
            shown_tool,
            tool_call_id,
            cwd: self.directory.clone(),
        })));
    }

    fn call_ended(
        &mut self,
        index: usize,
        content: Vec<Block>,
        details: Option<Value>,
        is_error: bool,
        exit_code: Option<i32>,
        duration_ms: Option<u64>,
    ) {
        let timestamp = self.now.unix_ms;
        let Some(slot) = self.slot(index) else { return };
        let result = ToolResultMessage {
            tool_call_id: slot.call.id.clone(),
            tool_name: slot.call.name.clone(),
            content,
            details,
            is_error,
            timestamp,
        };

        slot.state = CallState::Done;
        slot.result = Some(result.clone());
        self.tool_end(&result, exit_code, duration_ms);

        // Otherwise the results follow in the order of the calls, once all have ended.
        if !self.setup.settings.parallel_tools {
            self.add_message(Message::ToolResult(result));
        }
    }

    /// Takes the result of a call.
    pub(super) fn on_tool_done(&mut self, done: AgentToolDone) {
        let number = done.number;
        if self.on_loaded(&done) {
            return;
        }

        let window = self.model.context_window;
        if let Some(Phase::Calling(batch)) = self.run.as_mut().map(|run| &mut run.phase) {
            let runs_call = |slot: &Slot| slot.state == CallState::Running(number);
            if let Some(index) = batch.slots.iter().position(runs_call) {
                batch.results ^= hash_of(index, &done);
                let hint = batch.hint.clone();
                let route = batch.slots.get(index).and_then(|slot| slot.route.as_ref());
                let (content, details) = result_of(&done, route, window, hint);
                let (exit_code, duration_ms) = (done.exit_code, Some(done.duration_ms));
                self.call_ended(index, content, details, done.is_error, exit_code, duration_ms);
                return self.start_calls();
            }
        }

        // No call of the run, so it is a command of the user.
        self.on_shell_done(&done);
    }

    /// Continues once every call has a result.
    fn finish_calls(&mut self) {
        let Some(run) = &mut self.run else { return };
        let Phase::Calling(batch) = &run.phase else { return };
        if !batch.slots.iter().all(|slot| slot.state == CallState::Done) {
            return;
        }
        let Phase::Calling(batch) = std::mem::replace(&mut run.phase, Phase::Waiting) else {
            return;
        };

        let Batch { message, slots, is_last, results, .. } = *batch;
        self.watch_results(results);
        // The run may have changed above, so it is borrowed again.
        let Some(run) = &mut self.run else { return };
        let is_aborted = run.is_aborted;

        let results = slots.into_iter().filter_map(|slot| slot.result).map(Message::ToolResult);
        let results: Vec<_> = results.collect();
        if self.setup.settings.parallel_tools {
            results.iter().for_each(|result| self.add_message(result.clone()));
        }

        self.turn_end(&message, &results);
        if is_aborted {
            self.plain_event(EventName::TurnStart);
            self.end_aborted();
        } else if is_last {
            self.plain_event(EventName::TurnStart);
            self.end_with_error(
                "Stopped: the model repeated the same call without another result".to_owned(),
            );
        } else {
            self.next_turn(true);
        }
    }

    /// Stops the calls of the run. Their results end the run.
    pub(super) fn cancel_calls(&mut self) {
        let Some(Phase::Calling(batch)) = self.run.as_ref().map(|run| &run.phase) else { return };
        let running = batch.slots.iter().filter_map(|slot| match slot.state {
            CallState::Running(number) => Some(number),
            _ => None,
        });
        let running: Vec<_> = running.collect();
        for number in running {
            self.effects.push(Effect::CancelCall { number });
        }

        // Calls that are not started yet end as well.
        self.start_calls();
    }
}

/// Returns content and details of a result.
fn result_of(
    done: &AgentToolDone,
    route: Option<&ToolRoute>,
    window: u64,
    hint: Option<String>,
) -> (Vec<Block>, Option<Value>) {
    #[derive(Default, serde::Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Data {
        image: Option<Image>,
        diff: Option<String>,
        patch: Option<String>,
        first_changed_line: Option<u64>,
    }
    #[derive(serde::Deserialize)]
    struct Image {
        mime_type: String,
        data: String,
    }

    let text: String = serde_json::from_str(done.text.get()).unwrap_or_default();
    let text = with_signal(&text, done.signal).into_owned();
    let mut text = results::bounded(text, route, window);
    // The hint of the tool precedes the one about repeated calls.
    for hint in done.hint.clone().into_iter().chain(hint) {
        text.push_str(&format!("\n{hint}"));
    }

    let mut content = vec![Block::text(text)];
    let data = done.data.as_ref().and_then(|data| serde_json::from_str::<Data>(data.get()).ok());
    let data = data.unwrap_or_default();
    if let Some(image) = data.image {
        content.push(Block::Image { data: image.data, mime_type: image.mime_type });
    }

    let mut details = Map::new();
    if let Some(diff) = data.diff {
        details.insert("diff".to_owned(), diff.into());
    }
    if let Some(patch) = data.patch {
        details.insert("patch".to_owned(), patch.into());
    }
    if let Some(line) = data.first_changed_line {
        details.insert("firstChangedLine".to_owned(), line.into());
    }
    if let Some(path) = &done.full_output_path {
        details.insert("fullOutputPath".to_owned(), path.clone().into());
    }
    if done.truncated {
        details.insert("truncated".to_owned(), true.into());
    }

    let details = (!details.is_empty()).then_some(Value::Object(details));
    (content, details)
}
