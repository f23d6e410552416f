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

/// Commands that bash runs in safe mode, by their first word or words.
pub const SAFE_COMMANDS: &[&[&str]] = &[
    &["git"],
    &["grep"],
    &["rg"],
    &["find"],
    &["ls"],
    &["cat"],
    &["head"],
    &["tail"],
    &["wc"],
    &["swift", "test"],
    &["xcodebuild", "test"],
    &["npm", "test"],
    &["pytest"],
];

/// Text for a command that safe mode does not run. Upstream's wire fixes it.
pub const NOT_SAFE: &str = "Command not allowed in safe mode";

/// The rule of safe mode and its list. The tool's text is upstream's and has no room for them.
#[must_use]
pub fn safe_mode_rule() -> String {
    let listed: Vec<String> = SAFE_COMMANDS.iter().map(|words| words.join(" ")).collect();
    format!(
        "safe mode runs only commands that begin with {}, with ` | ` between them; options that write or run another \
         program are refused; `quack tool --help` says more",
        listed.join(", ")
    )
}

/// Whether a bare text was meant as JSON arguments, so that broken JSON is never run as a command. A glob such as
/// `{a,b}` and a shell group such as `{ echo hi; }` are texts.
#[must_use]
pub fn is_meant_as_json(tool: &str, text: &str) -> bool {
    let text = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let is_bash = tool == "bash";
    let Some(inside) = text.strip_prefix('{') else {
        return is_bash && text.starts_with("[\"");
    };
    let key = inside.trim_start();
    let is_group = is_bash && key.len() < inside.len();
    match key.strip_prefix(['"', '\'', '\u{201c}', '\u{201d}']) {
        // A group may begin with a quoted program; a key has a colon behind it.
        Some(rest) if is_group => rest
            .split_once(['"', '\'', '\u{201c}', '\u{201d}'])
            .is_none_or(|(_, behind)| behind.trim_start().starts_with(':')),
        Some(_) => true,
        // The shell takes a brace for a group only with a space behind it.
        None => is_bash && !is_group,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_json_is_told_from_globs_patterns_and_shell_groups() {
        for (tool, text, expected) in [
            ("bash", r#"{"command":"ls""#, true),
            ("bash", r#" {"command" "ls"}"#, true),
            ("bash", r#"{ "command": "ls" "#, true),
            ("bash", "{ 'command': 'ls' }", true),
            ("bash", "{command: ls}", true),
            ("bash", "\u{feff}{\u{201c}command\u{201d}: 1}", true),
            ("bash", r#"["ls", "-la"]"#, true),
            ("bash", r#"{ "a prog" x; }"#, false),
            ("bash", "{ echo hi; }", false),
            ("bash", "[ -f x ] && ls", false),
            ("bash", "ls {a,b}", false),
            ("find_files", "{a,b}*.rs", false),
            ("grep_search", "{name}", false),
            ("grep_search", "[\"']", false),
            ("grep_search", r#"{"pattern":"x"#, true),
        ] {
            assert_eq!(is_meant_as_json(tool, text), expected, "{tool} {text}");
        }
    }
}
