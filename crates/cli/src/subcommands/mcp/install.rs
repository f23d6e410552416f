//! `quack mcp install` and `uninstall`: edit a client's own configuration. No daemon is started.

mod change;
mod clients;
mod document;
mod file;
mod format;
mod json;
mod plan;
mod receipts;
mod setting;
mod toml;
mod yaml;

use crate::args::mcp::{McpHost, McpInstallArgs, McpServeArgs, McpUninstallArgs};
use crate::display::{self, plain};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::render::search::diff::render_patch;
use crate::subcommands::service::program;
use anyhow::Context;
use change::Change;
use clap::ValueEnum;
use clients::McpClient;
use file::ConfigFile;
use plan::Planned;
use quackd_home::Home;
use quackd_mcp::tool_list::Selection;
use receipts::{Receipt, Receipts};
use serde_json::{Value, json};
use similar::TextDiff;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Characters of a line up to which a diff shows it.
const MAX_SHOWN_CHARS: usize = 400;

/// Name of quackd's entry in the configuration of every client.
const NAME: &str = "quackd";

/// A file of the client and its changes.
type Target = (ConfigFile, Vec<Change>);

/// Changes of all files of a client.
struct Edit {
    client: McpClient,
    receipts: Receipts,
    home: Home,
    files: Vec<(ConfigFile, Planned)>,
    notes: Vec<String>,
    entry: Value,
}

pub(super) fn install(args: &McpInstallArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    if args.serve.http.is_some() {
        return Err(CliError::usage(
            "--http cannot be installed: clients start `quack mcp` over stdin",
        )
        .into());
    }

    let client = McpClient::of(args.host);
    let mut notes = Vec::new();
    let words = words(&args.serve, &client, &mut notes)?;

    let program = program().context("cannot find this program's own file")?;
    let program =
        program.to_str().ok_or_else(|| CliError::failed("the program's path is not UTF-8"))?;
    if let Some(complaint) = quackd_service::complaint_about(Path::new(program)) {
        notes.push(format!("{complaint}: first install the program in a permanent place"));
    }

    let project = args.project.as_deref().map(project_blocking).transpose()?;
    if args.exclusive && !client.exclusive.is_empty() {
        notes.push(exclusive_note(&client, project.is_some()));
    }
    if args.exclusive {
        notes.extend(client.exclusive_note.map(str::to_owned));
    }

    let entry = client.entry(program, &words);
    let home = Home::from_process_env_blocking()?;
    let receipts = Receipts::read_blocking(&home)?;
    let entry_change = Change::Entry(entry_path(&client), entry.clone());
    let targets = targets(&client, project.as_deref(), entry_change, args.exclusive)?;

    let mut files = Vec::new();
    for (file, changes) in targets {
        let old = receipts.of(&file.path);
        if !args.exclusive && old.is_some_and(Receipt::is_exclusive) {
            notes.push(format!(
                "{} has its own shell and edit tools again, because --exclusive was not given this time",
                client.label
            ));
        }
        let planned = plan::install(client.format, &file.path, file.text.as_deref(), old, &changes)
            .with_context(|| unusable(&file))?;
        files.push((file, planned));
    }

    let entry = json!({"name": NAME, "path": entry_path(&client), "value": entry.to_json()});
    Edit { client, receipts, home, files, notes, entry }.finish(args.print, true, output)
}

pub(super) fn uninstall(args: &McpUninstallArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let project = args.project.as_deref().map(project_blocking).transpose()?;
    removal_blocking(args.host, project.as_deref())?.finish(args.print, false, output)
}

fn project_blocking(given: &Path) -> anyhow::Result<PathBuf> {
    let project = std::fs::canonicalize(given)
        .with_context(|| format!("cannot find the project {}", given.display()))?;
    if !project.is_dir() {
        return Err(CliError::usage(format!("{} is not a directory", given.display())).into());
    }
    Ok(project)
}

/// Returns the note about the effect of `--exclusive` and its removal.
fn exclusive_note(client: &McpClient, is_project: bool) -> String {
    let McpClient { label, id, .. } = client;
    if is_project {
        return format!(
            "{label} has no shell and edit tools of its own in this project; \
             `quack mcp uninstall {id} --project` brings them back"
        );
    }

    format!(
        "{label} has no shell and edit tools of its own in any project, and none at all where quackd refuses the \
         directory, such as your home and /tmp; `quack mcp uninstall {id}` brings them back"
    )
}

/// The removal of quackd from the configuration of one agent, as part of the removal of quackd itself.
pub(crate) struct AgentRemoval {
    /// Name of the agent, for texts.
    pub(crate) label: &'static str,
    /// Files that change.
    pub(crate) paths: Vec<PathBuf>,
    /// Patch of all changed files, for display.
    pub(crate) patch: String,
    host: McpHost,
    /// The project whose configuration changes. `None`: that of the user.
    project: Option<PathBuf>,
}

impl AgentRemoval {
    /// Returns the removals for all agents whose files have quackd's entry or settings. Changes nothing.
    ///
    /// # Errors
    /// A file with quackd's entry or settings cannot be edited.
    pub(crate) fn all_blocking() -> anyhow::Result<Vec<Self>> {
        let mut found = Vec::new();
        for host in McpHost::value_variants() {
            let of_user = [None].into_iter().filter(|_| {
                // A broken file in which quackd never was is not quackd's concern.
                removal_blocking(*host, None).is_ok() || is_involved_blocking(*host)
            });
            let of_projects = projects_blocking(*host)?.into_iter().map(Some);
            for project in of_user.chain(of_projects) {
                let edit = removal_blocking(*host, project.as_deref())?;
                let paths: Vec<_> = edit.changed().map(|(file, _)| file.path.clone()).collect();
                if !paths.is_empty() {
                    let (label, patch) = (edit.client.label, edit.patch());
                    found.push(Self { label, paths, patch, host: *host, project });
                }
            }
        }
        Ok(found)
    }

    /// Changes the files.
    ///
    /// # Errors
    /// A file cannot be edited or written.
    pub(crate) fn apply_blocking(&self) -> anyhow::Result<()> {
        // Planned again: the receipts of another agent may have changed.
        removal_blocking(self.host, self.project.as_deref())?.apply_blocking()
    }
}

/// Whether the files of an agent mention quackd, or were changed by `install`.
fn is_involved_blocking(host: McpHost) -> bool {
    let client = McpClient::of(host);
    let receipts =
        Home::from_process_env_blocking().ok().map(|home| Receipts::read_blocking(&home));

    let Ok((file, settings)) = client.files_blocking(None) else { return false };
    [file].into_iter().chain(settings).any(|path| {
        let has_receipt = match &receipts {
            Some(Ok(receipts)) => receipts.of(&path).is_some(),
            // When the receipts cannot be read, a change cannot be ruled out.
            _ => true,
        };
        let file = ConfigFile::read_blocking(path);
        has_receipt || file.is_ok_and(|file| file.text.is_some_and(|text| text.contains(NAME)))
    })
}

/// Returns the projects whose configuration of one agent was changed by `install` and still exists.
fn projects_blocking(host: McpHost) -> anyhow::Result<BTreeSet<PathBuf>> {
    let client = McpClient::of(host);
    let receipts = Receipts::read_blocking(&Home::from_process_env_blocking()?)?;
    let (file, settings) = client.files_blocking(None)?;
    let is_of_project = |path: &&Path| **path != *file && settings.as_deref() != Some(path);
    let projects =
        receipts.paths().filter(is_of_project).filter_map(|path| client.project_of(path));
    Ok(projects.filter(|project| project.is_dir()).collect())
}

/// Plans the removal of quackd from the configuration of one agent: that of `project`, else that of the user.
fn removal_blocking(host: McpHost, project: Option<&Path>) -> anyhow::Result<Edit> {
    let client = McpClient::of(host);
    let home = Home::from_process_env_blocking()?;
    let receipts = Receipts::read_blocking(&home)?;
    let path = entry_path(&client);

    let mut files = Vec::new();
    let (file, settings) = client.files_blocking(project)?;
    let mut paths = vec![(file, Some(path.as_slice()))];
    paths.extend(settings.map(|path| (path, None)));

    for (file, entry) in paths {
        let old = receipts.of(&file);
        // The settings were never changed by quackd.
        if entry.is_none() && old.is_none() {
            continue;
        }
        let file = ConfigFile::read_blocking(file)?;
        let planned = plan::uninstall(client.format, file.text.as_deref(), old, entry)
            .with_context(|| unusable(&file))?;
        files.push((file, planned));
    }
    Ok(Edit { client, receipts, home, files, notes: Vec::new(), entry: Value::Null })
}

/// Returns the files of the client with their changes. A file of settings without changes is a target only to revert an
/// earlier `--exclusive`.
fn targets(
    client: &McpClient,
    project: Option<&Path>,
    entry: Change,
    exclusive: bool,
) -> anyhow::Result<Vec<Target>> {
    let off = || client.exclusive.iter().copied().map(Change::from);
    let off: Vec<Change> = if exclusive { off().collect() } else { Vec::new() };

    let (file, settings) = client.files_blocking(project)?;
    let file = ConfigFile::read_blocking(file)?;
    Ok(match settings {
        None => vec![(file, [vec![entry], off].concat())],
        Some(settings) => vec![(file, vec![entry]), (ConfigFile::read_blocking(settings)?, off)],
    })
}

fn entry_path(client: &McpClient) -> Vec<&'static str> {
    client.servers.iter().copied().chain([NAME]).collect()
}

fn unusable(file: &ConfigFile) -> String {
    format!("cannot edit {}, which stays as it is", plain(&file.path.display().to_string()))
}

/// Returns the arguments of the entry.
fn words(
    args: &McpServeArgs,
    client: &McpClient,
    notes: &mut Vec<String>,
) -> anyhow::Result<Vec<String>> {
    Selection::parse(&args.tools, args.safe).map_err(|error| CliError::usage(error.to_string()))?;

    let mut words = vec!["mcp".to_owned()];
    let is_anywhere = args.any_workspace
        || client.is_projectless && args.workspace.is_none() && args.session.is_none();

    if let Some(workspace) = &args.workspace {
        let path = std::fs::canonicalize(workspace)
            // Absolute, because the client starts the server in its own directory.
            .with_context(|| format!("cannot find the workspace {}", workspace.display()))?;
        let path = path
            .to_str()
            .ok_or_else(|| CliError::usage("the path of the workspace is not UTF-8"))?;
        words.extend(["--workspace".to_owned(), path.to_owned()]);
    } else if is_anywhere {
        words.push("--any-workspace".to_owned());
    }

    if is_anywhere && !args.any_workspace {
        notes.push(format!(
            "{} starts servers outside of any project, so each call chooses its directory (--any-workspace); \
             --workspace DIR sets one",
            client.label
        ));
    }

    words.extend(args.session.iter().map(|session| format!("--session={session}")));

    if args.safe {
        words.push("--safe".to_owned());
    }
    if args.tools != ["core"] {
        words.push(format!("--tools={}", args.tools.join(",")));
    }
    if args.keep {
        words.push("--keep".to_owned());
    }
    if args.isolated {
        words.push("--isolated".to_owned());
    }
    Ok(words)
}

impl Edit {
    /// Shows the change, and makes it unless `is_dry`.
    fn finish(
        mut self,
        is_dry: bool,
        is_install: bool,
        output: CliOutput,
    ) -> anyhow::Result<ExitCode> {
        let patch = self.patch();
        let is_changed = self.changed().next().is_some();
        // Before the change, because later there is no difference.
        let was_changed = self.changed_paths();
        if !is_dry {
            self.apply_blocking()?;
        }

        let path = self.files.first().map(|(file, _)| file.path.clone()).unwrap_or_default();
        if output.is_json() {
            output.document(&json!({
                "client": self.client.id, "file": path, "changed": is_changed, "diff": patch,
                "entry": self.entry, "notes": self.notes,
            }))?;
            return Ok(ExitCode::Ok);
        }

        let shown = display::path(&path.to_string_lossy(), std::env::var("HOME").ok().as_deref());
        let label = self.client.label;
        let done = match (is_changed, is_install, is_dry) {
            (false, true, _) => format!("{NAME} is already in {shown}.\n"),
            (false, false, _) => format!("{NAME} is not in {shown}.\n"),
            (true, _, true) => "Nothing was changed (--print).\n".to_owned(),
            (true, true, false) => {
                format!("Added {NAME} to {was_changed}. Restart {label} to use it.\n")
            }
            (true, false, false) => {
                format!("Removed {NAME} from {was_changed}. Restart {label}.\n")
            }
        };

        let mut text = render_patch(&patch, output.audience());
        text.push_str(&done);
        for note in &self.notes {
            text.push_str(&format!("note: {}\n", plain(note)));
        }
        output.text(&text)?;
        Ok(ExitCode::Ok)
    }

    /// Returns the files whose content changes.
    fn changed(&self) -> impl Iterator<Item = &(ConfigFile, Planned)> {
        self.files.iter().filter(|(file, planned)| file.text != planned.text)
    }

    /// Names the files whose content changes.
    fn changed_paths(&self) -> String {
        let home_dir = std::env::var("HOME").ok();
        let shown = |(file, _): &(ConfigFile, Planned)| {
            display::path(&file.path.to_string_lossy(), home_dir.as_deref())
        };
        self.changed().map(shown).collect::<Vec<_>>().join(" and ")
    }

    fn patch(&self) -> String {
        self.changed().map(|(file, planned)| unified(file, planned.text.as_deref())).collect()
    }

    /// Writes the receipts before the files: after a failure between them, `uninstall` still finds every change.
    fn apply_blocking(&mut self) -> anyhow::Result<()> {
        let mut created = Vec::new();
        for (file, planned) in &self.files {
            let is_same = file.text == planned.text;
            if planned.text.is_none() {
                created.extend(self.receipts.take_directories(&file.path));
            }
            // Without a change, an entry that the user wrote gets no receipt.
            if !is_same || planned.receipt.is_none() {
                let mut receipt = planned.receipt.clone();
                if let Some(receipt) = receipt.as_mut() {
                    receipt.directories.extend(file.missing_directories_blocking());
                }
                self.receipts.put(&file.path, receipt);
            }
        }

        if self.changed().next().is_some() {
            self.receipts.write_blocking(&self.home)?;
        }

        for (file, planned) in self.changed() {
            file.write_blocking(planned.text.as_deref())?;
        }
        for directory in created {
            // Fails if another program put something in it, which keeps the directory.
            let _kept = std::fs::remove_dir(directory);
        }
        Ok(())
    }
}

/// Returns the patch of one file.
fn unified(file: &ConfigFile, new: Option<&str>) -> String {
    if file.text.as_deref() == new {
        return String::new();
    }

    let path = file.path.display().to_string();
    let name =
        |text: Option<&str>| if text.is_some() { path.clone() } else { "/dev/null".to_owned() };
    let (old_name, new_name) = (name(file.text.as_deref()), name(new));

    let diff =
        TextDiff::from_lines(file.text.as_deref().unwrap_or_default(), new.unwrap_or_default());
    // Lines of other servers may contain keys.
    let diff = diff.unified_diff().context_radius(0).header(&old_name, &new_name).to_string();
    diff.split_inclusive('\n').map(cut).collect()
}

/// Cuts a line of a diff. A file may be one long line, which contains everything.
fn cut(line: &str) -> Cow<'_, str> {
    match line.char_indices().nth(MAX_SHOWN_CHARS) {
        None => line.into(),
        Some(_) => {
            let rest = line.chars().count();
            let sign = line.chars().next().unwrap_or_default();
            format!("{sign}… (a line of {rest} characters is not shown)\n").into()
        }
    }
}
