//! Checks that the table of the tools is consistent, and that the generated schemas are valid JSON Schema.

use super::*;
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn names_mean_one_parameter_and_the_main_one_is_there() {
    for tool in ALL {
        let mut seen = BTreeSet::new();
        for parameter in tool.parameters {
            for name in parameter.names() {
                assert!(seen.insert(name), "{}: {name} is there twice", tool.name);
                assert_eq!(tool.meant_by(name), Some(parameter));
            }
            assert!(!(parameter.is_required && parameter.is_spelling), "{}", parameter.name);
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
    for tool in ALL {
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
                Kind::List | Kind::Lines | Kind::Counts(_) => false,
            };
            assert!(fits, "{}: {} = {default}", tool.name, parameter.name);
            let shown = tool_schema(tool.name).unwrap();
            if !parameter.is_spelling {
                let schema = &shown["inputSchema"]["properties"][parameter.name];
                assert_eq!(schema["default"], value, "{}: {}", tool.name, parameter.name);
            }
        }
    }
}

/// Checks the keywords of draft 2020-12 that the schemas use, and their values. Fails on any other keyword.
fn check_schema(schema: &Value, at: &str) {
    let object = schema.as_object().unwrap_or_else(|| panic!("{at} is no schema: {schema}"));
    for (keyword, value) in object {
        let is_right = match keyword.as_str() {
            "$schema" => value == "https://json-schema.org/draft/2020-12/schema",
            "type" => {
                let types = ["object", "array", "string", "integer", "boolean"];
                let is_type =
                    |value: &Value| value.as_str().is_some_and(|name| types.contains(&name));
                is_type(value)
                    || value
                        .as_array()
                        .is_some_and(|all| !all.is_empty() && all.iter().all(is_type))
            }
            "description" => value.as_str().is_some_and(|text| !text.is_empty()),
            "default" => !value.is_null(),
            "enum" => value.as_array().is_some_and(|all| {
                let distinct: BTreeSet<String> = all.iter().map(Value::to_string).collect();
                !all.is_empty() && distinct.len() == all.len()
            }),
            "minimum" | "maximum" | "minItems" | "maxItems" => value.is_u64(),
            "required" => value.as_array().is_some_and(|all| {
                all.iter().all(|name| {
                    name.as_str().is_some_and(|name| !object["properties"][name].is_null())
                })
            }),
            "additionalProperties" => value.is_boolean(),
            "properties" => {
                let properties = value.as_object().unwrap();
                properties
                    .iter()
                    .for_each(|(name, inner)| check_schema(inner, &format!("{at}.{name}")));
                true
            }
            "items" => {
                check_schema(value, &format!("{at}[]"));
                true
            }
            "anyOf" => {
                value.as_array().unwrap().iter().for_each(|inner| check_schema(inner, at));
                true
            }
            _ => false,
        };
        assert!(is_right, "{at}: {keyword} is {value}");
    }
}

#[test]
fn every_tool_has_a_schema_of_draft_2020_12() {
    let all = tools();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), ALL.len());
    for (described, tool) in all.iter().zip(ALL) {
        assert_eq!(described["name"], tool.name);
        assert_eq!(described["annotations"]["readOnlyHint"], tool.reads_only);
        let schema = &described["inputSchema"];
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], !tool.is_strict);
        check_schema(schema, tool.name);
        assert_eq!(tool_schema(tool.name).as_ref(), Some(described));
        for parameter in tool.parameters {
            let is_shown = !schema["properties"][parameter.name].is_null();
            assert_eq!(is_shown, !parameter.is_spelling, "{}: {}", tool.name, parameter.name);
            for alias in parameter.aliases {
                assert!(schema["properties"][alias].is_null(), "{alias}");
            }
        }
    }
    assert_eq!(tool_schema("nothing"), None);
}

#[test]
fn a_schema_reads_as_expected() {
    let schema = tool_schema("job_output").unwrap();
    assert_eq!(
        schema,
        serde_json::json!({
            "name": "job_output",
            "description": "Returns the output of a background job from a cursor on, and can wait for more.",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "properties": {
                    "job": {"type": ["string", "integer"], "description": "The job: job-1, or 1."},
                    "cursor": {"type": "integer", "minimum": 0,
                        "description": "Start position in bytes of output: the cursor of the last answer."},
                    "wait_ms": {"type": "integer", "minimum": 0, "maximum": 600_000, "default": 0,
                        "description": "Longest wait for more output or for the exit of the job, in milliseconds."},
                },
                "required": ["job"],
                "additionalProperties": true,
            },
            "annotations": {"readOnlyHint": true},
        })
    );
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

/// Returns the names in the first column of the argument tables.
fn arguments(section: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in section.lines() {
        if !line.starts_with('|') {
            is_inside = false;
        } else if line.starts_with("| argument |") {
            is_inside = true;
        } else if is_inside && let Some(cell) = line.split('|').nth(1) {
            let cell = cell.split(" (also ").next().unwrap_or(cell);
            found.extend(quoted(cell));
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
    for tool in ALL {
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
        assert!(missing.is_empty() || is_in_rules, "{}: {missing:?} in no table", tool.name);
    }
}
