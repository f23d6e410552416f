//! The parameters of each tool as data: names, kinds, limits and defaults are defined only here. [`wire`] has the
//! messages between clients and the daemon.
//!
//! `crates/tools` reads the permitted names, and `quack schema tools` prints JSON Schema for models. A test compares
//! docs/tools.md with the table. Nothing here runs a tool.

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
    /// Name in calls.
    pub name: &'static str,
    /// Description for a model: one or more sentences.
    pub about: &'static str,
    /// The parameter that receives a bare string.
    pub main: Option<&'static str>,
    /// True: unknown parameters are rejected. Otherwise they are ignored, as the clients of such a tool expect.
    pub is_strict: bool,
    /// Whether the tool changes no file: safe mode and the profile read-only allow it.
    pub reads_only: bool,
    /// Parameters in the order of the documentation.
    pub parameters: &'static [Parameter],
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
}

/// Tools of a session, in the order of the documentation.
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

/// Returns the tool with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|tool| tool.name == name)
}

impl Tool {
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
