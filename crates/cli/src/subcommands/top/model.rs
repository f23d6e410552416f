//! State of `quack top`: data and selection. Performs no I/O. Used by [`super`], drawn by [`super::view`].

use super::source::{SessionAction, Update};
use crate::display;
use quackd_protocol::SessionId;
use quackd_protocol::client::{PsData, SessionStatus, WorkerInfo};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Reverse;
use std::collections::HashMap;
use tokio::time::Instant;

/// Maximum length of the filter, in characters.
const MAX_FILTER: usize = 64;

/// Minimum time between two samples of a rate, in seconds.
const MIN_SECONDS: f64 = 0.2;

/// Action requested by a key that the model cannot perform itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyAction {
    Nothing,
    Quit,
    /// Suspend the program, as Ctrl-Z does elsewhere.
    Stop,
    /// Follow a session, by its id.
    Follow(String),
    Do(SessionAction),
}

/// Sort order of the sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum SortOrder {
    /// Busy sessions first.
    #[default]
    Activity,
    Cpu,
    Memory,
    Name,
}

impl SortOrder {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Activity => "activity",
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Name => "name",
        }
    }

    fn next(self) -> Self {
        match self {
            Self::Activity => Self::Cpu,
            Self::Cpu => Self::Memory,
            Self::Memory => Self::Name,
            Self::Name => Self::Activity,
        }
    }
}

/// Rates between the last two samples.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Events of all sessions per second.
    pub(super) events: Option<f64>,
    /// CPU time of the daemon in percent of one processor.
    pub(super) cpu: Option<f64>,
    /// CPU time of each session's processes in percent of one processor.
    pub(super) sessions: HashMap<SessionId, f64>,
}

/// Mode of the bottom line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Prompt {
    #[default]
    None,
    /// The filter is being typed.
    Filter,
    /// A question that `y` confirms.
    Sure(String, SessionAction),
    /// The keys are explained.
    Help,
}

/// Data, selection and filter of the screen.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// Last data, kept while no daemon is running.
    pub(super) data: Option<PsData>,
    /// Time of the last data.
    at: Option<Instant>,
    /// Reason why no daemon answers.
    pub(super) problem: Option<String>,
    pub(super) rates: Rates,
    pub(super) order: SortOrder,
    pub(super) filter: String,
    pub(super) prompt: Prompt,
    /// Result of the last action.
    pub(super) note: String,
    selected: Option<SessionId>,
}

impl Model {
    /// Applies an update.
    pub(super) fn take(&mut self, update: Update) {
        match update {
            Update::Data(data, at) => {
                self.rates = self.rates_to(&data, at);
                self.data = Some(*data);
                self.at = Some(at);
                self.problem = None;
            }
            Update::NoDaemon(reason) => self.problem = Some(reason),
            Update::Done(text) => self.note = text,
        }
    }

    fn rates_to(&self, data: &PsData, at: Instant) -> Rates {
        let (Some(before), Some(then)) = (&self.data, self.at) else { return Rates::default() };

        let seconds = at.saturating_duration_since(then).as_secs_f64();
        // A new daemon restarts its counters.
        if seconds < MIN_SECONDS || before.supervisor.pid != data.supervisor.pid {
            return Rates::default();
        }

        let rate = |before: u64, now: u64| to_f64(now.saturating_sub(before)) / seconds;
        // Milliseconds in a second are tenths of a percent.
        let percent = |before: Option<u64>, now: Option<u64>| Some(rate(before?, now?) / 10.0);

        let old: HashMap<_, _> = before.workers.iter().map(|w| (&w.session_id, w)).collect();
        let of_session = |worker: &WorkerInfo| {
            let before = old.get(&worker.session_id)?.usage.map(|usage| usage.cpu_ms);
            let cpu = percent(before, worker.usage.map(|usage| usage.cpu_ms))?;
            Some((worker.session_id.clone(), cpu))
        };

        Rates {
            events: Some(rate(before.supervisor.events, data.supervisor.events)),
            cpu: percent(before.supervisor.cpu_ms, data.supervisor.cpu_ms),
            sessions: data.workers.iter().filter_map(of_session).collect(),
        }
    }

    /// Returns the displayed sessions in their order.
    pub(super) fn rows(&self) -> Vec<&WorkerInfo> {
        let part = self.filter.to_lowercase();
        let is_shown = |worker: &&WorkerInfo| {
            [
                worker.label.as_str(),
                &worker.session_name,
                &worker.workspace_path,
                worker.status.status.name(),
            ]
            .iter()
            .any(|text| text.to_lowercase().contains(&part))
        };

        let all = self.data.iter().flat_map(|data| &data.workers);
        let mut rows: Vec<&WorkerInfo> = all.filter(is_shown).collect();

        let name = |worker: &WorkerInfo| {
            display::label(&worker.label, &worker.session_name).to_lowercase()
        };

        match self.order {
            SortOrder::Name => rows.sort_by_key(|worker| name(worker)),
            SortOrder::Memory => {
                // The name decides between equals, so that the rows do not jump.
                rows.sort_by_key(|w| (Reverse(w.usage.map_or(0, |u| u.rss_kb)), name(w)));
            }
            SortOrder::Cpu => rows.sort_by(|a, b| {
                let cpu = |w: &WorkerInfo| self.rates.sessions.get(&w.session_id).copied();
                let by_cpu = cpu(b).unwrap_or(0.0).total_cmp(&cpu(a).unwrap_or(0.0));
                by_cpu.then_with(|| name(a).cmp(&name(b)))
            }),
            SortOrder::Activity => rows.sort_by_key(|w| (weight(w.status.status), name(w))),
        }
        rows
    }

    /// Returns the index of the selected row: the previous selection if it is still displayed, else the first row.
    pub(super) fn chosen(&self, rows: &[&WorkerInfo]) -> usize {
        let is_it = |worker: &&WorkerInfo| Some(&worker.session_id) == self.selected.as_ref();
        rows.iter().position(is_it).unwrap_or(0)
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> KeyAction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => KeyAction::Quit,
                KeyCode::Char('z') => KeyAction::Stop,
                _ => KeyAction::Nothing,
            };
        }

        // Every key ends the prompt, whatever it was.
        match std::mem::take(&mut self.prompt) {
            Prompt::None => self.command(key.code),
            Prompt::Help | Prompt::Sure(..) => KeyAction::Nothing,
            Prompt::Sure(_, action) if matches!(key.code, KeyCode::Char('y' | 'Y')) => {
                KeyAction::Do(action)
            }
            Prompt::Filter => {
                self.type_filter(key.code);
                KeyAction::Nothing
            }
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => return self.filter.clear(),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < MAX_FILTER => self.filter.push(c),
            _ => {}
        }
        self.prompt = Prompt::Filter;
    }

    fn command(&mut self, code: KeyCode) -> KeyAction {
        self.note.clear();
        match code {
            KeyCode::Char('q') => return KeyAction::Quit,
            KeyCode::Esc if self.filter.is_empty() => return KeyAction::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => self.prompt = Prompt::Filter,
            KeyCode::Char('?' | 'h') => self.prompt = Prompt::Help,
            other => return self.about_chosen(other).unwrap_or(KeyAction::Nothing),
        }
        KeyAction::Nothing
    }

    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = self.chosen(&rows).saturating_add_signed(by).min(last);
        self.selected = rows.get(at).map(|worker| worker.session_id.clone());
    }

    /// Handles the keys that act on the selected session.
    fn about_chosen(&mut self, code: KeyCode) -> Option<KeyAction> {
        let rows = self.rows();
        let chosen = *rows.get(self.chosen(&rows))?;
        let (id, pin) = (chosen.session_id.clone(), !chosen.status.pinned);
        let name = display::name(display::label(&chosen.label, &chosen.session_name));
        let session = id.0.clone();
        let (question, action) = match code {
            KeyCode::Enter | KeyCode::Char('f') => return Some(KeyAction::Follow(session)),
            KeyCode::Char('p') => return Some(KeyAction::Do(SessionAction::Pin(session, pin))),
            KeyCode::Char('a') => {
                (format!("End the calls of {name}?"), SessionAction::Abort(session))
            }
            KeyCode::Char('K' | 'x') => (
                format!("Kill the worker of {name}? Its calls and jobs end."),
                SessionAction::Kill(session),
            ),
            _ => return None,
        };

        // The selection must not move to another session while the user answers.
        self.selected = Some(id);
        self.prompt = Prompt::Sure(question, action);
        Some(KeyAction::Nothing)
    }
}

/// Sort weight of a status: statuses that may need the user come first.
fn weight(status: SessionStatus) -> u8 {
    match status {
        SessionStatus::Waiting => 0,
        SessionStatus::Working => 1,
        SessionStatus::Failed => 2,
        SessionStatus::Idle | SessionStatus::Unknown => 3,
        SessionStatus::Stopped => 4,
    }
}

/// Converts a counter. Exact for counters of many years.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn to_f64(n: u64) -> f64 {
    n as f64
}
