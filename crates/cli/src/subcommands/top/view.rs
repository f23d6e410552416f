//! Draws the [`Model`] of `quack top` on a screen of any size. Performs no I/O. Used by [`super`].

use super::model::{Model, Prompt};
use crate::display;
use crate::time_format::span;
use quackd_protocol::client::{DeathInfo, SessionStatus, SupervisorInfo, WorkerInfo};
use quackd_protocol::policy::Profile;
use quackd_protocol::tiers::Tier;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use std::time::Duration;

/// Maximum number of listed exits.
const SHOWN_DEATHS: u16 = 4;

/// Minimum height, in lines, for the list of exits and the line about the selected session.
const ROOMY: u16 = 14;

/// Summary and description of the keys.
const KEYS: &str = "f follow  a abort  x kill  p pin  s sort  / filter  ? help  q quit";
const HELP: [&str; 12] = [
    "Up, Down, j, k     choose a session (PageUp, PageDown, Home, End too)",
    "Enter, f           follow it; q or Esc returns",
    "a                  end its calls",
    "x, K               kill its worker",
    "p                  pin or unpin its processes",
    "s                  sort by activity, CPU, memory, name",
    "/                  show sessions whose name, workspace or status contains a text",
    "Esc                clear the filter; without one, quit",
    "q, Ctrl-C          quit",
    "Ctrl-Z             suspend; resume with `fg`",
    "",
    "CPU and memory include a session's worker, agent and their child processes.",
];

/// Display options besides the model.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewOptions<'a> {
    /// Whether styles are printed.
    pub(super) is_colored: bool,
    /// Home directory, shown as `~`.
    pub(super) home_dir: Option<&'a str>,
}

/// Column with its title, width, alignment and priority.
struct Column {
    title: &'static str,
    width: u16,
    is_number: bool,
    /// On a narrow screen, columns with the highest number are dropped first. 0 is never dropped.
    goes: u8,
    cell: fn(&WorkerInfo, &Model) -> String,
}

const fn column(
    title: &'static str,
    width: u16,
    is_number: bool,
    goes: u8,
    cell: fn(&WorkerInfo, &Model) -> String,
) -> Column {
    Column { title, width, is_number, goes, cell }
}

/// Columns that are shown only if a worker is on another machine.
const PLACE: &str = "PLACE";
const LATENCY: &str = "LATENCY";

const COLUMNS: &[Column] = &[
    column("", 1, false, 3, |w, _| if w.status.pinned { "*" } else { "" }.to_owned()),
    column("SESSION", 14, false, 0, |w, _| {
        display::name_cell(display::label(&w.label, &w.session_name))
    }),
    column("STATUS", 8, false, 0, |w, _| status(w)),
    column("PID", 7, true, 5, |w, _| w.pid.map(|pid| pid.to_string()).unwrap_or_default()),
    column("CPU%", 5, true, 1, cpu),
    column("MEMORY", 8, true, 1, |w, _| memory(w)),
    column("CALLS", 5, true, 1, |w, _| dash(w.calls.len())),
    column("OLDEST", 7, true, 2, |w, _| oldest(w)),
    column("JOBS", 4, true, 4, |w, _| dash(w.jobs.len())),
    column(PLACE, 10, false, 3, |w, _| {
        w.place.as_deref().map(display::name_cell).unwrap_or_default()
    }),
    column(LATENCY, 7, true, 3, latency),
    column("AGENT", 7, false, 7, |w, _| pi(w)),
    column("DIED", 4, true, 4, |w, _| dash(w.restarts)),
    column("IDLE", 7, true, 6, |w, _| w.idle_ms.map(short).unwrap_or_default()),
    column("CLIENT", 12, false, 8, |w, model| client(w, model).unwrap_or_default().to_owned()),
    column("WORKSPACE", 12, false, 8, |w, _| w.workspace_path.clone()),
];

/// Draws the model into the buffer. Leaves out rows for which there is no room.
pub(super) fn draw(model: &Model, look: ViewOptions<'_>, area: Rect, buffer: &mut Buffer) {
    let mut page = Region { buffer, area, look, y: area.y };
    page.head(model);

    let foot = area.bottom().saturating_sub(1);
    if model.prompt == Prompt::Help {
        for line in HELP {
            page.line(foot, line, Style::new());
        }
    } else {
        let is_roomy = ROOMY <= area.height;
        let deaths = model.data.as_ref().map_or(&[][..], |data| &data.deaths);
        let n_deaths = u16::try_from(deaths.len()).unwrap_or(u16::MAX).min(SHOWN_DEATHS);
        // The line of the selected session, and the exits with their title.
        let below = match (is_roomy, n_deaths) {
            (false, _) => 0,
            (true, 0) => 1,
            (true, n) => n + 2,
        };
        let end = foot.saturating_sub(below);
        page.table(model, end);

        // The next lines are at the bottom of the screen, also below a short table.
        page.y = end.max(page.y);
        if is_roomy {
            page.about_chosen(model, foot);
            let total = model.data.as_ref().map_or(0, |data| data.supervisor.deaths_total);
            page.deaths(deaths, total, n_deaths, foot);
        }
    }

    page.y = foot.max(page.y);
    page.foot(model);
}

/// Rectangle that is filled from the top.
struct Region<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    look: ViewOptions<'a>,
    y: u16,
}

impl Region<'_> {
    /// Draws one line, cut at the edge of the screen, if it is above `end`.
    fn line(&mut self, end: u16, text: &str, style: Style) {
        if self.y < end {
            let width = usize::from(self.area.width);
            self.buffer.set_stringn(self.area.x, self.y, text, width, style);
            self.y += 1;
        }
    }

    fn color(&self, color: Color) -> Style {
        if self.look.is_colored { Style::new().fg(color) } else { Style::new() }
    }

    fn head(&mut self, model: &Model) {
        let end = self.area.bottom();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let Some(data) = &model.data else {
            return self.line(end, "quack top", bold);
        };

        let supervisor = &data.supervisor;
        let up = span(Duration::from_millis(supervisor.uptime));
        let version = display::plain(&supervisor.version);
        let first = format!("quackd {version}  pid {}  up {up}", supervisor.pid);
        self.line(end, &first, bold);

        // A lower screen has room for the sessions only.
        if 8 <= self.area.height {
            self.line(end, &used(supervisor, model), Style::new());
            self.line(end, &at_work(supervisor, model), Style::new());
        }

        if let Some(pressure) = &supervisor.memory_pressure {
            let text = format!("memory is short: {}", display::plain(pressure));
            self.line(end, &text, self.color(Color::Yellow));
        }

        if let Some(problem) = &model.problem {
            let text = format!("no daemon, waiting for one: {}", display::first_line(problem, 200));
            let style = self.color(Color::Red).add_modifier(Modifier::BOLD);
            self.line(end, &text, style);
        }

        if ROOMY <= self.area.height {
            self.y += 1;
        }
    }

    fn table(&mut self, model: &Model, end: u16) {
        let rows = model.rows();
        let has_far = rows.iter().any(|worker| worker.place.is_some());
        let columns = columns_for(self.area.width, has_far);
        let title = self.color(Color::Cyan).add_modifier(Modifier::BOLD);
        self.row(&columns, |column| column.title.to_owned(), title, end);

        let chosen = model.chosen(&rows);
        let room = usize::from(end.saturating_sub(self.y)).max(1);

        // Pages instead of scrolling: the selected row moves less.
        for (at, worker) in rows.iter().enumerate().skip(chosen / room * room).take(room) {
            let mut style = match worker.status.status {
                SessionStatus::Failed => self.color(Color::Red),
                SessionStatus::Waiting => self.color(Color::Yellow),
                SessionStatus::Working => self.color(Color::Green),
                _ => Style::new(),
            };
            if at == chosen {
                style = style.add_modifier(Modifier::REVERSED);
            }

            let home_dir = self.look.home_dir;
            let cell = |column: &Column| match column.title {
                "WORKSPACE" => display::path_cell(&worker.workspace_path, home_dir),
                _ => (column.cell)(worker, model),
            };
            self.row(&columns, cell, style, end);
        }

        if rows.is_empty() && model.data.is_some() {
            let text = if model.filter.is_empty() {
                "No session was used since the daemon started."
            } else {
                "No session matches the filter."
            };
            self.line(end, text, Style::new());
        }
    }

    fn row(
        &mut self,
        columns: &[&Column],
        cell: impl Fn(&Column) -> String,
        style: Style,
        end: u16,
    ) {
        if end <= self.y {
            return;
        }

        let line = Rect { y: self.y, height: 1, ..self.area };
        self.buffer.set_style(line, style);

        let mut x = self.area.x;
        for (i, column) in columns.iter().enumerate() {
            let rest = self.area.right().saturating_sub(x);
            // The last column gets the remaining width.
            let is_wide = i + 1 == columns.len() && !column.is_number;
            let width = if is_wide { rest } else { column.width.min(rest) };

            let text = cell(column);
            let text = display::cut(&text, usize::from(width));
            let n = u16::try_from(display::width(&text)).unwrap_or(width);
            let indent = if column.is_number { width.saturating_sub(n) } else { 0 };
            let room = usize::from(width - indent);
            self.buffer.set_stringn(x.saturating_add(indent), self.y, &text, room, style);
            x = x.saturating_add(width).saturating_add(1);
        }
        self.y += 1;
    }

    fn about_chosen(&mut self, model: &Model, end: u16) {
        let rows = model.rows();
        let Some(worker) = rows.get(model.chosen(&rows)) else {
            return self.line(end, "", Style::new());
        };

        let path = display::path_cell(&worker.workspace_path, self.look.home_dir);
        let mut text = format!(
            "{}  {path}",
            display::name_cell(display::label(&worker.label, &worker.session_name))
        );

        let reason = if worker.status.status_why.is_empty() {
            worker.state.name()
        } else {
            &worker.status.status_why
        };
        text.push_str(&format!("  {}", display::first_line(reason, 80)));

        let confinement = worker.tier.map(Tier::in_words);
        for word in [confinement, worker.policy.map(Profile::name)].into_iter().flatten() {
            text.push_str(&format!("  {word}"));
        }

        if let Some(client) = client(worker, model) {
            text.push_str(&format!("  client {}", display::name_cell(client)));
        }

        self.line(end, &text, self.color(Color::Cyan));
    }

    fn deaths(&mut self, deaths: &[DeathInfo], total: u64, n: u16, end: u16) {
        if n == 0 {
            return;
        }

        let title = self.color(Color::Cyan).add_modifier(Modifier::BOLD);
        self.line(end, &format!("LAST DEATHS ({total} since the start)"), title);
        for death in deaths.iter().rev().take(usize::from(n)) {
            self.line(end, &death_line(death), Style::new());
        }
    }

    fn foot(&mut self, model: &Model) {
        let end = self.area.bottom();
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let (text, style) = match &model.prompt {
            Prompt::Filter => (format!("/{}_", display::plain(&model.filter)), bold),
            Prompt::Sure(question, _) => (format!("{question} [y/N]"), bold),
            Prompt::Help => ("any key comes back".to_owned(), Style::new()),
            Prompt::None if !model.note.is_empty() => (display::first_line(&model.note, 200), bold),
            Prompt::None => {
                let filter = match model.filter.as_str() {
                    "" => String::new(),
                    filter => format!("  filter: {}", display::plain(filter)),
                };
                (format!("{KEYS}  [{}]{filter}", model.order.name()), Style::new())
            }
        };

        self.line(end, &text, style);
    }
}

/// Returns the name of the client that claimed a session.
fn client<'a>(worker: &WorkerInfo, model: &'a Model) -> Option<&'a str> {
    let mut clients = model.data.iter().flat_map(|data| &data.clients);
    let owner = clients.find(|client| client.sessions.contains(&worker.label))?;
    Some(&owner.client.name)
}

/// Returns the columns that fit into this width. `has_far`: a worker is on another machine.
fn columns_for(width: u16, has_far: bool) -> Vec<&'static Column> {
    let is_shown = |column: &&Column| has_far || !matches!(column.title, PLACE | LATENCY);
    let mut columns: Vec<&Column> = COLUMNS.iter().filter(is_shown).collect();
    loop {
        // Each column has a gap after it, except the last one.
        let needed: u16 = columns.iter().map(|column| column.width + 1).sum();
        // Of several columns with the same number, the last one is dropped first.
        let droppable = columns.iter().enumerate().filter(|(_, column)| column.goes != 0);
        let first_to_go = droppable.max_by_key(|(_, column)| column.goes).map(|(at, _)| at);
        match first_to_go.filter(|_| width.saturating_add(1) < needed) {
            None => return columns,
            Some(at) => {
                columns.remove(at);
            }
        }
    }
}

fn used(supervisor: &SupervisorInfo, model: &Model) -> String {
    let mut words = Vec::new();
    if let Some(kb) = supervisor.rss_kb {
        words.push(format!("memory {}", display::bytes(kb.saturating_mul(1024))));
    }
    if let Some(cpu) = model.rates.cpu {
        words.push(format!("cpu {cpu:.1} %"));
    }
    if let Some(files) = supervisor.open_files {
        words.push(format!("fds {files}"));
    }

    let lag = supervisor.loop_lag;
    let late = |us| span(Duration::from_micros(us));
    words.push(format!("loop lag {} (most {})", late(lag.p99_us), late(lag.max_us)));
    words.join("  ")
}

fn at_work(supervisor: &SupervisorInfo, model: &Model) -> String {
    let workers = model.data.iter().flat_map(|data| &data.workers);
    let calls: usize = workers.map(|worker| worker.calls.len()).sum();
    let mut words = vec![
        display::count(supervisor.sessions, "session"),
        display::count(supervisor.clients, "client"),
        display::count(calls, "call"),
    ];
    if let Some(events) = model.rates.events {
        words.push(format!("{events:.1} events/s"));
    }

    let places = supervisor.places;
    words.push(format!("places {}/{}", places.running, places.max));
    if places.waiting != 0 {
        words.push(format!("{} waiting", places.waiting));
    }
    words.push(display::count(places.jobs, "job"));
    words.join("  ")
}

fn status(worker: &WorkerInfo) -> String {
    match worker.status.status_why.as_str() {
        // An older daemon sends no status.
        "" => worker.state.name().to_owned(),
        _ => worker.status.status.name().to_owned(),
    }
}

fn dash<N: PartialEq + Default + ToString>(n: N) -> String {
    if n == N::default() { "-".to_owned() } else { n.to_string() }
}

fn cpu(worker: &WorkerInfo, model: &Model) -> String {
    let cpu = model.rates.sessions.get(&worker.session_id);
    cpu.map(|percent| format!("{percent:.1}")).unwrap_or_default()
}

fn memory(worker: &WorkerInfo) -> String {
    let kb = worker.usage.map(|usage| usage.rss_kb).or(worker.rss_kb);
    kb.map(|kb| display::bytes(kb.saturating_mul(1024))).unwrap_or_default()
}

fn oldest(worker: &WorkerInfo) -> String {
    worker.calls.iter().map(|call| call.elapsed_ms).max().map(short).unwrap_or_default()
}

fn pi(worker: &WorkerInfo) -> String {
    worker.pi.as_ref().map_or_else(String::new, |pi| {
        if pi.busy { "at work".to_owned() } else { pi.state.name().to_owned() }
    })
}

fn latency(worker: &WorkerInfo, _: &Model) -> String {
    let latency = worker.latency_ms.map(Duration::from_millis);
    latency.map(span).unwrap_or_default()
}

/// Formats a duration in at most 7 characters, such as `3s`, `4m 5s`, `3h 12m`.
fn short(ms: u64) -> String {
    match ms / 1000 {
        seconds @ ..60 => format!("{seconds}s"),
        _ => span(Duration::from_millis(ms)),
    }
}

fn death_line(death: &DeathInfo) -> String {
    let name = display::label(&death.label, death.session_name.as_deref().unwrap_or("-"));
    // Show the time of day. `quack ps --json` has the date.
    let at = death.at.get(11..19).unwrap_or(&death.at);
    let mut line = format!(
        "{}Z  {}  {}",
        display::plain(at),
        display::process_kind(&death.child),
        display::name_cell(name)
    );

    if let Some(pid) = death.pid {
        line.push_str(&format!("  {pid}"));
    }
    line.push_str(&format!("  {}", display::first_line(&death.cause, 100)));
    if let Some(lived) = death.lived_ms {
        line.push_str(&format!("  after {}", span(Duration::from_millis(lived))));
    }
    line
}
