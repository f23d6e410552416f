//! Arguments that choose a session: a reference or a directory. Part of the arguments of most subcommands.

use clap::Args;
use std::path::PathBuf;

/// Value name of each argument that refers to a session.
pub(crate) const REF: &str = "REF";

/// Parses a reference to a session. Rejects an empty reference, because the daemon would treat it as no reference and
/// use the active session.
pub(crate) fn reference(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        Err("the reference is empty: give the id or the name of a session")
    } else {
        Ok(text.to_owned())
    }
}

/// Options that select the session of a subcommand.
#[derive(Debug, Default, Args)]
pub(crate) struct SessionArgs {
    /// Session, such as api or api/review
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true, conflicts_with = "dir")]
    pub(crate) session: Option<String>,
    /// Use your session of this directory [default: the current one]
    #[arg(short = 'C', long = "dir", value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

/// Session of a subcommand, as a word or as an option.
#[derive(Debug, Args)]
pub(crate) struct AnySessionArgs {
    /// Session, such as api or api/review [default: yours of the current directory]
    #[arg(value_name = REF, value_parser = reference, allow_hyphen_values = true, conflicts_with_all = ["session", "dir"])]
    reference: Option<String>,
    #[command(flatten)]
    which: SessionArgs,
}

impl AnySessionArgs {
    /// Returns the session and directory, however they were given.
    pub(crate) fn into_which(self) -> SessionArgs {
        let SessionArgs { session, dir } = self.which;
        SessionArgs { session: self.reference.or(session), dir }
    }
}

/// Session of a subcommand that never guesses one, as a word or as an option.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct NamedSessionArgs {
    /// Session, such as api or api/review
    #[arg(value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    reference: Option<String>,
    /// Session, as an option
    #[arg(long, value_name = REF, value_parser = reference, allow_hyphen_values = true)]
    session: Option<String>,
}

impl NamedSessionArgs {
    /// Returns the session, however it was given.
    pub(crate) fn into_which(self) -> SessionArgs {
        SessionArgs { session: self.reference.or(self.session), dir: None }
    }
}
