//! Arguments of `quack approvals`, `quack allow` and `quack deny`.

use clap::Args;
use quackd_protocol::credentials::CredentialUse;

/// List the questions about denied operations, and the last answers
///
/// A command that connects to a host without a rule, writes outside of the writable directories or needs more than safe
/// mode waits for your answer while a client that can answer is connected.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack approvals\n  quack approvals --watch --notify    ask in this terminal and on the desktop\n  \
    quack approvals --json"
)]
pub(crate) struct ApprovalsArgs {
    /// Show questions as they come until Ctrl-C, and answer them here if this is a terminal
    #[arg(long)]
    pub(crate) watch: bool,
    /// Also show each question as a notification of the desktop
    #[arg(long, requires = "watch")]
    pub(crate) notify: bool,
}

/// Allow the operation of a question, or the use of a credential
///
/// At a terminal, the question is shown first. To allow more than once, type its host, or a code for another target.
/// --credential needs no question. It is for your session of the current directory, unless you give another scope.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack allow registry.example.org\n  quack allow quack-3f-7 --session\n  quack allow    \
    show the only open question, and ask\n  quack allow --credential 'push github.com/me/app' --workspace"
)]
pub(crate) struct AllowArgs {
    /// Id of the question, its host, or another target of it [default: at a terminal the only open one, else the last that expired]
    #[arg(value_name = "ID|HOST")]
    pub(crate) question: Option<String>,
    /// Use of a credential of yours, such as "ssh git@github.com", "fetch github.com/me/app", "push github.com/me/app" or
    /// "sign commits"; repeatable
    #[arg(long = "credential", value_name = "USE", conflicts_with = "question")]
    pub(crate) credentials: Vec<CredentialUse>,
    /// For the session
    #[arg(long, group = "scope")]
    pub(crate) session: bool,
    /// For all sessions of the workspace
    #[arg(long, group = "scope")]
    pub(crate) workspace: bool,
    /// For all sessions
    #[arg(long, group = "scope")]
    pub(crate) always: bool,
}

/// Deny the operation of a question
///
/// At a terminal, the question is shown first.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  quack deny ads.example.org\n  quack deny quack-3f-7 --session    do not ask again in this session"
)]
pub(crate) struct DenyArgs {
    /// Id of the question, its host, or another target of it [default: at a terminal the only open one, else the last that expired]
    #[arg(value_name = "ID|HOST")]
    pub(crate) question: Option<String>,
    /// For the session
    #[arg(long)]
    pub(crate) session: bool,
}
