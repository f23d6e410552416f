//! Events of terminals: lines for attached clients.

use crate::wire;
use bytes::Bytes;
use quackd_protocol::SessionId;
use quackd_protocol::client::{
    TermBytes, TermDetached, TermExit, TermOpen, TermRows, TermRowsOf, TermSize, ToldLine,
};
use quackd_protocol::terminal::{CellSize, TerminalExit};
use serde::Serialize;
use serde_json::value::RawValue;

/// The session and the terminal of an event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) session: &'a SessionId,
    pub(super) terminal: &'a str,
}

impl Subject<'_> {
    fn line<D: Serialize>(self, event: &str, data: D) -> Bytes {
        wire::event(&ToldLine { event, session_id: self.session, data })
    }

    pub(super) fn output(self, bytes: Box<RawValue>) -> Bytes {
        self.bytes(TermBytes::OUTPUT, bytes, None)
    }

    pub(super) fn redraw(self, bytes: Box<RawValue>, size: CellSize) -> Bytes {
        self.bytes(TermBytes::REDRAW, bytes, Some(size))
    }

    fn bytes(self, event: &str, bytes: Box<RawValue>, size: Option<CellSize>) -> Bytes {
        let (kind, terminal_id) = (event.to_owned(), self.terminal.to_owned());
        let (cols, rows) = size.map(|size| (size.cols, size.rows)).unzip();
        self.line(event, TermBytes { kind, terminal_id, bytes, cols, rows })
    }

    pub(super) fn rows(self, screen: Box<RawValue>) -> Bytes {
        let (kind, terminal_id) = (TermRows::NAME.to_owned(), self.terminal.to_owned());
        self.line(TermRows::NAME, TermRowsOf { kind, terminal_id, screen })
    }

    pub(super) fn size(self, CellSize { cols, rows }: CellSize) -> Bytes {
        let (kind, terminal_id) = (TermSize::NAME.to_owned(), self.terminal.to_owned());
        self.line(TermSize::NAME, TermSize { kind, terminal_id, cols, rows })
    }

    pub(super) fn open(self, url: String) -> Bytes {
        let (kind, terminal_id) = (TermOpen::NAME.to_owned(), self.terminal.to_owned());
        self.line(TermOpen::NAME, TermOpen { kind, terminal_id, url })
    }

    pub(super) fn exit(self, exit: TerminalExit) -> Bytes {
        let (kind, terminal_id) = (TermExit::NAME.to_owned(), self.terminal.to_owned());
        self.line(TermExit::NAME, TermExit { kind, terminal_id, exit })
    }

    pub(super) fn detached(self) -> Bytes {
        let (kind, terminal_id) = (TermDetached::NAME.to_owned(), self.terminal.to_owned());
        self.line(TermDetached::NAME, TermDetached { kind, terminal_id })
    }
}
