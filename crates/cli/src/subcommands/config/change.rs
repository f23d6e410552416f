//! Changes the configuration file. A new content is checked as the daemon checks it, before it takes the place of the old one.

use crate::display::{name, plain};
use crate::exit::{CliError, ExitCode};
use crate::interrupts::Interrupts;
use crate::output::CliOutput;
use crate::subcommands::stop::lock_holder::is_held_blocking;
use crate::suggest::nearest;
use anyhow::Context as _;
use quackd_config::{MAX_CONFIG_BYTES, keys};
use quackd_home::Home;
use rustix::process::Signal;
use serde_json::json;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;
use toml_edit::{DocumentMut, Item, Table, Value};

/// Names of the tables that have tables of the user's choice.
const FREE_TABLES: [&str; 2] = ["mcp_servers.", "agents."];

/// The configuration file, whether it exists or not.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) home: Home,
}

impl ConfigFile {
    /// Sets a key, as [`Self::put_blocking`], and reports it.
    pub(super) fn set(&self, key: &str, text: &str, output: CliOutput) -> anyhow::Result<ExitCode> {
        self.put_blocking(key, text)?;
        // The value may be a key of a provider.
        self.tell(&format!("{key} is set"), key, output)
    }

    /// Sets a key. A text that is a value of TOML is that value, unless the key takes only texts.
    pub(super) fn put_blocking(&self, key: &str, text: &str) -> anyhow::Result<()> {
        let path = known(key)?;
        let before = self.read_blocking()?;

        let typed = text.trim().parse::<Value>().ok().filter(|value| !value.is_inline_table());
        // First the typed value, then the text as it is.
        let candidates = typed.into_iter().chain([Value::from(text)]);
        let mut refusal = None;

        for value in candidates {
            let mut document = self.parse(&before)?;
            put(&mut document, &path, value)?;
            match self.check_blocking(&document.to_string()) {
                Ok(checked) => return self.replace_blocking(checked),
                // The reason for the value as it was meant is the first one.
                Err(error) => drop(refusal.get_or_insert(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| CliError::usage("no value").into()))
    }

    /// Removes a key.
    pub(super) fn unset(&self, key: &str, output: CliOutput) -> anyhow::Result<ExitCode> {
        let path = known(key)?;
        let mut document = self.parse(&self.read_blocking()?)?;
        if !take(&mut document, &path) {
            let place = self.path.display();
            return Err(CliError::failed(format!("{key} is not in {place}")).into());
        }
        self.replace_blocking(self.check_blocking(&document.to_string())?)?;
        self.tell(&format!("{key} is unset"), key, output)
    }

    /// Lets the user edit a copy, until it is accepted.
    pub(super) fn edit(&self, output: CliOutput) -> anyhow::Result<ExitCode> {
        let before = self.read_blocking()?;

        let copy = tempfile::Builder::new().suffix(".toml").tempfile()?;
        std::fs::write(copy.path(), &before)?;
        // Ctrl-C is for the editor. Without this, it would end this program, and leave the copy behind.
        let _interrupts = Interrupts::catch()?;

        loop {
            if let Some(failure) = run_editor(copy.path())? {
                // Keep the text that the user has changed.
                let is_changed =
                    std::fs::read(copy.path()).is_ok_and(|content| content != before.as_bytes());
                let kept = is_changed.then(|| copy.keep()).transpose()?;
                let kept = kept.map_or_else(String::new, |(_, path)| {
                    format!("; your text is in {}", path.display())
                });
                let text = format!("{}; the configuration was not changed{kept}", failure.text);
                if failure.exit == ExitCode::Failed {
                    return Err(CliError::failed(text).into());
                }
                output.failure(&text);
                return Ok(failure.exit);
            }

            let text = std::fs::read_to_string(copy.path()).context("cannot read the copy")?;
            if text == before {
                output.note("nothing was changed");
                return Ok(ExitCode::Ok);
            }

            match self.check_blocking(&text) {
                Ok(checked) => {
                    self.replace_blocking(checked)?;
                    return self.tell("the configuration is saved", "", output);
                }
                Err(error) => {
                    output.failure(&format!("{error:#}"));
                    if !CliOutput::can_ask() || !output.ask_blocking("Edit it again?")? {
                        let (_, kept) = copy.keep()?;
                        return Err(CliError::failed(format!(
                            "the configuration was not changed; your text is in {}",
                            kept.display()
                        ))
                        .into());
                    }
                }
            }
        }
    }

    fn read_blocking(&self) -> anyhow::Result<String> {
        match std::fs::metadata(&self.path) {
            Ok(item) if MAX_CONFIG_BYTES < item.len() || !item.is_file() => {
                anyhow::bail!("{} is no file of a usual size", self.path.display())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            _ => {}
        }
        let read = std::fs::read_to_string(&self.path);
        read.with_context(|| format!("cannot read {}", self.path.display()))
    }

    fn parse(&self, text: &str) -> anyhow::Result<DocumentMut> {
        text.parse().map_err(|_syntax| {
            let place = self.path.display();
            let text = format!("{place} has an error, which `quack config show` names; `quack config edit` opens it");
            CliError::failed(text).into()
        })
    }

    /// Checks a new content. Returns it as a file in the same directory.
    fn check_blocking(&self, text: &str) -> anyhow::Result<NamedTempFile> {
        let target = self.target();
        let directory = target.parent().unwrap_or_else(|| Path::new("/"));
        let above = directory.ancestors();
        let created: Vec<_> =
            above.take_while(|directory| directory.symlink_metadata().is_err()).collect();

        let mut create = std::fs::DirBuilder::new();
        create.recursive(true).mode(0o700).create(directory)?;

        let mut new = NamedTempFile::new_in(directory)
            .with_context(|| format!("cannot write into {}", directory.display()))?;
        new.write_all(text.as_bytes())?;

        // The new file takes the place of the old one, so it keeps the mode.
        if let Ok(old) = target.metadata() {
            let mode = old.permissions().mode() & 0o777;
            new.as_file().set_permissions(std::fs::Permissions::from_mode(mode))?;
        }

        // The content must be on the disk before the file takes the place of the old one.
        new.as_file().sync_all()?;
        let checked = quackd_supervisor::check_new_config_blocking(&self.home, new.path());
        let Err(error) = checked else { return Ok(new) };

        // The user knows the file by its own name.
        let (new_path, path) = (new.path().display().to_string(), self.path.display().to_string());
        drop(new);
        // Only directories that this check has made are removed.
        for directory in created {
            // Another program may have put something in it since.
            std::fs::remove_dir(directory).ok();
        }
        Err(CliError::usage(error.to_string().replace(&new_path, &path)).into())
    }

    fn replace_blocking(&self, new: NamedTempFile) -> anyhow::Result<()> {
        new.persist(self.target()).map_err(|error| error.error)?;
        Ok(())
    }

    /// Returns the path without links. A link stays: it may lead to the user's collection of such files.
    fn target(&self) -> PathBuf {
        self.path.canonicalize().unwrap_or_else(|_missing| self.path.clone())
    }

    /// Reports a change, and how it comes into force.
    fn tell(&self, done: &str, key: &str, output: CliOutput) -> anyhow::Result<ExitCode> {
        let path = self.path.display().to_string();

        let is_running = is_held_blocking(&self.home);
        let document = json!({ "path": path, "key": key, "restart": is_running });
        output.show(&document, || format!("{done}  ({})\n", plain(&path)))?;

        // With a variable, this file may not be the daemon's.
        let is_of_daemon = is_running && std::env::var_os("QUACKD_CONFIG").is_none();
        if is_of_daemon && !output.is_json() {
            output.warning("the running daemon has the earlier configuration; `quack restart` puts this one in force");
        }
        Ok(ExitCode::Ok)
    }
}

/// Returns the parts of a key that exists.
fn known(key: &str) -> anyhow::Result<Vec<String>> {
    let parts = || key.split('.').map(str::to_owned).collect();
    let is_free = |table: &str| key.strip_prefix(table).is_some_and(|rest| rest.contains('.'));
    if FREE_TABLES.into_iter().any(is_free)
        || keys().iter().any(|known_key| known_key.name() == key)
    {
        return Ok(parts());
    }

    let near = nearest(key, keys().iter().map(quackd_config::Key::name));
    let near =
        near.first().map_or_else(|| "; ".to_owned(), |near| format!("; did you mean {near}? "));
    let text = format!("there is no key {}{near}`quack config show` lists the keys", name(key));
    Err(CliError::usage(text).into())
}

/// Sets a value, and creates the tables on the way.
fn put(document: &mut DocumentMut, path: &[String], mut value: Value) -> anyhow::Result<()> {
    let Some((last, tables)) = path.split_last() else { return Ok(()) };
    let mut table = document.as_table_mut();

    for part in tables {
        let item = table.entry(part).or_insert_with(|| Item::Table(Table::new()));
        table = item.as_table_mut().with_context(|| {
            format!("{part} is not written as a table; `quack config edit` opens the file")
        })?;
    }
    // A comment behind the old value stays.
    if let Some(old) = table.get(last).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }

    table.insert(last, Item::Value(value));
    Ok(())
}

/// Removes a value. Returns false if it did not exist.
fn take(document: &mut DocumentMut, path: &[String]) -> bool {
    let Some((last, tables)) = path.split_last() else { return false };
    let mut table = document.as_table_mut();
    for part in tables {
        match table.get_mut(part).and_then(Item::as_table_mut) {
            Some(item) => table = item,
            None => return false,
        }
    }
    table.remove(last).is_some()
}

/// Failure of the editor.
struct EditorFailure {
    text: String,
    exit: ExitCode,
}

/// Runs the user's editor at this terminal. `None` if it succeeded.
#[expect(clippy::disallowed_methods, reason = "an editor uses this terminal, and ends by itself")]
fn run_editor(path: &Path) -> anyhow::Result<Option<EditorFailure>> {
    let named = ["VISUAL", "EDITOR"].into_iter().filter_map(|name| std::env::var(name).ok());
    let editor = named.into_iter().find(|editor| !editor.trim().is_empty());
    let editor = editor.unwrap_or_else(|| "vi".to_owned());

    // The variable may have options, such as `code --wait`.
    let script = format!("{editor} \"$1\"");
    let ended =
        std::process::Command::new("/bin/sh").args(["-c", &script, "sh"]).arg(path).status();
    let ended = ended.context("cannot start the shell")?;

    if ended.success() {
        return Ok(None);
    }
    // A shell that ran a program reports its signal as a code.
    let interrupt = Signal::INT.as_raw();
    let is_interrupted = ended.signal() == Some(interrupt) || ended.code() == Some(128 + interrupt);
    let exit = if is_interrupted { ExitCode::Interrupted } else { ExitCode::Failed };

    let end = match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown end".to_owned(),
    };
    Ok(Some(EditorFailure {
        text: format!("the editor `{}` failed ({end})", plain(&editor)),
        exit,
    }))
}
