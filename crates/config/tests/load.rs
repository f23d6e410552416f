//! Loads the configuration from real files and variables: precedence, ranges, errors with their positions, and unusual
//! files.

#[cfg(test)]
mod tests {
    use quackd_config::{
        Config, ConfigError, LoginChoice, MAX_CONFIG_BYTES, Origin, Setting, load_blocking,
    };
    use quackd_protocol::policy::Profile;
    use quackd_protocol::tiers::Tier;
    use serde_json::json;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc;
    use std::time::Duration;
    use tempfile::TempDir;

    /// Timeout of each test step. A blocking read of a file would never return.
    const PATIENCE: Duration = Duration::from_secs(60);

    struct World(TempDir);

    impl World {
        fn new(content: impl AsRef<[u8]>) -> Self {
            let world = Self(tempfile::tempdir().unwrap());
            std::fs::write(world.file(), content).unwrap();
            world
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("quackd.toml")
        }

        fn load(&self) -> Result<Config, ConfigError> {
            load_within(&self.file(), true)
        }
    }

    /// Loads on a thread with the default stack size, and fails if it does not return.
    fn load_within(path: &Path, explicit: bool) -> Result<Config, ConfigError> {
        let (done, result) = mpsc::channel();
        let path = path.to_owned();
        std::thread::spawn(move || {
            let loaded = load_blocking(&path, explicit, &|_| None);
            // If the receiver is gone, the test has already failed.
            drop(done.send(loaded));
        });
        result.recv_timeout(PATIENCE).expect("loading ends")
    }

    fn load(content: impl AsRef<[u8]>) -> Result<Config, ConfigError> {
        World::new(content).load()
    }

    /// Returns the error text without the directory.
    #[track_caller]
    fn error(content: impl AsRef<[u8]>) -> String {
        let world = World::new(content);
        let shown = world.load().unwrap_err().to_string();
        assert!(!shown.contains('\n'), "{shown}");
        let directory = format!("{}/", world.0.path().display());
        shown.strip_prefix(&directory).expect("begins with the file").to_owned()
    }

    fn everything() -> &'static str {
        "# everything\n[worker]\nidle_minutes = 1_0\nmax_live = 0x10\nlauncher = [\"nice\", \"-n\",\n  \"\"]\n\
         [tools]\ndefault_timeout_s = 600\nrespect_ignore_files = true\nenv = [\"OPENAI_API_KEY\"]\n\
         [environment]\nlogin_shell = false\n[log]\nlevel = \"debug\"\n[web_search]\n\
         endpoint = \"http://localhost:1/\"\n[limits]\ncommands = 16\njobs = 2\nprocesses = 100\n\
         total_processes = 200\ncpu_minutes = 3\nfile_mb = 4\nspill_mb = 64\n\
         [sandbox]\nprofile = \"read-only\"\nnetwork = true\nwritable = [\"/srv\"]\nhidden = [\"/etc/x\"]\ntier = \"D\"\n\
         [keep]\noutputs_days = 3\nundo_days = 2\nundo_mb = 300\nmin_free_mb = 0\ncaches_mb = 0\njournal_days = 0\n\
         journal_mb = 5\n\
         [metrics]\nlisten = \"[::1]:0\"\n\
         [isolated]\ncopy_files = 10\ncopy_mb = 20\nmax_mb = 30\ntotal_mb = 40\n"
    }

    #[test]
    fn everything_can_be_set_and_knows_its_line() {
        let world = World::new(everything());
        let config = world.load().unwrap();
        fn setting<T>(path: &Path, line: usize, value: T) -> Setting<T> {
            Setting { value, origin: Origin::File { path: path.to_owned(), line } }
        }
        let file = &world.file();
        let mut expected = Config::default();
        expected.worker.idle = setting(file, 3, Duration::from_secs(600));
        expected.worker.max_live = setting(file, 4, 16);
        let launcher = ["nice", "-n", ""].map(str::to_owned).to_vec();
        expected.worker.launcher = setting(file, 5, launcher);
        expected.tools.default_timeout = setting(file, 8, Duration::from_secs(600));
        expected.tools.respect_ignore_files = setting(file, 9, true);
        expected.tools.env = setting(file, 10, vec!["OPENAI_API_KEY".to_owned()]);
        expected.environment.login_shell = setting(file, 12, false);
        expected.log.level = setting(file, 14, "debug".to_owned());
        expected.web_search.endpoint = setting(file, 16, "http://localhost:1/".to_owned());
        expected.limits.commands = setting(file, 18, 16);
        expected.limits.jobs = setting(file, 19, 2);
        expected.limits.processes = setting(file, 20, 100);
        expected.limits.total_processes = setting(file, 21, 200);
        expected.limits.cpu = setting(file, 22, Duration::from_secs(180));
        expected.limits.file_mb = setting(file, 23, 4);
        expected.limits.spill_mb = setting(file, 24, 64);
        expected.sandbox.profile = setting(file, 26, Profile::ReadOnly);
        expected.sandbox.network = setting(file, 27, quackd_protocol::policy::NetworkMode::On);
        expected.sandbox.writable = setting(file, 28, vec!["/srv".to_owned()]);
        expected.sandbox.hidden = setting(file, 29, vec!["/etc/x".to_owned()]);
        expected.sandbox.tier = setting(file, 30, Some(Tier::D));
        let days = |n: u64| Duration::from_secs(n * 24 * 60 * 60);
        expected.keep.outputs = setting(file, 32, days(3));
        expected.keep.undo = setting(file, 33, days(2));
        expected.keep.undo_mb = setting(file, 34, 300);
        expected.keep.min_free_mb = setting(file, 35, 0);
        expected.keep.caches_mb = setting(file, 36, 0);
        expected.keep.journal = setting(file, 37, Duration::ZERO);
        expected.keep.journal_mb = setting(file, 38, 5);
        expected.metrics.listen = setting(file, 40, "[::1]:0".to_owned());
        expected.isolated.copy_files = setting(file, 42, 10);
        expected.isolated.copy_mb = setting(file, 43, 20);
        expected.isolated.max_mb = setting(file, 44, 30);
        expected.isolated.total_mb = setting(file, 45, 40);
        assert_eq!(config, expected);
        let patch = config.sandbox.patch();
        assert_eq!(patch.profile, Some(Profile::ReadOnly));
        assert_eq!(patch.writable_roots, Some(vec!["/srv".into()]));
    }

    #[test]
    fn a_sandbox_that_cannot_be_is_refused() {
        for (content, message) in [
            (
                "sandbox.profile = \"readonly\"",
                "`sandbox.profile` must be one of read-only, workspace-write, full-access, not `readonly`",
            ),
            (
                "sandbox.tier = \"C\"",
                "`sandbox.tier` must be one of auto, A, B, D, M, unconfined, not `C`",
            ),
            (
                "sandbox.writable = [\"srv\"]",
                "`sandbox.writable` must name usable paths, but `srv` is not absolute",
            ),
        ] {
            assert_eq!(error(content), format!("quackd.toml:1: {message}"));
        }
    }

    #[test]
    fn tables_and_dotted_keys_say_the_same() {
        let dotted = load("worker.idle_minutes = 5\nworker.max_live = 2\n").unwrap();
        let inline = load("worker = { idle_minutes = 5, max_live = 2 }\n").unwrap();
        let crlf = load("[worker]\r\nidle_minutes = 5\r\nmax_live = 2\r\n").unwrap();
        for config in [dotted, inline, crlf] {
            let worker = (config.worker.idle.value, config.worker.max_live.value);
            assert_eq!(worker, (Duration::from_secs(300), 2));
        }
    }

    #[test]
    fn mcp_servers_are_read_in_their_order_and_no_value_is_shown() {
        let config = load(
            "[mcp_servers.z-1]\ncommand = 'z'\n[mcp_servers.a]\ncommand = 'a'\n\
             args = ['x y', '']\nenv = { TOKEN = 'hush', B = '' }\n",
        )
        .unwrap();
        let names: Vec<_> = config.mcp_servers.iter().map(|it| it.value.name.as_str()).collect();
        assert_eq!(names, ["z-1", "a"]);
        let server = &config.mcp_servers[1];
        assert_eq!((&server.value.command, &server.value.args[1]), (&"a".into(), &"".into()));
        let values: Vec<_> = server.value.env.iter().map(|it| it.value.as_str()).collect();
        assert_eq!((values.len(), values.contains(&"hush")), (2, true));
        let shown: Vec<String> =
            config.entries().iter().rev().take(5).map(|e| e.to_toml()).collect();
        assert_eq!(
            shown[..3],
            [
                "mcp_servers.a.env = { B = \"(set)\", TOKEN = \"(set)\" }",
                "mcp_servers.a.args = [\"x y\", \"\"]",
                "mcp_servers.a.command = \"a\"",
            ]
        );
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn an_invalid_mcp_server_is_told_with_its_line_and_without_values() {
        let many: String =
            (0..17).map(|n| format!("[mcp_servers.s{n}]\ncommand = 'x'\n")).collect();
        for (content, told) in [
            ("mcp_servers = 1", ":1: `mcp_servers` must have a table for each server"),
            ("[mcp_servers]\na = 1", ":2: `mcp_servers.a` must be a table with `command`, not an"),
            ("[mcp_servers.a]\n", ":1: `mcp_servers.a` must have a command"),
            (
                "[mcp_servers.'a b']\ncommand = 'x'",
                ":1: `mcp_servers.\"a b\"` must have a name of 1",
            ),
            (
                "[mcp_servers.a]\ncommand = 7",
                ":2: `mcp_servers.a.command` must be a string, not an",
            ),
            ("[mcp_servers.a]\ncommands = 'x'", ":2: unknown key `mcp_servers.a.commands`"),
            ("[mcp_servers.a]\nargs = [1]", ":2: `mcp_servers.a.args` must be a string, not an"),
            (
                "[mcp_servers.a]\nenv = { A = 1 }",
                ":2: `mcp_servers.a.env.A` must be a string, not an",
            ),
            (
                "[mcp_servers.a]\nenv = { A = '(set)' }",
                ":2: `mcp_servers.a.env.A` must be the value itself",
            ),
            (&many, ":1: `mcp_servers` must have at most 16 servers, not 17"),
        ] {
            let error = load(content).unwrap_err().to_string();
            assert!(error.contains(told), "{content}: {error}");
        }
    }

    #[test]
    fn settings_of_agents_are_read_in_their_order_and_shown_as_they_were_set() {
        let config = load(
            "[agents.mine]\nstate = ['.mine', '.config/mine']\nread = ['.mine/a/b.md']\n\
             [agents.claude]\nenv = []\nargs = ['-p', '']\nhosts = ['@anthropic']\nlogin = 'shared'\n",
        )
        .unwrap();
        let names: Vec<_> = config.agents.iter().map(|it| it.value.name.as_str()).collect();
        assert_eq!(names, ["mine", "claude"]);
        let claude = &config.agents[1].value;
        assert_eq!((&claude.env, claude.login), (&Some(vec![]), LoginChoice::Shared));
        assert_eq!(claude.kept().collect::<Vec<_>>(), [".claude"]);
        let shown: Vec<String> =
            config.entries().iter().rev().take(6).map(|e| e.to_toml()).collect();
        let expected = [
            "agents.claude.login = \"shared\"",
            "agents.claude.args = [\"-p\", \"\"]",
            "agents.claude.hosts = [\"@anthropic\"]",
            "agents.claude.env = []",
            "agents.mine.read = [\".mine/a/b.md\"]",
            "agents.mine.state = [\".mine\", \".config/mine\"]",
        ];
        assert_eq!(shown, expected);
        assert_eq!(load(shown.join("\n")).unwrap().entries().len(), config.entries().len());
    }

    #[test]
    fn an_agent_keeps_no_directory_of_another_program_and_its_errors_have_a_line() {
        for (content, told) in [
            ("agents = 1", ":1: `agents` must have a table for each agent"),
            ("[agents.a]\nenvs = []", ":2: unknown key `agents.a.envs`"),
            ("[agents.a]\nenv = ['A-B']", ":2: `agents.a.env` must hold names of variables"),
            ("[agents.a]\nlogin = 'all'", ":2: `agents.a.login` must be one of workspace, shared"),
            ("[agents.a]\nlogin = 'shared'", ":1: `agents.a` must be without `login`"),
            ("[agents.claude]\nstate = ['.x']", ":1: `agents.claude` must be without `state`"),
            ("[agents.'a b']\nenv = []", ":1: `agents.\"a b\"` must have a name of 1 to 32"),
            ("[agents.a]\nstate = ['.a']\nread = ['.b/c']", ":1: `agents.a` must `read` files in"),
            ("[agents.a]\nstate = ['.a']\nread = ['.a']", ":1: `agents.a` must `read` files in"),
            ("[agents.claude]\nread = ['.claude/.credentials.json']", "and no login, not"),
            ("[agents.a]\nstate = ['.a']\n[agents.b]\nstate = ['.a/b']", "no directory of"),
            ("[agents.a]\nstate = ['.a', '.a']", "must have no directory of `state` twice"),
        ] {
            let error = load(content).unwrap_err().to_string();
            assert!(error.contains(told), "{content}: {error}");
        }
        for state in ["", "/a", "a", "..", ".a/../.ssh", ".a//b", ".a%b", ".a/"] {
            let error = load(format!("[agents.a]\nstate = ['{state}']")).unwrap_err().to_string();
            assert!(error.contains("must hold paths relative to the home"), "{state}: {error}");
        }
        for state in [".ssh", ".ssh/a", ".config", ".gnupg", ".local/share", ".claude/a", ".cache"]
        {
            let error = load(format!("[agents.a]\nstate = ['{state}']")).unwrap_err().to_string();
            assert!(error.contains("must have no `state` of other programs"), "{state}: {error}");
        }
    }

    #[test]
    fn what_is_shown_is_a_file_that_says_the_same_again() {
        let values = |config: &Config| -> Vec<_> {
            config.entries().into_iter().map(|entry| (entry.key, entry.value)).collect()
        };
        for content in [everything(), "", "worker.launcher = ['a\"b\\c', 'é 🦆']\n"] {
            let config = load(content).unwrap();
            let shown: Vec<String> = config.entries().iter().map(|e| e.to_toml()).collect();
            let again = load(shown.join("\n")).unwrap();
            assert_eq!(values(&again), values(&config), "{shown:?}");
        }
    }

    #[test]
    fn a_missing_file_means_the_defaults_unless_it_was_named() {
        let world = World::new("");
        let missing = world.0.path().join("no/such/file.toml");
        let below_a_file = world.file().join("quackd.toml");
        for path in [&missing, &below_a_file] {
            assert_eq!(load_within(path, false).unwrap(), Config::default());
            let error = load_within(path, true).unwrap_err();
            assert!(matches!(error, ConfigError::Read { .. }), "{error}");
            assert!(error.to_string().starts_with(&format!("cannot read {}: ", path.display())));
        }
        for empty in ["", "\u{feff}", "# nothing\n", "[worker]\n"] {
            assert_eq!(load(empty).unwrap(), Config::default(), "{empty:?}");
        }
    }

    #[test]
    fn the_environment_wins_over_the_file_and_the_file_over_the_default() {
        let with = |content: &str, variables: &[(&str, &str)]| {
            let world = World::new(content);
            load_blocking(&world.file(), true, &|name| {
                let found = variables.iter().find(|(variable, _)| *variable == name)?;
                Some(found.1.to_owned())
            })
        };
        let file = "log.level = \"warn\"\nweb_search.endpoint = \"https://file.example/\"\n";
        let log = |config: Config| (config.log.level.value, config.log.level.origin.to_string());
        assert_eq!(log(with("", &[]).unwrap()), ("info".into(), "default".into()));
        let (level, origin) = log(with(file, &[]).unwrap());
        assert!(level == "warn" && origin.ends_with("/quackd.toml:1"), "{level} {origin}");
        let variables = [("QUACKD_LOG", " debug\n"), ("QUACKD_EXA_ENDPOINT", "http://[::1]:9/")];
        let config = with(file, &variables).unwrap();
        assert_eq!(
            config.web_search.endpoint,
            Setting {
                value: "http://[::1]:9/".to_owned(),
                origin: Origin::Environment { variable: "QUACKD_EXA_ENDPOINT" }
            }
        );
        assert_eq!(log(config), ("debug".into(), "QUACKD_LOG".into()));
        // A blank variable counts as unset.
        assert_eq!(log(with(file, &[("QUACKD_LOG", " ")]).unwrap()).0, "warn");
        // The file's values must be valid even if a variable overrides them.
        assert!(with("log.level = \"loud\"", &variables).is_err());
        let error = with("", &[("QUACKD_LOG", "loud\u{1b}")]).unwrap_err();
        assert!(matches!(error, ConfigError::Environment { variable: "QUACKD_LOG", .. }));
        assert_eq!(
            error.to_string(),
            "QUACKD_LOG must be without control characters, not `loud\u{fffd}`"
        );
    }

    #[test]
    fn a_number_that_depends_on_the_machine_is_auto_or_set() {
        let key = "limits.session_memory_mb";
        let shown = |content: String| {
            let config = load(content).unwrap();
            let entry = config.entries().into_iter().find(|entry| entry.key == key).unwrap();
            (config.limits.session_memory_mb.value, entry.value)
        };
        for (content, value, entry) in [
            (String::new(), None, json!("auto")),
            (format!("{key} = \"auto\"\n"), None, json!("auto")),
            (format!("{key} = 0\n"), Some(0), json!(0)),
            (format!("{key} = 300\n"), Some(300), json!(300)),
        ] {
            assert_eq!(shown(content), (value, entry));
        }
        for (value, what) in [("\"half\"", "a string"), ("31", "31")] {
            let wrong = error(format!("{key} = {value}\n"));
            let expected = "must be `auto`, 0 or a whole number from 32 to 1048576, not ";
            assert!(wrong.ends_with(&format!("{expected}{what}")), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_taken_from_the_first_to_the_last_of_their_range() {
        for (key, min, max) in [
            ("worker.idle_minutes", 1, 1440),
            ("worker.max_live", 1, 1200),
            ("tools.default_timeout_s", 1, 600),
            ("limits.commands", 16, 1024),
            ("limits.spill_mb", 64, 1_048_576),
            ("keep.outputs_days", 1, 3650),
            ("keep.undo_mb", 256, 1_048_576),
            ("isolated.copy_files", 1, 1_000_000),
            ("isolated.max_mb", 1, 1_048_576),
            ("run.scrollback_kb", 0, 8192),
        ] {
            for good in [min, max] {
                let config = load(format!("{key} = {good}\n")).unwrap();
                let entry = config.entries().into_iter().find(|entry| entry.key == key).unwrap();
                assert_eq!(entry.value, good, "{key}");
            }
            for bad in [(min - 1).to_string(), (max + 1).to_string(), "-1".into(), "9".repeat(30)] {
                let expected = format!(
                    "quackd.toml:2: `{key}` must be a whole number from {min} to {max}, not {bad}"
                );
                assert_eq!(error(format!("\n{key} = {bad}\n")), expected);
            }
        }
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_what_it_must_be() {
        for (line, message) in [
            (
                "worker.idle_minutes = 0.01",
                "`worker.idle_minutes` must be a number from 0.02 to 1440, not 0.01",
            ),
            (
                "worker.idle_minutes = nan",
                "`worker.idle_minutes` must be a number from 0.02 to 1440, not nan",
            ),
            (
                "worker.max_live = 1.5",
                "`worker.max_live` must be a whole number from 1 to 1200, not a float",
            ),
            (
                "worker.idle_minutes = '5'",
                "`worker.idle_minutes` must be a whole number from 1 to 1440, not a string",
            ),
            (
                "worker.max_live = [1]",
                "`worker.max_live` must be a whole number from 1 to 1200, not an array",
            ),
            (
                "tools.respect_ignore_files = 1",
                "`tools.respect_ignore_files` must be true or false, not an integer",
            ),
            (
                "environment.login_shell = {}",
                "`environment.login_shell` must be true or false, not a table",
            ),
            ("log.level = 3", "`log.level` must be a string, not an integer"),
            ("tools.env = 'PATH'", "`tools.env` must be an array of strings, not a string"),
            ("tools.env = [1979-05-27]", "`tools.env` must hold strings only, not a datetime"),
            (
                "tools.env = ['A=B']",
                "`tools.env` must hold names of variables, such as \"JAVA_OPTS\", not `A=B`",
            ),
            ("worker.launcher = ['']", "`worker.launcher` must begin with a program"),
            (
                "worker.launcher = ['a', \"b\\u0000\"]",
                "`worker.launcher` must be without control characters, not `b\u{fffd}`",
            ),
            (
                "web_search.endpoint = 'exa'",
                "`web_search.endpoint` must be an address such as https://host:port/path",
            ),
            ("worker = 3", "`worker` must be a table: write `[worker]` on a separate line"),
            ("[[worker]]", "`worker` must be a table: write `[worker]` on a separate line"),
        ] {
            assert_eq!(error(format!("# one\n\n{line}\n")), format!("quackd.toml:3: {message}"));
        }
        let many = format!("tools.env = [{}]", "'A',".repeat(257));
        assert_eq!(
            error(many),
            "quackd.toml:1: `tools.env` must have at most 256 strings, not 257"
        );
    }

    #[test]
    fn an_element_of_a_list_is_told_with_its_own_line() {
        let content = "[tools]\nenv = [\n  \"A\",\n  \"B-C\",\n]\n";
        assert!(error(content).starts_with("quackd.toml:4: `tools.env` must hold names"));
    }

    #[test]
    fn an_unknown_key_is_told_with_its_line_and_the_nearest_one() {
        for (content, message) in [
            (
                "\n[worker]\nidle_minuts = 5\n",
                "3: unknown key `worker.idle_minuts`; did you mean `worker.idle_minutes`?",
            ),
            ("[workers]\nidle_minutes = 5\n", "1: unknown key `workers`; did you mean `worker`?"),
            (
                "idle_minutes = 5\n",
                "1: unknown key `idle_minutes`; did you mean `worker.idle_minutes`?",
            ),
            (
                "[worker.colours]\nmemory = 5\n",
                "1: unknown key `worker.colours`; docs/configuration.md has the list",
            ),
            (
                "'worker.max_live' = 5\n",
                "1: unknown key `\"worker.max_live\"`; did you mean `worker.max_live`?",
            ),
            (
                "\"\\u001b[2J\" = 5\n",
                "1: unknown key `\"\u{fffd}[2J\"`; docs/configuration.md has the list",
            ),
        ] {
            assert_eq!(error(content), format!("quackd.toml:{message}"));
        }
        let long = error(format!("{} = 1", "k".repeat(1_000_000)));
        assert!(long.len() < 250, "{}", long.len());
    }

    #[test]
    fn of_several_errors_the_first_from_the_top_is_told() {
        let worker = "[worker]\nmax_live = 0\n";
        let tools = "[tools]\nnonsense = 1\nenv = 3\n";
        assert!(error(format!("{worker}{tools}")).starts_with("quackd.toml:2: `worker.max_live`"));
        assert!(error(format!("{tools}{worker}")).starts_with("quackd.toml:2: unknown key `tools"));
    }

    #[test]
    fn what_is_not_toml_is_told_with_line_and_column() {
        for (content, place) in [
            ("[worker]\nidle_minutes = = 3\n", "2:16: "),
            ("[worker]\nidle_minutes\n", "2:13: "),
            ("[worker\n", "1:8: "),
            ("a = \"no end", "1:"),
            ("[worker]\nmax_live = 1\nmax_live = 2\n", "3:1: "),
            ("[worker]\n[tools]\n[worker]\n", "3:2: "),
        ] {
            let shown = error(content);
            assert!(shown.starts_with(&format!("quackd.toml:{place}")), "{content:?}: {shown}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_told_with_their_place() {
        assert_eq!(error(b"# \xc3\xa4\na = '\xff'\n"), "quackd.toml:2:6: this is not UTF-8 text");
        let nul = "this is a NUL character and not text";
        assert_eq!(error("[log]\nlevel = 'a\0'\n"), format!("quackd.toml:2:11: {nul}"));
        assert_eq!(error(vec![0; 100_000]), format!("quackd.toml:1:1: {nul}"));
    }

    #[test]
    fn a_file_of_a_mebibyte_is_read_and_one_byte_more_is_refused() {
        let size = usize::try_from(MAX_CONFIG_BYTES).unwrap();
        let mut content = "#".repeat(size);
        assert_eq!(load(&content).unwrap(), Config::default());
        content.push('#');
        assert_eq!(error(&content), "quackd.toml is larger than 1 MiB");
    }

    #[test]
    fn a_mebibyte_of_nesting_ends_in_an_error_and_nowhere_else() {
        const SIZE: usize = 1024 * 1024;
        for content in [
            format!("a = {}", "[".repeat(SIZE - 4)),
            format!("a = {}", "{a=".repeat(SIZE / 3 - 4)),
            format!("{}a = 1", "a.".repeat(SIZE / 2 - 4)),
            format!("[{}a]", "a.".repeat(SIZE / 2 - 4)),
            "[[a]]\n".repeat(SIZE / 6),
            "\"".repeat(SIZE),
            "'''".repeat(SIZE / 3),
            "a.b.c.d = 1\n".repeat(SIZE / 12),
            (0..SIZE / 12).map(|n| format!("[k{n}]\n")).collect(),
        ] {
            let shown = error(&content);
            assert!(shown.len() < 400, "{}", shown.len());
        }
    }

    #[test]
    fn what_nests_as_deep_as_it_can_is_read_without_exhausting_the_stack() {
        // Each limit of the parser is respected; together they would allow about six thousand levels.
        let deep = format!("{}b", "b.".repeat(78));
        let value = (0..78).fold("1".to_owned(), |value, _| format!("{{{deep} = {value}}}"));
        let shown = error(format!("[{deep}]\n{deep} = {value}\n"));
        assert_eq!(shown, "quackd.toml:1: unknown key `b`; docs/configuration.md has the list");
    }

    #[test]
    fn a_link_is_followed_and_what_is_no_file_is_refused_without_waiting() {
        let world = World::new("worker.max_live = 3\n");
        let at = |name: &str| world.0.path().join(name);
        std::os::unix::fs::symlink(world.file(), at("link")).unwrap();
        assert_eq!(load_within(&at("link"), false).unwrap().worker.max_live.value, 3);
        std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
        std::os::unix::fs::symlink(at("loop"), at("loop")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let devices = ["/dev/null", "/dev/zero"].map(Into::into);
        for path in ["dangling", "loop", ".", "fifo"].map(at).into_iter().chain(devices) {
            let error = load_within(&path, false).unwrap_err();
            assert!(matches!(error, ConfigError::Read { .. }), "{path:?}: {error}");
        }
    }

    #[test]
    fn the_documents_example_is_a_configuration_and_its_errors_are_ours() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let page = std::fs::read_to_string(page).unwrap();
        let block = |kind: &str| {
            let (_, rest) = page.split_once(&format!("```{kind}\n")).unwrap();
            rest.split_once("```").unwrap().0
        };
        assert_ne!(load(block("toml")).unwrap(), Config::default());
        for (content, line) in [
            ("\n\n\n\n\n[worker]\nidle_minuts = 1\n", 0),
            ("\n\n\n\n\n\n\n\ntools.default_timeout_s = 0\n", 1),
            ("[log]\n\nlevel        = loud\n", 2),
        ] {
            let shown = error(content);
            let documented = block("text").lines().nth(line).unwrap();
            let documented = documented.rsplit_once("quackd/").unwrap().1;
            assert_eq!(shown, documented);
        }
    }
}
