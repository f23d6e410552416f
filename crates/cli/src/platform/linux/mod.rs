//! The names of [`super`] for Linux.

mod ancestry;
mod daemon_process;
mod notification;

pub(crate) use ancestry::is_below;
pub(crate) use daemon_process::DaemonProcess;
pub(crate) use notification::notification;

use super::Places;

/// False: there is no app for the voice.
pub(crate) const HAS_APP: bool = false;

/// Configuration of Claude Desktop.
pub(crate) const CLAUDE_DESKTOP: Places = &[
    ("XDG_CONFIG_HOME", &["Claude/claude_desktop_config.json"]),
    ("HOME", &[".config/Claude/claude_desktop_config.json"]),
];

/// Servers of Visual Studio Code.
pub(crate) const VSCODE: Places =
    &[("XDG_CONFIG_HOME", &["Code/User/mcp.json"]), ("HOME", &[".config/Code/User/mcp.json"])];

/// Settings of Zed.
pub(crate) const ZED: Places = &[
    ("FLATPAK_XDG_CONFIG_HOME", &["zed/settings.json"]),
    ("XDG_CONFIG_HOME", &["zed/settings.json"]),
    ("HOME", &[".config/zed/settings.json"]),
];
