//! The row of a tool in the table: its facts and its parameters.

/// One tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// Name in calls.
    pub name: &'static str,
    /// Description for a model: one or more sentences.
    pub about: &'static str,
    /// For a model with a small window: a short description and some parameters. `None` if it is not offered the tool.
    pub brief: Option<(&'static str, &'static [&'static str])>,
    /// The parameter that receives a bare string.
    pub main: Option<&'static str>,
    /// True: unknown parameters are rejected. Otherwise they are ignored, as the clients of such a tool expect.
    pub is_strict: bool,
    /// Action of a call.
    pub action: Action,
    /// Whether the tool changes no file: safe mode and the profile read-only allow it.
    pub reads_only: bool,
    /// Whether a call may lose something that no further call brings back.
    pub is_destructive: bool,
    /// Whether a second call with the same arguments changes nothing more.
    pub is_idempotent: bool,
    /// The parameter with the one file that the tool reads, or writes unless it reads only.
    pub file: Option<&'static str>,
    /// Whether the tool only deals with background jobs. Such a tool also works without the workspace.
    pub is_job_tool: bool,
    /// Whether the data says more than the text.
    pub returns_data: bool,
    /// Whether the journal of calls has the answer. Answers of other tools can contain files.
    pub is_answer_recorded: bool,
    /// Callers of the tool.
    pub callers: Callers,
    /// Profile of the tool.
    pub offer: Offer,
    /// Names of Pi's tools that it stands for in lists of tools. The jobs are commands of Pi's `bash`.
    pub of_pi: &'static [&'static str],
    /// Parameters in the order of the documentation.
    pub parameters: &'static [Parameter],
}

/// Action of a call, as editors distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Reads a file, or the state of the session.
    Read,
    /// Changes files that its arguments name.
    Edit,
    /// Searches texts or names of files.
    Search,
    /// Runs a command.
    Execute,
    /// Asks a server on the network.
    Fetch,
    /// Something else.
    Other,
}

/// Default facts of a tool that changes no file.
pub(super) const READS: Tool = Tool {
    name: "",
    about: "",
    brief: None,
    main: None,
    is_strict: false,
    action: Action::Read,
    reads_only: true,
    is_destructive: false,
    is_idempotent: false,
    file: None,
    is_job_tool: false,
    returns_data: false,
    is_answer_recorded: false,
    callers: Callers::All,
    offer: Offer::Ask,
    of_pi: &[],
    parameters: &[],
};

/// Default facts of a tool that changes files.
pub(super) const WRITES: Tool =
    Tool { action: Action::Edit, reads_only: false, is_destructive: true, ..READS };

/// Callers of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// Clients and agents.
    All,
    /// The session's own agent. The supervisor makes or completes such a call.
    Agent,
    /// The supervisor, for a method.
    Supervisor,
}

/// Profile of a tool: `--tools` of `quack mcp` selects profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// In the profiles `search`, `core` and `all`.
    Look,
    /// In the profiles `core` and `all`.
    Work,
    /// In the profile `all` only: a tool in another spelling, or one of a kind that agents usually have.
    Ask,
}

/// One parameter of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Name in the documentation and in the schema.
    pub name: &'static str,
    /// Aliases, in the order in which they are tried. Not in the schema.
    pub aliases: &'static [&'static str],
    /// Kind of the value.
    pub kind: Kind,
    /// Other spellings of words of the kind, each with its word. Not in the schema.
    pub spellings: &'static [(&'static str, &'static str)],
    /// Whether a call without it is rejected.
    pub is_required: bool,
    /// Default value as JSON text. `None` if no single value describes it.
    pub default: Option<&'static str>,
    /// Whether an agent that is offered the tools hardly needs it: accepted, and left out of short schemas.
    pub is_rare: bool,
    /// Whether this is another spelling of a second parameter: accepted, and not in the schema.
    pub is_spelling: bool,
    /// Description for a model: one line.
    pub about: &'static str,
}

/// Kind of a parameter's value. Numbers and booleans may be texts, except in tools whose clients rely on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text,
    /// A text or a list of texts.
    Texts,
    /// A list of texts.
    List,
    /// `true` or `false`.
    Flag,
    /// `true`, `false` or `"auto"`.
    FlagOrAuto,
    /// A whole number within two bounds, both included.
    Whole(u64, u64),
    /// A text or a whole number.
    TextOrWhole,
    /// One of the given words.
    Choice(&'static [&'static str]),
    /// One of the given words, or a list of them.
    Choices(&'static [&'static str]),
    /// One of the given words, or a flag. The second word is for `true`, the third for `false`.
    ChoiceOrFlag(&'static [&'static str], &'static str, &'static str),
    /// First and last line, both included, from 1.
    Lines,
    /// An object of whole numbers with these names, none of them required.
    Counts(&'static [&'static str]),
    /// A list of objects with these texts, all of them required.
    Edits(&'static [&'static str]),
}

impl Tool {
    /// Returns true if the tool runs commands. Safe mode allows some of them.
    #[must_use]
    pub fn runs_commands(&self) -> bool {
        self.action == Action::Execute
    }

    /// Returns true if some call of the tool works in safe mode.
    #[must_use]
    pub fn has_safe_calls(&self) -> bool {
        self.reads_only || self.runs_commands()
    }

    /// Returns true for an internal tool: it is in no list of tools, and clients cannot call it.
    #[must_use]
    pub fn is_internal(&self) -> bool {
        self.callers != Callers::All
    }

    /// Returns true if a call may change files of the workspace.
    #[must_use]
    pub fn may_change_files(&self) -> bool {
        !self.reads_only && !self.is_job_tool
    }

    /// Returns the parameter with this name. `name` must not be an alias.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// Returns the parameter with this name or alias.
    #[must_use]
    pub fn meant_by(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.names().any(|known| known == name))
    }
}

impl Parameter {
    /// Returns the name, then the aliases.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    /// Creates an optional parameter. [`Parameter::called`] gives it its name.
    pub(super) const fn new(kind: Kind, about: &'static str) -> Self {
        Self {
            name: "",
            aliases: &[],
            kind,
            spellings: &[],
            is_required: false,
            default: None,
            is_rare: false,
            is_spelling: false,
            about,
        }
    }

    pub(super) const fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    pub(super) const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    pub(super) const fn spelled(self, spellings: &'static [(&'static str, &'static str)]) -> Self {
        Self { spellings, ..self }
    }

    pub(super) const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(super) const fn spelling(self) -> Self {
        Self { is_spelling: true, ..self }
    }

    pub(super) const fn rare(self) -> Self {
        Self { is_rare: true, ..self }
    }

    pub(super) const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

pub(super) const fn text(about: &'static str) -> Parameter {
    Parameter::new(Kind::Text, about)
}

/// A text with the aliases behind the first of these names, which is the documented one.
pub(super) const fn named(names: &'static [&'static str], about: &'static str) -> Parameter {
    match names {
        [_, aliases @ ..] => text(about).also(aliases),
        [] => text(about),
    }
}

pub(super) const fn flag(about: &'static str) -> Parameter {
    Parameter::new(Kind::Flag, about)
}

pub(super) const fn whole(least: u64, most: u64, about: &'static str) -> Parameter {
    Parameter::new(Kind::Whole(least, most), about)
}
