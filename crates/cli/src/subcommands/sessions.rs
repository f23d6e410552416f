//! `quack sessions`: lists the daemon's sessions.

use crate::args::sessions::{SessionsArgs, SessionsVerb};
use crate::connect::call;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::time_format::{ago, local};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::client::{SessionInfo, SessionsParams};
use serde_json::Value;

/// Lists all sessions, or with `prune` forgets those without a directory.
pub(crate) async fn run(args: &SessionsArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if let Some(SessionsVerb::Prune(args)) = &args.verb {
        return crate::subcommands::gc::prune(args, output).await;
    }

    let params = SessionsParams { all: Value::Bool(true), ..SessionsParams::default() };
    let mut sessions = call(params, output).await?.sessions;
    let zone = TimeZone::system();
    if output.is_json() {
        for session in &mut sessions {
            session.last_active_at = local(&session.last_active_at, &zone);
        }
        output.document(&sessions)?;
    } else {
        let home_dir = std::env::var("HOME").ok();
        output.text(&render(&sessions, Timestamp::now(), &zone, home_dir.as_deref()))?;
    }
    Ok(ExitCode::Ok)
}

fn render(
    sessions: &[SessionInfo],
    now: Timestamp,
    zone: &TimeZone,
    home_dir: Option<&str>,
) -> String {
    if sessions.is_empty() {
        return "No sessions yet. Run `quack` to start.\n".to_owned();
    }

    let row = |session: &SessionInfo| {
        let mark = if session.is_active { " ◇" } else { "" };
        [
            format!("{}{mark}", display::name_cell(display::label(&session.label, &session.name))),
            display::path_cell(&session.workspace_path, home_dir),
            format!("{}{}", status(session), isolated(session)),
            ago(&session.last_active_at, now, zone),
        ]
    };

    let rows: Vec<_> = sessions.iter().map(row).collect();
    let header = ["SESSION", "DIRECTORY", "STATUS", "LAST ACTIVE"];
    display::table(header, [12, 12, 10, 0], &rows)
}

/// Words about the private copy of a session.
fn isolated(session: &SessionInfo) -> String {
    match &session.place {
        Some(place) => format!(", sent to {}", display::name_cell(place)),
        None if session.isolated => ", isolated".to_owned(),
        None => String::new(),
    }
}

/// Returns a session's status. For an older daemon without a status: whether its worker is running.
fn status(session: &SessionInfo) -> String {
    let status = &session.status;
    let has_no_status = status.status_why.is_empty();
    let word = if has_no_status && session.is_running { "running" } else { status.status.name() };
    if status.pinned { format!("{word} ⚲") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::client::{SessionStatus, StatusInfo};

    #[test]
    fn what_a_session_does_is_shown_where_it_is_told() {
        let mut one = session("duck-1", "/srv", true, "");
        assert_eq!(status(&one), "running", "an older daemon");
        one.status = StatusInfo {
            status: SessionStatus::Waiting,
            status_why: "its agent has asked you something".to_owned(),
            ..StatusInfo::default()
        };
        assert_eq!(status(&one), "waiting");
        one.status.pinned = true;
        assert_eq!(status(&one), "waiting ⚲");
    }

    fn session(name: &str, path: &str, is_active: bool, last_active_at: &str) -> SessionInfo {
        SessionInfo {
            isolated: false,
            place: None,
            id: "s".into(),
            name: "duck-1".to_owned(),
            label: name.to_owned(),
            workspace_path: path.to_owned(),
            is_active,
            is_running: is_active,
            last_active_at: last_active_at.to_owned(),
            status: StatusInfo::default(),
        }
    }

    #[test]
    fn sessions_are_a_table_with_the_active_one_marked() {
        let now: Timestamp = "2026-03-10T12:00:00Z".parse().unwrap();
        let sessions = [
            session("duck-1", "/home/ada/src/app", true, "2026-03-10T11:57:00Z"),
            session("duck-2\x1b[2J", "unknown", false, "2026-03-08T11:57:00Z"),
        ];
        assert_eq!(
            render(&sessions, now, &TimeZone::UTC, Some("/home/ada")),
            "SESSION       DIRECTORY     STATUS      LAST ACTIVE\n\
             duck-1 ◇      ~/src/app     running     3m ago\n\
             duck-2\u{fffd}[2J    unknown       stopped     2d ago\n"
        );
    }

    #[test]
    fn no_sessions_are_a_sentence_that_says_what_to_do() {
        let text = render(&[], Timestamp::UNIX_EPOCH, &TimeZone::UTC, None);
        assert_eq!(text, "No sessions yet. Run `quack` to start.\n");
    }
}
