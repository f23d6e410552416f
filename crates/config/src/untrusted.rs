//! The settings of an untrusted file that stay in force. Used by [`crate::load_untrusted_blocking`].

use crate::{Config, Origin, RunNetwork, Setting, engines, guest_agents, keys, mcp_servers};
use quackd_protocol::policy::{NetworkMode, Profile, WebSearchRule};

/// Returns the settings of a file that commands of sessions could change, as far as they cannot allow anything or allow no
/// more than the default. All others have the default; [`Config::ignored`] lists them. A setting that is not listed here
/// is not in force.
pub(crate) fn narrowed(file: Config) -> Config {
    let mut config = Config::default();
    config.worker.idle = file.worker.idle.clone();
    at_most(&mut config.worker.max_live, &file.worker.max_live);
    config.tools.default_timeout = file.tools.default_timeout.clone();
    config.tools.respect_ignore_files = file.tools.respect_ignore_files.clone();

    // Only values that restrict more than the default stay.
    let (sandbox, theirs) = (&mut config.sandbox, &file.sandbox);
    keep_if(&mut sandbox.profile, &theirs.profile, |value| *value == Profile::ReadOnly);
    keep_if(&mut sandbox.network, &theirs.network, |value| *value == NetworkMode::Off);
    keep_if(&mut sandbox.web_search, &theirs.web_search, |value| *value != WebSearchRule::On);
    // A list of denials only allows nothing.
    let is_denial = |rule: &String| rule.starts_with('!');
    keep_if(&mut sandbox.hosts, &theirs.hosts, |rules| rules.iter().all(is_denial));
    sandbox.hidden = theirs.hidden.clone();

    let (credentials, theirs) = (&mut config.credentials, &file.credentials);
    keep_if(&mut credentials.ssh, &theirs.ssh, |is_on| !is_on);
    keep_if(&mut credentials.git, &theirs.git, |is_on| !is_on);
    keep_if(&mut credentials.ssh_agent, &theirs.ssh_agent, String::is_empty);

    let (limits, theirs) = (&mut config.limits, &file.limits);
    // These may only be lowered.
    at_most(&mut limits.commands, &theirs.commands);
    at_most(&mut limits.jobs, &theirs.jobs);
    at_most(&mut limits.processes, &theirs.processes);
    at_most(&mut limits.total_processes, &theirs.total_processes);
    at_most(&mut limits.spill_mb, &theirs.spill_mb);
    // By default these are unlimited. The memory of a session is limited, and only the machine shows by how much, so
    // that no other value is known to be lower.
    limits.cpu = theirs.cpu.clone();
    limits.file_mb = theirs.file_mb.clone();

    // Shorter times and smaller sizes delete files of the user.
    let (keep, theirs) = (&mut config.keep, &file.keep);
    at_least(&mut keep.outputs, &theirs.outputs);
    at_least(&mut keep.undo, &theirs.undo);
    at_least(&mut keep.undo_mb, &theirs.undo_mb);
    at_least(&mut keep.caches_mb, &theirs.caches_mb);
    at_least(&mut keep.journal, &theirs.journal);
    at_least(&mut keep.journal_mb, &theirs.journal_mb);

    let (isolated, theirs) = (&mut config.isolated, &file.isolated);
    at_most(&mut isolated.copy_files, &theirs.copy_files);
    at_most(&mut isolated.copy_mb, &theirs.copy_mb);
    at_most(&mut isolated.max_mb, &theirs.max_mb);
    at_most(&mut isolated.total_mb, &theirs.total_mb);

    at_most(&mut config.run.scrollback_kb, &file.run.scrollback_kb);

    let login_shell = &mut config.environment.login_shell;
    keep_if(login_shell, &file.environment.login_shell, |is_run| !is_run);

    at_most(&mut config.agent.max_turns, &file.agent.max_turns);
    // By default the cost has no limit.
    config.agent.max_cost_usd = file.agent.max_cost_usd.clone();
    config.agent.max_cost_usd_per_day = file.agent.max_cost_usd_per_day.clone();

    config.pi.start = file.pi.start.clone();
    config.run.detach_keys = file.run.detach_keys.clone();
    keep_if(&mut config.run.network, &file.run.network, |value| *value == RunNetwork::Session);
    config.ignored = ignored(&file, &config);
    config
}

fn keep_if<T: Clone>(setting: &mut Setting<T>, theirs: &Setting<T>, is_kept: impl Fn(&T) -> bool) {
    if is_kept(&theirs.value) {
        setting.clone_from(theirs);
    }
}

fn at_most<T: Clone + PartialOrd>(setting: &mut Setting<T>, theirs: &Setting<T>) {
    let default = setting.value.clone();
    keep_if(setting, theirs, |value| *value <= default);
}

fn at_least<T: Clone + PartialOrd>(setting: &mut Setting<T>, theirs: &Setting<T>) {
    let default = setting.value.clone();
    keep_if(setting, theirs, |value| default <= *value);
}

/// Names and places of the keys that `file` sets and `config` does not have from it.
fn ignored(file: &Config, config: &Config) -> Vec<(String, Origin)> {
    let is_set = |origin: &Origin| matches!(origin, Origin::File { .. });
    let keys = keys().iter().filter_map(|key| {
        let (theirs, ours) = (key.kind.show(file).1, key.kind.show(config).1);
        (is_set(theirs) && !is_set(ours)).then(|| (key.name().to_owned(), theirs.clone()))
    });

    let server = file.mcp_servers.first();
    let servers = server.map(|server| (mcp_servers::TABLE.to_owned(), server.origin.clone()));
    let agent = file.agents.first();
    let agents = agent.map(|agent| (guest_agents::TABLE.to_owned(), agent.origin.clone()));
    let engine = file.engine_rows.first();
    let engines = engine.map(|engine| (engines::TABLE.to_owned(), engine.origin.clone()));
    keys.chain(servers).chain(agents).chain(engines).collect()
}

#[cfg(test)]
mod tests {
    use crate::{Config, ConfigError, load_untrusted_blocking};
    use std::fs;

    fn loaded(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quackd.toml");
        fs::write(&path, text).unwrap();
        load_untrusted_blocking(&path, true, &|_| None)
    }

    #[test]
    fn keys_that_allow_more_are_ignored_and_named_and_others_stay() {
        let text = "[sandbox]\nprofile = \"full-access\"\nnetwork = \"on\"\nhidden = [\"/x/.env\"]\n\
            [worker]\nlauncher = [\"evil\"]\nidle_minutes = 3\n[limits]\ncommands = 16\njobs = 200\n\
            [mcp_servers.a]\ncommand = \"x\"\n[agents.claude]\nenv = [\"A\"]\n\
            [far]\nprogram = \"/x/quack\"\n[engines.a]\nlike = \"ssh\"\n";
        let config = loaded(text).unwrap();
        let ignored: Vec<_> = config.ignored.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "worker.launcher",
            "far.program",
            "sandbox.profile",
            "sandbox.network",
            "limits.jobs",
            "mcp_servers",
            "agents",
            "engines",
        ];
        assert_eq!(ignored, expected);
        let default = Config::default();
        assert_eq!(config.sandbox.profile, default.sandbox.profile);
        assert_eq!(
            (config.worker.launcher, config.mcp_servers.len()),
            (default.worker.launcher, 0)
        );
        assert_eq!(config.sandbox.hidden.value, ["/x/.env"]);
        assert_eq!((config.worker.idle.value.as_secs(), config.limits.commands.value), (180, 16));
    }

    #[test]
    fn values_that_allow_less_stay() {
        let text = "[sandbox]\nprofile = \"read-only\"\nnetwork = \"off\"\nweb_search = \"off\"\n\
            hosts = [\"!evil.test.example\"]\n[environment]\nlogin_shell = false\n[run]\nnetwork = \"session\"\n";
        let config = loaded(text).unwrap();
        assert!(config.ignored.is_empty(), "{:?}", config.ignored);
        assert!(!config.environment.login_shell.value);
    }

    #[test]
    fn the_origin_of_an_ignored_key_names_its_place() {
        let config = loaded("[log]\nlevel = \"debug\"\n").unwrap();
        let entries = config.entries();
        let level = entries.iter().find(|entry| entry.key == "log.level").unwrap();
        assert_eq!(level.value, "info");
        let has_place =
            level.origin.starts_with("default, /") && level.origin.ends_with(":2 is not obeyed");
        assert!(has_place, "{}", level.origin);
    }

    #[test]
    fn an_invalid_value_of_an_ignored_key_is_an_error() {
        assert!(matches!(loaded("[log]\nlevel = 7\n"), Err(ConfigError::Value { .. })));
    }
}
