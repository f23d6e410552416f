//! `quack say`: sends a prompt to a session's Pi and shows its turn.

use super::follow::changed_files::FilesBefore;
use super::follow::requests::{self, Prompt};
use super::follow::session_view::{InputMode, Interrupts, SessionView, is_person};
use super::follow::turn_result::{TurnPlace, TurnResult, check_schema};
use super::follow::{self, follow_connection::FollowConnection};
use crate::args::say::SayArgs;
use crate::connect::{start_and_connect, warn_if_config_changed};
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use crate::piped_stdin::is_input;
use crate::session_ref::{self, Missing, Wanted};
use crate::shell_keys;
use base64::Engine as _;
use quackd_client::Client;
use quackd_protocol::limits::MAX_LINE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default timeout of a turn, the same as upstream's.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// Time in which data must arrive on stdin if the prompt has words too.
const STDIN_LIMIT: Duration = Duration::from_secs(3);

/// Timeout of the agent's state. The agent may have to start.
const START_TIMEOUT: Duration = Duration::from_secs(40);

/// Limits of the images of a prompt: their number and the bytes of all. A request to a model can
/// have no more.
const MAX_IMAGES: usize = 16;
const MAX_IMAGE_BYTES: u64 = 3 * 1024 * 1024;

/// Maximum size of a schema, in bytes.
const MAX_SCHEMA_BYTES: u64 = 64 * 1024;

/// Sends the prompt and shows its turn. Exits with the outcome of the turn.
pub(crate) async fn run(args: SayArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let mut interrupts = Interrupts::catch()?;
    let deadline = Instant::now() + args.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let look = follow::look(args.look);
    let is_alone = args.result.is_some();

    if is_alone && output.is_json() {
        return Err(CliError::usage("give --result json or --json, not both").into());
    }
    let output = if is_alone { output.silent() } else { output };

    let begun = tokio::select! {
        biased;
        // No prompt was sent yet.
        _ = interrupts.next() => return Ok(ExitCode::Interrupted),
        begun = begin(args, output) => begun,
    };

    let (prompt, watch, files) = begun?;
    let place = || TurnPlace {
        session: watch.session().to_owned(),
        workspace: watch.followed().workspace_path.clone(),
        directory: watch.directory.clone(),
    };
    let result = (is_alone || prompt.schema.is_some())
        .then(|| TurnResult::new(place(), files, prompt.schema.clone()));

    let mut live = SessionView::new(watch, look, InputMode::Answers, output);
    live.say_once(prompt, deadline, result);
    live.run(&mut interrupts).await
}

async fn begin(
    args: SayArgs,
    output: CliOutput,
) -> anyhow::Result<(Prompt, FollowConnection, Option<FilesBefore>)> {
    let message = message(&args.words, output).await?;

    let (files, schema) = (args.image, args.schema);
    let (images, schema) = tokio::task::spawn_blocking(move || {
        anyhow::Ok((
            images_blocking(&files)?,
            schema.map(|path| schema_blocking(&path)).transpose()?,
        ))
    })
    .await??;

    let joins = match (args.steer, args.queue) {
        (true, _) => Some("steer"),
        (_, true) => Some("followUp"),
        _ => None,
    };
    let prompt = Prompt { message, images, schema, joins };

    let choice = Wanted::of(&args.which)?;
    let daemon = start_and_connect(output).await?;
    warn_if_config_changed(&daemon.daemon, output);
    let client = Arc::new(daemon.client);
    shell_keys::pass_on(&client, output).await;
    let session = choice.one(&client, Missing::Create).await?;

    session_ref::tell(&session, output);
    check(&client, session.session_id.0.clone(), &prompt).await?;
    let directory = choice.directory_in(&session.workspace_path);
    // Followed before the prompt is sent, so that no event of its turn is missed.
    let mut watch =
        FollowConnection::begin(client, session.session_id.0, None, is_person(output)).await?;
    watch.directory = directory;
    watch.label = session.label;

    let files = match args.result {
        Some(_) => {
            // Listed before the turn, for a comparison after it.
            let workspace = PathBuf::from(&watch.followed().workspace_path);
            let session = watch.session().to_owned();
            Some(FilesBefore::list(watch.client(), session, workspace).await)
        }
        None => None,
    };
    Ok((prompt, watch, files))
}

/// Checks whether the session's agent can do what the prompt asks for.
async fn check(client: &Client, session: String, prompt: &Prompt) -> anyhow::Result<()> {
    if prompt.images.is_empty() && prompt.schema.is_none() {
        return Ok(());
    }

    let command = json!({"type": "get_state"});
    let state = requests::ask_agent(client, session, command, START_TIMEOUT).await?;
    let text = |at: &str| state.pointer(at).and_then(Value::as_str).unwrap_or_default();

    if prompt.schema.is_some() && text("/engine") != "native" {
        let text = "--schema needs quackd's own agent, and this session uses Pi";
        return Err(CliError::failed(text).into());
    }

    let input = state.pointer("/model/input").and_then(Value::as_array);
    let reads_images = input.is_none_or(|kinds| kinds.iter().any(|kind| kind == "image"));
    if !prompt.images.is_empty() && !reads_images {
        return Err(CliError::failed(format!(
            "{}/{} is not known to read images: choose another model with `quack models use`, or give it \
             \"input\": [\"text\", \"image\"] in ~/.pi/agent/models.json",
            text("/model/provider"),
            text("/model/id")
        ))
        .into());
    }
    Ok(())
}

/// Reads images into the form of the agent's `prompt`.
fn images_blocking(files: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    if MAX_IMAGES < files.len() {
        return Err(CliError::usage(format!("at most {MAX_IMAGES} images can be sent")).into());
    }

    let mut room = MAX_IMAGE_BYTES;
    let read = |path: &PathBuf| {
        let bytes = file_blocking(path, room, "all images together")?;
        room = room.saturating_sub(u64::try_from(bytes.len())?);
        let mime_type = image_type(&bytes).ok_or_else(|| {
            CliError::usage(format!("{} is not a PNG, JPEG, GIF or WebP image", path.display()))
        })?;
        let data = base64::engine::general_purpose::STANDARD.encode(&bytes);
        Ok(json!({"type": "image", "data": data, "mimeType": mime_type}))
    };
    files.iter().map(read).collect()
}

/// Returns the type of an image by its content.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn schema_blocking(path: &Path) -> anyhow::Result<Value> {
    let bytes = file_blocking(path, MAX_SCHEMA_BYTES, "a schema")?;
    let wrong =
        |why: &str| CliError::usage(format!("{} is not a JSON schema: {why}", path.display()));
    let schema = serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object);
    let schema = schema.ok_or_else(|| wrong("it must be a JSON object"))?;
    check_schema(&schema).map_err(|why| wrong(&why))?;
    Ok(schema)
}

/// Reads a regular file of at most `most` bytes. `what` names it in the error.
fn file_blocking(path: &Path, most: u64, what: &str) -> anyhow::Result<Vec<u8>> {
    let name = path.display();
    let unreadable = |error: io::Error| CliError::usage(format!("cannot read {name}: {error}"));
    // Before the open, which would block on a named pipe.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(CliError::usage(format!("{name} is not a file")).into());
    }

    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    // One byte more than the limit shows that the file is larger.
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;

    if most < u64::try_from(bytes.len())? {
        // The limit of all images: `most` is what earlier ones have left of it.
        let limit = if what == "a schema" { MAX_SCHEMA_BYTES } else { MAX_IMAGE_BYTES };
        let text = format!("{name} is too large: {what} may have {limit} bytes");
        return Err(CliError::usage(text).into());
    }
    Ok(bytes)
}

/// Returns the prompt: the operands, and stdin if it is a pipe or a file.
async fn message(words: &[String], output: CliOutput) -> anyhow::Result<String> {
    let is_dash = matches!(words, [word] if word == "-");
    let typed = if is_dash { String::new() } else { words.join(" ") };
    if typed.is_empty() && io::stdin().is_terminal() {
        return Err(CliError::usage("say what? see --help").into());
    }

    let has_words = !typed.trim().is_empty();
    let reads_stdin = !has_words || is_input(&io::stdin()) && has_data(output).await?;
    let piped = if reads_stdin {
        tokio::task::spawn_blocking(read_blocking).await??
    } else {
        String::new()
    };

    match (has_words, piped.trim().is_empty()) {
        (false, true) => Err(CliError::usage("the message is empty").into()),
        (false, false) => Ok(piped),
        (true, true) => Ok(typed),
        (true, false) => Ok(format!("{typed}\n\n{piped}")),
    }
}

/// Waits until stdin has data or its end. A program may have left a pipe open that nobody writes to: after
/// [`STDIN_LIMIT`] without data the prompt is sent without it.
async fn has_data(output: CliOutput) -> anyhow::Result<bool> {
    let polled = tokio::task::spawn_blocking(|| {
        let stdin = io::stdin();
        let limit = Timespec::try_from(STDIN_LIMIT).ok();
        poll(&mut [PollFd::new(&stdin, PollFlags::IN)], limit.as_ref())
    });
    // A poll that fails leaves the decision to the read.
    let has_data = polled.await? != Ok(0);
    if !has_data {
        output.warning("nothing came from stdin within 3 s; the prompt is sent without it");
    }
    Ok(has_data)
}

fn read_blocking() -> anyhow::Result<String> {
    let most = u64::try_from(MAX_LINE_BYTES)?;
    let mut bytes = Vec::new();
    io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    if MAX_LINE_BYTES <= bytes.len() {
        return Err(CliError::usage(format!("stdin has {MAX_LINE_BYTES} bytes or more")).into());
    }
    let text = String::from_utf8(bytes).map_err(|_e| CliError::usage("stdin is not UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
