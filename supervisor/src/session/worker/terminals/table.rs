//! The terminals of one worker process.

use super::terminal::Terminal;
use crate::errors::TerminalRefusal;
use quackd_protocol::foreign_text::one_line_cut;
use quackd_protocol::limits::MAX_TERMINALS_PER_SESSION;
use quackd_protocol::mask::masked;
use quackd_protocol::state::{MAX_PROGRAM_CHARS, TerminalProgram};
use quackd_protocol::terminal::TerminalExit;
use quackd_protocol::worker::JobInfo;
use std::collections::VecDeque;
use std::time::Instant;

/// Number of ended terminals that are remembered for error texts.
const MAX_ENDED: usize = 8;

/// Terminals that a worker may have, with those that have ended and whose last output is still being sent.
const MAX_KNOWN: usize = 2 * MAX_TERMINALS_PER_SESSION;

/// The terminals of one worker process.
#[derive(Debug, Default)]
pub(in crate::session::worker) struct Terminals {
    /// Oldest first.
    running: Vec<Terminal>,
    /// The last ones that have ended, of this worker and earlier ones.
    ended: VecDeque<(String, TerminalExit)>,
    /// Number of the last viewer.
    last_viewer: u32,
    /// Whether a timer will call [`Terminals::tick`].
    pub(super) is_ticking: bool,
}

impl Terminals {
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Terminal> {
        self.running.iter_mut()
    }

    pub(super) fn get_mut(&mut self, id: &str) -> Option<&mut Terminal> {
        self.running.iter_mut().find(|terminal| terminal.id == id)
    }

    /// Returns the number of the next viewer.
    pub(super) fn next_viewer(&mut self) -> u32 {
        self.last_viewer = self.last_viewer.wrapping_add(1);
        self.last_viewer
    }

    /// Adds the terminal of a new job, with its command for display. Returns whether the job has one.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn started(&mut self, job: &JobInfo, command: &str) -> Result<bool, &'static str> {
        let Some(size) = job.terminal else { return Ok(false) };
        if MAX_KNOWN <= self.running.len() {
            return Err("more terminals than there may be");
        }
        if self.get_mut(&job.id).is_some() {
            return Err("two terminals with one id");
        }

        // Another worker may use the id again.
        self.ended.retain(|(id, _)| *id != job.id);
        self.running.push(Terminal::new(job.id.clone(), command.to_owned(), size));
        Ok(true)
    }

    /// Returns the terminal with this id, or else the last started one.
    ///
    /// # Errors
    /// There is none. Without an id, the error tells the end of the one that ended last.
    pub(super) fn find(&mut self, id: Option<&str>) -> Result<&mut Terminal, TerminalRefusal> {
        let Self { running, ended, .. } = self;
        let exited =
            |(id, exit): &(String, TerminalExit)| TerminalRefusal::Exited(id.clone(), exit.clone());
        let Some(id) = id else {
            let none = || ended.back().map_or(TerminalRefusal::None, exited);
            return running.last_mut().ok_or_else(none);
        };
        if let Some(terminal) = running.iter_mut().find(|terminal| terminal.id == id) {
            return Ok(terminal);
        }

        let unknown = || TerminalRefusal::Unknown(id.to_owned());
        Err(ended.iter().find(|(ended, _)| ended == id).map_or_else(unknown, exited))
    }

    /// Removes a terminal that has ended.
    pub(super) fn ended(&mut self, id: &str, exit: &TerminalExit) -> Option<Terminal> {
        let at = self.running.iter().position(|terminal| terminal.id == id)?;
        if self.ended.len() == MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((id.to_owned(), exit.clone()));
        Some(self.running.remove(at))
    }

    /// Returns the ids of the running terminals, oldest first.
    pub(super) fn ids(&self) -> Vec<String> {
        self.running.iter().map(|terminal| terminal.id.clone()).collect()
    }

    /// Returns the programs of the running terminals, oldest first, as they are recorded.
    pub(super) fn programs(&self) -> Vec<TerminalProgram> {
        let running = self.running.iter().take(MAX_TERMINALS_PER_SESSION);
        let program = |terminal: &Terminal| TerminalProgram {
            terminal_id: terminal.id.clone(),
            command: one_line_cut(&masked(&terminal.command), MAX_PROGRAM_CHARS),
        };
        running.map(program).collect()
    }

    /// Returns credits and requests screens that are due. Call it while [`Terminals::needs_tick`].
    pub(super) fn tick(&mut self, now: Instant) {
        for terminal in &mut self.running {
            terminal.tick(now);
        }
    }

    /// Whether the next [`Terminals::tick`] may do something.
    pub(super) fn needs_tick(&self) -> bool {
        self.running.iter().any(Terminal::needs_tick)
    }
}
