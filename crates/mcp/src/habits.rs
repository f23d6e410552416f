//! Parameters of `bash` that agents send by habit, because the tools of other programs have them.
//!
//! Only for the protocol: on the socket an unknown parameter is an error. [`crate::calls`] applies them.

use quackd_protocol::limits::MAX_TOOL_DEADLINE;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Names of the directory to run in: of Gemini CLI, Codex and others.
const DIRECTORIES: [&str; 5] = ["cwd", "workdir", "working_directory", "dir_path", "directory"];

/// Names of a command in the background: of Claude Code and Gemini CLI.
const BACKGROUND: [&str; 2] = ["run_in_background", "is_background"];

/// Timeouts below this one are seconds: no command is meant to end within it.
const SHORTEST_MS: f64 = 1000.0;

/// Takes the parameters that `bash` does not have out of its arguments, and sets those that it has. Returns the directory
/// to run in. A name that comes with its counterpart has no effect, and so has a value of another type.
pub(crate) fn of_bash(arguments: &mut Map<String, Value>) -> Option<PathBuf> {
    // A text for the user, who sees the command.
    arguments.remove("description");

    let timeout = arguments.remove("timeout").and_then(|value| number(&value));
    let background = BACKGROUND.map(|name| arguments.remove(name)).into_iter().flatten().next();
    if let Some(background) = background.filter(Value::is_boolean) {
        arguments.entry("background").or_insert(background);
    }

    if let Some(timeout) = timeout.filter(|timeout| 0.0 < *timeout) {
        // Claude Code sends milliseconds, some others seconds.
        let ms = if timeout < SHORTEST_MS { timeout * 1000.0 } else { timeout };
        let longest = MAX_TOOL_DEADLINE.as_secs_f64() * 1000.0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
        let ms = ms.min(longest).ceil() as u64;
        arguments.entry("timeout_ms").or_insert(ms.into());
    }

    let directories = DIRECTORIES.map(|name| arguments.remove(name));
    let directory =
        directories.into_iter().flatten().find_map(|value| Some(value.as_str()?.to_owned()));
    directory.filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    number.is_finite().then_some(number)
}

/// Returns the absolute path of a directory that may be relative, without `.` and `..`.
pub(crate) fn absolute(base: &Path, path: &Path) -> PathBuf {
    let mut absolute = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            std::path::Component::CurDir => {}
            std::path::Component::ParentDir => {
                absolute.pop();
            }
            part => absolute.push(part),
        }
    }
    absolute
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn habits_become_parameters_of_bash() {
        for (given, expected, directory) in [
            (json!({"description": "List"}), json!({}), None),
            (json!({"timeout": 120_000}), json!({"timeout_ms": 120_000}), None),
            (json!({"timeout": 2}), json!({"timeout_ms": 2000}), None),
            (json!({"timeout": 0.5}), json!({"timeout_ms": 500}), None),
            (json!({"timeout": "30"}), json!({"timeout_ms": 30_000}), None),
            (json!({"timeout": 7_200_000}), json!({"timeout_ms": 600_000}), None),
            (json!({"timeout": -1}), json!({}), None),
            (json!({"timeout": [1]}), json!({}), None),
            (json!({"timeout": 5, "timeout_ms": 9}), json!({"timeout_ms": 9}), None),
            (json!({"run_in_background": true}), json!({"background": true}), None),
            (json!({"is_background": false}), json!({"background": false}), None),
            (
                json!({"run_in_background": "x", "background": true}),
                json!({"background": true}),
                None,
            ),
            (json!({"cwd": "src"}), json!({}), Some("src")),
            (json!({"workdir": "/a"}), json!({}), Some("/a")),
            (json!({"cwd": null, "dir_path": "b"}), json!({}), Some("b")),
            (json!({"cwd": ""}), json!({}), None),
            (json!({"other": 1}), json!({"other": 1}), None),
        ] {
            let mut arguments = given.as_object().unwrap().clone();
            let found = of_bash(&mut arguments);
            assert_eq!(Value::Object(arguments), expected, "{given}");
            assert_eq!(found.as_deref(), directory.map(Path::new), "{given}");
        }
    }

    #[test]
    fn a_directory_is_absolute() {
        for (path, expected) in
            [("src", "/w/src"), ("./a/../b", "/w/b"), ("..", "/"), ("/x/../y", "/y"), ("", "/w")]
        {
            assert_eq!(absolute(Path::new("/w"), Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
