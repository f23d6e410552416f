//! What an engine creates for a session, such as a container or a claim of a pod: runs the lists `create` and `destroy` of
//! its row, once each. Both get the id of the session, so that a user can find what a killed daemon has left.

use super::far_client::client_variables;
use super::owner::Owner;
use super::services::SessionServices;
use crate::children::errands::ErrandError;
use crate::clock::ms;
use crate::engines::{CreateError, any_argv};
use quackd_engines::{MAX_CREATED_OUTPUT, created};
use quackd_protocol::SessionId;
use quackd_protocol::denial::quoted;
use quackd_protocol::far::FarWorkspace;
use quackd_protocol::far_errand::{FromErrand, RanErrand, RunErrand, ToErrand};
use quackd_protocol::foreign_text::message_line;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum wait for the login environment, as for a worker.
const LOGIN_LIMIT: Duration = Duration::from_secs(5);

/// Time limit of `destroy`.
pub(crate) const DESTROY_LIMIT: Duration = Duration::from_secs(60);

/// Longest line of a command that an error contains, in characters.
const MAX_WORDS: usize = 300;

/// The reason why a command has no result, in words.
#[derive(Debug, thiserror::Error)]
enum RunError {
    /// It was not started, so nothing is left.
    #[error("{0}")]
    NotStarted(String),
    #[error("{0}")]
    Failed(String),
}

/// A session on an engine, for which something may have been created.
#[derive(Debug, Clone)]
pub(crate) struct Creation {
    pub(crate) session: SessionId,
    pub(crate) far: FarWorkspace,
    /// Text that `create` printed. Empty if it is unknown.
    pub(crate) created: String,
}

impl Creation {
    /// Returns that of a session. `None` if nothing was created for it.
    pub(crate) fn of(
        session: &SessionId,
        far: Option<FarWorkspace>,
        created: Option<String>,
    ) -> Option<Self> {
        Some(Self { session: session.clone(), far: far?, created: created? })
    }

    /// Runs `create`, and returns the text that it printed. `None` if the row has none. If it fails, or if the caller does
    /// not wait for it, `destroy` runs.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub(crate) async fn make(
        services: &Rc<SessionServices>,
        owner: &Owner,
        far: FarWorkspace,
        session: SessionId,
    ) -> Result<Option<String>, CreateError> {
        let argv = any_argv(&services.daemon, &far, session.as_str(), "")?;
        let (words, needs_name) = (argv.create, argv.start.is_empty());
        if words.is_empty() {
            return Ok(None);
        }

        let engine = far.engine.clone();
        let mut this = Self { session, far, created: String::new() };
        let (services, owner) = (Rc::clone(services), owner.clone());
        let (done, made) = oneshot::channel();
        // A client that disconnects drops the caller, and then nothing is made for a session.
        actix::spawn(async move {
            let limit = services.daemon.config.far.queue.value;
            let ran = this.run(&services, &owner, words, limit).await;
            let named = ran.and_then(|output| name(&output, needs_name).map_err(RunError::Failed));
            let result = match named {
                Ok(name) => {
                    this.created.clone_from(&name);
                    Ok(name)
                }
                Err(RunError::NotStarted(reason)) => Err(reason),
                Err(RunError::Failed(reason)) => Err(match this.destroy(&services, &owner).await {
                    Some(note) => format!("{reason}; {note}"),
                    None => reason,
                }),
            };
            if let Err(Ok(_unwanted)) = done.send(result) {
                this.destroy(&services, &owner).await;
            }
        });

        match made.await {
            Ok(Ok(name)) => Ok(Some(name)),
            Ok(Err(reason)) => Err(CreateError::Failed(engine, reason)),
            Err(_dropped) => Err(CreateError::Stopping),
        }
    }

    /// Runs `destroy`. Returns a note for the user if it failed: the command to run by hand.
    pub(crate) async fn destroy(
        &self,
        services: &Rc<SessionServices>,
        owner: &Owner,
    ) -> Option<String> {
        let Self { session, far, created } = self;
        let words = match any_argv(&services.daemon, far, session.as_str(), created) {
            Ok(argv) => argv.destroy,
            Err(error) => {
                let engine = &far.engine;
                tracing::warn!(%session, %error, "nothing was destroyed for a deleted session");
                return Some(format!(
                    "what the engine {engine} created for {session} stays: {error}"
                ));
            }
        };
        if words.is_empty() {
            return None;
        }

        let command = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let reason = self.run(services, owner, words, DESTROY_LIMIT).await.err()?;
        tracing::warn!(%session, command, %reason, "destroy of an engine failed");
        Some(format!("destroy failed: {reason}. Run it by hand: {command}"))
    }

    /// Runs a command to its end, and returns its output.
    async fn run(
        &self,
        services: &Rc<SessionServices>,
        owner: &Owner,
        words: Vec<String>,
        limit: Duration,
    ) -> Result<String, RunError> {
        let login = services.children.login.env_for_worker(LOGIN_LIMIT).await;
        let env = client_variables(services, owner, login).await;
        let env = env.map_err(|error| RunError::NotStarted(error.to_string()))?;
        let program = words.first().cloned().unwrap_or_default();

        let errand = ToErrand::Run(RunErrand { words, env, limit_ms: ms(limit) });
        match Rc::clone(&services.children.errands).carry_out(errand).await {
            Ok(FromErrand::Ran(ran)) => output(ran, &program).map_err(RunError::Failed),
            Ok(FromErrand::Failed { text }) => Err(RunError::Failed(text)),
            Ok(FromErrand::Sent(_)) => {
                Err(RunError::Failed("the process ran no command".to_owned()))
            }
            Err(error @ (ErrandError::Busy | ErrandError::Failed(_))) => {
                Err(RunError::NotStarted(error.to_string()))
            }
            Err(error @ ErrandError::Process(_)) => Err(RunError::Failed(error.to_string())),
        }
    }
}

/// Returns the output of a command that succeeded.
///
/// # Errors
/// The reason of a failure, with the last words of the command.
fn output(ran: RanErrand, program: &str) -> Result<String, String> {
    let how = match ran.code {
        Some(0) => return Ok(ran.stdout),
        Some(code) => format!("{program} failed with exit code {code}"),
        None if ran.timed_out => format!("{program} took too long and was ended"),
        None => format!("{program} was ended by a signal"),
    };
    let lines = |text: &str| {
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        line.map(|line| message_line(line, MAX_WORDS))
    };
    let words = lines(&ran.stderr).or_else(|| lines(&ran.stdout));
    Err(match words {
        Some(words) => format!("{how}: {words}"),
        None => how,
    })
}

/// Returns the text for `{created}`. `is_needed`: it must not be empty.
fn name(output: &str, is_needed: bool) -> Result<String, String> {
    if MAX_CREATED_OUTPUT <= output.len() {
        return Err(format!("create printed more than {} KiB", MAX_CREATED_OUTPUT / 1024));
    }
    let name = created(output).map_err(|_malformed| {
        "the last line of create must be a name: short, without white space and control characters, not beginning with -"
            .to_owned()
    })?;
    if name.is_empty() && is_needed {
        return Err("create printed no name, and start needs one".to_owned());
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_last_words_of_the_command() {
        let ran = |code, stdout: &str, stderr: &str| RanErrand {
            code,
            timed_out: code.is_none(),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
        };
        assert_eq!(output(ran(Some(0), "x\n", "warning"), "podman"), Ok("x\n".to_owned()));
        assert_eq!(
            output(ran(Some(125), "", "first\nno such \u{1b}[31mimage\n"), "podman").unwrap_err(),
            "podman failed with exit code 125: no such  [31mimage"
        );
        assert_eq!(output(ran(None, "", ""), "x").unwrap_err(), "x took too long and was ended");
    }

    #[test]
    fn the_last_line_of_the_output_is_the_name() {
        assert_eq!(name("pulling\npod-7\n", true), Ok("pod-7".to_owned()));
        assert_eq!(name("", false), Ok(String::new()));
        for bad in ["", "a b", "-x", &"x".repeat(MAX_CREATED_OUTPUT)] {
            assert!(name(bad, true).is_err(), "{bad:.20}");
        }
    }
}
