//! The server of the conformance tests: the HTTP transport of `quack mcp`, with the fixture tools that the scenarios of
//! `@modelcontextprotocol/conformance` call. Every other request goes to [`quackd_mcp::AgentServer`].
//!
//! `tests/mcp/run.sh` starts it: `conformance TOKEN` prints its address and ends when its input ends. An example is not
//! part of the product.

mod fixtures;
mod rounds;
mod server;
mod task_tools;

use quackd_client::ConnectError;
use quackd_mcp::tool_list::Selection;
use quackd_mcp::{Gateways, Scope, ServeOptions, http};
use secrecy::SecretString;
use server::FixtureServer;
use std::error::Error;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let token = std::env::args().nth(1).ok_or("usage: conformance TOKEN")?;
    let options = ServeOptions {
        scope: Scope::Directory(PathBuf::from("/")),
        safe: true,
        selection: Selection::parse(&["search"], true)?,
        keep_jobs: false,
        isolated: false,
    };
    let connector = || -> futures_util::future::BoxFuture<'static, _> {
        Box::pin(async { Err(ConnectError("the conformance server has no daemon".to_owned())) })
    };
    let fixtures = FixtureServer::new(Gateways::new(options, Arc::new(connector)))?;
    let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    writeln!(std::io::stdout(), "http://{}{}", tcp.local_addr()?, http::PATH)?;
    let ended = CancellationToken::new();
    let stop = ended.clone();
    tokio::spawn(async move {
        tokio::io::stdin().read_to_end(&mut Vec::new()).await.ok();
        stop.cancel();
    });
    http::serve(tcp, SecretString::from(token), move || fixtures.clone(), ended).await;
    Ok(())
}
