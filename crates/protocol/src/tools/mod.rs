//! The tools: names, facts, and the kinds, limits and defaults of their parameters. They are defined only here.
//!
//! `crates/tools` reads the permitted names, `crates/schema` makes JSON Schema of them, and the supervisor forwards
//! calls by name. A test compares docs/tools.md with the table. Nothing here runs a tool.

mod facades;
mod files;
mod rubber_duck;
mod search;
mod shell;
mod web;

pub use files::{EDIT_FILE, NEW_TEXT, OLD_TEXT, READ_FILE, WRITE_FILE};
pub use rubber_duck::GREP_SEARCH;
pub use search::{FIND, REPLACE, SEARCH, UNDO};
pub use shell::{BASH, JOB_KILL, JOB_OUTPUT, JOBS, REQUEST_PERMISSION};
pub use web::WEB_SEARCH;

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
    /// What a call does.
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
    /// Profile of the tool.
    pub offer: Offer,
    /// Names of Pi's tools that it stands for in lists of tools. The jobs are commands of Pi's `bash`.
    pub of_pi: &'static [&'static str],
    /// Parameters in the order of the documentation.
    pub parameters: &'static [Parameter],
}

/// What a call of a tool does, as editors distinguish it.
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

/// Facts of a tool that changes no file, unless its row says otherwise.
const READS: Tool = Tool {
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
    offer: Offer::Ask,
    of_pi: &[],
    parameters: &[],
};

/// Facts of a tool that changes files, unless its row says otherwise.
const WRITES: Tool =
    Tool { action: Action::Edit, reads_only: false, is_destructive: true, ..READS };

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

/// Tools of a session, in the order of the documentation: one list for each file of this directory.
const FAMILIES: [&[Tool]; 6] =
    [files::TOOLS, shell::TOOLS, search::TOOLS, rubber_duck::TOOLS, facades::TOOLS, web::TOOLS];

/// Returns every tool of a session, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Tool> + Clone {
    FAMILIES.into_iter().flatten()
}

/// Returns the tool with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Tool> {
    all().find(|tool| tool.name == name)
}

/// Returns the tool with this name, or else the first one that does the same as Pi's tool with this name.
#[must_use]
pub fn find_spelling(name: &str) -> Option<&'static Tool> {
    find(name).or_else(|| all().find(|tool| tool.of_pi.contains(&name)))
}

/// Returns true if the tool with this name runs commands.
#[must_use]
pub fn runs_commands(tool: &str) -> bool {
    find(tool).is_some_and(Tool::runs_commands)
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

    const fn new(name: &'static str, kind: Kind, about: &'static str) -> Self {
        Self {
            name,
            aliases: &[],
            kind,
            is_required: false,
            default: None,
            is_rare: false,
            is_spelling: false,
            about,
        }
    }

    const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    const fn spelling(self) -> Self {
        Self { is_spelling: true, ..self }
    }

    const fn rare(self) -> Self {
        Self { is_rare: true, ..self }
    }

    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

const fn text(name: &'static str, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Text, about)
}

/// A text whose first name is the documented one.
const fn named(names: &'static [&'static str], about: &'static str) -> Parameter {
    match names {
        [name, aliases @ ..] => text(name, about).also(aliases),
        [] => text("", about),
    }
}

const fn flag(name: &'static str, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Flag, about)
}

const fn whole(name: &'static str, least: u64, most: u64, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Whole(least, most), about)
}

/// Internal tool that the supervisor calls for `quack.sandbox`. Clients cannot call it.
pub const AUDIT: &str = "quack_audit";

/// Internal tool like [`AUDIT`]. Its parameter is `path`.
pub const EXPLAIN: &str = "quack_explain";

/// Internal tool that the supervisor calls for the session's agent: returns the files with instructions for agents.
pub const INSTRUCTIONS: &str = "quack_instructions";

/// Internal tool like [`INSTRUCTIONS`]: returns an image. Its parameter is `path`.
pub const IMAGE: &str = "quack_image";

/// Internal tool like [`INSTRUCTIONS`]: starts the session's MCP servers and lists their tools. Its parameters are
/// [`crate::mcp::McpList`], its data [`crate::mcp::McpTools`].
pub const MCP_LIST: &str = "quack_mcp_list";

/// Internal tool like [`INSTRUCTIONS`]: calls a tool of an MCP server. Its parameters are [`crate::mcp::McpCall`].
pub const MCP_CALL: &str = "quack_mcp_call";

/// Returns true for an internal tool, which only the supervisor can call.
#[must_use]
pub fn is_internal(tool: &str) -> bool {
    [AUDIT, EXPLAIN, INSTRUCTIONS, IMAGE, MCP_LIST, MCP_CALL].contains(&tool)
}

/// Returns the parameter that receives a bare string, or `None` for tools that take only an object.
#[must_use]
pub fn main_parameter(tool: &str) -> Option<&'static str> {
    find(tool)?.main
}

/// Returns true if a bare text was meant as JSON arguments, so that broken JSON is never run as a command. A glob such
/// as `{a,b}` and a shell group such as `{ echo hi; }` are not JSON.
#[must_use]
pub fn is_meant_as_json(tool: &str, text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let is_bash = runs_commands(tool);
    let Some(inside) = text.strip_prefix('{') else {
        return is_bash && text.starts_with("[\"");
    };
    let key = inside.trim_start();
    let is_group = is_bash && key.len() < inside.len();
    match key.strip_prefix(['"', '\'', '\u{201c}', '\u{201d}']) {
        // A group may start with a quoted program, but a key is followed by a colon.
        Some(rest) if is_group => rest
            .split_once(['"', '\'', '\u{201c}', '\u{201d}'])
            .is_none_or(|(_, behind)| behind.trim_start().starts_with(':')),
        Some(_) => true,
        // The shell treats a brace as a group only if a space follows.
        None => is_bash && !is_group,
    }
}

#[cfg(test)]
mod tests;
