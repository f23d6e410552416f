//! What both sides know of the tools by name. The supervisor never runs one; it only forwards calls and
//! shows them to followers.

/// The tools that a session answers, in the order of the documentation.
pub const TOOLS: &[&str] = &[
    "read_file",
    "write_file",
    "edit_file",
    "bash",
    "jobs",
    "job_output",
    "job_kill",
    "grep_search",
    "find_files",
    "web_search",
];

/// The parameter that a bare string stands for; `None` for tools that take an object only.
#[must_use]
pub fn main_parameter(tool: &str) -> Option<&'static str> {
    match tool {
        "read_file" => Some("path"),
        "bash" => Some("command"),
        "job_output" | "job_kill" => Some("job"),
        "grep_search" | "find_files" => Some("pattern"),
        "web_search" => Some("query"),
        _ => None,
    }
}
