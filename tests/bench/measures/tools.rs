//! One call at a time: from a client through the supervisor to a running worker and back.

use super::Effort;
use crate::daemon::Daemon;
use crate::report::{Row, Target, Unit};
use crate::samples::time_rounds;
use crate::wire::Line;
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(6);

/// Number of files in the searched tree.
const FILES: usize = 100;

pub(super) fn measure(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut daemon = Daemon::start()?;
    let repo = daemon.repo("a")?;
    for n in 0..FILES {
        let dir = repo.join(format!("src/{}", n / 10));
        std::fs::create_dir_all(&dir)?;
        std::fs::copy(repo.join("4k"), dir.join(format!("{n}.rs")))?;
    }
    std::fs::write(repo.join("src/0/needle.rs"), "fn needle() {}\n")?;
    let mut wire = daemon.wire()?;
    let session = wire.attach(&repo)?;
    let mut calls =
        |rounds: usize, line: Line| time_rounds(effort.rounds(rounds), LIMIT, || wire.call(&line));
    let read = calls(5000, Line::read_file(&session, "2k"))?;
    let bash = calls(1000, Line::bash(&session, "true"))?;
    let grep = json!({"pattern": "fn needle", "path": "src"});
    let grep = calls(1000, Line::call(0, &session, "grep_search", &grep))?;
    let mut bare = daemon.command("/bin/bash");
    bare.args(["--noprofile", "--norc", "-c", "true"]);
    let bare = time_rounds(effort.rounds(500), LIMIT, || {
        anyhow::ensure!(bare.status()?.success(), "bash does not work here");
        Ok(())
    })?;
    daemon.stop()?;
    let seconds = Unit::Seconds;
    let read = Row::new("read_file of 2 KiB", seconds, Target::must(0.25e-3), read)?;
    // 1 ms for the search, plus the round trip, which equals the time of `read_file`.
    let grep_target = Target::must(1e-3 + read.samples.median());
    Ok(vec![
        read,
        Row::new("bash `true`", seconds, Target::must(3e-3), bash)?,
        Row::new("  the same started by the bench itself", seconds, Target::NONE, bare)?,
        Row::new(format!("grep_search over {FILES} files"), seconds, grep_target, grep)?,
    ])
}
