//! Known coding agents on this machine: finds their programs, and prepares them for `quack run`. Also used by
//! `quack agents`.

use crate::exit::CliError;
use quackd_config::{GuestAgentSettings, RunNetwork};
use quackd_home::Home;
use quackd_home::keep::AgentFile;
use quackd_protocol::guest_agents::{AgentVariable, GuestAgent, find, kept_path, program};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

/// Most directories of `PATH` that are searched.
const MAX_PATH: usize = 200;

/// Additions of `quack run` for the known agent, or agent of the user, that a command starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AgentRun {
    /// Row of the table. `None` for an agent of the user.
    pub(crate) known: Option<&'static GuestAgent>,
    /// Settings of the user.
    pub(crate) settings: GuestAgentSettings,
    /// Rules of hosts to allow for the session, unless `run.network` is `session`.
    pub(crate) hosts: Vec<String>,
    /// The command with the arguments that quackd adds.
    pub(crate) argv: Vec<String>,
    /// Names of variables with keys that are set here. By default, they are not passed.
    pub(crate) keys_here: Vec<&'static str>,
}

/// Returns what `quack run` does for this command. `None` if it starts none of these agents.
pub(crate) fn for_program(argv: &[String], agents: &[GuestAgentSettings]) -> Option<AgentRun> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let name = program(argv)?;
    Some(of(agents.iter().find(|agent| agent.name == name)?, argv, &is_set))
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

fn of(settings: &GuestAgentSettings, argv: &[String], is_set: &dyn Fn(&str) -> bool) -> AgentRun {
    let known = find(&settings.name);
    let keys =
        || known.into_iter().flat_map(|agent| agent.keys).filter(move |key| is_set(key.name));

    let of_table = || {
        let mut hosts: Vec<String> = Vec::new();
        let own = known.into_iter().flat_map(|agent| agent.hosts.iter().copied());
        // An agent for several providers needs those whose key the user has.
        for host in own.chain(keys().filter_map(|key| key.host)) {
            if hosts.iter().all(|other| other != host) {
                hosts.push(host.to_owned());
            }
        }
        hosts
    };
    let arguments = || {
        let arguments = known.into_iter().flat_map(|agent| agent.arguments);
        arguments.map(|argument| (*argument).to_owned()).collect()
    };

    let (program, own) = argv.split_at(argv.len().min(1));
    let added: Vec<String> = settings.args.clone().unwrap_or_else(arguments);
    let argv = program.iter().cloned().chain(added).chain(own.iter().cloned()).collect();
    AgentRun {
        known,
        settings: settings.clone(),
        hosts: settings.hosts.clone().unwrap_or_else(of_table),
        argv,
        keys_here: keys().map(|key| key.name).collect(),
    }
}

impl AgentRun {
    /// Returns the name of the program.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Returns the variables to set. Those of the user are stronger.
    pub(crate) fn sets(&self) -> &'static [AgentVariable] {
        self.known.map(|agent| agent.sets).unwrap_or_default()
    }

    /// Returns the keys that are set here and that `is_passed` does not name.
    pub(crate) fn keys_left(&self, is_passed: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let always = self.settings.env.as_deref().unwrap_or_default();
        let is_left = |key: &&str| !is_passed(key) && always.iter().all(|name| name != key);
        self.keys_here.iter().copied().filter(is_left).collect()
    }

    /// Returns notes for the user, one per line. `is_decided` names the variables about which the user has decided.
    pub(crate) fn notes(&self, is_decided: impl Fn(&str) -> bool) -> Vec<String> {
        // Without the arguments of the table, it may be on.
        let has_switch = |agent: &GuestAgent| {
            agent.sandbox_off && (self.settings.args.is_none() || !agent.sets.is_empty())
        };
        let sandbox = self.known.is_some_and(has_switch);
        let sandbox =
            sandbox.then(|| format!("{}: its own sandbox is off, quackd confines it", self.name()));
        let keys = self.keys_left(is_decided).into_iter();
        let keys = keys
            .map(|key| format!("{key} is set here and is not passed; pass it with --env {key}"));
        sandbox.into_iter().chain(keys).collect()
    }

    /// Returns true if sessions of the workspace have state of the agent.
    pub(crate) fn has_state_blocking(&self, home: &Home, workspace: &str) -> bool {
        let own = home.workspace_agents_dir(workspace, None);
        self.settings.kept().any(|state| {
            let kept = own.join(kept_path(self.name(), state)).read_dir();
            kept.is_ok_and(|mut entries| entries.next().is_some())
        })
    }
}

/// Returns the login files of an agent.
pub(crate) fn login_files(agent: &'static GuestAgent) -> Vec<AgentFile<'static>> {
    let file = |login: &&'static str| {
        let mut states = agent.state.iter();
        states.find_map(|state| AgentFile::of(agent.kept_path(state), state, login))
    };
    agent.logins.iter().filter_map(file).collect()
}

/// Settings of `quack run` and `quack agents`.
#[derive(Debug)]
pub(crate) struct RunConfig {
    /// Hosts that `quack run` allows for agents.
    pub(crate) network: RunNetwork,
    /// Known agents, and those of the user.
    pub(crate) agents: Vec<GuestAgentSettings>,
}

impl RunConfig {
    /// Reads the configuration.
    ///
    /// # Errors
    /// The configuration is not valid.
    pub(crate) fn read_blocking(home: &Home) -> anyhow::Result<Self> {
        let config = quackd_supervisor::read_config(home)?.0;
        Ok(Self { network: config.run.network.value, agents: config.guest_agents() })
    }
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
    use quackd_config::Config;
    use quackd_policy::hosts::Rule;
    use quackd_policy::hosts::presets;
    use quackd_protocol::guest_agents::GUEST_AGENTS;

    fn run(line: &str, set: &[&str]) -> AgentRun {
        let name = line.split_whitespace().next().unwrap().rsplit('/').next().unwrap().to_owned();
        run_as(GuestAgentSettings { name, ..GuestAgentSettings::default() }, line, set)
    }

    fn run_as(settings: GuestAgentSettings, line: &str, set: &[&str]) -> AgentRun {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        of(&settings, &argv, &|name| set.contains(&name))
    }

    fn nothing(_: &str) -> bool {
        false
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
        let agents = Config::default().guest_agents();
        assert_eq!(for_program(&["vim".to_owned()], &agents), None);
        assert_eq!(for_program(&[], &agents), None);
        assert!(for_program(&["/opt/claude".to_owned()], &agents).is_some());
    }

    #[test]
    fn hosts_follow_the_keys_that_are_set_and_no_key_is_passed_by_itself() {
        assert_eq!(run("claude", &[]).hosts, ["@anthropic"]);
        let none = run("opencode", &["GH_TOKEN"]);
        assert!(none.keys_here.is_empty() && !none.hosts.iter().any(|host| host == "@openai"));

        let run = run("opencode", &["OPENAI_API_KEY", "ANTHROPIC_API_KEY"]);
        let expected = ["@anthropic", "@openai"].map(str::to_owned);
        assert!(run.hosts.ends_with(&expected), "{:?}", run.hosts);
        assert_eq!(
            run.notes(|name| name == "OPENAI_API_KEY"),
            [
                "ANTHROPIC_API_KEY is set here and is not passed; pass it with --env ANTHROPIC_API_KEY"
            ]
        );
        assert_eq!(run.notes(nothing).len(), 2);
    }

    #[test]
    fn settings_of_the_user_take_the_place_of_the_table_and_describe_other_agents() {
        let settings = |name: &str| GuestAgentSettings {
            name: name.to_owned(),
            env: Some(vec!["OPENAI_API_KEY".to_owned()]),
            hosts: Some(vec!["example.com".to_owned()]),
            args: Some(vec!["--quiet".to_owned()]),
            ..GuestAgentSettings::default()
        };
        let codex = run_as(settings("codex"), "codex x", &["OPENAI_API_KEY", "CODEX_API_KEY"]);
        assert_eq!(codex.argv, ["codex", "--quiet", "x"]);
        assert_eq!(codex.hosts, ["example.com"]);
        assert_eq!(codex.keys_left(nothing), ["CODEX_API_KEY"]);
        assert_eq!(codex.notes(|name| name == "CODEX_API_KEY"), [""; 0], "no note on the sandbox");

        let mine = run_as(settings("mine"), "mine", &["OPENAI_API_KEY"]);
        assert_eq!((mine.known, mine.sets().len()), (None, 0));
        assert_eq!((mine.argv.join(" ").as_str(), mine.hosts.len()), ("mine --quiet", 1));
        assert!(mine.notes(nothing).is_empty());
    }

    #[test]
    fn each_login_of_the_table_is_a_file_in_a_kept_directory() {
        for agent in GUEST_AGENTS {
            assert_eq!(login_files(agent).len(), agent.logins.len(), "{}", agent.name);
        }
    }

    #[test]
    fn a_note_says_that_the_agents_own_sandbox_is_off() {
        let notes = run("codex", &[]).notes(nothing);
        assert_eq!(notes, ["codex: its own sandbox is off, quackd confines it"]);
        assert!(run("claude", &[]).notes(nothing).is_empty());
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
