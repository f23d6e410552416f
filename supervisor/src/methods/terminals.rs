//! `quack.term_attach`, `quack.term_input`, `quack.term_resize`, `quack.term_detach` and `quack.term_kill`: the terminals
//! of a session. The session's actor has their state. `run.rs` starts programs on them.

use super::attach::named;
use super::find::label;
use super::{Caller, Serve};
use crate::errors::{MethodError, RefusedTerminal, TerminalRefusal};
use crate::events::SessionCall;
use crate::events::viewing::viewer_queue;
use crate::registry::Purpose;
use crate::session::FoundSession;
use crate::session::copy_limit::permit;
use crate::session::worker::{
    self, AttachTerminal, CallTool, DetachTerminal, NewViewer, ResizeTerminal, SignalTerminal,
    TypeIntoTerminal, WorkerActor,
};
use actix::Addr;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    TermAttachData, TermAttachParams, TermDetachData, TermDetachParams, TermInputData,
    TermInputParams, TermKillData, TermKillParams, TermResizeData, TermResizeParams,
};
use quackd_protocol::limits::{DEFAULT_TOOL_DEADLINE, MAX_TERMINAL_COLS, MAX_TERMINAL_ROWS};
use quackd_protocol::output::{MAX_PIECE_BYTES, is_short_base64};
use quackd_protocol::terminal::CellSize;
use quackd_protocol::tools::JOB_KILL;
use quackd_protocol::worker::CallSpec;
use serde_json::json;
use serde_json::value::RawValue;

/// Size of a terminal if the client does not know its own.
const USUAL_SIZE: CellSize = CellSize { cols: 80, rows: 24 };

/// Longest text of a failed call in an error, in characters.
const MAX_TEXT: usize = 2000;

impl Serve<TermAttachParams> for Caller {
    async fn serve(&self, params: TermAttachParams) -> Result<TermAttachData, MethodError> {
        let session = self.session_of(params.session_id.as_deref()).await?;
        if self.client.outbox.is_none() {
            return Err(MethodError::NoStream);
        }

        // A remote client that may only look is attached to read only.
        let read_only = params.read_only == Some(true) || check_access(self).is_err();
        let sides = [params.cols, params.rows];
        let has_size = sides.iter().all(|side| side.is_some_and(|cells| cells != 0));
        let size = has_size.then(|| cell_size(params.cols, params.rows));
        let (queue, reader) = viewer_queue();
        let viewer = NewViewer {
            client: self.client.id.clone(),
            queue,
            read_only,
            as_rows: params.as_rows == Some(true),
            size,
            sets_size: params.set_size == Some(true),
            colors: params.colors,
        };
        let attach = AttachTerminal { terminal: params.terminal_id, viewer };
        let attached = session.actors.worker.send(attach).await?;
        let attached = attached.map_err(|refusal| refusal.or_interrupted(&session.programs));
        let attached = self.unless_refused(attached, &session.session_id).await?;

        // The connection reads the queue after the reply.
        let (id, terminal) = (session.session_id.clone(), attached.terminal.clone());
        self.client.viewings.add(id, terminal, reader);
        Ok(TermAttachData {
            session_id: session.session_id,
            session_name: session.session_name,
            terminal_id: attached.terminal,
            command: attached.command,
            cols: attached.size.cols,
            rows: attached.size.rows,
            viewers: attached.viewers,
            read_only,
            title: attached.title,
        })
    }
}

impl Serve<TermInputParams> for Caller {
    async fn serve(&self, params: TermInputParams) -> Result<TermInputData, MethodError> {
        let TermInputParams { session_id, terminal_id: terminal, bytes } = params;
        if !is_short_base64(&bytes) {
            return Err(MethodError::TerminalInput(MAX_PIECE_BYTES));
        }

        // The attachment has the access: a client that may only look is attached to read only.
        let id = SessionId(session_id);
        let input = TypeIntoTerminal { terminal, client: self.client.id.clone(), bytes };
        let taken = self.worker_of(&id)?.send(input).await?;
        let taken = self.unless_refused(taken, &id).await?;
        Ok(TermInputData { taken })
    }
}

impl Serve<TermResizeParams> for Caller {
    async fn serve(&self, params: TermResizeParams) -> Result<TermResizeData, MethodError> {
        let TermResizeParams { session_id, terminal_id: terminal, cols, rows } = params;
        if cols == 0 || rows == 0 {
            return Err(MethodError::TerminalSize);
        }

        let id = SessionId(session_id);
        let size = cell_size(Some(cols), Some(rows));
        let resize = ResizeTerminal { terminal, client: self.client.id.clone(), size };
        let resized = self.worker_of(&id)?.send(resize).await?;
        let CellSize { cols, rows } = self.unless_refused(resized, &id).await?;
        Ok(TermResizeData { cols, rows })
    }
}

impl Serve<TermDetachParams> for Caller {
    async fn serve(&self, params: TermDetachParams) -> Result<TermDetachData, MethodError> {
        let TermDetachParams { session_id, terminal_id: terminal, all } = params;
        let client = match all {
            Some(true) => {
                check_access(self)?;
                None
            }
            _ => Some(self.client.id.clone()),
        };

        let session = self.session_of(session_id.as_deref()).await?;
        let detach = DetachTerminal { terminal, client };
        let detached = session.actors.worker.send(detach).await?;
        let detached = self.unless_refused(detached, &session.session_id).await?;
        Ok(TermDetachData { session_name: session.session_name, detached })
    }
}

impl Serve<TermKillParams> for Caller {
    async fn serve(&self, params: TermKillParams) -> Result<TermKillData, MethodError> {
        check_access(self)?;
        let TermKillParams { session_id, terminal_id: terminal, signal } = params;
        let session = self.session_of(session_id.as_deref()).await?;
        let signaled = SignalTerminal { terminal, signal };
        let signaled = session.actors.worker.send(signaled).await?;
        let terminal_id = self.unless_refused(signaled, &session.session_id).await?;

        // The end of a terminal is that of its job.
        if signal.is_none() {
            let spec = CallSpec {
                tool: JOB_KILL.name.to_owned(),
                arguments: json!({"job": terminal_id}).to_string(),
                ..CallSpec::default()
            };
            call_worker(spec, &session, self).await?;
        }
        Ok(TermKillData { session_id: session.session_id, terminal_id })
    }
}

impl Caller {
    async fn session_of(&self, reference: Option<&str>) -> Result<FoundSession, MethodError> {
        self.session(named(reference, None, self).await?, Purpose::Look).await
    }

    /// Returns the owner of a session's worker by the id of the session.
    fn worker_of(&self, id: &SessionId) -> Result<Addr<WorkerActor>, MethodError> {
        let actors = self.services.actors.get(id);
        let actors = actors.ok_or_else(|| MethodError::NoSessionWithId(id.0.clone()))?;
        Ok(actors.worker)
    }

    /// Returns the result of a request about a terminal of this session.
    ///
    /// # Errors
    /// `Terminal`, with the label of the session.
    async fn unless_refused<T>(
        &self,
        result: Result<T, TerminalRefusal>,
        session: &SessionId,
    ) -> Result<T, MethodError> {
        match result {
            Ok(done) => Ok(done),
            Err(refusal) => {
                let session = label(self, session).await?;
                Err(RefusedTerminal { session, refusal }.into())
            }
        }
    }
}

/// Refuses remote clients that may only look at terminals.
pub(super) fn check_access(caller: &Caller) -> Result<(), MethodError> {
    if let Some(page) = caller.client.page.get() {
        return page.rights.terminals.then_some(()).ok_or(MethodError::PageRight("terminals"));
    }
    let is_allowed = caller.is_local() || caller.services.daemon.config.remote.terminals.value;
    if is_allowed { Ok(()) } else { Err(MethodError::RemoteTerminal) }
}

/// Returns a size within the bounds. An absent one, or 0, is the usual one.
pub(super) fn cell_size(cols: Option<u16>, rows: Option<u16>) -> CellSize {
    let or_usual = |cells: Option<u16>, usual| cells.filter(|cells| *cells != 0).unwrap_or(usual);
    CellSize {
        cols: or_usual(cols, USUAL_SIZE.cols).min(MAX_TERMINAL_COLS),
        rows: or_usual(rows, USUAL_SIZE.rows).min(MAX_TERMINAL_ROWS),
    }
}

/// Makes a call for a method, and returns its data.
///
/// # Errors
/// `TerminalCall` with the text of a call that failed.
pub(super) async fn call_worker(
    mut spec: CallSpec,
    session: &FoundSession,
    caller: &Caller,
) -> Result<Option<Box<RawValue>>, MethodError> {
    spec.safe_mode = session.safe_mode;
    spec.set_deadline(DEFAULT_TOOL_DEADLINE);
    let tool = spec.tool.clone();
    let call = SessionCall { caller: caller.client.hello(), ..SessionCall::new(spec) };

    let copies = &caller.services.sessions.pool.copies;
    let calling = async {
        let _permit = permit(session, &call, copies).await?;
        let call = CallTool { call, stream: None, input: None, cancel: None };
        worker::call(&session.actors.worker, call).await
    };
    let text = match calling.await {
        Ok(done) if !done.finished.report.is_error => return Ok(done.finished.data),
        Ok(done) => serde_json::from_str(done.finished.text.get()).unwrap_or_default(),
        Err(error) => error.text(&tool),
    };
    Err(MethodError::TerminalCall(as_error(&text)))
}

/// Returns the text of a failed call as the error of a method, which has no prefix.
fn as_error(text: &str) -> String {
    let text = text.strip_prefix("Error: ").unwrap_or(text);
    text.trim_end().chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_within_the_bounds() {
        let size = |cols, rows| {
            let CellSize { cols, rows } = cell_size(cols, rows);
            (cols, rows)
        };
        assert_eq!(size(None, None), (80, 24));
        assert_eq!(size(Some(0), Some(u16::MAX)), (80, MAX_TERMINAL_ROWS));
        assert_eq!(size(Some(u16::MAX), Some(0)), (MAX_TERMINAL_COLS, 24));
    }

    #[test]
    fn the_text_of_a_failed_call_is_the_error() {
        assert_eq!(as_error("Error: vi not found in PATH\n"), "vi not found in PATH");
        assert_eq!(as_error("plain"), "plain");
    }
}
