//! Drives the agent: passes frames of the supervisor on, and carries out effects.

use crate::session_file::SessionFile;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use quackd_agent::engine::{Agent, AgentSetup, Effect, Input, Now, Part};
use quackd_agent::providers::ToolSpec;
use quackd_agent::transcript::Transcript;
use quackd_ipc::frames::{self, Decoded};
use quackd_ipc::link::adopt;
use quackd_protocol::agent::{
    AGENT_FRAME_PROTOCOL, AgentAnswer, AgentExit, EventName, FromNative, NativeStart,
    TO_AGENT_TAGS, ToAgent,
};
use quackd_protocol::limits::{MAX_AGENT_ANSWER_BYTES, MAX_AGENT_EVENT_BYTES};
use quackd_protocol::model::ModelPart;
use quackd_protocol::shorten::shorten;
use quackd_protocol::tools;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;
use tokio_util::bytes::{Bytes, BytesMut};
use tokio_util::codec::{Framed, LengthDelimitedCodec};

type Channel = Framed<tokio::net::UnixStream, LengthDelimitedCodec>;

/// Input of the runtime.
pub(crate) struct Started {
    pub(crate) control: OwnedFd,
    pub(crate) start: NativeStart,
    pub(crate) file: SessionFile,
    /// Parts of the confinement that this system does not have.
    pub(crate) notes: Vec<String>,
}

/// Runs until the supervisor closes the channel or asks the agent to exit.
pub(crate) fn run(started: Started) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(started))
}

async fn serve(started: Started) -> io::Result<()> {
    let Started { control, start, mut file, notes } = started;
    let mut channel = Framed::new(adopt(control)?, frames::codec());

    let bytes = file.read();
    let read = bytes.and_then(|bytes| Transcript::read(&bytes).map_err(io::Error::other));
    let transcript = match read {
        Ok(transcript) => transcript,
        Err(error) => {
            let reason = format!("cannot read {}: {error}", start.session_file);
            return send(&mut channel, &FromNative::CannotStart { reason }).await;
        }
    };

    if transcript.needs_rewrite() {
        let reason = format!("{} has an old format; open it once with Pi", start.session_file);
        return send(&mut channel, &FromNative::CannotStart { reason }).await;
    }

    let pid = std::process::id();
    send(&mut channel, &FromNative::Hello { proto: AGENT_FRAME_PROTOCOL, pid, pi_pid: pid })
        .await?;
    for text in notes {
        send(&mut channel, &FromNative::Warning { text }).await?;
    }

    let saving = Saving { path: start.session_file.clone(), is_failing: false };
    let agent = Agent::new(setup(start), transcript);
    let mut driver = Driver { agent, file, saving, is_unsynced: false, timer: None };

    loop {
        let due = driver.timer;
        tokio::select! {
            biased;
            () = expire(due), if due.is_some() => {
                driver.timer = None;
                driver.take(Input::Timer, &mut channel).await?;
            }
            frame = channel.next() => {
                let Some(frame) = frame else {
                    driver.sync();
                    return Ok(());
                };
                if !driver.frame(&frame?, &mut channel).await? {
                    return Ok(());
                }
            }
        }
    }
}

async fn expire(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

async fn send(channel: &mut Channel, frame: &FromNative) -> io::Result<()> {
    channel.send(frames::encode(frame).map_err(io::Error::other)?).await
}

/// Returns the agent's settings: the tools that the model gets, and facts for the system prompt.
fn setup(start: NativeStart) -> AgentSetup {
    let options = start.options.clone();
    let is_offered = |tool: &&tools::Tool| options.offers(tool);
    let is_usable = |tool: &&tools::Tool| !start.safe_mode || tool.has_safe_calls();
    let offered = tools::all().filter(is_offered).filter(is_usable);
    let has_terminals = start.options.offers(&tools::TERM_READ);

    let specs = offered.clone().map(|tool| {
        let mut parameters = quackd_schema::tool_input(tool, true);
        if let Some(schema) = parameters.as_object_mut() {
            schema.remove("$schema");
            let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
            if let Some(properties) = properties.filter(|_| !has_terminals) {
                properties.remove(tools::TTY);
            }
        }
        ToolSpec { name: tool.name.to_owned(), description: tool.about.to_owned(), parameters }
    });

    // Commands come first. All other tools work if the model calls them.
    let (first, then): (Vec<_>, Vec<_>) = offered.partition(|tool| tool.runs_commands());
    let small_tools = first.into_iter().chain(then).filter_map(|tool: &tools::Tool| {
        let (about, parameters) = tool.brief?;
        let parameters = quackd_schema::brief_tool_input(tool, parameters);
        Some(ToolSpec { name: tool.name.to_owned(), description: about.to_owned(), parameters })
    });

    let system = format!("{} on {}", std::env::consts::OS, std::env::consts::ARCH);
    let mut facts = vec![format!("The system is {system}.")];
    if start.safe_mode {
        facts.push(
            "Safe mode is on: nothing can be written, and bash runs few commands.".to_owned(),
        );
    }
    if !start.network.is_empty() {
        facts.push(start.network);
    }

    AgentSetup {
        tools: specs.collect(),
        options: start.options,
        small_tools: small_tools.collect(),
        session_file: start.session_file,
        workspace: start.workspace,
        models: start.models,
        is_model_chosen: start.is_model_chosen,
        settings: start.settings,
        facts,
        has_mcp_servers: start.has_mcp_servers,
        model_notice: start.model_notice,
    }
}

/// The agent with its file and timer.
struct Driver {
    agent: Agent,
    file: SessionFile,
    saving: Saving,
    /// Whether a line was appended that is perhaps not on the disk.
    is_unsynced: bool,
    timer: Option<Instant>,
}

impl Driver {
    /// Handles a frame. Returns false if it was the last one.
    async fn frame(&mut self, body: &BytesMut, channel: &mut Channel) -> io::Result<bool> {
        let frame = match frames::decode(body, TO_AGENT_TAGS).map_err(io::Error::other)? {
            Decoded::Known(frame) => frame,
            // A newer supervisor.
            Decoded::Unknown(_) => return Ok(true),
        };

        match frame {
            ToAgent::Command { number, command } => {
                self.take(Input::Command { number, command }, channel).await?;
            }
            ToAgent::Model { number, part } => {
                let part = match part {
                    ModelPart::Head(head) => Part::Head(head),
                    ModelPart::Piece(piece) => {
                        let text = piece.bytes.get().trim_matches('"');
                        let bytes = STANDARD.decode(text).map_err(io::Error::other)?;
                        // Lets the supervisor send the next piece.
                        send(channel, &FromNative::ModelTaken { number }).await?;
                        Part::Bytes(bytes)
                    }
                    ModelPart::Done {} => Part::Done,
                    ModelPart::Failed(failure) => Part::Failed(failure),
                };
                self.take(Input::Model { number, part }, channel).await?;
            }
            ToAgent::Models(models) => {
                self.take(Input::Models(Box::new(models)), channel).await?;
            }
            ToAgent::ToolDone(done) => self.take(Input::ToolDone(done), channel).await?,
            // The agent asks through the supervisor's questions, so it has no dialogs of its own.
            ToAgent::UiAnswer(_) => {}
            ToAgent::Ping { seq } => send(channel, &FromNative::Pong { seq }).await?,
            ToAgent::Shutdown {} => {
                let command = quackd_protocol::agent::AgentCommand::Abort;
                self.take(Input::Command { number: 0, command }, channel).await?;
                if let Some(warning) = self.sync() {
                    send(channel, &warning).await?;
                }
                let end = AgentExit { code: Some(0), ..AgentExit::default() };
                send(channel, &FromNative::Ended(end)).await?;
                return Ok(false);
            }
            ToAgent::Start(_) | ToAgent::StartAgent(_) => {
                return Err(io::Error::other("a second start frame"));
            }
        }
        Ok(true)
    }

    /// Passes an input to the agent and carries out its effects.
    async fn take(&mut self, input: Input, channel: &mut Channel) -> io::Result<()> {
        let effects = self.agent.handle(input, now()?);
        for effect in effects {
            let frame = match effect {
                Effect::Append(line) => {
                    self.is_unsynced = true;
                    let written = self.file.append(&line);
                    for frame in self.saving.report(written) {
                        channel.feed(frames::encode(&frame).map_err(io::Error::other)?).await?;
                    }
                    continue;
                }
                Effect::Timer(ms) => {
                    self.timer = ms.map(|ms| Instant::now() + Duration::from_millis(ms));
                    continue;
                }
                // The supervisor has sent this command itself.
                Effect::Answer { number: 0, .. } => continue,
                Effect::Answer { number, result } => FromNative::Answer(answer(number, result)),
                Effect::Event { name, data } => {
                    FromNative::Event { name, data: fitting(name.as_str(), data) }
                }
                Effect::Request(request) => FromNative::ModelRequest(request),
                Effect::CancelRequest { number } => FromNative::ModelCancel { number },
                Effect::Call(call) => FromNative::CallTool(call),
                Effect::Spent(usd) => FromNative::Spent(usd),
                Effect::CancelCall { number } => FromNative::CancelTool { number },
            };
            channel.feed(frames::encode(&frame).map_err(io::Error::other)?).await?;
        }

        SinkExt::<Bytes>::flush(channel).await?;
        // A message is on the disk before the agent is idle, and not after each line.
        if self.agent.is_idle()
            && let Some(warning) = self.sync()
        {
            send(channel, &warning).await?;
        }
        Ok(())
    }

    /// Waits until the disk has the session file. Returns a warning if that fails.
    fn sync(&mut self) -> Option<FromNative> {
        if !std::mem::take(&mut self.is_unsynced) {
            return None;
        }
        // After a failure the kernel may report success without a write, so that another attempt proves nothing.
        let error = self.file.sync().err()?;
        let path = &self.saving.path;
        let text = format!(
            "cannot write the session file {path} to the disk: {error}; a power failure may lose the last messages"
        );
        Some(FromNative::Warning { text })
    }
}

/// Whether the conversation is saved.
struct Saving {
    /// Path of the session file, for messages.
    path: String,
    /// Whether the last line could not be written.
    is_failing: bool,
}

impl Saving {
    /// Returns the frames about a write: for the first failure, and for the first success after it.
    fn report(&mut self, written: io::Result<()>) -> Vec<FromNative> {
        let was_failing = std::mem::replace(&mut self.is_failing, written.is_err());

        match written {
            Ok(()) if was_failing => {
                let text = "the session file is written again".to_owned();
                vec![FromNative::Warning { text }]
            }
            Err(error) if !was_failing => {
                let path = &self.path;
                let text = format!(
                    "cannot write the session file {path}: {error}; the conversation is not saved"
                );
                let name = EventName::ExtensionError;
                let data = serde_json::json!({
                    "type": name, "extensionPath": "quackd", "event": "session_file", "error": text,
                });
                let event = to_raw_value(&data).ok();
                let event = event.map(|data| FromNative::Event { name, data });
                [FromNative::Warning { text }].into_iter().chain(event).collect()
            }
            Ok(()) | Err(_) => Vec::new(),
        }
    }
}

fn answer(number: u64, result: Result<Option<Box<RawValue>>, String>) -> AgentAnswer {
    let too_long = |data: &RawValue| MAX_AGENT_ANSWER_BYTES < data.get().len();
    match result {
        Ok(Some(data)) if too_long(&data) => AgentAnswer {
            number,
            success: false,
            error: Some("The answer is too long; read the session file instead".to_owned()),
            data: None,
        },
        Ok(data) => AgentAnswer { number, success: true, error: None, data },
        Err(error) => AgentAnswer { number, success: false, error: Some(error), data: None },
    }
}

/// Returns an event that fits into a frame. The session file has all of it.
fn fitting(name: &str, data: Box<RawValue>) -> Box<RawValue> {
    if data.get().len() <= MAX_AGENT_EVENT_BYTES {
        return data;
    }
    // A shortened event is always JSON.
    RawValue::from_string(shorten(data.get(), name, MAX_AGENT_EVENT_BYTES)).unwrap_or(data)
}

fn now() -> io::Result<Now> {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    let random = getrandom::u32().map_err(io::Error::other)?;
    Ok(Now { unix_ms: i64::try_from(unix.as_millis()).map_err(io::Error::other)?, random })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::agent::{AgentCommand, AgentModels, AgentSettings, OtherCommand};
    use quackd_protocol::agent_options::AgentOptions;
    use quackd_protocol::model::{ModelFailure, ModelFailureKind, ModelInfo, ThinkingLevel};
    use serde_json::json;

    #[test]
    fn a_long_event_is_shortened_and_marked() {
        let image = json!({ "type": "image", "data": "A".repeat(MAX_AGENT_EVENT_BYTES) });
        let event = json!({ "type": "message_end", "message": { "role": "toolResult", "content": [image] } });
        let cut = fitting("message_end", to_raw_value(&event).unwrap());
        let cut: Value = serde_json::from_str(cut.get()).unwrap();
        assert_eq!(
            (&cut["message"]["role"], &cut["truncated"]),
            (&json!("toolResult"), &json!(true))
        );
        assert_eq!(cut["message"]["content"][0]["type"], "text");
        let event = to_raw_value(&json!({ "type": "message_end" })).unwrap();
        assert_eq!(fitting("message_end", event.clone()).get(), event.get());
    }

    /// An agent in the middle of a summary, with its file.
    fn summarizing(file: std::fs::File) -> Driver {
        let text = "lorem ipsum ".repeat(100);
        let header = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}"#;
        let user = |id: &str, parent: Value| {
            let message = json!({ "role": "user", "content": text, "timestamp": 1 });
            json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "", "message": message })
        };
        let lines = [
            header.to_owned(),
            user("a", Value::Null).to_string(),
            user("b", json!("a")).to_string(),
        ];
        let transcript = Transcript::read(lines.join("\n").as_bytes()).unwrap();
        let model: ModelInfo = serde_json::from_value(json!({
            "id": "one", "name": "one", "api": "openai-completions", "provider": "fake", "baseUrl": "http://127.0.0.1:1",
            "reasoning": false, "input": ["text"], "contextWindow": 1000, "maxTokens": 100,
            "cost": { "input": 0.0, "output": 0.0, "cacheRead": 0.0, "cacheWrite": 0.0 },
        }))
        .unwrap();
        let setup = AgentSetup {
            session_file: "/s.jsonl".to_owned(),
            workspace: "/w".to_owned(),
            models: AgentModels {
                models: vec![model.clone()],
                default: model,
                thinking: ThinkingLevel::Off,
            },
            is_model_chosen: false,
            settings: AgentSettings { keep_recent_tokens: 10, ..AgentSettings::default() },
            tools: Vec::new(),
            options: AgentOptions::default(),
            small_tools: Vec::new(),
            facts: Vec::new(),
            has_mcp_servers: false,
            model_notice: None,
        };
        let mut agent = Agent::new(setup, transcript);
        let now = Now { unix_ms: 1, random: 1 };
        drop(agent.handle(command(1, json!({ "type": "compact" })), now));
        assert!(!agent.is_idle());
        let saving = Saving { path: "/s.jsonl".to_owned(), is_failing: false };
        let file = SessionFile::new(file);
        Driver { agent, file, saving, is_unsynced: false, timer: None }
    }

    fn command(number: u64, body: Value) -> Input {
        let name = body["type"].as_str().unwrap().to_owned();
        let body = to_raw_value(&body).unwrap();
        Input::Command { number, command: AgentCommand::Other(OtherCommand { name, body }) }
    }

    /// Warnings that the other end gets until the driver is dropped.
    async fn warnings(mut other: Channel) -> Vec<String> {
        let mut warnings = Vec::new();
        while let Some(Ok(frame)) = other.next().await {
            let frame: Value = serde_json::from_slice(&frame).unwrap();
            warnings.extend(frame["warning"]["text"].as_str().map(str::to_owned));
        }
        warnings
    }

    /// Appends to a file that cannot be flushed to a disk while a summary is made, then ends the summary.
    async fn warnings_after(end: impl AsyncFnOnce(&mut Driver, &mut Channel)) -> Vec<String> {
        let (ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        let [mut ours, theirs] = [ours, theirs].map(|it| Framed::new(it, frames::codec()));
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let mut driver = summarizing(null);
        let named = command(2, json!({ "type": "set_session_name", "name": "n" }));
        driver.take(named, &mut ours).await.unwrap();
        assert!(driver.is_unsynced, "the agent is not idle");
        end(&mut driver, &mut ours).await;
        drop(ours);
        warnings(theirs).await
    }

    fn blocking<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(future)
    }

    const LOST: &str = "; a power failure may lose the last messages";

    #[test]
    fn lines_from_before_the_last_input_are_flushed_when_the_agent_is_idle() {
        let all = blocking(warnings_after(async |driver, channel| {
            let failure = ModelFailure { kind: ModelFailureKind::NotConnected, text: "no".into() };
            let part = Part::Failed(failure);
            driver.take(Input::Model { number: 1, part }, channel).await.unwrap();
            assert!(driver.agent.is_idle() && !driver.is_unsynced);
        }));
        let [warning] = &*all else { panic!("{all:?}") };
        assert!(warning.starts_with("cannot write the session file /s.jsonl to the disk: "));
        assert!(warning.ends_with(LOST), "{warning}");
    }

    #[test]
    fn lines_are_flushed_before_the_end_of_a_shutdown() {
        let all = blocking(warnings_after(async |driver, channel| {
            // A command of the user keeps the agent busy.
            let shell = command(3, json!({ "type": "bash", "command": "true" }));
            driver.take(shell, channel).await.unwrap();
            let body = BytesMut::from(&*frames::encode(&ToAgent::Shutdown {}).unwrap());
            assert!(!driver.frame(&body, channel).await.unwrap());
            assert!(!driver.agent.is_idle());
        }));
        let [warning] = &*all else { panic!("{all:?}") };
        assert!(warning.ends_with(LOST), "{warning}");
    }

    #[test]
    fn only_a_change_of_the_session_file_is_reported() {
        let mut told = Saving { path: "/s.jsonl".to_owned(), is_failing: false };
        let full = || Err(io::ErrorKind::StorageFull.into());
        assert!(told.report(Ok(())).is_empty());
        let first = told.report(full());
        let [FromNative::Warning { .. }, FromNative::Event { name, data }] = &*first else {
            panic!("{first:?}")
        };
        let data: Value = serde_json::from_str(data.get()).unwrap();
        assert_eq!((*name, &data["type"]), (EventName::ExtensionError, &json!("extension_error")));
        assert_eq!(
            (&data["extensionPath"], &data["event"]),
            (&json!("quackd"), &json!("session_file"))
        );
        let error = data["error"].as_str().unwrap();
        assert!(error.starts_with("cannot write the session file /s.jsonl: "), "{error}");
        assert!(error.ends_with("; the conversation is not saved"), "{error}");
        assert!(told.report(full()).is_empty());
        assert!(matches!(&*told.report(Ok(())), [FromNative::Warning { .. }]));
        assert!(told.report(Ok(())).is_empty());
    }
}
