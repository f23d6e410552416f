//! The list that agents get. Names and meanings stay: an agent's configuration and its prompts name them.

#[cfg(test)]
mod tests {
    use quackd_mcp::tool_list::{ListFacts, Selection, tools};
    use serde_json::{Value, json};

    /// The list of `--tools all` as JSON.
    fn all() -> Value {
        let selection = Selection::parse(&["all"], false).expect("a profile");
        json!(tools(
            &selection,
            ListFacts { safe: false, network: false, any_workspace: false, structured: true }
        ))
    }

    #[test]
    fn the_list_is_the_recorded_one() {
        let list = serde_json::to_string_pretty(&all()).expect("JSON") + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tool_list.json");
        let recorded = std::fs::read_to_string(path).unwrap_or_default();
        if list != recorded {
            let new = std::env::temp_dir().join("quackd-tool_list.json");
            std::fs::write(&new, &list).expect("write the new list");
            panic!("the list has changed; if that is intended: cp {} {path}", new.display());
        }
    }

    #[test]
    fn a_program_gets_a_terminal_only_with_the_tool_that_shows_it() {
        let has_tty = |words: &[&str]| {
            let selection = Selection::parse(words, false).expect("tools");
            let facts =
                ListFacts { safe: false, network: false, any_workspace: false, structured: false };
            let list = json!(tools(&selection, facts));
            let bash = list.as_array().and_then(|list| list.iter().find(|it| it["name"] == "bash"));
            !bash.expect("bash")["inputSchema"]["properties"]["tty"].is_null()
        };
        assert!(!has_tty(&["core"]) && has_tty(&["core", "term_read"]) && has_tty(&["all"]));
    }

    #[test]
    fn profiles_are_short() {
        let words = |profile: &str, safe: bool| {
            let selection = Selection::parse(&[profile], safe).expect("a profile");
            let list = tools(
                &selection,
                ListFacts { safe, network: false, any_workspace: false, structured: true },
            );
            let names: Vec<String> = list.iter().map(|tool| tool.name.to_string()).collect();
            (names.join(" "), json!(list).to_string().len())
        };
        let (names, bytes) = words("core", false);
        assert_eq!(
            names,
            "read_file write_file edit_file bash jobs job_output job_kill request_permission search find replace undo"
        );
        // A model reads the list with each request.
        assert!(bytes < 27_000, "{bytes}");
        assert_eq!(words("search", false).0, "read_file search find");
        assert_eq!(
            words("core", true).0,
            "read_file bash jobs job_output job_kill request_permission search find"
        );
        let names =
            |words: &[&str]| Selection::parse(words, false).map(|chosen| chosen.has("bash"));
        assert!(names(&["search", " bash"]).expect("a tool"));
        let error = names(&["cor"]).expect_err("not a profile").to_string();
        assert!(
            error.starts_with("`cor` is neither a profile (core, search, all) nor a tool"),
            "{error}"
        );
    }
}
