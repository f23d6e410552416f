//! `quack workspaces`: lists the directories that have sessions.

use crate::args::sessions::WorkspacesArgs;
use crate::connect::call;
use crate::display;
use crate::exit::ExitCode;
use crate::output::CliOutput;
use crate::time_format::{ago, local};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_protocol::client::{WorkspaceInfo, WorkspaceSession, WorkspacesParams};
use std::path::Path;

/// Runs the subcommand.
pub(crate) async fn run(_args: WorkspacesArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut workspaces = call(WorkspacesParams {}, output).await?.workspaces;
    let zone = TimeZone::system();
    if output.is_json() {
        for session in workspaces.iter_mut().flat_map(|workspace| &mut workspace.sessions) {
            session.last_active_at = local(&session.last_active_at, &zone);
        }
        output.document(&workspaces)?;
    } else {
        // The directory of a demo, for example.
        workspaces.retain(|workspace| {
            workspace.session_count != 0 || Path::new(&workspace.path).exists()
        });
        let home_dir = std::env::var("HOME").ok();
        output.text(&render(&workspaces, Timestamp::now(), &zone, home_dir.as_deref()))?;
    }
    Ok(ExitCode::Ok)
}

fn render(
    workspaces: &[WorkspaceInfo],
    now: Timestamp,
    zone: &TimeZone,
    home_dir: Option<&str>,
) -> String {
    if workspaces.is_empty() {
        return "No workspaces yet. Run `quack` to start.\n".to_owned();
    }

    let row = |workspace: &WorkspaceInfo| {
        let sessions = &workspace.sessions;
        let last = sessions.iter().filter_map(|session| session.last_active_at.parse().ok()).max();
        let mark = if sessions.iter().any(|session| session.is_active) { " ◇" } else { "" };
        let count = |is: fn(&WorkspaceSession) -> bool| sessions.iter().filter(|s| is(s)).count();
        [
            format!("{}{mark}", display::path_cell(&workspace.path, home_dir)),
            workspace.session_count.to_string(),
            count(|session| session.is_running).to_string(),
            last.map_or_else(
                || "-".to_owned(),
                |last: Timestamp| ago(&last.to_string(), now, zone),
            ),
        ]
    };

    let rows: Vec<_> = workspaces.iter().map(row).collect();
    display::table(["WORKSPACE", "SESSIONS", "RUNNING", "LAST ACTIVE"], [12, 8, 7, 0], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn workspaces_are_a_table_with_the_active_one_marked() {
        let session = |is_active, is_running, at: &str| {
            json!({"id": "s", "name": "duck", "isActive": is_active, "isRunning": is_running,
                   "lastActiveAt": at})
        };
        let workspaces: Vec<WorkspaceInfo> = serde_json::from_value(json!([
            {"id": "w", "path": "/home/ada/app", "lastActiveSessionId": "s", "sessionCount": 2,
             "sessions": [session(true, true, "2026-03-10T11:57:00Z"), session(false, false, "no time")]},
            {"id": "v", "path": "/x\u{1b}", "lastActiveSessionId": null, "sessionCount": 0, "sessions": []}
        ]))
        .unwrap();
        let now = "2026-03-10T12:00:00Z".parse().unwrap();
        assert_eq!(
            render(&workspaces, now, &TimeZone::UTC, Some("/home/ada")),
            "WORKSPACE     SESSIONS  RUNNING  LAST ACTIVE\n\
             ~/app ◇       2         1        3m ago\n\
             /x\u{fffd}           0         0        -\n"
        );
        let nothing = render(&[], now, &TimeZone::UTC, None);
        assert_eq!(nothing, "No workspaces yet. Run `quack` to start.\n");
    }
}
