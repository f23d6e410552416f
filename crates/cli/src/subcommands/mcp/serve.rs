//! `quack mcp`: serves one agent over stdin and stdout, or agents over HTTP.

use crate::args::mcp::McpServeArgs;
use crate::connector::{ShellKeys, connector};
use crate::directory;
use crate::exit::{CliError, ExitCode};
use crate::output::CliOutput;
use anyhow::Context;
use quackd_home::{Home, own_file};
use quackd_mcp::tool_list::Selection;
use quackd_mcp::{AgentServer, Gateways, Scope, ServeOptions, http};
use quackd_remote::gate::new_token;
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Maximum length of the file with the token, in bytes.
const MAX_TOKEN_FILE: u64 = 4096;

pub(super) async fn run(args: McpServeArgs, output: CliOutput) -> anyhow::Result<ExitCode> {
    let selection = Selection::parse(&args.tools, args.safe)
        .map_err(|error| CliError::usage(error.to_string()))?;
    let options = ServeOptions {
        scope: scope(&args)?,
        safe: args.safe,
        selection,
        keep_jobs: args.keep,
        isolated: args.isolated,
    };

    let gateways = Gateways::new(options, connector(ShellKeys::Keep, output));

    match args.http {
        Some(address) => serve_http(address, gateways, output).await?,
        None => {
            if io::stdin().is_terminal() {
                output.note(
                    "waiting for an agent's messages on stdin; `quack mcp install CLIENT` makes an agent start this \
                     command",
                );
            }
            let (input, reply) = (tokio::io::stdin(), tokio::io::stdout());
            let server = AgentServer::new(gateways);
            quackd_mcp::serve_lines(server, input, reply, CancellationToken::new()).await;
        }
    }
    Ok(ExitCode::Ok)
}

fn scope(args: &McpServeArgs) -> anyhow::Result<Scope> {
    Ok(match (&args.session, &args.workspace) {
        (Some(session), _) => Scope::Session(session.clone()),
        (None, Some(dir)) => Scope::Directory(directory::workspace(Some(dir), false)?.into()),
        (None, None) if args.any_workspace => Scope::Any(current()),
        (None, None) => Scope::Current(current()),
    })
}

/// Returns the working directory, or the root if it is gone. The daemon refuses the root as a workspace, with a reason for the agent.
fn current() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_gone| PathBuf::from("/"))
}

async fn serve_http(
    address: SocketAddr,
    gateways: Arc<Gateways>,
    output: CliOutput,
) -> anyhow::Result<()> {
    if !address.ip().is_loopback() {
        let text = format!(
            "{address} can be reached from other machines; use an address of this one, such as 127.0.0.1:8322"
        );
        return Err(CliError::usage(text).into());
    }

    let home = Home::from_process_env_blocking()?;
    home.prepare_blocking()?;
    let token = token_blocking(&home)?;

    let tcp =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let url = format!("http://{}{}", tcp.local_addr()?, http::PATH);
    let token_file = home.mcp_token();

    if output.is_json() {
        output.document(&json!({"url": url, "tokenFile": token_file}))?;
    } else {
        let file = token_file.display();
        output.text(&format!(
            "Listening on {url}\nThe token is in {file}: send `Authorization: Bearer TOKEN`\n"
        ))?;
    }

    let make = move || AgentServer::new(Arc::clone(&gateways));
    http::serve(tcp, token, make, CancellationToken::new()).await;
    Ok(())
}

/// Returns the token. Creates it if there is none.
fn token_blocking(home: &Home) -> anyhow::Result<SecretString> {
    let path = home.mcp_token();
    let context = || format!("cannot read the token in {}", path.display());
    loop {
        match own_file::read_blocking(&path, MAX_TOKEN_FILE) {
            Ok(text) => {
                let text = String::from_utf8(text).with_context(context)?;
                let text = text.trim();
                return if text.is_empty() {
                    Err(anyhow::anyhow!("it is empty: delete it")).with_context(context)
                } else {
                    Ok(SecretString::from(text))
                };
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(context),
        }

        // Written elsewhere and then renamed, so that no other server reads a part of it.
        let mut file = tempfile::NamedTempFile::new_in(home.dir())?;
        writeln!(file, "{}", new_token()?.expose_secret())?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(&path) {
            Ok(_file) => {}
            // Another server was first.
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error.error)
                    .with_context(|| format!("cannot write {}", path.display()));
            }
        }
    }
}
