//! Known coding agents on this machine: finds their programs, and prepares them for `quack run`. Also used by
//! `quack agents`.

use crate::exit::CliError;
use quackd_config::RunNetwork;
use quackd_home::Home;
use quackd_protocol::guest_agents::{AgentVariable, GuestAgent, find, of_command};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// Most directories of `PATH` that are searched.
const MAX_PATH: usize = 200;

/// Additions of `quack run` for the known agent that a command starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentRun {
    /// The agent.
    pub(crate) agent: &'static GuestAgent,
    /// Rules of hosts to allow for the session, unless `run.network` is `session`.
    pub(crate) hosts: Vec<&'static str>,
    /// Variables to set. Those of the user are stronger.
    pub(crate) sets: &'static [AgentVariable],
    /// The command with the arguments that quackd adds.
    pub(crate) argv: Vec<String>,
    /// Names of variables with keys that are set here. By default, they are not passed.
    pub(crate) keys_here: Vec<&'static str>,
}

/// Returns what `quack run` does for this command. `None` if it starts no known agent.
pub(crate) fn for_program(argv: &[String]) -> Option<AgentRun> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    Some(of(of_command(argv)?, argv, &is_set))
}

/// Returns the command that continues the last conversation of an agent.
///
/// # Errors
/// The agent is not known, or has no such command.
pub(crate) fn resume_command(name: &str) -> Result<Vec<String>, CliError> {
    let Some(agent) = find(name) else {
        let name = crate::display::name(name);
        let text =
            format!("--resume {name}: no such agent; quack agents lists those that quackd knows");
        return Err(CliError::usage(text));
    };

    let Some(resume) = agent.resume else {
        let text = format!(
            "--resume {name}: quackd knows no command that continues a conversation of {}",
            agent.product
        );
        return Err(CliError::usage(text));
    };

    let words = [agent.name].into_iter().chain(resume.iter().copied());
    Ok(words.map(str::to_owned).collect())
}

fn of(agent: &'static GuestAgent, argv: &[String], is_set: &dyn Fn(&str) -> bool) -> AgentRun {
    let keys = || agent.keys.iter().filter(move |key| is_set(key.name));

    let mut hosts = agent.hosts.to_vec();
    // An agent for several providers needs those whose key the user has.
    for host in keys().filter_map(|key| key.host) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }

    let (program, own) = argv.split_at(argv.len().min(1));
    let added = agent.arguments.iter().map(|argument| (*argument).to_owned());
    let argv = program.iter().cloned().chain(added).chain(own.iter().cloned()).collect();
    AgentRun {
        agent,
        hosts,
        sets: agent.sets,
        argv,
        keys_here: keys().map(|key| key.name).collect(),
    }
}

impl AgentRun {
    /// Returns notes for the user, one per line. `passed` are the names of the variables that the user passes.
    pub(crate) fn notes(&self, passed: &[String]) -> Vec<String> {
        let is_passed = |name: &&&str| passed.iter().any(|passed| passed == **name);
        let name = self.agent.name;

        let sandbox = self.agent.sandbox_off;
        let sandbox =
            sandbox.then(|| format!("{name}: its own sandbox is off, quackd confines it"));
        let keys = self.keys_here.iter().filter(|key| !is_passed(key));
        let keys = keys
            .map(|key| format!("{key} is set here and is not passed; pass it with --env {key}"));
        sandbox.into_iter().chain(keys).collect()
    }
}

/// Returns the hosts that `quack run` allows for known agents, as configured. Reads the configuration.
///
/// # Errors
/// The configuration is not valid.
pub(crate) fn run_network_blocking(home: &Home) -> anyhow::Result<RunNetwork> {
    Ok(quackd_supervisor::read_config(home)?.0.run.network.value)
}

/// Returns the directories of this process's `PATH` in their order, each once, without relative ones.
pub(crate) fn searched() -> Vec<PathBuf> {
    directories(&std::env::var_os("PATH").unwrap_or_default())
}

fn directories(path: &OsStr) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let absolute = std::env::split_paths(path).filter(|at| at.is_absolute()).take(MAX_PATH);
    absolute.filter(|at| seen.insert(at.clone())).collect()
}

/// Returns the path of a program in one of the directories. Reads the file system.
pub(crate) fn find_blocking(program: &str, searched: &[PathBuf]) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    searched.iter().map(|directory| directory.join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quackd_policy::hosts::Rule;
    use quackd_policy::hosts::presets;
    use quackd_protocol::guest_agents::GUEST_AGENTS;

    fn run(line: &str, set: &[&str]) -> AgentRun {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        of(of_command(&argv).unwrap(), &argv, &|name| set.contains(&name))
    }

    #[test]
    fn every_host_of_the_table_is_a_rule_and_every_preset_exists() {
        for agent in GUEST_AGENTS {
            let of_keys = agent.keys.iter().filter_map(|key| key.host);
            for host in agent.hosts.iter().copied().chain(of_keys) {
                let parsed: Rule = host.parse().unwrap();
                assert_eq!(parsed.to_string(), host);
                if let Rule::Preset { denies, name } = parsed {
                    assert!(!denies && presets::find(&name).is_some(), "{host}");
                }
            }
        }
    }

    #[test]
    fn the_document_has_the_table() {
        let page = include_str!("../../../docs/agents-inside.md");
        for agent in GUEST_AGENTS {
            let begin = format!("| `{}` |", agent.name);
            let row = page.lines().find(|line| line.starts_with(&begin)).unwrap();
            let sets = agent.sets.iter().map(|set| format!("`{}={}`", set.name, set.value));
            let state = agent.state.iter().map(|state| format!("`{state}`"));
            let logins = agent.logins.iter().filter_map(|login| login.rsplit('/').next());
            let hosts = agent.hosts.iter().map(|host| (*host).to_owned());
            let texts = sets.chain(state).chain(logins.map(str::to_owned)).chain(hosts);
            let resume = agent.resume.map(|words| words.join(" "));
            for text in texts.chain(resume) {
                assert!(row.contains(&text), "{}: {text}", agent.name);
            }
        }
    }

    #[test]
    fn an_agent_gets_its_arguments_before_the_users() {
        let expected = ["codex", "-c", "sandbox_mode=\"danger-full-access\"", "resume", "--last"];
        assert_eq!(run("codex resume --last", &[]).argv, expected);
        assert_eq!(run("/opt/claude -p x", &[]).argv, ["/opt/claude", "-p", "x"]);
        assert_eq!(for_program(&["vim".to_owned()]), None);
        assert_eq!(for_program(&[]), None);
    }

    #[test]
    fn hosts_follow_the_keys_that_are_set_and_no_key_is_passed_by_itself() {
        assert_eq!(run("claude", &[]).hosts, ["@anthropic"]);
        let none = run("opencode", &["GH_TOKEN"]);
        assert!(none.keys_here.is_empty() && !none.hosts.contains(&"@openai"));

        let run = run("opencode", &["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]);
        assert!(run.hosts.ends_with(&["@anthropic", "@openai"]), "{:?}", run.hosts);
        let passed = ["OPENAI_API_KEY".to_owned()];
        assert_eq!(
            run.notes(&passed),
            [
                "ANTHROPIC_API_KEY is set here and is not passed; pass it with --env ANTHROPIC_API_KEY"
            ]
        );
        assert_eq!(run.notes(&[]).len(), 2);
    }

    #[test]
    fn a_note_says_that_the_agents_own_sandbox_is_off() {
        let notes = run("codex", &[]).notes(&[]);
        assert_eq!(notes, ["codex: its own sandbox is off, quackd confines it"]);
        assert!(run("claude", &[]).notes(&[]).is_empty());
    }

    #[test]
    fn an_agent_continues_with_its_own_command() {
        assert_eq!(resume_command("codex").unwrap(), ["codex", "resume", "--last"]);
        let error = resume_command("nobody").unwrap_err().to_string();
        assert!(error.starts_with("--resume nobody: no such agent"), "{error}");
    }

    #[test]
    fn each_absolute_directory_is_searched_once() {
        let found = directories(OsStr::new("/b:/a:bin::/b:/a/"));
        assert_eq!(found, [PathBuf::from("/b"), PathBuf::from("/a")]);
    }

    #[test]
    fn only_a_program_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["a", "b"].map(|name| dir.path().join(name));
        std::fs::create_dir_all(first.join("claude")).unwrap();
        std::fs::create_dir(&second).unwrap();
        let program = second.join("claude");
        std::fs::write(&program, "").unwrap();
        let searched = [first, second];
        assert_eq!(find_blocking("claude", &searched), None);
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_blocking("claude", &searched), Some(program));
    }
}
