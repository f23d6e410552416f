//! Handles what both agents report. The process is treated as hostile: frames are bounded, checked, and passed
//! only to followers of the same session.

use super::AgentFrame;
use super::actor::{AgentActor, CommandReply, Waiter};
use super::commands::CommandResponse;
use crate::approvals::CloseReason;
use crate::children::{ChannelEvent, HeartbeatDriver, KillReason, LifecycleDriver};
use crate::session::owner::AgentReport;
use crate::wire;
use crate::wire::raw_json::with_whole_characters;
use actix::prelude::*;
use quackd_protocol::agent::{AGENT_FRAME_PROTOCOL, AgentAnswer, AgentState, Engine};
use quackd_protocol::approval::REQUEST_PREFIX;
use quackd_protocol::client::{ErrorCode, EventLine};
use quackd_protocol::foreign_text::{check_name, stripped_line};
use quackd_protocol::limits::{
    MAX_AGENT_ANSWER_BYTES, MAX_AGENT_EVENT_BYTES, MAX_AGENT_STATE_BYTES, MAX_NAME_CHARS,
    MAX_PATH_BYTES,
};
use quackd_protocol::surrogates::without_lone_surrogates;
use quackd_supervision::{Cause, Hello as HelloMeans};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Limits for an event's name and a dialog's id in bytes, and for a reason in characters.
pub(super) const MAX_EVENT_NAME: usize = 64;
const MAX_DIALOG_ID: usize = 256;

/// Event of a question.
const QUESTION: &str = "extension_ui_request";

const MAX_REASON_CHARS: usize = 4000;

/// Maximum number of warnings from one worker.
const MAX_WARNINGS: u32 = 100;

/// Part of Pi's error text if it works on another turn, the same in every version. Pi's protocol has no code for it, so
/// the text is compared here, and nowhere else.
const BUSY: &str = "already processing";

/// Time after which an accepted prompt without a turn makes the daemon ask the agent whether it is idle.
const TURN_DELAY: Duration = Duration::from_millis(300);

/// Names of the daemon's own events. An event of Pi with such a name could be mistaken for the daemon's.
const OWN_EVENTS: &[&str] = &[
    "extension_ui_closed",
    "prompt_error",
    "remote_ready",
    "session_deleted",
    "voice_say",
    "voice_session_changed",
    "voice_start",
    "voice_stop",
];

impl Handler<ChannelEvent<AgentFrame>> for AgentActor {
    type Result = ();

    fn handle(&mut self, msg: ChannelEvent<AgentFrame>, ctx: &mut Self::Context) {
        self.on_channel_event(msg, ctx);
    }
}

impl AgentActor {
    pub(super) fn on_agent_frame(&mut self, frame: AgentFrame, ctx: &mut Context<Self>) {
        match frame {
            _ if self.end.is_some() => {}
            AgentFrame::Native(frame) => self.on_native_frame(frame, ctx),
            AgentFrame::Pi(frame) => self.on_pi_frame(frame, ctx),
        }
    }

    pub(super) fn on_agent_pong(&mut self, seq: u64, ctx: &mut Context<Self>) {
        if !self.on_pong(seq, ctx) {
            self.agent_broke("a pong without a ping", ctx);
        }
    }

    pub(super) fn on_agent_warning(&mut self, text: &str, ctx: &mut Context<Self>) {
        if self.child.warned(MAX_WARNINGS).is_none() {
            return self.agent_broke("too many warnings", ctx);
        }
        let text: String = text.chars().take(500).collect();
        let engine = self.engine.name();
        tracing::warn!(session = %self.session.id, engine, text, "warning from an agent");
    }
}

fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}

/// Whether a question of the agent has an id of the daemon's own questions, which clients show as permissions. The id in
/// the data can be another one than that of the frame.
fn forges_question(data: &RawValue) -> bool {
    let data = serde_json::from_str::<Value>(&without_lone_surrogates(data.get()));
    let data = data.unwrap_or_default();
    let id = data.get("id").and_then(Value::as_str);
    id.is_some_and(|id| id.starts_with(REQUEST_PREFIX))
}

/// Whether data may go to followers unchanged: an object on one line, of at most `limit` bytes.
fn is_shown(data: &RawValue, limit: usize) -> bool {
    let text = data.get();
    text.starts_with('{') && text.len() <= limit && !text.contains(['\n', '\r'])
}

impl AgentActor {
    pub(super) fn agent_broke(&mut self, why: &'static str, ctx: &mut Context<Self>) {
        self.kill_for(Cause::Protocol(why.to_owned()), KillReason::BrokeProtocol, ctx);
    }

    pub(super) fn on_agent_hello(
        &mut self,
        proto: u32,
        [pid, agent_pid]: [u32; 2],
        ctx: &mut Context<Self>,
    ) {
        if proto != AGENT_FRAME_PROTOCOL {
            let cause = Cause::VersionMismatch { ours: AGENT_FRAME_PROTOCOL, theirs: proto };
            return self.kill_for(cause, KillReason::OtherVersion, ctx);
        }

        let now = Instant::now();
        match self.child.lifecycle.on_hello(now) {
            HelloMeans::Ready => {}
            HelloMeans::Late => return,
            HelloMeans::Unexpected => return self.agent_broke("a second hello", ctx),
        }

        tracing::info!(session = %self.session.id, pid = agent_pid, "{} started", self.kind());
        self.pids = Some((pid, agent_pid));
        self.touch_agent();
        self.begin_heartbeat(ctx);
        self.arm_life(ctx);

        if self.is_replaced() {
            // The prompts wait for the next process.
            return self.drain(ctx);
        }

        self.ask_state(None, ctx);
        self.send_prompts(ctx);
    }

    /// Handles the report of an agent that it cannot start.
    pub(super) fn on_agent_refused(&mut self, reason: &str, ctx: &mut Context<Self>) {
        if self.pids.is_some() {
            return self.agent_broke("it has started already", ctx);
        }
        let reason = stripped_line(reason, 300);
        self.note_agent_failure(self.engine, &reason);
        self.kill_for(Cause::Refused(reason), KillReason::CannotStart, ctx);
    }

    pub(super) fn command_answered(&mut self, answer: AgentAnswer, ctx: &mut Context<Self>) {
        self.touch_agent();
        let AgentAnswer { number, success, error, data } = answer;
        let error = error.map(|mut error| {
            cut(&mut error, MAX_REASON_CHARS);
            error
        });

        let is_busy = error.as_ref().is_some_and(|error| error.contains(BUSY));
        let code = is_busy.then_some(ErrorCode::PiBusy);

        if success {
            self.services.agent_failure.forget(&self.session.id);
        }

        match self.commands.answered(number, success) {
            CommandResponse::Waiting(sent) => match sent.waiter {
                Waiter::Client(reply) if sent.name == "prompt" => {
                    let said = disposition(data.as_deref().filter(|_| success));
                    let is_queued = said == Some("queued");
                    // A message for the running turn begins none.
                    let joined = self.turns.running().filter(|_| is_queued);
                    let begins = success && joined.is_none() && said != Some("handled");
                    let turn = joined.or_else(|| begins.then(|| self.turns.accept(number)));
                    if begins {
                        self.look_for_turn(ctx);
                    }

                    let seq = success.then(|| self.services.events.last(&self.session.id));
                    // If the caller has stopped waiting, it has already got an error.
                    let data = None;
                    let done = CommandReply { success, data, error, code, seq, turn, is_queued };
                    reply.send(Ok(done)).ok();
                }
                Waiter::Client(reply) => {
                    let data = data.filter(|data| data.get().len() <= MAX_AGENT_ANSWER_BYTES);
                    let data = data.map(with_whole_characters);
                    let done = CommandReply { success, data, error, ..CommandReply::default() };
                    reply.send(Ok(done)).ok();
                }
                Waiter::Abort(reply) => drop(reply.send(())),
                Waiter::State => {
                    if let Some(data) = data.filter(|_| success) {
                        self.on_agent_state(data, ctx);
                    }
                    for waiter in self.state_waiters.drain(..) {
                        // The caller may have continued without the state.
                        waiter.send(()).ok();
                    }
                }
            },
            CommandResponse::Accepted => {
                let turn = self.turns.fail(number, is_busy);
                self.prompt_failed(turn, &error.unwrap_or_default(), code);
            }
            CommandResponse::Nobody => {}
        }

        self.publish_agent();
    }

    /// Requests the agent's state if no turn begins soon. A command of an extension begins none, which older versions
    /// do not report in their response.
    fn look_for_turn(&self, ctx: &mut Context<Self>) {
        let turn = self.turns.last();
        ctx.run_later(TURN_DELAY, move |handle, ctx| {
            if !handle.in_turn() && handle.turns.is_awaited() && handle.turns.last() == turn {
                handle.ask_state(None, ctx);
            }
        });
    }

    fn on_agent_state(&mut self, data: Box<RawValue>, ctx: &mut Context<Self>) {
        if !is_shown(&data, MAX_AGENT_STATE_BYTES) {
            return self.agent_broke("a state that cannot be shown", ctx);
        }

        let said: AgentState = serde_json::from_str(data.get()).unwrap_or_default();
        self.state = Some(Rc::from(with_whole_characters(data)));

        let is_path = |path: &String| {
            path.starts_with('/')
                && path.len() <= MAX_PATH_BYTES
                && !path.contains(|c: char| c.is_control())
        };

        // The daemon chooses the file of quackd's agent, and the agent cannot change it.
        let is_fixed = self.engine == Engine::Native;
        let is_chosen = |file: &String| !is_fixed || *file == self.session_file;
        let session_file = said.session_file.filter(is_path).filter(is_chosen);

        // The user named the conversation in Pi, which accepts any text.
        let session_name = said
            .session_name
            .map(|name| stripped_line(&name, name.len()).trim().to_owned())
            .filter(|name| check_name(name, MAX_NAME_CHARS).is_ok());

        if let Some(file) = &session_file {
            self.session_file.clone_from(file);
        }
        if session_file.is_none() && session_name.is_none() {
            return;
        }

        if said.is_streaming == Some(false) && !said.is_compacting {
            self.turns.was_idle(self.turn_at_request);
        }

        let report = AgentReport { session: self.session.id.clone(), session_file, session_name };
        let owner = self.owner.clone();
        let telling = async move { owner.agent_report(report).await };
        ctx.spawn(telling.into_actor(self).map(|name, handle, _| {
            if let Some(name) = name {
                handle.session.set_name(&name);
            }
        }));
    }

    pub(super) fn on_agent_event(&mut self, name: &str, data: &RawValue, ctx: &mut Context<Self>) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || MAX_EVENT_NAME < name.len() || !name.chars().all(is_name) {
            return self.agent_broke("an event without a name", ctx);
        }
        if !is_shown(data, MAX_AGENT_EVENT_BYTES) {
            return self.agent_broke("an event that cannot be shown", ctx);
        }

        self.touch_agent();
        if OWN_EVENTS.contains(&name) {
            tracing::warn!(session = %self.session.id, name, "dropped an event with a name of the daemon's");
            return;
        }
        if name == QUESTION && forges_question(data) {
            tracing::warn!(session = %self.session.id, "dropped a question with an id of the daemon");
            return;
        }

        if name == "agent_start" {
            self.turns.begin();
        }

        let turn = self.turns.running();
        self.services.events.publish_in_turn(&self.session.id, turn, name, || data);

        match name {
            "message_end" => {
                let events = &self.services.events;
                events.keep_last_line(&self.session.id, &assistants_text(data).unwrap_or_default());
            }
            "agent_start" => self.on_busy(ctx),
            "auto_compaction_start" => self.is_compacting = true,
            "auto_compaction_end" => {
                self.is_compacting = false;
                self.end_if_replaced(ctx);
            }
            "agent_end" => {
                self.end_dialogs();
                self.turns.end();
                self.on_idle(ctx);
                self.ask_state(None, ctx);
                self.end_if_replaced(ctx);
            }
            _ => return,
        }

        self.publish_agent();
    }

    pub(super) fn on_question(
        &mut self,
        id: String,
        timeout_ms: Option<u64>,
        data: &RawValue,
        ctx: &mut Context<Self>,
    ) {
        if id.is_empty() || MAX_DIALOG_ID < id.len() || !is_shown(data, MAX_AGENT_EVENT_BYTES) {
            return self.agent_broke("a question that cannot be shown", ctx);
        }

        self.touch_agent();
        if id.starts_with(REQUEST_PREFIX) || forges_question(data) {
            tracing::warn!(session = %self.session.id, "canceled a question with an id of the daemon");
            return self.cancel_dialog(&id);
        }
        if !self.dialogs.has_room() {
            tracing::warn!(session = %self.session.id, "canceled a question, too many are open");
            return self.cancel_dialog(&id);
        }

        let now = Instant::now();
        let until = timeout_ms.and_then(|ms| now.checked_add(Duration::from_millis(ms)));
        let (session, turn) = (&self.session.id, self.turns.running());
        let seq = self.services.events.publish_in_turn(session, turn, QUESTION, || data);
        let line = EventLine { event: QUESTION, session_id: session, data, seq, turn };
        let line = wire::event(&line);

        self.dialogs.open(id, seq, line, until);
        self.arm_dialogs(ctx);
        self.publish_agent();
    }

    /// Schedules the timeout of the next dialog.
    pub(super) fn arm_dialogs(&mut self, ctx: &mut Context<Self>) {
        let due = self.dialogs.due_in(Instant::now());
        let timer = due.map(|wait| {
            ctx.run_later(wait, |handle, ctx| {
                handle.dialog_timer = None;
                let expired = handle.dialogs.expire(Instant::now());
                for id in expired {
                    handle.cancel_dialog(&id);
                    handle.publish_closed(&id, CloseReason::TimedOut);
                }
                handle.arm_dialogs(ctx);
                handle.publish_agent();
            })
        });
        if let Some(old) = std::mem::replace(&mut self.dialog_timer, timer) {
            ctx.cancel_future(old);
        }
    }

    /// Notifies followers that a dialog was closed.
    pub(super) fn publish_closed(&self, id: &str, why: CloseReason) {
        #[derive(Serialize)]
        struct Data<'a> {
            #[serde(rename = "type")]
            kind: &'static str,
            id: &'a str,
            reason: &'static str,
        }
        let kind = "extension_ui_closed";
        let data = || Data { kind, id, reason: why.name() };
        let turn = self.turns.running();
        self.services.events.publish_in_turn(&self.session.id, turn, kind, data);
    }
}

/// Returns the result of a prompt: `started`, `queued`, or `handled` without a turn, as commands of an extension are.
fn disposition(data: Option<&RawValue>) -> Option<&str> {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(default, borrow)]
        disposition: Option<&'a str>,
    }
    serde_json::from_str::<Data<'_>>(data?.get()).ok()?.disposition
}

/// Returns the last text of a message of the agent.
fn assistants_text(data: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Data {
        message: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        role: String,
        content: Vec<Part>,
    }
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        text: String,
    }
    let message = serde_json::from_str::<Data>(data.get()).ok()?.message;
    let mut texts = message.content.into_iter().map(|part| part.text);
    let is_assistants = message.role == "assistant";
    texts.rfind(|text| is_assistants && !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::agent::{native, pi};
    use bytes::BytesMut;
    use quackd_ipc::frames::Decoded;

    #[test]
    fn each_agent_has_only_its_own_frames_and_events() {
        let native = |text: &str| (native::PROGRAM.decode)(&BytesMut::from(text));
        let pi = |text: &str| (pi::PROGRAM.decode)(&BytesMut::from(text));
        let event = |name: &str| format!(r#"{{"event":{{"name":"{name}","data":{{}}}}}}"#);

        let turn = event("agent_start");
        assert!(matches!(native(&turn), Ok(Decoded::Known(AgentFrame::Native(_)))));
        assert!(matches!(pi(&turn), Ok(Decoded::Known(AgentFrame::Pi(_)))));

        assert!(pi(&event("of_an_extension")).is_ok());
        for name in ["extension_ui_request", "voice_say", "of_an_extension"] {
            assert!(native(&event(name)).is_err(), "{name}");
        }

        let question = r#"{"dialog":{"id":"1","data":{}}}"#;
        assert!(matches!(native(question), Ok(Decoded::Unknown(_))));
        for frame in [r#"{"spent":1.0}"#, r#"{"call_tool":{}}"#, r#"{"model_taken":{}}"#] {
            assert!(matches!(pi(frame), Ok(Decoded::Unknown(_))), "{frame}");
        }
    }
}
