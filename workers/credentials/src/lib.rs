//! The credentials worker: uses one credential of the user for one request of a session, and exits.
//!
//! The supervisor parses no bytes of commands, so this separate process does. It runs unconfined as the user, because it
//! needs the user's ssh agent and git's credential helpers. First it reports what the request is for; it uses the
//! credential when the supervisor allows that. A private key never reaches this process.
//!
//! In reading order:
//! - [`purpose`]: what a command wants to sign;
//! - [`known_hosts`]: the names of a host;
//! - [`agent`], [`git`]: use a credential;
//! - [`ssh_reader`]: values of ssh messages.

mod agent;
mod git;
mod known_hosts;
mod purpose;
mod ssh_reader;

pub use git::become_git;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use purpose::{Binding, Purpose};
use quackd_ipc::{frames, link};
use quackd_process::{
    Role, Writable, abort_on_panic, become_session_leader, complain, harden, rank_above_parent,
    set_process_name, split_off_monitor,
};
use quackd_protocol::credentials::{
    CredentialAnswer, CredentialRefusal, CredentialRequest, CredentialStart, CredentialUse,
    FromCredentials, MAX_AGENT_MESSAGE, MAX_USES, Repository, SignRequest, TO_CREDENTIALS_TAGS,
    ToCredentials,
};
use quackd_protocol::worker::EXIT_TERMINAL;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

/// Timeout for the request. The supervisor writes it when it starts this process.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Control channel to the supervisor.
type Channel = Framed<tokio::net::UnixStream, LengthDelimitedCodec>;

/// Runs as the credentials worker. Called by `quack credentials` before any other code in the process.
///
/// In the first process that enters (the supervisor's direct child) this never returns: that process becomes the monitor.
#[must_use]
pub fn main() -> ExitCode {
    abort_on_panic();
    match enter().and_then(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("cannot use a credential: {error}"));
            ExitCode::from(EXIT_TERMINAL)
        }
    }
}

/// Runs the single-threaded part of the start, as in a session's worker.
fn enter() -> io::Result<OwnedFd> {
    split_off_monitor()?;
    set_process_name("quack-creds");
    harden(Role::Worker)?;
    // If memory runs out, this process ends before the supervisor.
    rank_above_parent().ok();
    // A credential helper must not ask on the terminal on which the daemon was started.
    become_session_leader();
    link::take_control_channel()
}

fn serve(control: OwnedFd) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(answer(control))
}

/// Reads the request, and answers it unless the supervisor closes the channel.
async fn answer(control: OwnedFd) -> io::Result<()> {
    let mut channel = Framed::new(link::adopt(control)?, frames::codec());
    let first = timeout(REQUEST_DEADLINE, channel.next()).await?;
    let ToCredentials::Start(start) = read(&first.ok_or(io::ErrorKind::UnexpectedEof)??)? else {
        return Err(io::Error::other("the first frame is no request"));
    };
    let CredentialStart { request, agent, candidates, env, untrusted } = *start;
    let user = User::new(agent, env, untrusted);

    let (uses, task) = match prepare(request, &user, &candidates).await {
        Ok(Prepared::Asks(uses, task)) => (uses, task),
        Ok(Prepared::Done(answer)) => return finish(&mut channel, Ok(answer)).await,
        Err(refusal) => return finish(&mut channel, Err(refusal)).await,
    };
    let uses = uses.iter().take(MAX_USES).map(ToString::to_string).collect();
    send(&mut channel, &FromCredentials::Uses(uses)).await?;

    // The supervisor closes the channel if it does not allow the use.
    let Some(next) = channel.next().await else { return Ok(()) };
    let ToCredentials::Proceed {} = read(&next?)? else {
        return Err(io::Error::other("a second request"));
    };
    let result = tokio::select! {
        result = carry_out(task, &user) => result,
        // The supervisor sends nothing more, so this means that the channel is closed. The monitor kills git.
        _ = channel.next() => return Ok(()),
    };
    finish(&mut channel, result).await
}

/// The user's agent, environment and home, and the directories that sessions may write.
struct User {
    agent: Option<String>,
    env: Vec<(String, String)>,
    home: PathBuf,
    untrusted: Writable,
}

impl User {
    fn new(agent: Option<String>, env: Vec<(String, String)>, untrusted: Vec<String>) -> Self {
        let home = env.iter().find(|(name, _)| name == "HOME").map_or("/", |(_, home)| home);
        let home = PathBuf::from(home);
        let untrusted = Writable::of_blocking(untrusted.into_iter().map(PathBuf::from), &home);
        Self { agent, env, home, untrusted }
    }
}

/// A request whose bytes were read.
enum Prepared {
    /// It needs no permission.
    Done(CredentialAnswer),
    /// It needs the permission for one of these uses.
    Asks(Vec<CredentialUse>, Task),
}

/// A request that needs a permission.
enum Task {
    Sign(Signature),
    Fill(Repository),
}

async fn prepare(
    request: CredentialRequest,
    user: &User,
    candidates: &[String],
) -> Result<Prepared, CredentialRefusal> {
    match request {
        CredentialRequest::Keys {} => {
            let keys = agent::keys(user.agent.as_deref()).await?;
            Ok(Prepared::Done(CredentialAnswer::Keys(keys)))
        }
        CredentialRequest::Sign(request) => {
            let signature = Signature::decode(&request)?;
            let uses = uses_blocking(&signature, user, candidates)?;
            Ok(Prepared::Asks(uses, Task::Sign(signature)))
        }
        CredentialRequest::Git { repository: Repository { host, path }, push } => {
            // The parts come from a command, and become lines for git.
            let repository = Repository::new(&host, &path).ok_or(CredentialRefusal::Malformed)?;
            let of = if push { CredentialUse::Push } else { CredentialUse::Fetch };
            Ok(Prepared::Asks(vec![of(repository.clone())], Task::Fill(repository)))
        }
    }
}

async fn carry_out(task: Task, user: &User) -> Result<CredentialAnswer, CredentialRefusal> {
    match task {
        Task::Sign(Signature { key, data, flags, .. }) => {
            let signature = agent::sign(user.agent.as_deref(), &key, &data, flags).await?;
            Ok(CredentialAnswer::Signature(signature))
        }
        Task::Fill(repository) => {
            let User { env, home, untrusted, .. } = user;
            let value = git::authorization(&repository, env.clone(), home, untrusted).await?;
            Ok(CredentialAnswer::Authorization(value))
        }
    }
}

/// A [`SignRequest`], decoded.
struct Signature {
    key: Vec<u8>,
    data: Vec<u8>,
    flags: u32,
    binding: Option<Binding>,
}

impl Signature {
    fn decode(request: &SignRequest) -> Result<Self, CredentialRefusal> {
        let decoded = |text: &str| match STANDARD.decode(text) {
            Ok(bytes) if bytes.len() <= MAX_AGENT_MESSAGE => Ok(bytes),
            _ => Err(CredentialRefusal::Malformed),
        };
        let binding = match &request.bind {
            Some(bind) => Some(Binding {
                host_key: decoded(&bind.host_key)?,
                session_id: decoded(&bind.session_id)?,
                signature: decoded(&bind.signature)?,
                is_forwarding: bind.is_forwarding,
            }),
            None => None,
        };
        let (key, data) = (decoded(&request.key)?, decoded(&request.data)?);
        Ok(Self { key, data, flags: request.flags, binding })
    }
}

/// Returns the possible uses of a signature. Reads the user's `known_hosts`.
///
/// # Errors
/// `UnknownHost` without a usable name of the host, and as [`purpose::of`].
fn uses_blocking(
    signature: &Signature,
    user: &User,
    candidates: &[String],
) -> Result<Vec<CredentialUse>, CredentialRefusal> {
    let Signature { key, data, binding, .. } = signature;
    let User { home, untrusted, .. } = user;
    let (name, host_key) = match purpose::of(key, data, binding.as_ref())? {
        Purpose::Commit => return Ok(vec![CredentialUse::Sign]),
        Purpose::Login { user, host_key } => (user, host_key),
    };
    let names = known_hosts::names_blocking(home, untrusted, &host_key, candidates)?;
    let of = |(host, port): &(String, u16)| CredentialUse::ssh(&name, host, *port);
    let uses: Vec<_> = names.iter().filter_map(of).collect();
    if uses.is_empty() { Err(CredentialRefusal::UnknownHost) } else { Ok(uses) }
}

async fn finish(
    channel: &mut Channel,
    result: Result<CredentialAnswer, CredentialRefusal>,
) -> io::Result<()> {
    send(channel, &FromCredentials::Done(result)).await
}

async fn send(channel: &mut Channel, frame: &FromCredentials) -> io::Result<()> {
    channel.send(frames::encode(frame).map_err(io::Error::other)?).await
}

fn read(body: &tokio_util::bytes::BytesMut) -> io::Result<ToCredentials> {
    match frames::decode(body, TO_CREDENTIALS_TAGS).map_err(io::Error::other)? {
        frames::Decoded::Known(frame) => Ok(frame),
        frames::Decoded::Unknown(tag) => Err(io::Error::other(format!("a `{tag}` frame"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_protocol::credentials::FROM_CREDENTIALS_TAGS;

    /// Sends a request for a repository. Returns the supervisor's end of the channel, and the work of this process.
    async fn requested(host: &str) -> (Channel, impl Future<Output = io::Result<()>>) {
        let (ours, theirs) = link::pair().unwrap();
        let mut channel = Framed::new(ours, frames::codec());
        let repository = Repository { host: host.to_owned(), path: "me/app".to_owned() };
        let env = [("PATH", "/usr/bin:/bin"), ("HOME", "/nowhere")];
        let start = CredentialStart {
            request: CredentialRequest::Git { repository, push: false },
            agent: None,
            candidates: Vec::new(),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            untrusted: Vec::new(),
        };
        sent(&mut channel, &ToCredentials::Start(Box::new(start))).await;
        (channel, answer(theirs))
    }

    async fn sent(channel: &mut Channel, frame: &ToCredentials) {
        channel.send(frames::encode(frame).unwrap()).await.unwrap();
    }

    async fn received(channel: &mut Channel) -> FromCredentials {
        let body = channel.next().await.unwrap().unwrap();
        match frames::decode(&body, FROM_CREDENTIALS_TAGS).unwrap() {
            frames::Decoded::Known(frame) => frame,
            frames::Decoded::Unknown(tag) => panic!("{tag}"),
        }
    }

    #[tokio::test]
    async fn the_use_is_reported_a_closed_channel_ends_the_process_and_lines_for_git_are_no_host() {
        let (mut channel, answering) = requested("a.example").await;
        let refusing = async move {
            let FromCredentials::Uses(uses) = received(&mut channel).await else { panic!() };
            assert_eq!(uses, ["fetch a.example/me/app"]);
        };
        let ((), answered) = tokio::join!(refusing, answering);
        answered.unwrap();

        let (mut channel, answering) = requested("a.example\nusername=other").await;
        let (refused, answered) = tokio::join!(received(&mut channel), answering);
        answered.unwrap();
        let FromCredentials::Done(refused) = refused else { panic!() };
        assert_eq!(refused, Err(CredentialRefusal::Malformed));
    }
}
