//! A row: an engine with its argument lists, in which placeholders stand for what is known later.

use quackd_protocol::far::check_engine;

/// Most arguments of a list, and most options of a row.
pub const MAX_WORDS: usize = 64;

/// Argument that stands for the command of the far worker.
pub(crate) const COMMAND: &str = "{command}";

/// Argument that stands for the arguments of the target's options.
pub(crate) const OPTIONS: &str = "{options}";

/// Placeholder of the target, in an argument. An argument that is nothing else is omitted without a target.
pub(crate) const TARGET: &str = "{target}";

/// Placeholder of the session's id, in an argument.
pub(crate) const SESSION: &str = "{session}";

/// Placeholder of the program's file on this machine, in an argument.
pub(crate) const PROGRAM: &str = "{program}";

/// Placeholder of the text that `create` printed, in an argument.
pub(crate) const CREATED: &str = "{created}";

/// Placeholder of the user's number on this machine, in an argument.
pub(crate) const USER: &str = "{uid}";

/// Placeholder of an option's value, in the argument of the option.
pub(crate) const VALUE: &str = "{value}";

/// An engine: a row of the table, or of the configuration.
///
/// Arguments of its lists may have the placeholders `{target}`, `{session}`, `{program}`, `{created}` and `{uid}`. The whole
/// arguments `{command}` and `{options}` stand for several arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Name in `--on` and in paths of workspaces.
    pub name: String,
    /// Built-in row from which a row of the user was copied.
    pub like: Option<String>,
    /// One line for the user.
    pub about: String,
    /// Starts the far worker, with its stream on standard input and output.
    pub start: Vec<String>,
    /// Starts another stream to the same far worker. Empty if the engine cannot.
    pub resume: Vec<String>,
    /// Ends what `start` has left. Empty if nothing can be left.
    pub stop: Vec<String>,
    /// Prints in one line why the far worker does not run yet. Empty without a queue.
    pub poll: Vec<String>,
    /// Creates what a session needs, once. Prints `{created}` as its last line. Empty if nothing is created.
    pub create: Vec<String>,
    /// Deletes what `create` made. Empty if nothing is to delete.
    pub destroy: Vec<String>,
    /// Succeeds if the client of the engine is usable. Empty if no command shows it.
    pub probe: Vec<String>,
    /// Whether the client joins its arguments to a line for a far shell, as ssh does.
    pub joins_words: bool,
    /// Way of the program to the far side.
    pub program: Program,
    /// Whether files in the home directory there outlive one start, so that a copy of a workspace can be sent.
    pub keeps_files: bool,
    /// Whether the user names a target.
    pub target: TargetRule,
    /// Names and arguments of options. If there are any, the target is a list such as `partition=main,cpus=2`.
    pub options: Vec<(String, String)>,
    /// Facts about the engine. A row of the user has those of the row that it is like.
    pub promises: Vec<Promise>,
}

/// Way of the program to the far side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The far shell receives it through the stream, once for each version.
    Send,
    /// It is at this absolute path there, for example because `start` mounts it.
    At(String),
}

/// Whether the user names a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetRule {
    /// Always.
    Required,
    /// If they like.
    Optional,
    /// Never.
    None,
}

impl TargetRule {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Required, Self::Optional, Self::None];

    /// Returns the word in the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Optional => "optional",
            Self::None => "none",
        }
    }
}

/// A fact about an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// It chooses the machine.
    Places,
    /// It limits memory and processors.
    Limits,
    /// The far worker sees another file system than that of a machine.
    OwnFiles,
    /// The far worker survives the end of the client, so that a link can be resumed.
    Survives,
}

impl Promise {
    /// Returns the words for the user.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Places => "chooses the machine",
            Self::Limits => "limits resources",
            Self::OwnFiles => "own file system",
            Self::Survives => "link can be resumed",
        }
    }
}

/// The reason why an engine cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The target does not fit.
    #[error("{0}")]
    Target(String),
    /// The row is malformed. The text is a verb phrase, such as `must have …`.
    #[error("{0}")]
    Row(String),
}

impl Engine {
    /// Checks a row of the user.
    ///
    /// # Errors
    /// `Row`.
    pub fn check(&self) -> Result<(), EngineError> {
        let refused = |text: &str| Err(EngineError::Row(text.to_owned()));
        if let Err(error) = check_engine(&self.name) {
            return Err(EngineError::Row(format!("must have another name: {error}")));
        }

        let count = |list: &[String]| list.iter().filter(|word| *word == COMMAND).count();
        let needs_command = |list: &[String]| !list.is_empty() && count(list) != 1;
        if self.start.is_empty() || needs_command(&self.start) || needs_command(&self.resume) {
            return refused(
                "must have `{command}` as one argument of `start`, and of `resume` if it is set",
            );
        }
        let Self { start, resume, stop, poll, create, destroy, probe, .. } = self;
        let lists = [start, resume, stop, poll, create, destroy, probe];
        if lists.iter().any(|list| {
            list.first().is_some_and(|word| word.trim().is_empty() || word.contains('{'))
        }) {
            return refused("must have argument lists that begin with a program");
        }
        if MAX_WORDS < lists.iter().map(|list| list.len()).max().unwrap_or_default() {
            return Err(EngineError::Row(format!(
                "must have at most {MAX_WORDS} arguments in a list"
            )));
        }

        let uses = |list: &[String]| list.iter().any(|word| word.contains(CREATED));
        let used = [start, resume, stop, poll, destroy].into_iter().any(|list| uses(list));
        if uses(create) || used && create.is_empty() {
            return refused("must have `{created}` only in other lists than `create`, and with it");
        }
        if create.is_empty() != destroy.is_empty() {
            return refused("must have both `create` and `destroy`, or none");
        }

        if let Program::At(path) = &self.program
            && !path.starts_with('/')
        {
            return refused("must have `program` \"send\", or an absolute path there");
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if self.options.iter().any(|(name, argument)| !is_name(name) || !argument.contains(VALUE)) {
            return refused(
                "must have `options` with plain names, and with `{value}` in each argument",
            );
        }
        if !self.options.is_empty() && self.target == TargetRule::None {
            return refused("must have another `target` than \"none\", since it has `options`");
        }
        Ok(())
    }
}
