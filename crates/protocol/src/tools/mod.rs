//! The tools: names, facts, and their arguments with forms, limits and defaults. They are defined only here.
//!
//! `crates/tools` and `crates/facades` read the arguments, `crates/schema` makes JSON Schema of them, and the supervisor
//! forwards calls by name. A test compares docs/tools.md with the table. Nothing here runs a tool.

mod arguments;
mod bad_parameter;
mod facades;
mod files;
mod forms;
mod internal;
mod row;
mod search;
mod shell;
mod web;

pub use arguments::{ArgumentsBuilder, ToolArguments};
pub use bad_parameter::BadParameter;
pub use facades::{
    FindFilesArguments, GREP_SEARCH, GrepSearchArguments, ReplaceContentArguments,
    RipgrepSearchArguments, SearchContentArguments, SearchGlobFilesArguments,
};
pub use files::{
    EDIT_FILE, EditArguments, EditFileArguments, NEW_TEXT, OLD_TEXT, READ_FILE, ReadFileArguments,
    WRITE_FILE, WriteFileArguments,
};
pub use forms::{
    Checked, Counts, Digits, FromOne, Grouped, JobReference, Limit, Lines, MayBeEmpty, NotEmpty,
};
pub use internal::{
    AUDIT, AuditArguments, EXPLAIN, ExplainArguments, IMAGE, INSTRUCTIONS, ImageArguments,
    InstructionsArguments, MCP_CALL, MCP_LIST, OPEN_TERMINAL, is_internal,
};
pub use row::{Action, Callers, Kind, Offer, Parameter, Tool};
pub use search::{
    CaseArguments, FIND, FileArguments, FindArguments, NewPlanArguments, PatternArguments, REPLACE,
    ReplaceArguments, SEARCH, SearchArguments, UNDO, UndoArguments,
};
pub use shell::{
    BASH, BashArguments, JOB_KILL, JOB_OUTPUT, JOBS, JobKillArguments, JobOutputArguments,
    REQUEST_PERMISSION, RequestPermissionArguments, TERM_READ, TERM_WRITE, TTY, TermReadArguments,
    TermWriteArguments,
};
pub use web::{WEB_SEARCH, WebSearchArguments};

/// Tools of a session, in the order of the documentation: one list for each file of this directory.
const FAMILIES: [&[Tool]; 5] =
    [files::TOOLS, shell::TOOLS, search::TOOLS, facades::TOOLS, web::TOOLS];

/// Returns every tool of a session, in the order of the documentation.
pub fn all() -> impl Iterator<Item = &'static Tool> + Clone {
    FAMILIES.into_iter().flatten()
}

/// Returns the tool with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Tool> {
    all().find(|tool| tool.name == name)
}

/// Returns the tool with this name, which may be internal.
#[must_use]
pub fn find_any(name: &str) -> Option<&'static Tool> {
    all().chain(&internal::TOOLS).find(|tool| tool.name == name)
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
