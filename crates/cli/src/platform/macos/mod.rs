//! The names of [`super`] for macOS.

mod daemon_process;

pub(crate) use daemon_process::DaemonProcess;

use super::Places;

/// True: there is an app for the voice.
pub(crate) const HAS_APP: bool = true;

/// Program that opens an address in the user's browser. `None`: the user sits at another machine.
pub(crate) fn opener() -> Option<&'static str> {
    std::env::var_os("SSH_CONNECTION").is_none().then_some("/usr/bin/open")
}

/// Configuration of Claude Desktop.
pub(crate) const CLAUDE_DESKTOP: Places =
    &[("HOME", &["Library/Application Support/Claude/claude_desktop_config.json"])];

/// Servers of Visual Studio Code.
pub(crate) const VSCODE: Places = &[("HOME", &["Library/Application Support/Code/User/mcp.json"])];

/// Files with the settings of Zed, relative to the directory of a variable.
pub(crate) const ZED: Places = &[("HOME", &[".config/zed/settings.json"])];

/// Command line that shows a notification.
pub(crate) fn notification(title: &str, message: &str) -> Vec<String> {
    const SCRIPT: &str =
        "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run";
    ["osascript", "-e", SCRIPT, title, message].map(str::to_owned).to_vec()
}

/// Whether `supervisor` is an ancestor of `pid`. There is no `/proc`, so the supervisor's report is trusted. Not tested on
/// macOS.
pub(crate) fn is_below(pid: u32, _supervisor: u32) -> bool {
    1 < pid
}
