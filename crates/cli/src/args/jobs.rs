//! Arguments of `quack jobs`.

use super::{AnySessionArgs, SessionArgs};
use clap::{Args, Subcommand};

/// List, follow and end the background jobs of a session
///
/// `quack tool bash --detach` starts one. Jobs end with their session's worker.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  quack jobs\n  quack jobs api --json\n  quack jobs -f job-1     until it ends, with its exit code\n  \
    quack jobs kill job-1"
)]
pub(crate) struct JobsArgs {
    #[command(subcommand)]
    pub(crate) action: Option<JobsAction>,
    /// Show the output of a job from its beginning until it ends, and exit with its code
    #[arg(short, long, value_name = "JOB")]
    pub(crate) follow: Option<String>,
    #[command(flatten)]
    pub(crate) which: AnySessionArgs,
}

/// Action on one job.
#[derive(Debug, Subcommand)]
pub(crate) enum JobsAction {
    /// End a job and all processes that it started
    #[command(
        after_help = "Examples:\n  quack jobs kill job-1\n  quack jobs kill job-1 --session api"
    )]
    Kill {
        /// The job
        #[arg(value_name = "JOB")]
        job: String,
        #[command(flatten)]
        which: SessionArgs,
    },
}
