//! `quack gc`: deletes expired and orphaned files. The daemon deletes them, because it knows the files in use. Without
//! a daemon, this process does so while it holds the instance lock.

use crate::args::gc::GcArgs;
use crate::args::sessions::PruneArgs;
use crate::connect::{call, connect_only};
use crate::display;
use crate::exit::ExitCode;
use crate::output::{CliOutput, DIM};
use crate::time_format::span;
use anyhow::{Context as _, bail};
use quackd_client::ClientError;
use quackd_config::KeepSettings;
use quackd_home::Home;
use quackd_home::keep::{Found, Item, Known, Rules, Tally, find_blocking, remove_blocking};
use quackd_home::own_file::read_blocking;
use quackd_protocol::client::{GcData, GcItem, GcKind, GcParams, PrunedSession};
use quackd_protocol::guest_agents::STATE_KEPT;
use quackd_protocol::limits::{GC_KEPT_ASIDE, MAX_GC_NAMED, MAX_METADATA_BYTES, MAX_STATE_BYTES};
use quackd_protocol::metadata::{Metadata, Session, Shared};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Bytes in one MiB.
const MIB: u64 = 1024 * 1024;

/// Kind of the sessions whose directory does not exist.
const SESSIONS: &str = "sessions";

/// Reason for keeping sessions without a directory while no daemon runs.
const ONLY_BY_DAEMON: &str = "no daemon runs; `quack sessions prune` starts one and forgets it";

/// Maximum number of items listed as text.
const MAX_SHOWN: usize = 20;

/// Asks the daemon to delete the files, or deletes them without a daemon. Deleting histories needs
/// a confirmation.
pub(crate) async fn run(args: GcArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if args.histories && !args.dry_run && !args.yes {
        CliOutput::require_terminal()?;
        let question = "Delete the histories of deleted sessions? This cannot be undone.";
        if !output.ask(question.to_owned()).await? {
            bail!("nothing was deleted");
        }
    }

    let params = GcParams {
        dry_run: args.dry_run.then_some(true),
        older_than_s: args.older_than.map(|age| age.as_secs()),
        histories: args.histories.then_some(true),
        ..GcParams::default()
    };

    let data: GcData = match connect_only(output).await {
        Ok(daemon) => daemon.client.call(params).await?,
        Err(error) if is_not_running(&error) => {
            tokio::task::spawn_blocking(move || alone_blocking(&args)).await??
        }
        Err(error) => return Err(error),
    };

    output.show(&data, || text(&data))?;
    Ok(if data.failed == 0 { ExitCode::Ok } else { ExitCode::Failed })
}

fn is_not_running(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<ClientError>(), Some(ClientError::NotRunning { .. }))
}

/// Deletes expired and orphaned files without a daemon, under the instance lock.
fn alone_blocking(args: &GcArgs) -> anyhow::Result<GcData> {
    let (dry_run, older, histories) = (args.dry_run, args.older_than, args.histories);
    let home = Home::from_process_env_blocking()?;
    if !home.dir().exists() {
        return Ok(GcData { dry_run, ..GcData::default() });
    }
    // A dry run creates neither the lock file, which would mark the directory as quackd's, nor `run`.
    let _lock =
        if dry_run { home.check_blocking().map(|()| None)? } else { Some(lock_blocking(&home)?) };

    let metadata = metadata_blocking(&home);
    let lost = metadata.as_ref().map(lost_blocking).unwrap_or_default();
    let known = metadata.as_ref().map(known);
    // Every history would look like one of no session.
    if histories && let Err(error) = &known {
        bail!("histories are kept, because the existing sessions are not known: {error:#}");
    }

    let keep = keep_settings(&home)?;
    let rules = Rules {
        is_served: false,
        outputs: older.unwrap_or(keep.outputs.value),
        undo: older.unwrap_or(keep.undo.value),
        undo_max_bytes: mebibytes(keep.undo_mb.value),
        caches_max_bytes: mebibytes(keep.caches_mb.value),
        quarantined: Some(older.unwrap_or(GC_KEPT_ASIDE)),
        histories: histories.then(|| older.unwrap_or(GC_KEPT_ASIDE)),
        agents: Some(STATE_KEPT),
    };

    let findings = find_blocking(&home, &rules, known.as_ref().ok())?;
    let tally =
        if dry_run { Tally::of(&findings.items) } else { remove_blocking(&home, &findings.items) };
    Ok(GcData { kept_sessions: lost, ..answer(dry_run, tally, &findings) })
}

fn mebibytes(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX).saturating_mul(MIB)
}

/// Takes the instance lock, which prevents a daemon from starting.
fn lock_blocking(home: &Home) -> anyhow::Result<quackd_home::InstanceLock> {
    home.prepare_blocking()?;
    quackd_home::lock_blocking(home)?.context("a daemon is starting or stopping; try again")
}

/// Reads the daemon's settings. If the configuration is not valid, nothing is deleted, because the intended retention
/// is unknown.
fn keep_settings(home: &Home) -> anyhow::Result<KeepSettings> {
    let read = quackd_supervisor::read_config(home);
    Ok(read.context("the configuration with the retention times cannot be read")?.0.keep)
}

/// Reads the sessions from both files without changing them. Only the daemon repairs them. After a kill, metadata.json
/// may lack sessions of the daemon's own state, which in turn may lack sessions of other programs.
fn metadata_blocking(home: &Home) -> anyhow::Result<Metadata> {
    let path = home.metadata();
    let name = || path.display().to_string();
    // A killed daemon may leave changes in files next to this one.
    for part in ["ours", "ours.tmp", "theirs"] {
        let other = path.with_extension(format!("json.{part}"));
        anyhow::ensure!(!other.exists(), "{} exists: start the daemon once", other.display());
    }

    let bytes = read_blocking(&path, MAX_METADATA_BYTES).with_context(name)?;
    let mut metadata: Metadata = serde_json::from_slice(&bytes).with_context(name)?;
    let own = own_metadata_blocking(&home.state_file())?;

    let known: HashSet<_> = metadata.sessions.iter().map(|session| session.id.clone()).collect();
    // metadata.json has the newer state of a session that both files have.
    let missing = own.sessions.into_iter().filter(|session| !known.contains(&session.id));
    metadata.sessions.extend(missing);
    metadata.workspaces.extend(own.workspaces);
    Ok(metadata)
}

/// Reads the sessions from the daemon's own state. Empty without one, and for one of an older version.
pub(super) fn own_metadata_blocking(path: &Path) -> anyhow::Result<Metadata> {
    #[derive(Deserialize)]
    struct OwnState {
        #[serde(default)]
        metadata: Option<Metadata>,
    }

    let name = || path.display().to_string();
    let bytes = match read_blocking(path, MAX_STATE_BYTES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Metadata::default()),
        bytes => bytes.with_context(name)?,
    };

    let state: OwnState = serde_json::from_slice(&bytes).with_context(name)?;
    Ok(state.metadata.unwrap_or_default())
}

/// Returns the sessions whose directory does not exist. Only the daemon deletes sessions, because it owns
/// metadata.json.
fn lost_blocking(metadata: &Metadata) -> Vec<PrunedSession> {
    let is_missing = |path: &str| {
        let error = Path::new(path).metadata().err().map(|error| error.kind());
        matches!(error, Some(ErrorKind::NotFound | ErrorKind::NotADirectory))
    };

    let missing = metadata.workspaces.iter().filter(|workspace| is_missing(&workspace.path));
    let paths: HashMap<_, _> = missing.map(|workspace| (&workspace.id, &workspace.path)).collect();

    let row = |session: &Shared<Session>| {
        Some(PrunedSession {
            id: session.id.clone(),
            name: session.name.clone(),
            workspace_path: (*paths.get(&session.workspace_id)?).clone(),
            label: String::new(),
            why: Some(ONLY_BY_DAEMON.to_owned()),
            pinned: false,
        })
    };
    metadata.sessions.iter().filter_map(row).collect()
}

fn known(metadata: &Metadata) -> Known {
    let (workspaces, sessions) = (metadata.workspaces.iter(), metadata.sessions.iter());
    let workspaces: HashSet<_> = workspaces.map(|workspace| workspace.path.clone()).collect();
    let pi_file = |session: &Shared<Session>| {
        let name = Path::new(&session.pi_session_file).file_name()?;
        Some(name.to_string_lossy().into_owned())
    };
    Known {
        sessions: sessions.clone().map(|session| session.id.0.clone()).collect(),
        pi_files: sessions.filter_map(pi_file).collect(),
        // Keep workspaces without a session too, because their use is unknown.
        workspaces: workspaces.clone(),
        all_workspaces: workspaces,
        ..Known::default()
    }
}

fn answer(dry_run: bool, tally: Tally, findings: &Found) -> GcData {
    let named = |item: &Item| GcItem {
        kind: item.kind.name().to_owned(),
        path: item.path.clone(),
        bytes: item.bytes,
        age_s: item.age.as_secs(),
    };

    let of_kind = |(kind, (items, bytes)): (quackd_home::keep::Kind, (usize, u64))| GcKind {
        kind: kind.name().to_owned(),
        items,
        bytes,
    };

    GcData {
        dry_run,
        items: tally.items(),
        bytes: tally.bytes(),
        failed: tally.failed,
        more: findings.is_cut,
        found: findings.items.iter().filter(|_| dry_run).take(MAX_GC_NAMED).map(named).collect(),
        why: tally.why,
        kinds: tally.kinds.into_iter().map(of_kind).collect(),
        ..GcData::default()
    }
}

/// Formats the result as text: the totals, then the items of a dry run.
fn text(data: &GcData) -> String {
    let mut text = String::new();
    let verb = if data.dry_run { "Would delete" } else { "Deleted" };

    if data.kinds.is_empty() && data.failed == 0 {
        return format!("Nothing to delete.\n{}", sessions(data));
    }

    for GcKind { kind, items, bytes } in &data.kinds {
        let size =
            if kind == SESSIONS { String::new() } else { format!("  {}", display::bytes(*bytes)) };
        text.push_str(&format!("{verb} {}{size}\n", about(kind, *items)));
    }

    for item in data.found.iter().take(MAX_SHOWN) {
        let (path, age) = (display::plain(&item.path), span(Duration::from_secs(item.age_s)));
        let bytes = display::bytes(item.bytes);
        text.push_str(&format!("  {DIM}{path}  {bytes}  {age} old{DIM:#}\n"));
    }

    text.push_str(&sessions(data));
    if MAX_SHOWN < data.found.len() {
        text.push_str(&format!("  … and more; `--json` names up to {MAX_GC_NAMED}\n"));
    }

    if data.failed != 0 {
        let reason = data.why.as_deref().map(display::plain).unwrap_or_default();
        text.push_str(&format!("{} could not be deleted: {reason}\n", data.failed));
    }

    if data.more {
        text.push_str("There is more: run it again.\n");
    }
    text
}

/// Formats the sessions whose directory does not exist.
fn sessions(data: &GcData) -> String {
    let line = |session: &PrunedSession| {
        let name = display::name(display::label(&session.label, &session.name));
        let path = display::plain(&session.workspace_path);
        let reason = session.why.as_deref().map(display::plain);
        let reason = reason.map(|reason| format!("  stays: {reason}"));
        format!("  {DIM}{name}  {path}{}{DIM:#}\n", reason.unwrap_or_default())
    };

    let (forgotten, kept) = (data.sessions.iter(), data.kept_sessions.iter());
    let mut text: String =
        forgotten.take(MAX_SHOWN).chain(kept.take(MAX_SHOWN)).map(line).collect();
    if data.kept_sessions.iter().any(|session| session.pinned) {
        text.push_str("`quack sessions prune --force` forgets pinned sessions too.\n");
    }
    text
}

/// `quack sessions prune`: forgets the sessions whose directory does not exist.
pub(crate) async fn prune(args: &PruneArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let params = GcParams {
        dry_run: args.dry_run.then_some(true),
        only_sessions: Some(true),
        force: args.force.then_some(true),
        ..GcParams::default()
    };

    let data = call(params, output).await?;
    output.show(&data, || text(&data))?;
    Ok(ExitCode::Ok)
}

/// Describes `n` items of a kind.
fn about(kind: &str, n: usize) -> String {
    let (single, many) = match kind {
        "leftovers" => ("run directory of an earlier daemon", "run directories of earlier daemons"),
        "runs" => ("directory of no session", "directories of no session"),
        "temporary" => ("temporary file of commands", "temporary files of commands"),
        "outputs" => ("long output", "long outputs"),
        "undo" => {
            ("record of changes that could be undone", "records of changes that could be undone")
        }
        "unfinished" => ("file of a save that was cut short", "files of saves that were cut short"),
        "quarantined" => ("damaged file that was set aside", "damaged files that were set aside"),
        SESSIONS => {
            ("session without a directory to work in", "sessions without a directory to work in")
        }
        "histories" => ("history of no session", "histories of no session"),
        "caches" => ("directory of package caches", "directories of package caches"),
        "agents" => ("state of an unused agent", "states of unused agents"),
        // A kind of a newer daemon.
        other => return format!("{n} of {}", display::plain(other)),
    };
    format!("{n} {}", if n == 1 { single } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_words_of_its_own() {
        let words: std::collections::BTreeSet<String> =
            quackd_home::keep::Kind::ALL.iter().map(|kind| about(kind.name(), 2)).collect();
        assert_eq!(words.len(), quackd_home::keep::Kind::ALL.len());
        assert!(
            words.iter().all(|words| !words.contains(" of leftovers") && words.starts_with("2 "))
        );
    }

    #[test]
    fn a_dry_run_names_things_and_nothing_is_said_so() {
        let nothing = GcData::default();
        assert_eq!(text(&nothing), "Nothing to delete.\n");
        let item = |n: usize| GcItem {
            kind: "outputs".into(),
            path: format!("run/a\u{1b}/{n}"),
            bytes: 2048,
            age_s: 7200,
        };
        let data = GcData {
            dry_run: true,
            kinds: vec![GcKind { kind: "outputs".into(), items: 1, bytes: 2048 }],
            items: 1,
            bytes: 2048,
            found: vec![item(1)],
            ..GcData::default()
        };
        let plain = anstream::adapter::strip_str(&text(&data)).to_string();
        assert_eq!(
            plain,
            "Would delete 1 long output  2.0 KB\n  run/a\u{fffd}/1  2.0 KB  2h 0m old\n"
        );
        let many = GcData { found: (0..30).map(item).collect(), ..data };
        assert_eq!(text(&many).lines().count(), 1 + MAX_SHOWN + 1);
    }
}
