//! The first screen of help: every subcommand in groups, on one screen of 80 columns.

/// Groups of subcommands: each row has the names and one description.
const GROUPS: [(&str, &[(&str, &str)]); 5] = [
    (
        "Run",
        &[
            ("run, attach, detach, play", "Claude Code, a shell, …: quack run -- claude"),
            ("tool, tools, jobs", "Run a tool: quack tool bash make; its jobs"),
            ("say, demo", "Send a prompt to the agent; see a tour in 3 s"),
            ("grep, find, replace, undo", "Search and change files; take changes back"),
            ("follow, log, changes", "Watch a session; list calls and changed files"),
        ],
    ),
    (
        "Sessions",
        &[
            ("new, sessions, workspaces", "Create a session; list them and workspaces"),
            ("activate, state, delete", "Choose a session or model, show it, delete it"),
            ("history, export, fork", "Read, write and branch a conversation"),
            ("diff, apply, refresh, discard", "See and take over what an isolated session did"),
            ("checkpoints, restore", "Earlier states of a session's files"),
            ("abort, pin, unpin", "Cancel calls; keep the processes of a session"),
        ],
    ),
    (
        "Permissions",
        &[
            ("sandbox", "Show and change what a session may do"),
            ("approvals, allow, deny", "Questions about denied operations, and answers"),
            ("forward", "Make a server of a session reachable here"),
        ],
    ),
    (
        "Agents",
        &[
            ("mcp, agents", "Agents with these tools; agents inside sessions"),
            ("acp, rpc, schema", "For editors and other programs; their protocol"),
            ("models, login, logout", "The model of quackd's own agent, and its keys"),
            ("open, remote, engines", "A page for browsers; other devices; elsewhere"),
        ],
    ),
    (
        "Daemon",
        &[
            ("ps, top, logs, metrics", "Processes, log and counters of the daemon"),
            ("doctor, config, gc", "Check, configure, clean up"),
            ("daemon, stop, restart", "Run, stop and restart it; commands start it"),
            ("service, uninstall", "Start it at login; remove quackd"),
            ("completions, man, version", "For your shell; manual pages; versions"),
        ],
    ),
];

/// Column of the descriptions.
const COLUMN: usize = 33;

/// Returns the text, with bold headings.
pub(super) fn text() -> String {
    let mut text = "Supervise coding-agent sessions, one worker process per session\n\n\
        Usage: quack [DIR]            Open the session of a directory, with a prompt\n\
        \x20      quack <COMMAND> …      `quack help COMMAND` explains one\n"
        .to_owned();

    for (title, rows) in GROUPS {
        text.push_str(&format!("\n\x1b[1m{title}\x1b[0m\n"));
        for (names, about) in rows {
            let gap = COLUMN.saturating_sub(names.len() + 2).max(2);
            text.push_str(&format!("  {names}{:gap$}{about}\n", ""));
        }
    }

    text.push_str(
        "\nOptions: --json, --color WHEN, -h, -V; of DIR: --no-follow, --show-thinking\n\
         Exit: 0 ok, 1 failed, 2 usage, 3 no daemon, 4 late, 5 no answer, 130 stopped\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory as _;
    use std::collections::BTreeSet;

    #[test]
    fn the_first_screen_has_every_subcommand_and_fits_on_it() {
        let text = anstream::adapter::strip_str(&text()).to_string();
        assert!(text.lines().count() <= 40, "{} lines", text.lines().count());
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let rows = GROUPS.iter().flat_map(|(_, rows)| rows.iter());
        let listed: Vec<&str> = rows.flat_map(|(names, _)| names.split(", ")).collect();
        let root = Cli::command();
        let all = root.get_subcommands().filter(|verb| !verb.is_hide_set());
        let all: BTreeSet<&str> = all.map(clap::Command::get_name).collect();
        assert_eq!(listed.len(), all.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), all);
    }
}
