//! `quack service status`: prints the state of the files, of the manager and of the daemon.

use super::context::ServiceContext;
use super::{install, launchd};
use crate::display::{full_path, plain};
use crate::exit::ExitCode;
use crate::output::{BOLD, CliOutput};
use crate::run_program::ask;
use quackd_protocol::client::{DaemonData, ExecutableState};
use quackd_service::file::{Standing, look_blocking};
use quackd_service::launchd::AgentState;
use quackd_service::{Manager, place};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Properties requested from systemd.
const PROPERTIES: &str = "--property=ActiveState,SubState,UnitFileState,MainPID,NRestarts,Result,\
                          ExecMainStatus,StatusText";

/// Prints the state. Exits with 1 unless the service is installed and its daemon answers.
pub(super) async fn run(here: &ServiceContext, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut files = Vec::new();
    for file in here.wanted()? {
        let standing = look_blocking(&file.path, &file.text)?;
        files.push((file.path, standing));
    }

    let is_installed = files.iter().all(|(_, standing)| *standing != Standing::Absent);
    let unreachable = here.unreachable().await;
    let unit = if unreachable.is_none() { properties(here).await } else { Map::new() };

    // Ask only a running daemon: a connection to systemd's socket would start one.
    let is_active = unit.get("ActiveState").and_then(Value::as_str) == Some("active");
    let may_ask = is_active || here.manager == Manager::Launchd || unreachable.is_some();
    let daemon = if may_ask { here.daemon().await.ok() } else { None };
    let is_of_service = daemon.as_ref().is_some_and(|daemon| here.owns(daemon));
    let exit = if is_installed && is_of_service { ExitCode::Ok } else { ExitCode::Failed };

    let lingers = install::lingers(here, unreachable.is_none()).await;

    let row =
        |(path, standing): &(PathBuf, Standing)| json!({"path": path, "standing": name(*standing)});
    let document = json!({
        "manager": here.manager.name(),
        "installed": is_installed,
        "files": files.iter().map(row).collect::<Vec<_>>(),
        "unreachable": unreachable,
        "unit": unit,
        "daemon": daemon,
        "lingers": lingers,
    });

    let mut text = format!("{BOLD}service{BOLD:#}  of {}\n", here.manager.name());
    for (path, standing) in &files {
        text.push_str(&format!("  {}: {}\n", full_path(path), name(*standing)));
    }

    match &unreachable {
        Some(reason) => text.push_str(&format!("  {reason}\n")),
        None if here.manager == Manager::Systemd => text.push_str(&unit_line(&unit)),
        None => text.push_str(&agent_line(&unit)),
    }

    text.push_str(&daemon_line(here.manager, daemon.as_ref()));
    if is_installed {
        text.push_str(&format!("  {}", install::logout(here.manager, lingers)));
    } else {
        text.push_str("  `quack service install` installs it\n");
    }

    output.show(&document, || text)?;
    Ok(exit)
}

fn name(standing: Standing) -> &'static str {
    match standing {
        Standing::Absent => "not there",
        Standing::Same => "as it should be",
        Standing::Ours => {
            "of another version or changed; `quack service install` brings it up to date"
        }
        Standing::Foreign => "not written by `quack service install`",
    }
}

async fn properties(here: &ServiceContext) -> Map<String, Value> {
    if here.manager == Manager::Launchd {
        let Ok(Some(state)) = launchd::state().await else { return Map::new() };
        let AgentState { state, pid, runs, last_exit_code } = state;
        let fields =
            [("state", state), ("pid", pid), ("runs", runs), ("lastExitCode", last_exit_code)];
        return fields.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
    }

    let words = ["systemctl", "--user", "show", place::UNIT, PROPERTIES];
    let Ok(answer) = ask(&words).await else { return Map::new() };
    let pairs = answer.stdout.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

fn unit_line(properties: &Map<String, Value>) -> String {
    let of = |name: &str| plain(properties.get(name).and_then(Value::as_str).unwrap_or("unknown"));
    // systemd reports an empty state for an unknown unit.
    let file_state = Some(of("UnitFileState")).filter(|state| !state.is_empty());

    let mut text = format!(
        "  unit: {} ({}), {}, restarted {} times\n",
        of("ActiveState"),
        of("SubState"),
        file_state.as_deref().unwrap_or("not known to systemd"),
        of("NRestarts")
    );

    if of("Result") != "success" {
        let (result, status) = (of("Result"), of("ExecMainStatus"));
        text.push_str(&format!(
            "  last end: {result}, exit code {status}; `quack service logs` says more\n"
        ));
    }
    text
}

fn agent_line(properties: &Map<String, Value>) -> String {
    if properties.is_empty() {
        return "  agent: not loaded; `quack service restart` loads it\n".to_owned();
    }

    let of = |name: &str| plain(properties.get(name).and_then(Value::as_str).unwrap_or_default());
    let part = |words: &str, name: &str| match of(name) {
        value if value.is_empty() => String::new(),
        value => format!(", {words} {value}"),
    };

    let state = Some(of("state")).filter(|state| !state.is_empty());
    format!(
        "  agent: {}{}{}{}\n",
        state.as_deref().unwrap_or("loaded"),
        part("process", "pid"),
        part("starts", "runs"),
        part("last exit code", "lastExitCode")
    )
}

fn daemon_line(manager: Manager, daemon: Option<&DaemonData>) -> String {
    let Some(daemon) = daemon else { return "  no daemon runs\n".to_owned() };
    let (version, pid) = (plain(&daemon.version), daemon.pid);
    let whose = match daemon.managed_by.as_deref() {
        Some(by) if by == manager.name() => "",
        _ => ", not started by the service: `quack service install` takes over",
    };
    let upgrade = match daemon.executable.state {
        ExecutableState::Replaced => ", its program was replaced since: `quack restart`",
        ExecutableState::Deleted => ", its program was deleted since",
        ExecutableState::Current | ExecutableState::Unknown => "",
    };
    format!("  daemon: version {version}, process {pid}{whose}{upgrade}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_that_systemd_does_not_know_has_no_empty_part() {
        let told = |state: &str| {
            let pairs = [
                ("ActiveState", "inactive"),
                ("SubState", "dead"),
                ("UnitFileState", state),
                ("NRestarts", "0"),
                ("Result", "success"),
            ];
            pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).into_iter().collect()
        };
        let expected = "  unit: inactive (dead), not known to systemd, restarted 0 times\n";
        assert_eq!(unit_line(&told("")), expected);
        assert_eq!(
            unit_line(&told("enabled")),
            "  unit: inactive (dead), enabled, restarted 0 times\n"
        );
    }
}
