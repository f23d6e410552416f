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

/// Program that opens an address in the user's browser. `None`: there is no desktop, as in most SSH sessions.
pub(crate) fn opener() -> Option<&'static str> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    (is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")).then_some("xdg-open")
}

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
