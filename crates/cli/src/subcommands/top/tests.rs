//! Tests of the screen as text, and of the keys.

use super::model::{KeyAction, Model, Prompt};
use super::source::{SessionAction, Update};
use super::view::{ViewOptions, draw};
use quackd_protocol::client::PsData;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Color, Modifier};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

fn worker(id: &str, name: &str, more: Value) -> Value {
    let mut worker = json!({
        "sessionId": id, "sessionName": name, "workspacePath": format!("/home/ada/{id}"), "state": "ready",
        "pid": 102, "monitorPid": 101, "restarts": 0, "calls": [], "tier": "B", "policy": "workspace-write",
        "status": "idle", "statusWhy": "idle for 3 s; ended in 29 min", "idleMs": 3000
    });
    worker.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    worker
}

/// Returns data after `events` events, with `cpu_ms` of CPU time of the busy session.
fn data(events: u64, cpu_ms: u64) -> PsData {
    let working = json!({
        "state": "busy", "status": "working", "statusWhy": "2 calls, 1 background job", "pinned": true,
        "restarts": 1, "usage": {"processes": 5, "rssKb": 20_480, "cpuMs": cpu_ms},
        "calls": [{"callId": "c1", "tool": "bash", "elapsedMs": 65_250, "deadlineMs": 300_000},
                  {"callId": "c2", "tool": "bash", "elapsedMs": 1_250, "deadlineMs": 30_000}],
        "pi": {"state": "ready", "busy": true, "restarts": 0},
        "jobs": [{"jobId": "job-1", "command": "npm run dev", "elapsedMs": 125_000}]
    });
    let stopped = json!({
        "state": "absent", "status": "stopped", "statusWhy": "it died: signal 9", "pid": null, "idleMs": null
    });
    serde_json::from_value(json!({
        "supervisor": {
            "pid": 100, "version": "0.1.0", "startedAt": "2026-03-10T12:00:00Z", "uptime": 125_000,
            "socket": "/s", "stateDir": "/d", "clients": 2, "sessions": 4, "rssKb": 12_600, "openFiles": 31,
            "slowClients": 0, "straysKilled": 0, "cpuMs": 100, "events": events, "deathsTotal": 2,
            "loopLag": {"maxUs": 2100, "p99Us": 130, "samples": 60},
            "places": {"running": 2, "waiting": 1, "max": 256, "jobs": 1}
        },
        "workers": [
            worker("a", "duck\u{1b}[2J\n1", json!({})),
            worker("b", "鴨の会議をする部屋です", json!({"usage": {"processes": 3, "rssKb": 9216, "cpuMs": 10}})),
            worker("c", "review", working),
            worker("d", "zoo", stopped),
        ],
        "deaths": [
            {"at": "2026-03-10T12:01:02Z", "child": "session-worker", "sessionName": "zoo", "pid": 77,
             "cause": "signal 9", "livedMs": 61_000},
            {"at": "2026-03-10T12:02:03Z", "child": "session-worker", "sessionName": "review",
             "cause": "killed by a person\nsecond line", "livedMs": 900}
        ]
    }))
    .unwrap()
}

fn model() -> Model {
    let mut model = Model::default();
    let now = Instant::now();
    model.take(Update::Data(Box::new(data(100, 1000)), now - Duration::from_secs(2)));
    model.take(Update::Data(Box::new(data(125, 2500)), now));
    model
}

fn terminal(model: &Model, width: u16, height: u16, is_colored: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let look = ViewOptions { is_colored, home_dir: Some("/home/ada") };
    let frame = terminal.draw(|frame| draw(model, look, frame.area(), frame.buffer_mut()));
    frame.unwrap();
    terminal
}

/// Returns the screen as text, without trailing spaces.
fn shown(model: &Model, width: u16, height: u16) -> String {
    let terminal = terminal(model, width, height, true);
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for y in 0..height {
        let mut line = String::new();
        let mut hidden = 0;
        for x in 0..width {
            let symbol = buffer[(x, y)].symbol();
            // Skip the second half of a wide character.
            if hidden == 0 {
                line.push_str(symbol);
                hidden = if symbol.len() == 3
                    && '\u{3000}' <= symbol.chars().next().unwrap()
                    && symbol != "\u{fffd}"
                {
                    1
                } else {
                    0
                };
            } else {
                hidden -= 1;
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn press(model: &mut Model, keys: &str) -> KeyAction {
    let mut wish = KeyAction::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            c => KeyCode::Char(c),
        };
        wish = model.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    wish
}

#[test]
fn a_screen_of_80_columns_has_everything_that_matters() {
    let text = shown(&model(), 80, 20);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "quackd 0.1.0  pid 100  up 2m 5s");
    assert_eq!(lines[1], "memory 12.3 MB  cpu 0.0 %  fds 31  loop lag 0.1 ms (most 2.1 ms)");
    assert_eq!(
        lines[2],
        "4 sessions  2 clients  2 calls  12.5 events/s  places 2/256  1 waiting  1 job"
    );
    assert_eq!(lines[3], "");
    assert_eq!(
        lines[4],
        "  SESSION        STATUS       PID  CPU%   MEMORY CALLS  OLDEST JOBS DIED    IDLE"
    );
    assert_eq!(
        lines[5],
        "* review         working      102  75.0  20.0 MB     2   1m 5s    1    1      3s"
    );
    assert_eq!(
        lines[6],
        "  duck\u{fffd}[2J\u{fffd}1     idle         102                    -            -    -      3s"
    );
    assert!(lines[7].starts_with("  鴨の会議をす…  idle "), "{}", lines[7]);
    assert_eq!(
        lines[8],
        "  zoo            stopped                             -            -    -"
    );
    assert_eq!(lines[15], "review  ~/c  2 calls, 1 background job  confined  workspace-write");
    assert_eq!(lines[16], "LAST DEATHS (2 since the start)");
    assert_eq!(lines[17], "12:02:03Z  session-worker  review  killed by a person  after 900.0 ms");
    assert_eq!(lines[18], "12:01:02Z  session-worker  zoo  77  signal 9  after 1m 1s");
    assert_eq!(
        lines[19],
        "f follow  a abort  x kill  p pin  s sort  / filter  ? help  q quit  [activity]"
    );
}

#[test]
fn a_wide_screen_has_pi_and_the_workspace_too_and_a_narrow_one_less() {
    let wide = shown(&model(), 120, 20);
    assert!(
        wide.contains(" AGENT ") && wide.contains("at work") && wide.contains("~/c\n"),
        "{wide}"
    );
    let narrow = shown(&model(), 40, 20);
    let row = narrow.lines().find(|line| line.contains("review")).unwrap();
    assert!(row.contains("working") && row.contains("20.0 MB"), "{narrow}");
    // Drawing does not panic on any size.
    for width in [0, 1, 2, 7, 23, 41, 79, 200] {
        for height in [0, 1, 2, 3, 4, 5, 8, 13, 14, 60] {
            if width != 0 && height != 0 {
                shown(&model(), width, height);
                let mut help = model();
                press(&mut help, "?");
                shown(&help, width, height);
            }
        }
    }
    assert!(shown(&model(), 80, 6).contains("review"));
}

#[test]
fn a_session_that_a_client_claimed_has_its_name() {
    let mut data = data(100, 1000);
    for worker in &mut data.workers {
        worker.label = format!("app/{}", worker.session_id.0);
    }
    let clients = json!([{"name": "codex\u{1b}", "version": "1", "connectedAt": "", "sessions": ["app/c"],
        "callsRunning": 1, "calls": 2}]);
    data.clients = serde_json::from_value(clients).unwrap();
    let mut model = Model::default();
    model.take(Update::Data(Box::new(data), Instant::now()));
    let wide = shown(&model, 120, 20);
    let row = |name: &str| wide.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(
        row("app/c ").contains("codex\u{fffd}       ~/c") && !row("app/a").contains("codex"),
        "{wide}"
    );
    let narrow = shown(&model, 80, 20);
    assert!(!narrow.contains("CLIENT"), "{narrow}");
    let about = shown(&model, 90, 20);
    let about = about.lines().find(|line| line.contains("workspace-write")).unwrap();
    assert_eq!(
        about,
        "app/c  ~/c  2 calls, 1 background job  confined  workspace-write  client codex\u{fffd}"
    );
}

#[test]
fn without_colors_there_are_none_and_the_choice_is_seen_all_the_same() {
    for is_colored in [true, false] {
        let terminal = terminal(&model(), 80, 20, is_colored);
        let cells = terminal.backend().buffer().content().to_vec();
        let has_colors =
            cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset);
        assert_eq!(has_colors, is_colored);
        assert!(cells.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
    }
}

#[test]
fn a_daemon_that_is_gone_is_said_to_be_and_another_one_has_rates_of_its_own() {
    let mut model = model();
    assert_eq!(model.rates.events, Some(12.5));
    model.take(Update::NoDaemon("no daemon is running".to_owned()));
    let text = shown(&model, 80, 20);
    assert!(text.contains("no daemon, waiting for one: no daemon is running"), "{text}");
    let mut next = data(3, 5);
    next.supervisor.pid = 200;
    model.take(Update::Data(Box::new(next), Instant::now() + Duration::from_secs(2)));
    assert!(model.rates.events.is_none() && model.rates.sessions.is_empty());
    assert!(!shown(&model, 80, 20).contains("waiting for one"));
    assert_eq!(shown(&Model::default(), 80, 20).lines().next(), Some("quack top"));
}

#[test]
fn keys_choose_sort_and_filter() {
    let mut model = model();
    let names = |model: &Model| {
        let name = |row: &&quackd_protocol::client::WorkerInfo| row.session_id.0.clone();
        model.rows().iter().map(name).collect::<String>()
    };
    let chosen = |model: &Model| model.rows()[model.chosen(&model.rows())].session_id.0.clone();
    assert_eq!((names(&model), chosen(&model)), ("cabd".to_owned(), "c".to_owned()));
    press(&mut model, "jj");
    assert_eq!(chosen(&model), "b");
    press(&mut model, "k");
    assert_eq!(chosen(&model), "a");
    press(&mut model, "s");
    assert_eq!(names(&model).chars().next(), Some('c'), "by CPU");
    press(&mut model, "s");
    assert_eq!(&names(&model)[..2], "cb", "by memory");
    press(&mut model, "s");
    assert_eq!((names(&model), chosen(&model)), ("acdb".to_owned(), "a".to_owned()), "by name");
    press(&mut model, "/Idle");
    assert_eq!((names(&model), &model.prompt), ("ab".to_owned(), &Prompt::Filter));
    press(&mut model, "\n");
    assert_eq!((model.filter.as_str(), &model.prompt), ("Idle", &Prompt::None));
    assert_eq!(press(&mut model, "\u{1b}"), KeyAction::Nothing);
    assert_eq!(names(&model).len(), 4);
    assert_eq!(press(&mut model, "\u{1b}"), KeyAction::Quit);
    press(&mut model, "/nothing has this\n");
    assert!(shown(&model, 80, 20).contains("No session matches the filter."));
    assert_eq!(press(&mut model, "f"), KeyAction::Nothing);
}

#[test]
fn what_ends_something_is_asked_for_and_anything_but_y_is_no() {
    let mut model = model();
    assert_eq!(press(&mut model, "f"), KeyAction::Follow("c".to_owned()));
    assert_eq!(press(&mut model, "p"), KeyAction::Do(SessionAction::Pin("c".to_owned(), false)));
    assert_eq!(press(&mut model, "a"), KeyAction::Nothing);
    assert!(shown(&model, 80, 20).ends_with("End the calls of review? [y/N]\n"));
    assert_eq!(press(&mut model, "y"), KeyAction::Do(SessionAction::Abort("c".to_owned())));
    assert_eq!(press(&mut model, "an"), KeyAction::Nothing);
    assert_eq!(model.prompt, Prompt::None);
    assert_eq!(press(&mut model, "x"), KeyAction::Nothing);
    // The question keeps its session if the order changes.
    model.take(Update::Data(Box::new(data(130, 2600)), Instant::now()));
    assert_eq!(press(&mut model, "y"), KeyAction::Do(SessionAction::Kill("c".to_owned())));
    model.take(Update::Done("Killed the worker of review.".to_owned()));
    assert!(shown(&model, 80, 20).ends_with("Killed the worker of review.\n"));
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    assert_eq!(
        (model.key(control('c')), model.key(control('z'))),
        (KeyAction::Quit, KeyAction::Stop)
    );
}
