//! What both sides know of the tools by name. The supervisor never runs one; it only forwards calls and
//! shows them to followers.

/// The tools that a session answers, in the order of the documentation. [`crate::schema`] has more of them.
pub const TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "bash",
    "jobs",
    "job_output",
    "job_kill",
    "search",
    "find",
    "replace",
    "undo",
    "grep_search",
    "find_files",
    "search_content",
    "replace_content",
    "search_glob_files",
    "ripgrep_search",
    "web_search",
];

/// What only the supervisor itself asks of a worker, for `quack.sandbox`: no client can call it as a tool.
pub const AUDIT: &str = "quack_audit";

/// See [`AUDIT`]. Its parameter is `path`.
pub const EXPLAIN: &str = "quack_explain";

/// True for what looks like a tool to a worker and is none to a client.
#[must_use]
pub fn is_internal(tool: &str) -> bool {
    tool == AUDIT || tool == EXPLAIN
}

/// The parameter that a bare string stands for; `None` for tools that take an object only.
#[must_use]
pub fn main_parameter(tool: &str) -> Option<&'static str> {
    crate::schema::find(tool)?.main
}
