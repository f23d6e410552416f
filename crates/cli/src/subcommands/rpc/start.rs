//! The session with which `quack rpc` begins, and what the command line sets for its agent.

use super::calls::{delete, send};
use super::finding::{Conversation, Lookup, find, find_path, of_conversation};
use super::lines::Dialect;
use super::output::note;
use super::session::{ForNew, Session};
use crate::args::rpc::RpcArgs;
use crate::directory;
use crate::exit::CliError;
use crate::shell_keys;
use crate::subcommands::follow::follow_connection::FollowConnection;
use quackd_client::{Client, ClientError};
use quackd_protocol::agent_options::{AgentOptions, MAX_PROMPT_BYTES};
use quackd_protocol::client::{AttachParams, ForkParams, SessionNewParams};
use quackd_protocol::model::ThinkingLevel;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// Checks what Pi checks before it starts.
pub(super) fn check(args: &RpcArgs) -> anyhow::Result<()> {
    let options = [
        ("--session", args.session.is_some()),
        ("--continue", args.continues),
        ("--resume", args.resume),
    ];
    let others: Vec<_> = options.iter().filter(|option| option.1).map(|option| option.0).collect();

    let name = match (&args.fork, &args.session_id) {
        (Some(_), _) => "--fork",
        (None, Some(_)) => "--session-id",
        (None, None) => return Ok(()),
    };
    if others.is_empty() {
        return Ok(());
    }
    let text = format!("{name} cannot be combined with {}", others.join(", "));
    Err(CliError::failed(text).into())
}

/// Returns the dialect that the command line names.
pub(super) fn dialect(args: &RpcArgs) -> anyhow::Result<Dialect> {
    match args.dialect.as_deref() {
        None | Some("newest") => Ok(Dialect::Newest),
        Some("0.55") => Ok(Dialect::Old),
        Some(_) => Err(CliError::failed("--dialect is newest or 0.55").into()),
    }
}

/// The options of the agent, as the command line has them.
pub(super) async fn options(args: &RpcArgs) -> anyhow::Result<AgentOptions> {
    let list = |text: &Option<String>| -> Option<Vec<String>> {
        let names = text.as_deref()?.split(',').map(str::trim).filter(|name| !name.is_empty());
        Some(names.map(str::to_owned).collect())
    };

    let none = (args.no_tools || args.no_builtin_tools).then(Vec::new);
    let (system, append) = (args.system_prompt.clone(), args.append_system_prompt.clone());
    // The files may be on a slow disk.
    let read = tokio::task::spawn_blocking(move || {
        let append = append.iter().map(|text| text_of_blocking(text));
        (system.map(|text| text_of_blocking(&text)), append.collect::<Vec<_>>())
    });
    let (system_prompt, append_system_prompt) = read.await?;

    let options = AgentOptions {
        tools: list(&args.tools).or(none),
        exclude_tools: list(&args.exclude_tools).unwrap_or_default(),
        no_mcp: args.no_mcp || args.no_tools && args.tools.is_none(),
        system_prompt,
        append_system_prompt,
        no_context_files: args.no_context_files,
        models: list(&args.models).unwrap_or_default(),
    };

    options.check().map_err(|error| CliError::failed(error.to_string()))?;
    Ok(options)
}

/// Returns the content of a file with this name, as in Pi, else the text itself.
fn text_of_blocking(text: &str) -> String {
    if !Path::new(text).is_file() {
        return text.to_owned();
    }

    // A longer one is refused with its length.
    let most = u64::try_from(MAX_PROMPT_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    let read = std::fs::File::open(text).and_then(|file| file.take(most).read_to_end(&mut content));

    match read {
        Ok(_) => String::from_utf8_lossy(&content).into_owned(),
        Err(error) => {
            note(&format!("{text} cannot be read: {error}"));
            text.to_owned()
        }
    }
}

/// Returns the model of the options, as `provider/model` or as a name, and the thinking level after it.
fn model_of(args: &RpcArgs) -> (Option<String>, Option<ThinkingLevel>) {
    let Some(model) = args.model.as_deref() else { return (None, None) };
    let split = model.rsplit_once(':');
    let level = split.and_then(|(_, level)| ThinkingLevel::named(level));
    // The name of a model may contain a colon.
    let model = split.filter(|_| level.is_some()).map_or(model, |(model, _)| model);

    let model = match &args.provider {
        Some(provider) if !model.starts_with(&format!("{provider}/")) => {
            format!("{provider}/{model}")
        }
        _ => model.to_owned(),
    };
    (Some(model), level)
}

/// Passes on the key of the command line, for the provider of its model.
pub(super) async fn give_key(args: &RpcArgs, client: &Client) {
    let Some(key) = &args.api_key else { return };
    let model = model_of(args).0.or_else(|| args.models.clone());
    let named = model.as_deref().and_then(|model| model.split_once('/')).map(|(name, _)| name);
    let result = match args.provider.as_deref().or(named) {
        Some(provider) => shell_keys::give(client, provider, key).await,
        None => Err("--model provider/model must name the provider".to_owned()),
    };
    if let Err(reason) = result {
        note(&format!("--api-key has no effect: {reason}"));
    }
}

/// Creates or finds the session, as the command line asks, and follows it.
pub(super) async fn begin(
    args: &RpcArgs,
    options: AgentOptions,
    client: Arc<Client>,
) -> anyhow::Result<Session> {
    let path = directory::workspace(args.dir.as_deref(), false)?;

    let (id, is_created) = if let Some(source) = &args.fork {
        let session_id = find(&client, source).await?.into();
        let params = ForkParams { session_id, ..ForkParams::default() };
        (client.call(params).await?.session_id.0, true)
    } else if let Some(reference) = &args.session {
        match find_path(&client, reference, &path).await? {
            Lookup::Known(id) => (id, false),
            Lookup::Missing(id) => (create(args, path, id, &client).await?, true),
        }
    } else if args.continues || args.resume {
        let params = AttachParams {
            path: Some(path.into()),
            // The active session is that of the user's shell.
            activate: Some(false),
            ..AttachParams::default()
        };
        (client.call(params).await?.session.id.0, false)
    } else {
        let conversation_id = args.session_id.clone();
        let known = match &conversation_id {
            Some(id) => {
                of_conversation(Conversation::Id { id: id.clone(), path: path.clone() }).await
            }
            None => None,
        };
        match known {
            Some(known) => (known, false),
            None => (create(args, path, conversation_id, &client).await?, true),
        }
    };

    let follow = FollowConnection::begin(Arc::clone(&client), id.clone(), None, true).await;
    // Without the follow, nothing else would delete the temporary session.
    if follow.is_err() && args.no_session && is_created {
        delete(&client, id).await;
    }
    let follow = follow?;

    let (model, level) = model_of(args);
    let named = args.thinking.as_deref().and_then(ThinkingLevel::named).or(level);
    let thinking = named.map(|level| level.name().to_owned());
    let for_new = ForNew { engine: args.engine.clone(), model, thinking };
    Ok(Session {
        client,
        follow,
        options,
        for_new,
        settings: BTreeMap::new(),
        is_temporary: args.no_session,
        is_created,
        has_worked: false,
    })
}

async fn create(
    args: &RpcArgs,
    path: String,
    conversation_id: Option<String>,
    client: &Client,
) -> Result<String, ClientError> {
    let params = SessionNewParams {
        path: Some(path),
        engine: args.engine.clone(),
        model: model_of(args).0,
        conversation_id,
        ..SessionNewParams::default()
    };
    Ok(client.call(params).await?.session.id.0)
}

/// Sets the options of the agent, the model of a session that exists, the thinking level and the name.
pub(super) async fn choose(args: &RpcArgs, session: &Session) -> Result<(), ClientError> {
    session.limit(&session.id()).await?;

    let (model, level) = model_of(args);
    // Such a session was created with it.
    let has_model = session.is_created && args.fork.is_none();

    if let Some(model) = model.filter(|_| !has_model) {
        // The agent finds a name without a provider if only one provider has it.
        let (provider, name) = model.split_once('/').unwrap_or(("", &model));
        let command = json!({ "type": "set_model", "provider": provider, "modelId": name });
        send(&session.client, &session.id(), command).await?;
    }

    let name = args.thinking.as_deref();
    let named = name.and_then(ThinkingLevel::named);
    if let (Some(name), None) = (name, named) {
        note(&format!("no thinking level has the name {name}; --thinking has no effect"));
    }

    if let Some(level) = named.or(level) {
        let command = json!({ "type": "set_thinking_level", "level": level.name() });
        send(&session.client, &session.id(), command).await?;
    }
    if let Some(name) = &args.name {
        let command = json!({ "type": "set_session_name", "name": name });
        send(&session.client, &session.id(), command).await?;
    }
    Ok(())
}
