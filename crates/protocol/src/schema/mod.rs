//! What each tool takes, as data: the one place that knows the names, kinds, limits and defaults of parameters.
//! [`wire`] has the messages between clients and the daemon.
//!
//! Read by `crates/tools` (which names a call may use), by `quack schema tools` (JSON Schema for models) and by
//! the test that compares docs/tools.md with it. Nothing here runs a tool.

mod facades;
mod files;
mod json;
mod rubber_duck;
mod search;
mod shell;
mod web;
pub mod wire;

pub use json::{tool as tool_schema, tools};

/// One tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool {
    /// The name that calls use.
    pub name: &'static str,
    /// What it does, for a model: a sentence or a few.
    pub about: &'static str,
    /// The parameter that a bare string stands for.
    pub main: Option<&'static str>,
    /// Names that are not listed are refused. Else they are ignored, as the clients of such a tool expect.
    pub is_strict: bool,
    /// It changes no file: safe mode and the profile read-only allow it.
    pub reads_only: bool,
    /// In the order of the documentation.
    pub parameters: &'static [Parameter],
}

/// One parameter of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// The name that documentation and schema use.
    pub name: &'static str,
    /// Other names that mean the same, in the order in which they are tried. Not in the schema.
    pub aliases: &'static [&'static str],
    /// What values it takes.
    pub kind: Kind,
    /// A call without it is refused.
    pub is_required: bool,
    /// What counts if it is absent, as JSON text, where one value says it.
    pub default: Option<&'static str>,
    /// A second spelling of what another parameter says: accepted, and not in the schema.
    pub is_spelling: bool,
    /// What it means, for a model: one line.
    pub about: &'static str,
}

/// What values a parameter takes. Numbers and booleans are also read from text, except by tools whose clients
/// rely on the contrary.
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
    /// A whole number between two others, both included.
    Whole(u64, u64),
    /// A text or a whole number.
    TextOrWhole,
    /// One of some words.
    Choice(&'static [&'static str]),
    /// Some of some words: one, or a list.
    Choices(&'static [&'static str]),
    /// One of some words, or a flag that stands for two of them: the one for `true`, the one for `false`.
    ChoiceOrFlag(&'static [&'static str], &'static str, &'static str),
    /// First and last line, both included, from 1.
    Lines,
    /// An object of whole numbers with these names, none of them required.
    Counts(&'static [&'static str]),
}

/// Every tool that a session answers, in the order of the documentation.
pub const ALL: &[Tool] = &[
    files::READ_FILE,
    files::WRITE_FILE,
    files::EDIT_FILE,
    shell::BASH,
    shell::JOBS,
    shell::JOB_OUTPUT,
    shell::JOB_KILL,
    search::SEARCH,
    search::FIND,
    search::REPLACE,
    search::UNDO,
    rubber_duck::GREP_SEARCH,
    rubber_duck::FIND_FILES,
    facades::SEARCH_CONTENT,
    facades::REPLACE_CONTENT,
    facades::SEARCH_GLOB_FILES,
    facades::RIPGREP_SEARCH,
    web::WEB_SEARCH,
];

/// The tool of a name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|tool| tool.name == name)
}

impl Tool {
    /// The parameter of a name; `name` is not an alias.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.name == name)
    }

    /// The parameter that a call means by `name`, which may be an alias.
    #[must_use]
    pub fn meant_by(&self, name: &str) -> Option<&'static Parameter> {
        self.parameters.iter().find(|parameter| parameter.names().any(|known| known == name))
    }
}

impl Parameter {
    /// Its name, then the others that mean the same.
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

    const fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }
}

const fn text(name: &'static str, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Text, about)
}

const fn flag(name: &'static str, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Flag, about)
}

const fn whole(name: &'static str, least: u64, most: u64, about: &'static str) -> Parameter {
    Parameter::new(name, Kind::Whole(least, most), about)
}

#[cfg(test)]
mod tests;
