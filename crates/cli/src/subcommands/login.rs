//! `quack login` and `quack logout`: the file with keys of model providers. A running daemon is asked to read it again.

use crate::args::login::{LoginArgs, LogoutArgs};
use crate::connect::connect;
use crate::display::{name, plain};
use crate::exit::{CliError, ExitCode};
use crate::interrupts::Interrupts;
use crate::output::{BOLD, CliOutput, DIM};
use crate::suggest::nearest;
use anyhow::Context;
use quackd_client::ClientError;
use quackd_egress::models::{provider_names, provider_variables};
use quackd_home::{Home, own_file};
use quackd_protocol::client::{KeysData, KeysParams};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};
use tokio::sync::oneshot;

/// Maximum size of the file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Maximum length of a key, in bytes.
const MAX_KEY_BYTES: u64 = 16 * 1024;

/// The file, by the name of the provider. `Debug` is missing on purpose.
#[derive(Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Keys(BTreeMap<String, StoredKey>);

/// A key, written like those of Pi's auth.json.
#[derive(Serialize, Deserialize)]
struct StoredKey {
    #[serde(rename = "type")]
    kind: String,
    key: String,
}

/// Runs `quack login`: stores a key, or lists the providers and where their keys come from.
pub(crate) async fn run(args: LoginArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let mut keys = read_blocking(&home)?;
    let Some(provider) = args.provider else {
        let daemon = daemon_keys(&home, false).await.unwrap_or_default();
        return list(&keys, &daemon.map(|known| known.in_use).unwrap_or_default(), output);
    };

    let (provider, variables) = known(&provider)?;
    let Some(key) = ask(&format!("Key of {provider}")).await? else {
        return Ok(ExitCode::Interrupted);
    };
    home.prepare_blocking()?;
    keys.0.insert(provider.to_owned(), StoredKey { kind: "api_key".to_owned(), key });
    // Written before the daemon gets the notice, because it reads the file.
    write_blocking(&home, &keys)?;
    apply(&home, output).await;

    let path = home.provider_keys().display().to_string();
    output.show(&json!({ "provider": provider, "path": path }), || {
        format!("Stored the key of {provider} in {path}; `quack models --test` tries it\n")
    })?;

    if let Some(variable) = variables.iter().find(|name| is_set(name)) {
        output.warning(&format!("{variable} of this shell is stronger than the stored key"));
    }
    Ok(ExitCode::Ok)
}

/// Runs `quack logout`: removes a key from the file. A key in a variable stays.
pub(crate) async fn logout(args: &LogoutArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let home = Home::from_process_env_blocking()?;
    let mut keys = read_blocking(&home)?;
    if keys.0.remove(&args.provider).is_none() {
        let provider = name(&args.provider);
        let text = format!("no key of {provider} is stored; `quack login` lists them");
        return Err(CliError::failed(text).into());
    }

    write_blocking(&home, &keys)?;
    apply(&home, output).await;

    output.show(&json!({ "provider": args.provider }), || {
        format!("Deleted the key of {}\n", name(&args.provider))
    })?;
    Ok(ExitCode::Ok)
}

/// Asks a running daemon for the variables that it has. With `reload` it first reads the stored keys again. `Ok(None)` if
/// no daemon runs.
async fn daemon_keys(home: &Home, reload: bool) -> Result<Option<KeysData>, ClientError> {
    let client = match connect(home).await {
        Err(ClientError::NotRunning { .. }) => return Ok(None),
        client => client?,
    };
    let params = KeysParams { reload: reload.then_some(true), ..KeysParams::default() };
    client.call(params).await.map(Some)
}

/// Makes a running daemon use the new file now. Otherwise it would notice the change with the next prompt.
async fn apply(home: &Home, output: CliOutput) {
    if let Err(error) = daemon_keys(home, true).await {
        let text = format!("the daemon may use the earlier keys until `quack restart`: {error}");
        output.warning(&plain(&text));
    }
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.trim().is_empty())
}

/// Returns the provider and its variables.
fn known(provider: &str) -> anyhow::Result<(&'static str, Vec<&'static str>)> {
    let mut all = provider_names().zip(provider_variables());
    all.find(|(name, _)| *name == provider).ok_or_else(|| {
        let near = nearest(provider, provider_names());
        let near =
            near.first().map_or_else(|| ".".to_owned(), |near| format!("; did you mean {near}?"));
        let all = provider_names().collect::<Vec<_>>().join(", ");
        let provider = name(provider);
        CliError::usage(format!("{provider} is no known provider{near} Known: {all}")).into()
    })
}

fn list(keys: &Keys, of_daemon: &[String], output: CliOutput) -> anyhow::Result<ExitCode> {
    let rows: Vec<_> = provider_names()
        .zip(provider_variables())
        .map(|(name, variables)| {
            let find = |is_known: &dyn Fn(&str) -> bool| {
                let mut keys = variables.iter().copied().filter(|name| name.ends_with("_KEY"));
                keys.find(|name| is_known(name))
            };
            let of_shell = find(&is_set);
            // The daemon keeps the key of another shell, or of the shell that started it.
            let of_daemon = find(&|name| of_daemon.iter().any(|known| known == name));
            (name, keys.0.contains_key(name), (of_shell, of_daemon), variables)
        })
        .collect();

    if output.is_json() {
        let rows = rows.iter().map(|(name, is_stored, (variable, of_daemon), _)| {
            json!({
                "provider": name, "stored": is_stored, "variable": variable, "daemonVariable": of_daemon
            })
        });
        output.document(&json!({ "providers": rows.collect::<Vec<_>>() }))?;
        return Ok(ExitCode::Ok);
    }

    let mut text = String::new();
    for (name, is_stored, sources, variables) in rows {
        let source = match (sources, is_stored) {
            ((Some(variable), _), _) => format!("{variable} of this shell"),
            ((None, Some(variable)), _) => {
                let stored = if is_stored { ", stronger than the stored key" } else { "" };
                format!(
                    "{variable} that the daemon has, not of this shell{stored}; `quack restart` drops it"
                )
            }
            ((None, None), true) => "stored".to_owned(),
            ((None, None), false) => {
                let first = variables.first().copied().unwrap_or_default();
                format!("{DIM}no key: `quack login {name}`, or set {first}{DIM:#}")
            }
        };
        text.push_str(&format!("{BOLD}{name:<11}{BOLD:#} {source}\n"));
    }

    output.text(&text)?;
    Ok(ExitCode::Ok)
}

/// Asks for a secret at the terminal without showing it, or reads it from stdin. `None` after Ctrl-C.
pub(super) async fn ask(what: &str) -> anyhow::Result<Option<String>> {
    let mut interrupts = Interrupts::catch()?;
    let is_terminal = io::stdin().is_terminal();
    let hidden = is_terminal.then(|| HiddenInput::begin(what)).transpose()?;

    let (sender, read) = oneshot::channel();
    // A read of stdin cannot be interrupted: the thread ends with the process.
    std::thread::spawn(move || drop(sender.send(read_key_blocking(is_terminal))));

    let read = tokio::select! {
        biased;
        _ = interrupts.next() => return Ok(None),
        read = read => read.context("stdin was not read")?,
    };
    // Restores the echo of the terminal.
    drop(hidden);

    let text = read.context("cannot read stdin")?;
    let key = text.trim();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_key {
        Ok(Some(key.to_owned()))
    } else {
        Err(CliError::usage("a key is one line of printable characters").into())
    }
}

/// Reads one line, or all of stdin.
fn read_key_blocking(is_line: bool) -> io::Result<String> {
    let (mut text, mut stdin) = (String::new(), io::stdin().lock().take(MAX_KEY_BYTES));
    if is_line {
        stdin.read_line(&mut text)?
    } else {
        stdin.read_to_string(&mut text)?
    };
    Ok(text)
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct HiddenInput(Termios);

impl HiddenInput {
    fn begin(what: &str) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // Flush drops what was typed before the prompt.
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        // Made before the prompt is written: a failed write restores the terminal.
        let hidden = Self(before);
        write!(io::stderr(), "{what} (not shown): ")?;
        Ok(hidden)
    }
}

impl Drop for HiddenInput {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.0).ok();
        // The user's Return was not echoed.
        writeln!(io::stderr()).ok();
    }
}

fn read_blocking(home: &Home) -> anyhow::Result<Keys> {
    let path = home.provider_keys();

    match own_file::read_blocking(&path, MAX_FILE_BYTES) {
        // The error of the parser could repeat a key.
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
            let at = (error.line(), error.column());
            anyhow::anyhow!("{} is damaged at {}:{}; delete it", path.display(), at.0, at.1)
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Keys::default()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Replaces the file. Only this user can read it.
fn write_blocking(home: &Home, keys: &Keys) -> anyhow::Result<()> {
    let path = home.provider_keys();
    let why = || format!("cannot write {}", path.display());
    let mut file = tempfile::NamedTempFile::new_in(home.dir()).with_context(why)?;
    serde_json::to_writer_pretty(&mut file, keys)?;
    writeln!(file)?;
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error).with_context(why)?;
    Ok(())
}
