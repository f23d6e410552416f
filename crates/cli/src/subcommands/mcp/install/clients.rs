//! The table of clients: where each keeps its configuration, the shape of an entry, and its own tools.
//! docs/agents.md says what was checked.

use super::format::Format;
use super::setting::Setting;
use crate::args::mcp::McpHost;
use crate::exit::CliError;
use crate::platform::{CLAUDE_DESKTOP, Places, VSCODE, ZED};
use std::path::{Path, PathBuf};

/// Shape of an entry.
#[derive(Debug, Clone, Copy)]
enum Shape {
    Command,
    Stdio,
    ClaudeCode,
    Codex,
    Zed,
    Opencode,
    Goose,
}

/// Change of one setting by `--exclusive`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Off {
    Items(&'static [&'static str], &'static [&'static str]),
    False(&'static [&'static str]),
    Deny(&'static [&'static str]),
}

/// Row of the table.
#[derive(Debug)]
pub(super) struct McpClient {
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    pub(super) format: Format,
    places: Places,
    /// Path of the table of servers.
    pub(super) servers: &'static [&'static str],
    shape: Shape,
    /// Settings that turn off the client's own tools.
    pub(super) exclusive: &'static [Off],
    /// The file of these settings, if it is another one.
    settings: Places,
    /// The same two files of a project. Empty if the client has none.
    project: &'static [&'static str],
    /// Note about limits of `--exclusive` for this client, printed with it.
    pub(super) exclusive_note: Option<&'static str>,
    /// Whether the client starts servers outside of any project.
    pub(super) is_projectless: bool,
}

const NO_SETTING: Option<&str> =
    Some("this client has no setting that turns off its own tools, so --exclusive changes nothing");

const MCP_SERVERS: &[&str] = &["mcpServers"];

/// Values of a row that most clients share.
const BASE: McpClient = McpClient {
    id: "",
    label: "",
    format: Format::Json,
    places: &[],
    servers: MCP_SERVERS,
    shape: Shape::Command,
    exclusive: &[],
    settings: &[],
    project: &[],
    exclusive_note: NO_SETTING,
    is_projectless: false,
};

const CLAUDE_CODE: McpClient = McpClient {
    id: "claude-code",
    label: "Claude Code",
    places: &[("CLAUDE_CONFIG_DIR", &[".claude.json"]), ("HOME", &[".claude.json"])],
    shape: Shape::ClaudeCode,
    exclusive: &[Off::Items(&["permissions", "deny"], &["Bash", "Edit", "Write", "NotebookEdit"])],
    settings: &[("CLAUDE_CONFIG_DIR", &["settings.json"]), ("HOME", &[".claude/settings.json"])],
    project: &[".mcp.json", ".claude/settings.json"],
    exclusive_note: None,
    ..BASE
};

const DESKTOP: McpClient = McpClient {
    id: "claude-desktop",
    label: "Claude Desktop",
    places: CLAUDE_DESKTOP,
    is_projectless: true,
    ..BASE
};

const CODEX: McpClient = McpClient {
    id: "codex",
    label: "Codex",
    format: Format::Toml,
    places: &[("CODEX_HOME", &["config.toml"]), ("HOME", &[".codex/config.toml"])],
    servers: &["mcp_servers"],
    shape: Shape::Codex,
    exclusive: &[Off::False(&["features", "shell_tool"])],
    exclusive_note: Some(
        "Codex has no setting that turns off apply_patch, which some models use to edit files",
    ),
    project: &[".codex/config.toml"],
    ..BASE
};

const ZED_EDITOR: McpClient = McpClient {
    id: "zed",
    label: "Zed",
    places: ZED,
    servers: &["context_servers"],
    shape: Shape::Zed,
    exclusive: &[
        Off::Deny(&["agent", "tool_permissions", "tools", "terminal", "default"]),
        Off::Deny(&["agent", "tool_permissions", "tools", "edit_file", "default"]),
        Off::Deny(&["agent", "tool_permissions", "tools", "write_file", "default"]),
        Off::Deny(&["agent", "tool_permissions", "tools", "copy_path", "default"]),
        Off::Deny(&["agent", "tool_permissions", "tools", "move_path", "default"]),
        Off::Deny(&["agent", "tool_permissions", "tools", "delete_path", "default"]),
        Off::Deny(&["agent", "tool_permissions", "tools", "create_directory", "default"]),
    ],
    exclusive_note: Some("the settings for --exclusive were not tried with Zed itself"),
    ..BASE
};

const GEMINI: McpClient = McpClient {
    id: "gemini",
    label: "Gemini CLI",
    places: &[
        ("GEMINI_CLI_HOME", &[".gemini/settings.json"]),
        ("HOME", &[".gemini/settings.json"]),
    ],
    exclusive: &[Off::Items(
        &["tools", "exclude"],
        // By class: the name of a tool would also exclude the tools of servers that end with it.
        &["ShellTool", "WriteFileTool", "EditTool"],
    )],
    exclusive_note: None,
    project: &[".gemini/settings.json"],
    ..BASE
};

const OPENCODE: McpClient = McpClient {
    id: "opencode",
    label: "opencode",
    places: &[
        ("OPENCODE_CONFIG", &[""]),
        (
            "XDG_CONFIG_HOME",
            &["opencode/opencode.jsonc", "opencode/opencode.json", "opencode/config.json"],
        ),
        (
            "HOME",
            &[
                ".config/opencode/opencode.jsonc",
                ".config/opencode/opencode.json",
                ".config/opencode/config.json",
            ],
        ),
    ],
    servers: &["mcp"],
    shape: Shape::Opencode,
    exclusive: &[Off::Deny(&["permission", "bash"]), Off::Deny(&["permission", "edit"])],
    exclusive_note: None,
    project: &["opencode.json"],
    ..BASE
};

const GOOSE: McpClient = McpClient {
    id: "goose",
    label: "goose",
    format: Format::Yaml,
    places: &[
        ("GOOSE_PATH_ROOT", &["config/config.yaml"]),
        ("XDG_CONFIG_HOME", &["goose/config.yaml"]),
        ("HOME", &[".config/goose/config.yaml"]),
    ],
    servers: &["extensions"],
    shape: Shape::Goose,
    exclusive_note: Some(
        "--exclusive changes nothing here: turn off the extension `developer` in `goose configure`",
    ),
    ..BASE
};

const CURSOR: McpClient = McpClient {
    id: "cursor",
    label: "Cursor",
    places: &[("HOME", &[".cursor/mcp.json"])],
    project: &[".cursor/mcp.json"],
    ..BASE
};

const VS_CODE: McpClient = McpClient {
    id: "vscode",
    label: "VS Code",
    places: VSCODE,
    servers: &["servers"],
    shape: Shape::Stdio,
    project: &[".vscode/mcp.json"],
    ..BASE
};

const WINDSURF: McpClient = McpClient {
    id: "windsurf",
    label: "Windsurf",
    places: &[("HOME", &[".codeium/windsurf/mcp_config.json"])],
    ..BASE
};

impl McpClient {
    pub(super) fn of(host: McpHost) -> Self {
        match host {
            McpHost::ClaudeCode => CLAUDE_CODE,
            McpHost::ClaudeDesktop => DESKTOP,
            McpHost::Codex => CODEX,
            McpHost::Cursor => CURSOR,
            McpHost::Vscode => VS_CODE,
            McpHost::Zed => ZED_EDITOR,
            McpHost::Gemini => GEMINI,
            McpHost::Opencode => OPENCODE,
            McpHost::Goose => GOOSE,
            McpHost::Windsurf => WINDSURF,
        }
    }

    /// Returns the file with the table of servers, and the file with the settings of `--exclusive`, if it is another one:
    /// those of `project`, else those of the user.
    ///
    /// # Errors
    /// The client has no files of a project, or they lie outside of it, or the user's files are unknown.
    pub(super) fn files_blocking(
        &self,
        project: Option<&Path>,
    ) -> anyhow::Result<(PathBuf, Option<PathBuf>)> {
        let Some(project) = project else {
            let settings = match self.settings {
                [] => None,
                places => Some(find_blocking(places)?),
            };
            return Ok((find_blocking(self.places)?, settings));
        };

        let mut files = self.project.iter().map(|name| in_project_blocking(project, name));
        let Some(file) = files.next() else {
            let label = self.label;
            let text =
                format!("{label} has no configuration of a project: run it without --project");
            return Err(CliError::usage(text).into());
        };
        Ok((file?, files.next().transpose()?))
    }

    /// Returns the project whose configuration this file is.
    pub(super) fn project_of(&self, file: &Path) -> Option<PathBuf> {
        let is_end = |name: &&&str| file.ends_with(name);
        let name = self.project.iter().find(is_end)?;
        file.ancestors().nth(Path::new(name).components().count()).map(Path::to_owned)
    }

    /// Returns the entry that starts `program` with `args`.
    pub(super) fn entry(&self, program: &str, args: &[String]) -> Setting {
        let command = Setting::text(program);
        let list = Setting::list(args.iter().map(String::as_str));
        match self.shape {
            Shape::Command => Setting::table([("command", command), ("args", list)]),
            Shape::Stdio => Setting::table([
                ("type", Setting::text("stdio")),
                ("command", command),
                ("args", list),
            ]),
            Shape::ClaudeCode => Setting::table([
                ("type", Setting::text("stdio")),
                ("command", command),
                ("args", list),
                ("env", Setting::table([])),
            ]),
            // `codex exec` refuses tools that may write, because it cannot ask the user. The sandbox limits them anyway.
            Shape::Codex => Setting::table([
                ("command", command),
                ("args", list),
                ("default_tools_approval_mode", Setting::text("approve")),
            ]),
            Shape::Zed => Setting::table([
                ("source", Setting::text("custom")),
                ("command", command),
                ("args", list),
                ("env", Setting::table([])),
            ]),
            Shape::Opencode => {
                let words = [program].into_iter().chain(args.iter().map(String::as_str));
                Setting::table([
                    ("type", Setting::text("local")),
                    ("command", Setting::list(words)),
                    ("enabled", Setting::Bool(true)),
                ])
            }
            Shape::Goose => Setting::table([
                ("enabled", Setting::Bool(true)),
                ("type", Setting::text("stdio")),
                ("name", Setting::text("quackd")),
                ("description", Setting::text("Confined tools of quackd")),
                ("cmd", command),
                ("args", list),
            ]),
        }
    }
}

/// Returns the path of a file of a project. A link must not lead out of the project, in which others can write.
fn in_project_blocking(project: &Path, name: &str) -> anyhow::Result<PathBuf> {
    let path = project.join(name);
    // A new file leads where its directory does.
    let places = [path.as_path(), path.parent().unwrap_or(project)];
    match places.iter().find_map(|place| place.canonicalize().ok()) {
        Some(real) if !real.starts_with(project) => {
            let text =
                format!("{} leads out of the project, to {}", path.display(), real.display());
            Err(CliError::failed(text).into())
        }
        _ => Ok(path),
    }
}

fn find_blocking(places: Places) -> anyhow::Result<PathBuf> {
    for (name, files) in places {
        let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
            continue;
        };

        let base = PathBuf::from(value);
        if !base.is_absolute() {
            // The XDG specification asks to ignore these. For the others, the client's directory is unknown.
            if name.starts_with("XDG_") {
                continue;
            }
            return Err(CliError::failed(format!("{name} is not an absolute path")).into());
        }

        let path = |file: &&str| if file.is_empty() { base.clone() } else { base.join(file) };
        let mut paths = files.iter().map(path);
        // Without an existing file, the first place gets a new one.
        let first = paths.clone().next();
        if let Some(path) = paths.find(|path| path.symlink_metadata().is_ok()).or(first) {
            return Ok(path);
        }
    }
    Err(CliError::failed("HOME is not set, so the client's configuration cannot be found").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use quackd_sandbox::{Obeyed, protected_name};

    #[test]
    fn file_tools_refuse_the_project_settings_of_every_client() {
        for host in McpHost::value_variants() {
            let client = McpClient::of(*host);
            for file in client.project {
                assert!(protected_name(Path::new(file)).is_some(), "{}: {file}", client.id);
            }
            let mut refused = Obeyed::all().filter(|row| row.held.is_refused());
            let has_row = refused.any(|row| row.program.eq_ignore_ascii_case(client.label));
            // A client that starts servers outside of any project reads no settings in a workspace.
            assert!(
                has_row || client.is_projectless,
                "{} needs a row in crates/sandbox/src/obeyed/table.rs",
                client.label
            );
        }
    }
}
