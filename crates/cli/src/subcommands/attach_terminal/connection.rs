//! The requests of an attached client, and its events.

use super::window::window_size;
use crate::display;
use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quackd_client::{Client, ClientError, Event, Events};
use quackd_protocol::client::{
    ForwardParams, TermAttachData, TermAttachParams, TermBytes, TermDetached, TermExit,
    TermInputParams, TermOpen, TermResizeData, TermResizeParams, TermRows, TermSize,
};
use quackd_protocol::terminal::{CellSize, ScreenRows, TerminalColors, TerminalExit};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Pause before input that was not taken, or a refused request, is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Terminal to attach to.
#[derive(Debug)]
pub(crate) struct Target {
    /// The connection. Its events belong to the attached client.
    pub(crate) client: Arc<Client>,
    /// Id of the session.
    pub(crate) session: String,
    /// Label of the session, for texts.
    pub(crate) label: String,
    /// The terminal. `None`: the last started one that runs.
    pub(crate) terminal: Option<String>,
    /// Whether nothing is typed.
    pub(crate) is_read_only: bool,
    /// Whether the terminal gets the size of the window now.
    pub(crate) sets_size: bool,
    /// Colors of the user's terminal, if they are known.
    pub(crate) colors: Option<TerminalColors>,
    /// Address of the daemon, if the terminal is one of another machine.
    pub(crate) remote: Option<String>,
}

/// An attached client.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(super) view: View,
    pub(super) events: Events,
    /// Size of the screen.
    pub(super) size: CellSize,
    /// Title that the program has set, not filtered.
    pub(super) title: Option<String>,
}

impl Attached {
    /// Attaches. The first event is the whole screen.
    ///
    /// # Errors
    /// Those of the request, such as a terminal that has ended.
    pub(crate) async fn begin(target: Target) -> Result<Self, ClientError> {
        // Before the request, because the first events may precede its reply.
        let events = target.client.events().await?;
        let params = parameters(&target, false);
        let TermAttachData { terminal_id, cols, rows, read_only, title, .. } =
            target.client.call(params).await?;

        let is_read_only = target.is_read_only || read_only;
        let Target { client, session, label, colors, remote, .. } = target;
        let view =
            View { client, session, label, terminal: terminal_id, is_read_only, colors, remote };
        Ok(Self { view, events, size: CellSize { cols, rows }, title })
    }

    /// Returns the terminal for texts: `web/term-1`.
    pub(super) fn place(&self) -> String {
        let View { label, terminal, .. } = &self.view;
        format!("{}/{}", display::name(label), display::plain(terminal))
    }
}

fn parameters(target: &Target, as_rows: bool) -> TermAttachParams {
    let size = window_size();
    TermAttachParams {
        session_id: Some(target.session.clone()),
        terminal_id: target.terminal.clone(),
        cols: size.map(|size| size.cols),
        rows: size.map(|size| size.rows),
        read_only: target.is_read_only.then_some(true),
        as_rows: as_rows.then_some(true),
        set_size: target.sets_size.then_some(true),
        colors: target.colors,
    }
}

/// The terminal that this client is attached to.
#[derive(Debug)]
pub(super) struct View {
    client: Arc<Client>,
    session: String,
    /// Label of the session, for texts.
    pub(super) label: String,
    terminal: String,
    /// Whether the daemon refuses input of this client.
    pub(super) is_read_only: bool,
    /// Colors of the user's terminal, if they are known.
    colors: Option<TerminalColors>,
    /// Address of the daemon, if the terminal is one of another machine.
    pub(super) remote: Option<String>,
}

/// Reply to a request about the screen.
#[derive(Debug)]
pub(super) struct ScreenReply {
    /// Size of the screen now. Events that follow may still have an earlier one.
    pub(super) size: CellSize,
    /// Whether rows come in place of bytes from now on, the whole screen first. `None`: nothing has changed.
    pub(super) as_rows: Option<bool>,
    /// Title that the program has set, not filtered.
    pub(super) title: Option<String>,
}

/// An event of the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TerminalUpdate {
    /// Bytes of the program, not filtered.
    Output(Vec<u8>),
    /// Bytes that make the whole screen, not filtered.
    Redraw {
        /// The bytes.
        bytes: Vec<u8>,
        /// Size of the screen.
        size: CellSize,
    },
    /// Rows of the screen.
    Rows(ScreenRows),
    /// Another client has changed the size of the screen.
    Resized(CellSize),
    /// The program asks to open this address.
    Open(String),
    /// The program has ended.
    Exited(TerminalExit),
    /// A client has detached this one.
    Detached,
}

impl View {
    /// Returns the reason why the connection has ended.
    pub(super) fn why_closed(&self) -> ClientError {
        self.client.why_closed()
    }

    /// Requests the whole screen as a new client gets it, as bytes or as rows. Returns `None` after a refusal.
    ///
    /// # Errors
    /// Those of the request. A refused request has no effect: an event reports the end of the terminal.
    pub(super) async fn attach_again(
        &self,
        as_rows: bool,
    ) -> Result<Option<ScreenReply>, ClientError> {
        let target = Target {
            client: Arc::clone(&self.client),
            session: self.session.clone(),
            label: String::new(),
            terminal: Some(self.terminal.clone()),
            is_read_only: self.is_read_only,
            sets_size: false,
            colors: self.colors,
            remote: None,
        };
        let answer = self.client.call(parameters(&target, as_rows)).await;
        let reply = |TermAttachData { cols, rows, title, .. }: TermAttachData| ScreenReply {
            size: CellSize { cols, rows },
            as_rows: Some(as_rows),
            title,
        };
        unless_refused(answer.map(reply)).await
    }

    /// Reports the size of the window. Returns `None` after a refusal. Not for a client that types nothing, which has no
    /// size.
    ///
    /// # Errors
    /// Like [`View::attach_again`].
    pub(super) async fn resized(
        &self,
        CellSize { cols, rows }: CellSize,
    ) -> Result<Option<ScreenReply>, ClientError> {
        let (session_id, terminal_id) = (self.session.clone(), self.terminal.clone());
        let params = TermResizeParams { session_id, terminal_id, cols, rows };
        let answer = self.client.call(params).await;
        let reply = |TermResizeData { cols, rows }: TermResizeData| ScreenReply {
            size: CellSize { cols, rows },
            as_rows: None,
            title: None,
        };
        unless_refused(answer.map(reply)).await
    }

    /// Sends typed bytes. Returns the number of bytes that need not be sent again. Waits 50 ms if the program reads too
    /// slowly.
    ///
    /// # Errors
    /// Those of the request. Refused bytes are lost: an event reports the end of the terminal.
    pub(super) async fn typed(&self, bytes: Vec<u8>) -> anyhow::Result<usize> {
        // Base64 between quotation marks is JSON.
        let encoded = RawValue::from_string(format!("\"{}\"", STANDARD.encode(&bytes)))?;
        let params = TermInputParams {
            session_id: self.session.clone(),
            terminal_id: self.terminal.clone(),
            bytes: encoded,
        };

        match self.client.call(params).await {
            Ok(data) if data.taken => Ok(bytes.len()),
            Ok(_) => {
                sleep(RETRY_PAUSE).await;
                Ok(0)
            }
            Err(ClientError::Refused { .. }) => Ok(bytes.len()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a port of the session reachable at the same port of this machine, or ends that. Returns the text of a refusal.
    ///
    /// # Errors
    /// Those of the request but a refusal.
    pub(super) async fn forward(
        &self,
        port: u16,
        close: bool,
    ) -> Result<Option<String>, ClientError> {
        let params = ForwardParams {
            session_id: Some(self.session.clone()),
            port: Some(port),
            close: close.then_some(true),
            ..ForwardParams::default()
        };
        match self.client.call(params).await {
            Ok(_) => Ok(None),
            Err(ClientError::Refused { text, .. }) => Ok(Some(text)),
            Err(error) => Err(error),
        }
    }

    /// Reads an event. `None` for one of something else, or that needs no reaction.
    ///
    /// # Errors
    /// If the event cannot be read.
    pub(super) fn update(&self, event: &Event) -> anyhow::Result<Option<TerminalUpdate>> {
        read_update(event, &self.session, &self.terminal)
    }
}

/// Returns `None` for a refusal, after a pause: the request may be sent again.
async fn unless_refused(
    answer: Result<ScreenReply, ClientError>,
) -> Result<Option<ScreenReply>, ClientError> {
    match answer {
        Ok(reply) => Ok(Some(reply)),
        Err(ClientError::Refused { .. }) => {
            sleep(RETRY_PAUSE).await;
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The terminal of an event, and its bytes and size if it has some.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventFacts<'a> {
    #[serde(borrow)]
    terminal_id: Cow<'a, str>,
    #[serde(borrow, default)]
    bytes: Option<Cow<'a, str>>,
    #[serde(default)]
    cols: Option<u16>,
    #[serde(default)]
    rows: Option<u16>,
}

impl EventFacts<'_> {
    fn bytes(&self) -> anyhow::Result<Vec<u8>> {
        let bytes = self.bytes.as_deref().context("an event of the terminal has no bytes")?;
        STANDARD.decode(bytes).context("an event of the terminal is not base64")
    }

    fn size(&self) -> anyhow::Result<CellSize> {
        let size = self.cols.zip(self.rows).context("an event of the terminal has no size")?;
        Ok(CellSize { cols: size.0, rows: size.1 })
    }
}

fn read_update(
    event: &Event,
    session: &str,
    terminal: &str,
) -> anyhow::Result<Option<TerminalUpdate>> {
    const NAMES: [&str; 7] = [
        TermBytes::OUTPUT,
        TermBytes::REDRAW,
        TermRows::NAME,
        TermSize::NAME,
        TermOpen::NAME,
        TermExit::NAME,
        TermDetached::NAME,
    ];
    if !NAMES.contains(&event.name.as_str()) {
        return Ok(None);
    }

    let data = event.data.as_deref().context("an event of the terminal has no data")?.get();
    let facts: EventFacts<'_> =
        serde_json::from_str(data).context("cannot read an event of the terminal")?;
    let is_of_session = event.session_id.as_deref().is_none_or(|id| id == session);
    if !is_of_session || facts.terminal_id != terminal {
        return Ok(None);
    }

    Ok(Some(match event.name.as_str() {
        TermExit::NAME => {
            let exit: TermExit =
                serde_json::from_str(data).context("cannot read the end of the terminal")?;
            TerminalUpdate::Exited(exit.exit)
        }
        TermDetached::NAME => TerminalUpdate::Detached,
        TermRows::NAME => {
            let rows: TermRows =
                serde_json::from_str(data).context("cannot read the rows of the terminal")?;
            TerminalUpdate::Rows(rows.screen)
        }
        TermSize::NAME => TerminalUpdate::Resized(facts.size()?),
        TermOpen::NAME => {
            let open: TermOpen =
                serde_json::from_str(data).context("cannot read an address of the terminal")?;
            TerminalUpdate::Open(open.url)
        }
        TermBytes::REDRAW => TerminalUpdate::Redraw { bytes: facts.bytes()?, size: facts.size()? },
        _ => TerminalUpdate::Output(facts.bytes()?),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(name: &str, session: Option<&str>, data: &Value) -> Option<TerminalUpdate> {
        let event = Event {
            name: name.to_owned(),
            session_id: session.map(str::to_owned),
            data: Some(RawValue::from_string(data.to_string()).unwrap()),
            seq: None,
            turn: None,
        };
        read_update(&event, "s1", "term-1").unwrap()
    }

    #[test]
    fn events_of_this_terminal_are_read() {
        let output = json!({"type": "term_output", "terminalId": "term-1", "bytes": "GxtbSA=="});
        let expected = Some(TerminalUpdate::Output(b"\x1b\x1b[H".to_vec()));
        assert_eq!(read("term_output", Some("s1"), &output), expected);
        let redraw = json!({"type": "term_redraw", "terminalId": "term-1", "bytes": "GxtbSA==",
                            "cols": 80, "rows": 24});
        let size = CellSize { cols: 80, rows: 24 };
        let expected = TerminalUpdate::Redraw { bytes: b"\x1b\x1b[H".to_vec(), size };
        assert_eq!(read("term_redraw", None, &redraw), Some(expected));
        let size = json!({"type": "term_size", "terminalId": "term-1", "cols": 2, "rows": 1});
        let expected = TerminalUpdate::Resized(CellSize { cols: 2, rows: 1 });
        assert_eq!(read("term_size", Some("s1"), &size), Some(expected));

        let open = json!({"type": "term_open", "terminalId": "term-1", "url": "http://a"});
        let expected = TerminalUpdate::Open("http://a".to_owned());
        assert_eq!(read("term_open", Some("s1"), &open), Some(expected));

        let screen = ScreenRows { cols: 2, rows: 1, whole: true, ..ScreenRows::default() };
        let rows = json!({"type": "term_rows", "terminalId": "term-1", "screen": screen});
        assert_eq!(read("term_rows", Some("s1"), &rows), Some(TerminalUpdate::Rows(screen)));

        let exit = json!({"type": "term_exit", "terminalId": "term-1", "exitCode": 3});
        let ended = TerminalExit { exit_code: Some(3), ..TerminalExit::default() };
        assert_eq!(read("term_exit", Some("s1"), &exit), Some(TerminalUpdate::Exited(ended)));

        let detached = json!({"type": "term_detached", "terminalId": "term-1"});
        assert_eq!(read("term_detached", Some("s1"), &detached), Some(TerminalUpdate::Detached));
    }

    #[test]
    fn events_of_other_things_are_not() {
        let other = json!({"type": "term_output", "terminalId": "term-2", "bytes": ""});
        assert_eq!(read("term_output", Some("s1"), &other), None);
        let own = json!({"type": "term_output", "terminalId": "term-1", "bytes": ""});
        assert_eq!(read("term_output", Some("s2"), &own), None);
        assert_eq!(read("tool_output", Some("s1"), &json!({"bytes": ""})), None);
    }
}
