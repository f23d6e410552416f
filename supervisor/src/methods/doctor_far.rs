//! The check `far` of `doctor`: whether the clients of the engines exist that reach the workers on other machines. Absent
//! without such sessions.

use super::directories::{CHECKED, RESOLVE_LIMIT};
use super::doctor_results::{ok, warn};
use crate::children::command_env::of;
use crate::engines::any_argv;
use crate::services::Services;
use quackd_protocol::client::{Check, WorkerInfo};
use quackd_protocol::far::FarWorkspace;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

const NAME: &str = "far";

/// Returns the check, or `None` without far sessions.
pub(super) async fn check(services: &Services, workers: &[WorkerInfo]) -> Option<Check> {
    let far: Vec<_> =
        workers.iter().filter_map(|worker| FarWorkspace::of(&worker.workspace_path)).collect();
    if far.is_empty() {
        return None;
    }

    let mut clients = BTreeSet::new();
    for workspace in &far {
        match any_argv(&services.daemon, workspace, CHECKED, CHECKED) {
            Ok(argv) => clients.extend(argv.start.into_iter().next()),
            Err(why) => {
                let message = format!("{}: {why}", workspace.shown());
                return Some(warn(NAME, message, "`quack engines` lists the engines"));
            }
        }
    }

    let env = services.sessions.children.login.env_for_worker(Duration::ZERO).await;
    let path = of(&env, "PATH").to_owned();
    let look = move || clients.into_iter().find(|client| !exists_blocking(client, &path));
    let missing = services.sessions.look(RESOLVE_LIMIT, look).await;

    let places: BTreeSet<&str> = far.iter().map(FarWorkspace::place).collect();
    let places: Vec<&str> = places.into_iter().collect();
    Some(match missing {
        Ok(None) => ok(
            NAME,
            format!(
                "the clients are installed that reach {} on {}; links are not checked",
                count(far.len()),
                places.join(", ")
            ),
        ),
        Ok(Some(client)) => warn(
            NAME,
            format!("{client} is not in PATH, and reaches the workers on other machines"),
            "install it; `quack engines test` tries an engine",
        ),
        Err(_late) => warn(NAME, "a disk does not respond".to_owned(), "check the disks in PATH"),
    })
}

fn count(n: usize) -> String {
    if n == 1 { "1 session".to_owned() } else { format!("{n} sessions") }
}

/// Whether a program exists, at its path or in a directory of `PATH`.
fn exists_blocking(program: &str, path: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).is_file();
    }
    path.split(':').any(|directory| Path::new(directory).join(program).is_file())
}
