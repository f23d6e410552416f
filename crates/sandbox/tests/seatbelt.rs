//! The meaning of the macOS profile, decided here operation by operation: an interpreter of the part of the profile
//! language that quackd uses. A rule that this file does not know fails the test. It shows what the text means by Apple's
//! documented rules (the last matching rule wins), not that macOS accepts it.

#[cfg(test)]
mod tests {
    use quackd_protocol::policy::{Policy, Profile};
    use quackd_sandbox::{MacPaths, Seatbelt};
    use regex::Regex;
    use std::collections::BTreeMap;
    use std::path::Path;

    /// A parsed expression.
    #[derive(Debug, Clone, PartialEq)]
    enum Form {
        Word(String),
        Text(String),
        Pattern(String),
        List(Vec<Self>),
    }

    /// Splits the profile into its top-level forms.
    fn parse(text: &str) -> Vec<Form> {
        let mut lists = vec![Vec::new()];
        let mut rest = text;
        while let Some(first) = rest.trim_start().chars().next() {
            rest = rest.trim_start();
            let (form, length) = match first {
                '(' => {
                    lists.push(Vec::new());
                    rest = &rest[1..];
                    continue;
                }
                ')' => {
                    let list = lists.pop().unwrap();
                    (Form::List(list), 1)
                }
                '"' => {
                    let end = rest[1..].find('"').unwrap();
                    (Form::Text(rest[1..=end].to_owned()), end + 2)
                }
                '#' => {
                    let end = rest[2..].find('"').unwrap();
                    (Form::Pattern(rest[2..end + 2].to_owned()), end + 3)
                }
                _ => {
                    let end = rest.find(|c: char| c.is_whitespace() || "()".contains(c)).unwrap();
                    (Form::Word(rest[..end].to_owned()), end)
                }
            };
            lists.last_mut().unwrap().push(form);
            rest = &rest[length..];
        }
        assert_eq!(lists.len(), 1, "unbalanced");
        lists.remove(0)
    }

    /// The object of an operation.
    #[derive(Debug, Clone, Copy)]
    enum Object<'a> {
        None,
        Path(&'a str),
        Service(&'a str),
        /// A process of the same sandbox.
        OwnProcess,
        /// A process outside of the sandbox.
        OtherProcess,
        UnixSocket(&'a str),
        /// An address of the network.
        Address,
    }

    /// Returns the rules of a profile with their parameters replaced.
    fn rules(profile: &Seatbelt) -> Vec<Form> {
        let parameters = profile.parameters.iter();
        let parameters =
            parameters.map(|(name, path)| (name.as_str(), path.to_str().unwrap())).collect();
        parse(&profile.text).into_iter().map(|rule| with_parameters(rule, &parameters)).collect()
    }

    fn with_parameters(form: Form, parameters: &BTreeMap<&str, &str>) -> Form {
        let Form::List(words) = form else { return form };
        if let [Form::Word(word), Form::Text(name)] = words.as_slice()
            && word == "param"
        {
            return Form::Text(parameters[name.as_str()].to_owned());
        }
        Form::List(words.into_iter().map(|word| with_parameters(word, parameters)).collect())
    }

    struct Interpreter<'a> {
        rules: &'a [Form],
    }

    impl Interpreter<'_> {
        fn allows(&self, operation: &str, object: Object<'_>) -> bool {
            let mut is_allowed = None;
            for rule in self.rules {
                let Form::List(words) = rule else { panic!("{rule:?}") };
                let [Form::Word(verb), words @ ..] = words.as_slice() else { panic!("{rule:?}") };
                let is_allow = match verb.as_str() {
                    "version" => continue,
                    "allow" => true,
                    "deny" => false,
                    other => panic!("unknown: {other}"),
                };
                let is_word = |form: &&Form| matches!(form, Form::Word(_));
                let n_operations = words.iter().take_while(is_word).count();
                let (operations, filters) = words.split_at(n_operations);
                let is_meant = operations.iter().any(|name| match name {
                    Form::Word(name) if name == "default" => true,
                    Form::Word(name) => match name.strip_suffix('*') {
                        Some(start) => operation.starts_with(start),
                        None => operation == name,
                    },
                    other => panic!("{other:?}"),
                });
                let matches = |filter| self.matches(filter, object);
                if is_meant && (filters.is_empty() || filters.iter().any(matches)) {
                    is_allowed = Some(is_allow);
                }
            }
            is_allowed.expect("a default")
        }

        fn matches(&self, filter: &Form, object: Object<'_>) -> bool {
            let Form::List(words) = filter else { panic!("{filter:?}") };
            let [Form::Word(name), value] = words.as_slice() else { panic!("{filter:?}") };
            let path = match object {
                Object::Path(path) | Object::UnixSocket(path) => Some(Path::new(path)),
                _ => None,
            };
            match (name.as_str(), value) {
                ("literal", Form::Text(text)) => path == Some(Path::new(text)),
                ("subpath", Form::Text(text)) => path.is_some_and(|path| path.starts_with(text)),
                ("regex", Form::Pattern(pattern)) => {
                    let regex = Regex::new(pattern).unwrap();
                    path.and_then(Path::to_str).is_some_and(|path| regex.is_match(path))
                }
                ("global-name", Form::Text(name)) => {
                    matches!(object, Object::Service(service) if service == name)
                }
                ("target", Form::Word(target)) if target == "same-sandbox" => {
                    matches!(object, Object::OwnProcess)
                }
                ("remote", Form::Word(kind)) if kind == "unix-socket" => {
                    matches!(object, Object::UnixSocket(_))
                }
                other => panic!("unknown: {other:?}"),
            }
        }
    }

    fn places() -> MacPaths {
        MacPaths {
            workspace: "/Users/u/w".into(),
            run_dir: "/Users/u/state/run/s1".into(),
            state_dir: "/Users/u/state".into(),
            home: "/Users/u".into(),
            temporary: "/private/var/folders/x/T/s1".into(),
            toolchains: vec![
                "/Users/u/.cargo/bin".into(),
                "/Users".into(),
                "/".into(),
                "bin".into(),
            ],
            repositories: vec!["/Users/u/w/.git".into(), "/Users/u/w/a/b/.git".into()],
        }
    }

    /// A decision of a policy: the operation, its object and whether it is allowed.
    type Decision = (&'static str, Object<'static>, bool);

    const READ: &str = "file-read-data";
    const WRITE: &str = "file-write-data";
    const CREATE: &str = "file-write-create";
    const UNLINK: &str = "file-write-unlink";

    fn path(path: &'static str) -> Object<'static> {
        Object::Path(path)
    }

    /// Decisions with any policy but full access.
    fn of_every_policy() -> Vec<Decision> {
        let mut all: Vec<Decision> = vec![
            ("process-exec", path("/usr/bin/git"), true),
            ("process-fork", Object::None, true),
            ("signal", Object::OwnProcess, true),
            ("signal", Object::OtherProcess, false),
            ("process-info-pidinfo", Object::OwnProcess, true),
            ("process-info-pidinfo", Object::OtherProcess, false),
            ("sysctl-read", Object::None, true),
            ("sysctl-write", Object::None, false),
            ("pseudo-tty", Object::None, true),
            ("file-ioctl", path("/dev/ptmx"), true),
            ("file-ioctl", path("/dev/ttys003"), true),
            (READ, path("/dev/ttys003"), true),
            (WRITE, path("/dev/ttys003x"), false),
            (WRITE, path("/dev/null"), true),
            (WRITE, path("/dev/zero"), true),
            (WRITE, path("/dev/tty"), true),
            (WRITE, path("/dev/disk0"), false),
            (READ, path("/dev/disk0"), false),
            (READ, path("/dev/random"), true),
            (READ, path("/dev/urandom"), true),
            (READ, path("/dev/fd/3"), true),
            ("file-read-metadata", path("/Users/u/Documents"), true),
            (READ, path("/Users/u/Documents"), false),
            (READ, path("/"), true),
            (READ, path("/private/etc/hosts"), true),
            (READ, path("/private/etc/master.passwd"), false),
            (READ, path("/private/etc/sudoers"), false),
            (READ, path("/private/etc/sudoers.d/x"), false),
            (READ, path("/private/etc/ssh/ssh_host_ed25519_key"), false),
            (READ, path("/private/etc/ssh/ssh_host_ed25519_key.pub"), true),
            (READ, path("/Library/Keychains/System.keychain"), false),
            (WRITE, path("/private/etc/hosts"), false),
            (CREATE, path("/usr/local/bin/x"), false),
            ("mach-lookup", Object::Service("com.apple.system.opendirectoryd.libinfo"), true),
            ("mach-lookup", Object::Service("com.apple.cfprefsd.daemon"), true),
            ("mach-lookup", Object::Service("com.apple.cfprefsd.agent"), true),
            ("mach-lookup", Object::Service("com.apple.SecurityServer"), false),
            ("mach-lookup", Object::Service("com.apple.coreservices.launchservicesd"), false),
            ("mach-lookup", Object::Service("com.apple.coreservices.appleevents"), false),
            ("mach-lookup", Object::Service("com.apple.pasteboard.1"), false),
            ("appleevent-send", Object::None, false),
            ("lsopen", Object::None, false),
            ("user-preference-read", Object::None, true),
            ("user-preference-write", Object::None, false),
            ("network-outbound", Object::UnixSocket("/private/tmp/ssh-agent"), false),
        ];
        for readable in [
            "/usr/lib/x",
            "/bin/sh",
            "/sbin/ping",
            "/System/Library/x",
            "/Library/Developer/x",
            "/Library/Frameworks/x",
            "/Applications/Xcode.app/x",
            "/opt/homebrew/bin/rg",
            "/nix/store/x",
            "/private/var/db/timezone/x",
            "/private/var/select/sh",
        ] {
            all.push((READ, path(readable), true));
        }
        all.extend(of_places());
        all
    }

    /// Decisions about the workspace, the private directories and the directories of programs, with any policy but full access.
    fn of_places() -> Vec<Decision> {
        vec![
            (READ, path("/Users/u/w/src/main.rs"), true),
            (READ, path("/Users/u/.cargo/bin/cargo"), true),
            (WRITE, path("/Users/u/.cargo/bin/cargo"), false),
            (CREATE, path("/private/var/folders/x/T/s1/a"), true),
            (READ, path("/private/var/folders/x/T/s2/a"), false),
            (READ, path("/Users/u/state/run/s1/spill"), true),
            (WRITE, path("/Users/u/state/run/s1/spill"), true),
            (READ, path("/Users/u/state/run/s2/spill"), false),
            (READ, path("/Users/u/state/keys.json"), false),
            (CREATE, path("/Users/u/other/x"), false),
            (READ, path("/Users/u/w2/x"), false),
            // The hidden file of the test's policy.
            (READ, path("/Users/u/w/.env"), false),
            (WRITE, path("/Users/u/w/.env"), false),
        ]
    }

    /// Decisions where the session may write.
    fn of_writing() -> Vec<Decision> {
        let mut all: Vec<Decision> = vec![
            (CREATE, path("/Users/u/w/new"), true),
            (UNLINK, path("/Users/u/w/old"), true),
            (CREATE, path("/Users/u/w/.git/index.lock"), true),
            (WRITE, path("/Users/u/w/.git/HEAD"), true),
            (CREATE, path("/Users/u/w/.git/objects/ab"), true),
            (CREATE, path("/Users/u/w/.git/refs/heads/x"), true),
            (CREATE, path("/Users/u/data/x"), true),
            (READ, path("/Users/u/data/x"), true),
            (UNLINK, path("/Users/u/w"), false),
        ];
        // In both repositories: the names that git obeys, and the directories whose rename would replace them.
        for denied in [
            "/Users/u/w/.git/hooks",
            "/Users/u/w/.git/hooks/pre-commit",
            "/Users/u/w/.git/config",
            "/Users/u/w/.git/config.worktree",
            "/Users/u/w/.git/commondir",
            "/Users/u/w/.git/info/attributes",
            "/Users/u/w/.git/objects/info",
            "/Users/u/w/.git/objects/info/alternates",
            "/Users/u/w/.git/objects",
            "/Users/u/w/.git/modules/m/config",
            "/Users/u/w/.git/worktrees/x/config.worktree",
            "/Users/u/w/.git",
            "/Users/u/w/a/b/.git/hooks",
            "/Users/u/w/a/b/.git/config",
            "/Users/u/w/a/b/.git/config.worktree",
            "/Users/u/w/a/b/.git/commondir",
            "/Users/u/w/a/b/.git/info/attributes",
            "/Users/u/w/a/b/.git/objects/info",
            "/Users/u/w/a/b/.git/objects/info/alternates",
            "/Users/u/w/a/b/.git/objects",
            "/Users/u/w/a/b/.git/modules/m/config",
            "/Users/u/w/a/b/.git/worktrees/x/config.worktree",
            "/Users/u/w/a/b/.git",
            "/Users/u/w/a/b",
            "/Users/u/w/a",
        ] {
            all.push((CREATE, path(denied), false));
            all.push((UNLINK, path(denied), false));
        }
        all
    }

    fn policy(profile: Profile, network: bool) -> Policy {
        let writable_roots = vec!["/Users/u/data".into()];
        let hidden = vec!["/Users/u/w/.env".into()];
        Policy { profile, network, writable_roots, hidden, ..Policy::default() }
    }

    /// A home whose secrets are in a directory that the session may read: the exceptions must still hold.
    fn in_the_home() -> (MacPaths, Vec<Decision>) {
        let secrets = [
            "/Users/u/.ssh/id_ed25519",
            "/Users/u/.aws/credentials",
            "/Users/u/.gnupg/private-keys-v1.d/x",
            "/Users/u/.netrc",
            "/Users/u/Library/Keychains/login.keychain-db",
            "/Users/u/.config/gh/hosts.yml",
            "/Users/u/.docker/config.json",
            "/Users/u/state/keys.json",
        ];
        let mut decisions = secrets.map(|secret| (READ, path(secret), false)).to_vec();
        decisions.push((WRITE, path("/Users/u/state/keys.json"), false));
        let places = MacPaths { workspace: "/Users/u".into(), ..places() };
        (places, decisions)
    }

    /// The policies with what they decide.
    fn cases() -> Vec<(Policy, MacPaths, Vec<Decision>)> {
        let network = |is_on: bool| -> Vec<Decision> {
            vec![
                ("network-outbound", Object::Address, is_on),
                ("network-bind", Object::Address, is_on),
                ("system-socket", Object::None, is_on),
                ("mach-lookup", Object::Service("com.apple.trustd"), is_on),
            ]
        };
        let reading: Vec<Decision> = vec![
            (CREATE, path("/Users/u/w/new"), false),
            (READ, path("/Users/u/data/x"), true),
            (WRITE, path("/Users/u/data/x"), false),
        ];
        let (home, secrets) = in_the_home();
        vec![
            (
                policy(Profile::WorkspaceWrite, false),
                places(),
                [of_every_policy(), of_writing(), network(false)].concat(),
            ),
            (
                policy(Profile::WorkspaceWrite, true),
                places(),
                [of_every_policy(), of_writing(), network(true)].concat(),
            ),
            (
                policy(Profile::ReadOnly, false),
                places(),
                [of_every_policy(), reading, network(false)].concat(),
            ),
            (policy(Profile::WorkspaceWrite, false), home, secrets),
        ]
    }

    /// Returns the decisions that these rules make otherwise.
    fn wrong<'a>(rules: &[Form], decisions: &'a [Decision]) -> Vec<&'a Decision> {
        let meaning = Interpreter { rules };
        decisions.iter().filter(|(name, object, is)| meaning.allows(name, *object) != *is).collect()
    }

    #[test]
    fn the_profile_decides_as_the_policy_says() {
        for (policy, places, decisions) in cases() {
            let profile = Seatbelt::new(&policy, &places).unwrap();
            let wrong = wrong(&rules(&profile), &decisions);
            assert!(wrong.is_empty(), "{wrong:?}\n{}", profile.text);
        }
    }

    #[test]
    fn a_profile_without_one_of_its_rules_decides_otherwise() {
        let cases: Vec<_> = cases()
            .into_iter()
            .map(|(policy, places, decisions)| {
                (rules(&Seatbelt::new(&policy, &places).unwrap()), decisions)
            })
            .collect();
        let differs = |rule: &Form, without: &dyn Fn(&Form) -> Option<Form>| {
            cases.iter().any(|(rules, decisions)| {
                let rules = rules.iter();
                let rules: Vec<Form> = rules
                    .filter_map(|one| if one == rule { without(one) } else { Some(one.clone()) })
                    .collect();
                !wrong(&rules, decisions).is_empty()
            })
        };
        // The first policy that writes has all rules about paths, the second the network.
        for (rules, _) in cases.iter().take(3) {
            for rule in rules.iter().skip(2) {
                assert!(differs(rule, &|_| None), "nothing depends on {rule:?}");
                let Form::List(words) = rule else { unreachable!() };
                let filters = words.iter().filter(|word| matches!(word, Form::List(_)));
                if filters.clone().count() < 2 {
                    continue;
                }
                for filter in filters {
                    let without = |rule: &Form| match rule {
                        Form::List(words) => Some(Form::List(
                            words.iter().filter(|word| *word != filter).cloned().collect(),
                        )),
                        other => Some(other.clone()),
                    };
                    assert!(differs(rule, &without), "nothing depends on {filter:?} in {rule:?}");
                }
            }
        }
    }
}
