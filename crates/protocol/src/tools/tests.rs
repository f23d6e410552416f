//! Checks that the table of the tools is consistent.

use super::*;
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn names_mean_one_parameter_and_the_main_one_is_there() {
    for tool in all() {
        let mut seen = BTreeSet::new();
        for parameter in tool.parameters {
            for name in parameter.names() {
                assert!(seen.insert(name), "{}: {name} is there twice", tool.name);
                assert_eq!(tool.meant_by(name), Some(parameter));
            }
            let is_hidden = parameter.is_spelling || parameter.is_rare;
            assert!(!(parameter.is_required && is_hidden), "{}", parameter.name);
            assert!(parameter.about.ends_with('.'), "{}: {}", tool.name, parameter.about);
        }
        let main = tool.main.map(|main| tool.parameter(main).map(|it| it.name));
        assert_eq!(main.flatten(), tool.main, "{}", tool.name);
        assert!(tool.about.ends_with('.'), "{}", tool.name);
    }
    assert_eq!(find("nothing"), None);
}

#[test]
fn defaults_are_values_that_the_parameter_takes() {
    for tool in all() {
        for parameter in tool.parameters {
            let Some(default) = parameter.default else { continue };
            let value: Value = serde_json::from_str(default).unwrap();
            let fits = match parameter.kind {
                Kind::Text | Kind::Texts | Kind::TextOrWhole => value.is_string(),
                Kind::Flag => value.is_boolean(),
                Kind::FlagOrAuto => value.is_boolean() || value == "auto",
                Kind::Whole(least, most) => {
                    value.as_u64().is_some_and(|number| (least..=most).contains(&number))
                }
                Kind::Choice(words) | Kind::ChoiceOrFlag(words, ..) => {
                    value.as_str().is_some_and(|word| words.contains(&word))
                }
                Kind::Choices(words) => value.as_array().is_some_and(|all| {
                    all.iter().all(|word| word.as_str().is_some_and(|word| words.contains(&word)))
                }),
                Kind::List | Kind::Lines | Kind::Counts(_) | Kind::Edits(_) => false,
            };
            assert!(fits, "{}: {} = {default}", tool.name, parameter.name);
        }
    }
}

/// The part of the documentation that is about each tool, by its heading.
fn sections(document: &str) -> Vec<(&str, &str)> {
    let parts = document.split("\n## ").chain(document.split("\n### "));
    parts
        .filter_map(|part| {
            let (name, rest) = part.split_once('\n')?;
            let end = rest.find("\n## ").unwrap_or(rest.len());
            Some((name.trim(), &rest[..end]))
        })
        .collect()
}

fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the names in the lists below `Arguments`, up to the colon of each item.
fn arguments(section: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in section.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with("- ") {
            is_inside = line.starts_with("Arguments");
        } else if is_inside && let Some((names, _)) = line.split_once(": ") {
            let names = names.split(" (also ").next().unwrap_or(names);
            found.extend(quoted(names));
        }
    }
    found
}

#[test]
fn the_documentation_and_the_table_name_the_same_parameters() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md");
    let document = std::fs::read_to_string(path).unwrap();
    let sections = sections(&document);
    let of = |name: &str| {
        let found = sections.iter().find(|(heading, _)| *heading == name);
        found.unwrap_or_else(|| panic!("docs/tools.md has no section {name}")).1
    };
    let (rules, search) = (of("Rules for all of them"), of("search"));
    for tool in all() {
        // The section of `search` explains shared parameters, so other sections need not repeat them.
        let section = of(tool.name);
        let mut words = quoted(section);
        words.extend(quoted(rules));
        if ["find", "replace"].contains(&tool.name) {
            words.extend(quoted(search));
        }
        for parameter in tool.parameters {
            for name in parameter.names() {
                assert!(
                    words.contains(name),
                    "docs/tools.md says nothing of {name} of {}",
                    tool.name
                );
            }
        }
        for name in arguments(section) {
            assert!(tool.parameter(name).is_some(), "{} has no parameter {name}", tool.name);
        }
        let documented = arguments(section);
        let shown = tool.parameters.iter().filter(|parameter| !parameter.is_spelling);
        let missing: Vec<_> =
            shown.map(|it| it.name).filter(|name| !documented.contains(name)).collect();
        let is_in_rules = missing.iter().all(|name| quoted(rules).contains(name));
        assert!(missing.is_empty() || is_in_rules, "{}: {missing:?} in no list", tool.name);
    }
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

#[test]
fn internal_tools_are_in_no_list_and_main_parameters_receive_bare_strings() {
    assert!(!all().any(|tool| is_internal(tool.name)));
    let changes = |tool: &&Tool| tool.is_internal() && tool.may_change_files();
    assert_eq!(find_any(MCP_CALL).filter(changes).map(|tool| tool.name), Some(MCP_CALL));
    assert!(find_any(IMAGE).filter(changes).is_none() && find(IMAGE).is_none());
    let mains: Vec<_> = all().filter_map(|tool| main_parameter(tool.name)).collect();
    assert_eq!(
        mains,
        [
            "path", "command", "job", "job", "terminal", "terminal", "pattern", "pattern",
            "undo_id", "pattern", "pattern", "pattern", "query"
        ]
    );
}
