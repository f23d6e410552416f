//! The tables of the manual pages: exit codes, environment variables and files. A test compares them with
//! docs/operations.md.

/// Exit codes of the subcommands and their meaning.
pub(crate) const EXIT_CODES: &[(&str, &str)] = &[
    (
        "0",
        "ok; also Ctrl-C for `follow`, `log -f` and `logs -f`, Ctrl-D for `quack [DIR]`, and a second `daemon`",
    ),
    (
        "1",
        "what was asked for failed: a tool, a command with another exit code than 0, a check of `doctor`; `grep` \
         found nothing; `replace` changed nothing, or not all",
    ),
    ("2", "usage; for `grep` and `find` every other failure too, so that 1 keeps its meaning"),
    (
        "3",
        "no daemon, one that would not start, one that speaks another protocol, or a configuration that cannot be used",
    ),
    ("4", "busy, or the deadline passed"),
    (
        "5",
        "`say`: the answer was cut at a limit of tokens, is empty, is a refusal, or the server sent none of its API, such as a web page. One line says which",
    ),
    ("130", "interrupted"),
];

/// Environment variables and their use.
pub(crate) const VARIABLES: &[(&str, &str)] = &[
    ("RUBBER_DUCK_APP_SUPPORT", "The state directory."),
    ("XDG_STATE_HOME", "On Linux the state directory is `quackd` in it [default: ~/.local/state]."),
    ("TMPDIR", "Directory of the socket if the path in the state directory is too long."),
    (
        "QUACKD_CONFIG",
        "Absolute path of the configuration [default: ~/.config/quackd/quackd.toml, else quackd.toml in the state directory].",
    ),
    ("QUACKD_LOG", "Level of the log. Wins over `log.level`."),
    ("QUACKD_SANDBOX_TIER", "Most confinement that the daemon tries. Wins over `sandbox.tier`."),
    ("QUACKD_EXA_ENDPOINT", "Endpoint of `web_search`. Wins over `web_search.endpoint`."),
    ("QUACKD_ENGINE", "Agent that runs turns: auto, native or pi. Wins over `agent.engine`."),
    ("RUBBER_DUCK_PI_BINARY", "Path or name of your Pi. Wins over `pi.binary`."),
    ("RUBBER_DUCK_PI_MODEL", "Model that Pi starts with. Wins over `pi.model`."),
    ("RUBBER_DUCK_PI_PROVIDER", "Provider that Pi starts with. Wins over `pi.provider`."),
    ("RUBBER_DUCK_PI_THINKING", "Thinking level of Pi's model. Wins over `pi.thinking`."),
    ("RUBBER_DUCK_EXA_API_KEY", "Key of `web_search`. Wins over EXA_API_KEY."),
    ("EXA_API_KEY", "Key of `web_search`, in the environment of the daemon."),
    ("HTTPS_PROXY", "Proxy of `web_search`."),
    ("SSL_CERT_FILE", "Certificates of authorities for `web_search` and git over https."),
    ("QUACKD_REMOTE_TOKEN", "Token of `quack attach --remote`, which asks for it otherwise."),
    ("NO_COLOR", "If set, output has no colors."),
];

/// Files of the state directory that users look at, and their content.
pub(crate) const FILES: &[(&str, &str)] = &[
    (
        "quackd.toml",
        "The configuration, if it is not in ~/.config/quackd. `quack config path` prints which one is used.",
    ),
    ("provider-keys.json", "Keys of model providers. `quack login` writes it."),
    ("service.env", "Environment variables for the service."),
    ("daemon.sock", "The socket."),
    ("duck-daemon.log", "The log. `quack logs` prints it."),
    ("metadata.json", "Workspaces and sessions."),
    ("quackd-state.json", "Safe mode and sandbox policies."),
    ("journal/<start>.jsonl", "The journal of calls. `quack log` prints it."),
    ("run/<session>/bash-<n>.log", "Long outputs of commands."),
    ("run/<session>/job-<n>.log", "Outputs of background jobs."),
    ("run/<session>/journal/<undo id>/", "Originals of replaced files, for `quack undo`."),
    (
        "run/<session>/journal/changes-<undo id>/",
        "Changes of single files with the old content, for `quack undo` and `quack changes`.",
    ),
    ("caches/<id>/", "Package caches of a workspace: what its sessions downloaded."),
    (
        "agents/<id>/",
        "Settings, logins and conversations of agents in the sessions of a workspace.",
    ),
    ("pi-sessions/", "Conversations of the sessions."),
];

/// Returns the sections EXIT STATUS, ENVIRONMENT and FILES of a manual page.
pub(crate) fn sections() -> String {
    let mut page = String::new();
    section(&mut page, "EXIT STATUS", "", EXIT_CODES);
    section(&mut page, "ENVIRONMENT", "", VARIABLES);
    let directory = "Files are in the state directory: $RUBBER_DUCK_APP_SUPPORT if that is set; otherwise \
        $XDG_STATE_HOME/quackd (~/.local/state/quackd) on Linux, ~/Library/Application Support/RubberDuck on macOS \
        and wherever it exists and the first does not.";
    section(&mut page, "FILES", directory, FILES);
    page
}

fn section(page: &mut String, title: &str, text: &str, rows: &[(&str, &str)]) {
    page.push_str(&format!(".SH \"{title}\"\n"));
    if !text.is_empty() {
        page.push_str(&format!("{}\n", roff(text)));
    }
    for (term, meaning) in rows {
        page.push_str(&format!(".TP\n\\fB{}\\fR\n{}\n", roff(term), roff(meaning)));
    }
}

/// Escapes what roff reads as a command. Backquotes are Markdown's.
fn roff(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('`', "");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::ExitCode;

    const OPERATIONS: &str = include_str!("../../../docs/operations.md");

    #[test]
    fn the_tables_are_those_of_the_documentation() {
        for (code, meaning) in EXIT_CODES {
            assert!(OPERATIONS.contains(&format!("\n| {code} | {meaning} |\n")), "{code}");
        }
        for (name, _) in VARIABLES.iter().chain(FILES) {
            let is_named =
                |line: &str| line.starts_with('|') && line.contains(&format!("`{name}`"));
            assert!(OPERATIONS.lines().any(is_named), "{name}");
        }
    }

    #[test]
    fn every_variable_that_wins_over_a_key_is_in_the_table() {
        for key in quackd_config::keys() {
            let Some(variable) = key.variable() else { continue };
            let row = VARIABLES.iter().find(|(name, _)| *name == variable);
            let (_, meaning) = row.unwrap_or_else(|| panic!("{variable}"));
            assert!(meaning.ends_with(&format!(" Wins over `{}`.", key.name())), "{variable}");
        }
    }

    #[test]
    fn every_exit_of_a_verb_is_in_the_table() {
        let listed: Vec<&str> = EXIT_CODES.iter().map(|(code, _)| *code).collect();
        for exit in ExitCode::ALL {
            assert!(listed.contains(&exit.code().to_string().as_str()), "{exit:?}");
        }
    }

    #[test]
    fn text_is_no_command_of_roff() {
        assert_eq!(roff(".x `-a` \\"), "\\&.x \\-a \\e");
    }
}
