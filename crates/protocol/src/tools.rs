//! Names of the tools, shared by the supervisor and the workers. The supervisor never runs a tool. It only forwards
//! calls and sends them to followers.

/// Tools of a session, in the order of the documentation. [`crate::schema`] has their parameters.
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

/// Internal tool that the supervisor calls for `quack.sandbox`. Clients cannot call it.
pub const AUDIT: &str = "quack_audit";

/// Internal tool like [`AUDIT`]. Its parameter is `path`.
pub const EXPLAIN: &str = "quack_explain";

/// Returns true for an internal tool, which only the supervisor can call.
#[must_use]
pub fn is_internal(tool: &str) -> bool {
    tool == AUDIT || tool == EXPLAIN
}

/// Returns the parameter that receives a bare string, or `None` for tools that take only an object.
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

/// Returns the rule of safe mode with its list. The error text of the tool is upstream's and cannot include them.
#[must_use]
pub fn safe_mode_rule() -> String {
    let listed: Vec<String> = SAFE_COMMANDS.iter().map(|words| words.join(" ")).collect();
    format!(
        "safe mode runs only commands that begin with {}, with ` | ` between them; options that write or run another \
         program are refused; `quack tool --help` says more",
        listed.join(", ")
    )
}

/// Returns true if a bare text was meant as JSON arguments, so that broken JSON is never run as a command. A glob such
/// as `{a,b}` and a shell group such as `{ echo hi; }` are not JSON.
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
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn every_tool_is_in_the_table_in_the_same_order() {
        let names: Vec<&str> = schema::ALL.iter().map(|tool| tool.name).collect();
        assert_eq!(names, TOOLS);
        assert!(!names.iter().any(|name| is_internal(name)));
        let mains: Vec<_> = TOOLS.iter().filter_map(|tool| main_parameter(tool)).collect();
        assert_eq!(
            mains,
            [
                "path", "command", "job", "job", "pattern", "pattern", "undo_id", "pattern",
                "pattern", "pattern", "query"
            ]
        );
    }

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
