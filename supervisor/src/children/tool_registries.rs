//! Asks the user's tools for the hosts of their registries, in the one-shot process `quack tool-registries`. Called by
//! the registry when a rule names a derived preset. The same process reads a key from the system's keychain.
//!
//! The process is not trusted: each host is checked again, and becomes a rule for one host.

use super::command_env::Variables;
use super::login_env::{CaptureError, LoginEnv, ask};
use super::one_shot::OneShot;
use super::spawner::Spawner;
use quackd_policy::hosts::presets::is_usable;
use quackd_protocol::environment::{
    FromEnvironmentWorker, MAX_PROBLEM_CHARS, MAX_TOOL_HOSTS, MAX_TOOL_PROBLEMS,
    ToEnvironmentWorker, ToolAnswer, ToolKind, ToolsRequest,
};
use quackd_protocol::foreign_text::message_line;
use quackd_protocol::state::FoundHost;
use secrecy::SecretString;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum wait for the environment of commands, and for the process of an earlier request.
const ENVIRONMENT_TIMEOUT: Duration = Duration::from_secs(3);
const TURN_TIMEOUT: Duration = Duration::from_secs(15);

/// One instance per daemon.
#[derive(Debug)]
pub(crate) struct ToolRegistries {
    run_dir: PathBuf,
    spawner: Spawner,
    login: Rc<LoginEnv>,
    process: OneShot,
    /// Permit for the only running process.
    turn: Semaphore,
}

/// Reason why the tools gave no answer at all, for display.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    #[error("the tools are being asked for another request: try again")]
    Busy,
    #[error("cannot ask the tools: {0}")]
    Failed(#[from] CaptureError),
}

impl ToolRegistries {
    pub(crate) fn new(
        run_dir: PathBuf,
        spawner: Spawner,
        login: Rc<LoginEnv>,
        process: OneShot,
    ) -> Rc<Self> {
        Rc::new(Self { run_dir, spawner, login, process, turn: Semaphore::new(1) })
    }

    /// Record of the processes, for `quack.tree`.
    pub(crate) fn one_shot(&self) -> &OneShot {
        &self.process
    }

    /// Environment of commands.
    pub(crate) async fn environment(&self) -> Variables {
        self.login.env_for_worker(ENVIRONMENT_TIMEOUT).await
    }

    /// Waits at most for `limit` until the daemon has the user's PATH.
    pub(crate) async fn environment_captured(&self, limit: Duration) {
        self.login.captured(limit).await;
    }

    /// Asks these kinds of tools, with a clean environment. `untrusted` are the directories that sessions may write. Takes
    /// at most 29 s. The caller must not drop the future: it records and reaps the process.
    pub(crate) async fn ask(
        &self,
        tools: Vec<ToolKind>,
        env: Variables,
        untrusted: Vec<String>,
    ) -> Result<Vec<ToolAnswer>, AskError> {
        let request = self.request(tools.clone(), env, untrusted);
        match self.exchange(ToEnvironmentWorker::AskTools(request)).await? {
            FromEnvironmentWorker::Tools(answers) => Ok(checked(&tools, answers)),
            _ => Err(CaptureError::Malformed("another frame".to_owned()).into()),
        }
    }

    /// Reads the key of an account of the service `quackd`. The other parameters and the limits are those of
    /// [`Self::ask`].
    pub(crate) async fn read_key(
        &self,
        account: String,
        env: Variables,
        untrusted: Vec<String>,
    ) -> Result<SecretString, AskError> {
        let request = self.request(Vec::new(), env, untrusted);
        match self.exchange(ToEnvironmentWorker::ReadKey { request, account }).await? {
            FromEnvironmentWorker::Key(key) => Ok(key.0.into()),
            FromEnvironmentWorker::Failed { text } => {
                Err(CaptureError::Failed(message_line(&text, MAX_PROBLEM_CHARS)).into())
            }
            _ => Err(CaptureError::Malformed("another frame".to_owned()).into()),
        }
    }

    fn request(
        &self,
        tools: Vec<ToolKind>,
        env: Variables,
        untrusted: Vec<String>,
    ) -> ToolsRequest {
        ToolsRequest { run_dir: self.run_dir.display().to_string(), env, tools, untrusted }
    }

    /// Sends one request to a new process, after that of an earlier request has exited.
    async fn exchange(
        &self,
        request: ToEnvironmentWorker,
    ) -> Result<FromEnvironmentWorker, AskError> {
        let turn = timeout(TURN_TIMEOUT, self.turn.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(AskError::Busy) };
        let (process, stopping) = (&self.process, self.login.stopping());
        Ok(ask(process, &self.spawner, request, stopping).await?)
    }
}

/// Returns one answer for each kind of tools, with the usable hosts and with bounded texts.
fn checked(tools: &[ToolKind], answers: Vec<ToolAnswer>) -> Vec<ToolAnswer> {
    let answer = |tool: &ToolKind| {
        let given = answers.iter().find(|answer| answer.tool == *tool);
        let mut answer = ToolAnswer { tool: *tool, hosts: Vec::new(), problems: Vec::new() };
        let hosts = given.map(|given| given.hosts.as_slice()).unwrap_or_default();

        for FoundHost { rule, source } in hosts.iter().take(MAX_TOOL_HOSTS) {
            let source = message_line(source, MAX_PROBLEM_CHARS);
            if is_usable(rule) {
                answer.hosts.push(FoundHost { rule: rule.clone(), source });
            } else {
                answer.problems.push(format!(
                    "{source} names this machine or no host: for a server of this machine, allow machine:PORT"
                ));
            }
        }

        let problems = given.map(|given| given.problems.as_slice()).unwrap_or_default();
        let line = |problem: &String| message_line(problem, MAX_PROBLEM_CHARS);
        answer.problems.extend(problems.iter().map(line));
        answer.problems.truncate(MAX_TOOL_PROBLEMS);
        answer
    };

    tools.iter().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_bounded_and_names_hosts_only() {
        let host = |rule: &str| FoundHost { rule: rule.into(), source: "a\nb".into() };
        let rules = [
            "a.test.example",
            "machine:80",
            "@github",
            "127.0.0.1:4873",
            "!b.example",
            "10.0.0.7:8081",
        ];
        let mut hosts: Vec<_> = rules.map(host).into();
        hosts.extend((0..100).map(|n| host(&format!("h{n}.test.example"))));
        let given = |tool, hosts| ToolAnswer { tool, hosts, problems: vec!["x".repeat(9999); 99] };
        let answers = vec![given(ToolKind::Npm, hosts), given(ToolKind::Go, Vec::new())];
        let checked = checked(&[ToolKind::Npm, ToolKind::Rust], answers);
        assert_eq!(checked.len(), 2);
        let (npm, rust) = (&checked[0], &checked[1]);
        assert_eq!((rust.tool, rust.hosts.len(), rust.problems.len()), (ToolKind::Rust, 0, 0));
        assert_eq!(npm.hosts.len(), MAX_TOOL_HOSTS - 4);
        assert_eq!(
            (npm.hosts[0].rule.as_str(), npm.hosts[0].source.as_str()),
            ("a.test.example", "a b")
        );
        assert_eq!(npm.hosts[1].rule, "10.0.0.7:8081");
        assert_eq!(npm.problems.len(), MAX_TOOL_PROBLEMS);
        assert!(npm.problems[0].starts_with("a b names this machine"), "{}", npm.problems[0]);
        assert!(npm.problems.iter().all(|problem| problem.len() < 2 * MAX_PROBLEM_CHARS));
    }
}
