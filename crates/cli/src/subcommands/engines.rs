//! `quack engines`: the engines that start workers elsewhere, and a test of one of them. Needs no daemon.

use crate::agents::{find_blocking, searched};
use crate::args::engines::{EnginesArgs, EnginesTestArgs, EnginesVerb};
use crate::directory;
use crate::display;
use crate::exit::{CliError, ExitCode};
use crate::interrupts::Interrupts;
use crate::output::CliOutput;
use anyhow::Context as _;
use quackd_engines::{Engine, Filling, Program, Promise, client_env};
use quackd_protocol::far::FarStart;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// Longest test.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Document of `quack engines`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EnginesDocument {
    /// Directories in which the clients were searched.
    searched: Vec<PathBuf>,
    engines: Vec<EngineFacts>,
}

/// Facts of one engine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EngineFacts {
    name: String,
    about: String,
    /// First word of the argument list.
    client: String,
    /// Path of the client. Absent if it is not installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// `required`, `optional` or `none`.
    target: &'static str,
    /// Names of the options of a target.
    options: Vec<String>,
    /// `sent`, or the path there.
    program: String,
    promises: Vec<&'static str>,
    /// Whether it creates something for each session.
    creates: bool,
    /// Whether `quack new --send` can send a copy there.
    keeps_files: bool,
}

/// Document of `quack engines test`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TestDocument {
    on: String,
    version: String,
    sent_program: bool,
    ready_ms: u64,
}

/// Runs the subcommand.
pub(crate) async fn run(args: EnginesArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    match args.verb {
        Some(EnginesVerb::Test(args)) => test(args, output).await,
        None => tokio::task::spawn_blocking(move || list_blocking(output)).await?,
    }
}

fn list_blocking(output: CliOutput) -> anyhow::Result<ExitCode> {
    let config = directory::config_blocking()?;
    let searched = searched();
    let facts = |engine| facts_blocking(engine, &searched);
    let engines = config.engines().into_iter().map(facts).collect();
    let document = EnginesDocument { searched, engines };
    output.show(&document, || text(&document))?;
    Ok(ExitCode::Ok)
}

fn facts_blocking(engine: Engine, searched: &[PathBuf]) -> EngineFacts {
    let client = engine.start.into_iter().next().unwrap_or_default();
    EngineFacts {
        name: engine.name,
        about: engine.about,
        path: find_blocking(&client, searched),
        creates: !engine.create.is_empty(),
        client,
        target: engine.target.word(),
        options: engine.options.into_iter().map(|(name, _)| name).collect(),
        program: match engine.program {
            Program::Send => "sent".to_owned(),
            Program::At(path) => path,
        },
        promises: engine.promises.into_iter().map(Promise::words).collect(),
        keeps_files: engine.keeps_files,
    }
}

fn text(document: &EnginesDocument) -> String {
    let row = |facts: &EngineFacts| {
        let is_there = if facts.path.is_some() { "" } else { " (not installed)" };
        [
            display::name_cell(&facts.name),
            format!("{}{is_there}", display::name_cell(&facts.client)),
            facts.target.to_owned(),
            display::path_cell(&facts.program, None),
            promises(facts),
        ]
    };
    let rows: Vec<_> = document.engines.iter().map(row).collect();
    let header = ["ENGINE", "CLIENT", "TARGET", "PROGRAM", "PROMISES"];
    let mut text = display::table(header, [8, 6, 8, 7, 0], &rows);

    text.push('\n');
    for facts in &document.engines {
        text.push_str(&format!("{}: {}\n", facts.name, display::plain(&facts.about)));
    }
    text.push_str("quack new --on ENGINE:TARGET DIR creates a session there.\n");
    text
}

fn promises(facts: &EngineFacts) -> String {
    let creates = facts.creates.then_some("creates for each session");
    let keeps = facts.keeps_files.then_some("keeps files");
    let words: Vec<_> =
        creates.into_iter().chain(facts.promises.iter().copied()).chain(keeps).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

async fn test(args: EnginesTestArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    let (far, hint) = far_start_blocking(&args.on)?;
    let place = display::name(&args.on);

    let probed = tokio::select! {
        biased;
        _ = interrupts.next() => return Ok(ExitCode::Interrupted),
        probed = Box::pin(quackd_link_worker::probe(&far)) => probed,
    };
    let report = probed.map_err(|error| {
        let error = display::plain(&error.to_string());
        CliError::failed(format!("{place} failed: {error}; {hint}"))
    })?;

    let document = TestDocument {
        on: args.on,
        version: report.version,
        sent_program: report.sent_program,
        ready_ms: u64::try_from(report.connected.as_millis()).unwrap_or(u64::MAX),
    };
    output.show(&document, || {
        let sent = if document.sent_program { "was sent" } else { "was there" };
        let version = display::plain(&document.version);
        let seconds = report.connected.as_secs_f64();
        format!("{place} is ready: quackd {version}, the program {sent}, {seconds:.1} s\n")
    })?;
    Ok(ExitCode::Ok)
}

/// Returns how a link process reaches the place, and what to do if that fails.
fn far_start_blocking(on: &str) -> anyhow::Result<(FarStart, String)> {
    let config = directory::config_blocking()?;
    let (name, target) = directory::engine_and_target(on);
    let engines = config.engines();
    let engine = engines.iter().find(|engine| engine.name == name).ok_or_else(|| {
        let names: Vec<_> = engines.iter().map(|engine| engine.name.as_str()).collect();
        directory::no_engine(name, &names)
    })?;

    let client = engine.start.first().map_or("", String::as_str);
    if find_blocking(client, &searched()).is_none() {
        let client = display::name(client);
        return Err(
            CliError::failed(format!("{client} is not installed: it is not in PATH")).into()
        );
    }
    let program = match config.far.program.value.as_str() {
        "" => std::env::current_exe().context("cannot find this program's own file")?,
        program => PathBuf::from(program),
    };
    if !engine.create.is_empty() {
        return Err(CliError::failed(format!(
            "{name} creates something for each session: try it with quack new --on {on} DIR"
        ))
        .into());
    }
    // The id of no session.
    let session = format!("test-{}", std::process::id());
    let program = program.to_string_lossy();
    let filling = Filling { target, session: &session, created: "", program: &program };
    let argv = engine.argv(filling);
    let argv = argv.map_err(|error| CliError::usage(error.to_string()))?;

    let far = FarStart {
        place: if target.is_empty() { name } else { target }.to_owned(),
        start: argv.start,
        resume: Vec::new(),
        stop: argv.stop,
        poll: argv.poll,
        program: argv.program,
        env: client_env(std::env::vars_os(), &[]).into_iter().collect(),
        grace_ms: 0,
        queue_ms: u64::try_from(TEST_TIMEOUT.as_millis()).unwrap_or(u64::MAX),
    };
    let hint = match engine.probe.as_slice() {
        [] => "docs/far.md has causes".to_owned(),
        probe => format!("does `{}` work? docs/far.md has causes", probe.join(" ")),
    };
    Ok((far, hint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_config::Config;

    #[test]
    fn the_table_has_clients_targets_and_promises() {
        let engines = Config::default().engines().into_iter();
        let engines = engines.map(|engine| facts_blocking(engine, &[])).collect();
        let text = text(&EnginesDocument { searched: Vec::new(), engines });
        assert!(text.starts_with("ENGINE    CLIENT"), "{text}");
        assert!(text.contains("ssh (not installed)"), "{text}");
        assert!(text.contains("/run/quackd/quack  own file system"), "{text}");
        assert!(text.contains("\nssh: a host of your ssh"), "{text}");
    }

    #[test]
    fn promises_have_words() {
        let engines = Config::default().engines();
        let slurm = engines.into_iter().find(|engine| engine.name == "slurm").unwrap();
        assert_eq!(
            facts_blocking(slurm, &[]).promises,
            ["chooses the machine", "limits resources"]
        );
    }
}
