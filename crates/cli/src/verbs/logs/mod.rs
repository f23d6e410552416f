//! `quack logs`: the daemon's log for a person, or as it is for a script. Works without a daemon.
//!
//! [`tail`] reads the files, [`mod@line`] makes a line readable.
//!
//! With `-f` the file is looked at five times a second. A watcher of the kernel's would need a directory
//! watch for the rotation, an instance of which each user has few, and works on no network file system;
//! a look is one `stat`.

mod line;
mod tail;

use self::line::Format;
use self::tail::{Line, Tail};
use crate::args::LogsArgs;
use crate::exit::Exit;
use crate::output::{Output, Reader};
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use quackd_home::Home;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// Time between two looks at the log.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the verb.
pub(crate) async fn run(args: LogsArgs, output: Output) -> anyhow::Result<Exit> {
    let path = Home::from_process_env_blocking()?.log_file();
    if !args.follow {
        return show(&args, &path, output).await;
    }
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            Ok(Exit::Ok)
        }
        ended = show(&args, &path, output) => ended,
    }
}

async fn show(args: &LogsArgs, path: &Path, output: Output) -> anyhow::Result<Exit> {
    let cannot_read = || format!("cannot read {}", path.display());
    let mut tail = Tail::begin_blocking(path, args.lines).with_context(cannot_read)?;
    if tail.is_empty() {
        let what = if args.follow { "waiting for the log" } else { "there is no log yet" };
        output.note(&format!("{what}: {}", path.display()));
    }
    let mut format = Format::new(TimeZone::system(), Timestamp::now());
    loop {
        let mut lines = tail.read_blocking().with_context(cannot_read)?;
        let is_end = lines.is_empty();
        if is_end && !args.follow {
            lines.extend(tail.rest());
        }
        if !lines.is_empty() && print(&lines, &mut format, output).await? == Reader::Gone {
            return Ok(Exit::Ok);
        }
        match (is_end, args.follow) {
            (false, _) => {}
            (true, false) => return Ok(Exit::Ok),
            (true, true) if Reader::look() == Reader::Gone => return Ok(Exit::Ok),
            (true, true) => sleep(POLL_INTERVAL).await,
        }
    }
}

async fn print(lines: &[Line], format: &mut Format, output: Output) -> anyhow::Result<Reader> {
    let mut text = String::new();
    for line in lines {
        if output.is_json() {
            text.push_str(&line::json(line));
        } else {
            text.push_str(&format.readable(line));
        }
        text.push('\n');
    }
    Ok(output.piece(text).await?)
}
