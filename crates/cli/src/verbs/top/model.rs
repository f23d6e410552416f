//! What `quack top` knows and what a person has chosen: pure, no terminal and no daemon. Used by [`super`], drawn by
//! [`super::view`].

use super::source::{Deed, Update};
use crate::display;
use quackd_protocol::SessionId;
use quackd_protocol::client::{PsData, SessionStatus, WorkerInfo};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Reverse;
use std::collections::HashMap;
use tokio::time::Instant;

/// Longest filter, in characters.
const MAX_FILTER: usize = 64;

/// Two looks that are closer together say nothing about a rate.
const MIN_SECONDS: f64 = 0.2;

/// What a key asks for beyond the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// Stop the program, as Ctrl-Z does elsewhere.
    Stop,
    /// Follow a session, by its id.
    Follow(String),
    Do(Deed),
}

/// In which order sessions are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// Those that work first.
    #[default]
    Activity,
    Cpu,
    Memory,
    Name,
}

impl Order {
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

/// What one look differs in from the one before.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Events of all sessions in a second.
    pub(super) events: Option<f64>,
    /// Processor time of the daemon in percent of one processor.
    pub(super) cpu: Option<f64>,
    /// The same of each session's processes.
    pub(super) sessions: HashMap<SessionId, f64>,
}

/// What is typed at the bottom of the screen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Prompt {
    #[default]
    None,
    /// The filter is being typed.
    Filter,
    /// A question that y answers.
    Sure(String, Deed),
    /// The keys are explained.
    Help,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// The last look, also while there is no daemon.
    pub(super) data: Option<PsData>,
    /// When that was.
    at: Option<Instant>,
    /// Why there is nobody to ask.
    pub(super) problem: Option<String>,
    pub(super) rates: Rates,
    pub(super) order: Order,
    pub(super) filter: String,
    pub(super) prompt: Prompt,
    /// What became of the last deed.
    pub(super) note: String,
    selected: Option<SessionId>,
}

impl Model {
    /// Something is told.
    pub(super) fn take(&mut self, update: Update) {
        match update {
            Update::Data(data, at) => {
                self.rates = self.rates_to(&data, at);
                self.data = Some(*data);
                self.at = Some(at);
                self.problem = None;
            }
            Update::NoDaemon(why) => self.problem = Some(why),
            Update::Done(what) => self.note = what,
        }
    }

    fn rates_to(&self, data: &PsData, at: Instant) -> Rates {
        let (Some(before), Some(then)) = (&self.data, self.at) else { return Rates::default() };
        let seconds = at.saturating_duration_since(then).as_secs_f64();
        // Another daemon has counters of its own.
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

    /// The sessions that are shown, in their order.
    pub(super) fn rows(&self) -> Vec<&WorkerInfo> {
        let wanted = self.filter.to_lowercase();
        let is_wanted = |worker: &&WorkerInfo| {
            [
                worker.label.as_str(),
                &worker.session_name,
                &worker.workspace_path,
                worker.status.status.name(),
            ]
            .iter()
            .any(|text| text.to_lowercase().contains(&wanted))
        };
        let all = self.data.iter().flat_map(|data| &data.workers);
        let mut rows: Vec<&WorkerInfo> = all.filter(is_wanted).collect();
        let name = |worker: &WorkerInfo| {
            display::label(&worker.label, &worker.session_name).to_lowercase()
        };
        match self.order {
            Order::Name => rows.sort_by_key(|worker| name(worker)),
            Order::Memory => {
                rows.sort_by_key(|w| (Reverse(w.usage.map_or(0, |u| u.rss_kb)), name(w)));
            }
            Order::Cpu => rows.sort_by(|a, b| {
                let cpu = |w: &WorkerInfo| self.rates.sessions.get(&w.session_id).copied();
                let by_cpu = cpu(b).unwrap_or(0.0).total_cmp(&cpu(a).unwrap_or(0.0));
                by_cpu.then_with(|| name(a).cmp(&name(b)))
            }),
            Order::Activity => rows.sort_by_key(|w| (weight(w.status.status), name(w))),
        }
        rows
    }

    /// Which of `rows` is chosen: the one that was, as long as it is shown, else the first.
    pub(super) fn chosen(&self, rows: &[&WorkerInfo]) -> usize {
        let is_it = |worker: &&WorkerInfo| Some(&worker.session_id) == self.selected.as_ref();
        rows.iter().position(is_it).unwrap_or(0)
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wish::Quit,
                KeyCode::Char('z') => Wish::Stop,
                _ => Wish::Nothing,
            };
        }
        match std::mem::take(&mut self.prompt) {
            Prompt::None => self.command(key.code),
            Prompt::Help => Wish::Nothing,
            Prompt::Sure(_, deed) if matches!(key.code, KeyCode::Char('y' | 'Y')) => Wish::Do(deed),
            Prompt::Sure(..) => Wish::Nothing,
            Prompt::Filter => {
                self.type_filter(key.code);
                Wish::Nothing
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

    fn command(&mut self, code: KeyCode) -> Wish {
        self.note.clear();
        match code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.filter.is_empty() => return Wish::Quit,
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
            other => return self.about_chosen(other).unwrap_or(Wish::Nothing),
        }
        Wish::Nothing
    }

    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let at = self.chosen(&rows).saturating_add_signed(by).min(last);
        let chosen = rows.get(at).map(|worker| worker.session_id.clone());
        self.selected = chosen;
    }

    /// The keys that do something to the session that is chosen.
    fn about_chosen(&mut self, code: KeyCode) -> Option<Wish> {
        let rows = self.rows();
        let chosen = *rows.get(self.chosen(&rows))?;
        let (id, name) = (
            chosen.session_id.0.clone(),
            display::name(display::label(&chosen.label, &chosen.session_name)),
        );
        let pin = !chosen.status.pinned;
        let (question, deed) = match code {
            KeyCode::Enter | KeyCode::Char('f') => return Some(Wish::Follow(id)),
            KeyCode::Char('p') => return Some(Wish::Do(Deed::Pin(id, pin))),
            KeyCode::Char('a') => (format!("End the calls of {name}?"), Deed::Abort(id)),
            KeyCode::Char('K' | 'x') => {
                (format!("Kill the worker of {name}? What runs in it ends."), Deed::Kill(id))
            }
            _ => return None,
        };
        self.selected = Some(SessionId::from(deed.session()));
        self.prompt = Prompt::Sure(question, deed);
        Some(Wish::Nothing)
    }
}

impl Deed {
    fn session(&self) -> &str {
        match self {
            Self::Abort(session) | Self::Kill(session) | Self::Pin(session, _) => session,
        }
    }
}

/// Where a status stands among the others: what a person may have to do something about comes first.
fn weight(status: SessionStatus) -> u8 {
    match status {
        SessionStatus::Waiting => 0,
        SessionStatus::Working => 1,
        SessionStatus::Failed => 2,
        SessionStatus::Idle | SessionStatus::Unknown => 3,
        SessionStatus::Stopped => 4,
    }
}

/// Counters of some years fit exactly.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn to_f64(n: u64) -> f64 {
    n as f64
}
