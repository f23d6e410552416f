//! The meaning of the macOS profile, decided operation by operation by an interpreter of its language (`profile.rs`). A
//! rule that the interpreter does not know fails the test. It shows what the text means by Apple's documented rules, not
//! that macOS accepts it. Paths are decided as they are spelled: macOS may report a missing name in this way, although the
//! volume takes it for another spelling.

#[cfg(test)]
#[path = "stand_in/profile.rs"]
mod profile;

#[cfg(test)]
mod tests {
    use crate::profile::{
        Form, Interpreter, Object, Pattern, is_meant, parse, parts, with_parameters,
    };
    use quackd_protocol::policy::{NetworkMode, Policy, Profile};
    use quackd_sandbox::git::GitDirectories;
    use quackd_sandbox::{MacPaths, Pin, Seatbelt};
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    /// Returns the rules of a profile with their parameters replaced.
    fn rules(profile: &Seatbelt) -> Vec<Form> {
        let parameters = profile.parameters.iter();
        let parameters: BTreeMap<&str, &str> =
            parameters.map(|(name, path)| (name.as_str(), path.to_str().unwrap())).collect();
        let rules = parse(&profile.text).unwrap().into_iter();
        rules.map(|rule| with_parameters(rule, &parameters).unwrap()).collect()
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
            git: GitDirectories {
                repositories: vec![
                    "/Users/u/w/.git".into(),
                    "/Users/u/w/.git/modules/m".into(),
                    "/Users/u/w/a/b/.git".into(),
                    "/Users/u/main/.git".into(),
                ],
                worktrees: vec!["/Users/u/w/.git/worktrees/x".into()],
                read_only: vec!["/Users/u/w/sub/.git".into()],
                has_unseen_worktrees: false,
                outside: vec!["/Users/u/main/.git".into()],
                troubles: Vec::new(),
            },
            pins: vec![
                Pin { at: "/Users/u/w/tools".into(), read_only: false },
                Pin { at: "/Users/u/w/tools/fsm".into(), read_only: true },
            ],
            original: None,
            objects: None,
            proxy: Some(PROXY),
        }
    }

    /// A decision of a policy: the operation, its object and whether it is allowed.
    type Decision = (&'static str, Object<'static>, bool);

    /// Port of the session's proxy.
    const PROXY: u16 = 61_234;

    const READ: &str = "file-read-data";
    const WRITE: &str = "file-write-data";
    const CREATE: &str = "file-write-create";
    const UNLINK: &str = "file-write-unlink";

    fn path(path: &'static str) -> Object<'static> {
        Object::Path(path)
    }

    /// Another spelling of a path in an existing directory, the same on a volume that ignores case.
    fn in_capitals(directory: &str, path: &str) -> Object<'static> {
        let rest = path.strip_prefix(directory).unwrap();
        Object::Path(format!("{directory}{}", rest.to_uppercase()).leak())
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
            (UNLINK, path("/private/var/folders/x/T/s1/a"), true),
            (UNLINK, path("/private/var/folders/x/T/s1"), false),
            (UNLINK, path("/Users/u/state/run/s1/spill"), true),
            (UNLINK, path("/Users/u/state/run/s1"), false),
            (READ, path("/private/var/folders/x/T/s2/a"), false),
            (READ, path("/Users/u/state/run/s1/spill"), true),
            (WRITE, path("/Users/u/state/run/s1/spill"), true),
            (READ, path("/Users/u/state/run/s2/spill"), false),
            (READ, path("/Users/u/state/keys.json"), false),
            (CREATE, path("/Users/u/other/x"), false),
            (READ, path("/Users/u/w2/x"), false),
            // The hidden names of the test's policy, in every spelling.
            (READ, path("/Users/u/w/.env"), false),
            (WRITE, path("/Users/u/w/.env"), false),
            (READ, path("/Users/u/w/.ENV"), false),
            (WRITE, path("/Users/u/w/.Env"), false),
            (READ, path("/Users/u/w/.environment"), true),
            (READ, path("/Users/u/w/cl\u{e9}s/a"), false),
            (READ, path("/Users/u/w/cle\u{301}s/a"), false),
            (READ, path("/Users/u/w/CLE\u{301}S"), false),
            (READ, path("/Users/u/w/cles"), true),
            (READ, path("/Users/u/w/\u{79d8}\u{5bc6}/a"), false),
            (READ, path("/Users/u/w/\u{8cc7}\u{6599}/a"), true),
        ]
    }

    /// Decisions about names that have one spelling here, where the session may write.
    fn of_files_to_write() -> Vec<Decision> {
        vec![
            (CREATE, path("/Users/u/w/new"), true),
            (UNLINK, path("/Users/u/w/old"), true),
            (CREATE, path("/Users/u/w/.git/index.lock"), true),
            (WRITE, path("/Users/u/w/.git/HEAD"), true),
            (CREATE, path("/Users/u/w/.git/objects/ab"), true),
            (CREATE, path("/Users/u/w/.git/refs/heads/x"), true),
            (CREATE, path("/Users/u/w/.git/refs/heads/hooks"), true),
            (CREATE, path("/Users/u/w/.git/refs/heads/Config"), true),
            (CREATE, path("/Users/u/w/.gitignore"), true),
            (CREATE, path("/Users/u/w/.git/con\u{fb01}g"), false),
            (CREATE, path("/Users/u/data/x"), true),
            (UNLINK, path("/Users/u/data/x"), true),
            (UNLINK, path("/Users/u/data"), false),
            (READ, path("/Users/u/data/x"), true),
            (UNLINK, path("/Users/u/w"), false),
            (CREATE, path("/Users/u/w/.git/info/exclude"), true),
            (CREATE, path("/Users/u/w/.git/modules/new/HEAD"), true),
            (CREATE, path("/Users/u/w/.git/modules/m/refs/heads/x"), true),
            (CREATE, path("/Users/u/w/.git/worktrees/x/index.lock"), true),
            (CREATE, path("/Users/u/w/.git/worktrees/y/gitdir"), true),
            (WRITE, path("/Users/u/w/tools/other"), true),
            (CREATE, path("/Users/u/w/new/.git/config"), true),
            (READ, path("/Users/u/main/.git/config"), true),
            (CREATE, path("/Users/u/main/.git/refs/heads/x"), true),
            (CREATE, path("/Users/u/main/.git/config"), false),
            (UNLINK, path("/Users/u/main/.git"), false),
            (CREATE, path("/Users/u/main/x"), false),
            (WRITE, path("/Users/u/w/sub/.git"), false),
            (WRITE, path("/Users/u/w/sub/.GIT"), false),
            (WRITE, path("/Users/u/w/tools/fsm"), false),
            (CREATE, Object::NewLink("/Users/u/w/link"), true),
            (CREATE, Object::NewLink("/Users/u/w/new/.git/HEAD"), true),
            (CREATE, Object::NewLink("/Users/u/w/.git/COMMIT_EDITMSG"), false),
            (CREATE, Object::NewLink("/Users/u/w/.GIT/MERGE_MSG"), false),
            (CREATE, Object::NewLink("/Users/u/main/.git/refs/x"), false),
            (CREATE, Object::NewLink("/Users/u/w/.git/worktrees/x/HEAD"), false),
        ]
    }

    /// Decisions where the session may write.
    fn of_writing() -> Vec<Decision> {
        let mut all = of_files_to_write();
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
            "/Users/u/w/.git/remotes/x",
            "/Users/u/w/.git/branches",
            "/Users/u/w/.git/info",
            "/Users/u/w/.git/modules/m/config",
            "/Users/u/w/.git/modules/m/hooks/x",
            "/Users/u/w/.git/modules/m",
            "/Users/u/w/.git/modules",
            "/Users/u/w/.git/worktrees/x/gitdir",
            "/Users/u/w/.git/worktrees/x/commondir",
            "/Users/u/w/.git/worktrees/x/config.worktree",
            "/Users/u/w/.git/worktrees/x",
            "/Users/u/w/.git/worktrees",
            "/Users/u/w/.git",
            "/Users/u/w/sub/.git",
            "/Users/u/w/sub",
            "/Users/u/w/tools/fsm",
            "/Users/u/w/tools",
            "/Users/u/w/a/b/.git/hooks",
            "/Users/u/w/a/b/.git/config",
            "/Users/u/w/a/b/.git/config.worktree",
            "/Users/u/w/a/b/.git/commondir",
            "/Users/u/w/a/b/.git/info/attributes",
            "/Users/u/w/a/b/.git/objects/info",
            "/Users/u/w/a/b/.git/objects/info/alternates",
            "/Users/u/w/a/b/.git/objects",
            "/Users/u/w/a/b/.git",
            "/Users/u/w/a/b",
            "/Users/u/w/a",
        ] {
            for spelling in [path(denied), in_capitals("/Users/u/w/", denied)] {
                all.push((CREATE, spelling, false));
                all.push((UNLINK, spelling, false));
            }
        }
        all
    }

    fn policy(profile: Profile, mode: NetworkMode) -> Policy {
        Policy {
            profile,
            network: mode == NetworkMode::On,
            hosts: (mode == NetworkMode::Hosts).then(|| vec!["example.com".to_owned()]),
            writable_roots: vec!["/Users/u/data".into()],
            hidden: vec![
                "/Users/u/w/.env".into(),
                "/Users/u/w/cl\u{e9}s".into(),
                // Without another spelling.
                "/Users/u/w/\u{79d8}\u{5bc6}".into(),
            ],
            ..Policy::default()
        }
    }

    /// Decisions about the network in a mode.
    fn of_network(mode: NetworkMode) -> Vec<Decision> {
        let is_on = mode == NetworkMode::On;
        let mut all = vec![
            ("network-outbound", Object::Tcp("127.0.0.1", PROXY), mode != NetworkMode::Off),
            ("network-outbound", Object::Tcp("127.0.0.1", PROXY + 1), is_on),
            ("network-outbound", Object::Tcp("::1", PROXY), is_on),
            ("network-outbound", Object::Tcp("192.0.2.1", 443), is_on),
            ("network-outbound", Object::Tcp("192.0.2.1", PROXY), is_on),
            ("network-outbound", Object::Udp, is_on),
            ("network-outbound", Object::UnixSocket("/private/var/run/mDNSResponder"), is_on),
            ("network-bind", Object::Tcp("127.0.0.1", PROXY), is_on),
            ("network-inbound", Object::Tcp("127.0.0.1", PROXY), is_on),
            ("system-socket", Object::None, is_on),
            (READ, path("/private/var/run/resolv.conf"), is_on),
        ];
        for service in [
            "com.apple.trustd",
            "com.apple.trustd.agent",
            "com.apple.SystemConfiguration.configd",
            "com.apple.SystemConfiguration.DNSConfiguration",
        ] {
            all.push(("mach-lookup", Object::Service(service), is_on));
        }
        all
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
        let spellings = |secret| [path(secret), in_capitals("/Users/u/", secret)];
        let spellings = secrets.into_iter().flat_map(spellings);
        let mut decisions: Vec<Decision> = spellings.map(|secret| (READ, secret, false)).collect();
        decisions.push((WRITE, path("/Users/u/state/keys.json"), false));
        decisions.push((WRITE, path("/Users/u/State/new.json"), false));
        let places = MacPaths { workspace: "/Users/u".into(), ..places() };
        (places, decisions)
    }

    /// The copy of an isolated session: in the hidden state directory, with objects of a repository outside.
    fn in_a_copy() -> (MacPaths, Vec<Decision>) {
        const TREE: &str = "/Users/u/state/isolated/s1/tree";
        let decisions = vec![
            (READ, path("/Users/u/state/isolated/s1/tree/src/main.rs"), true),
            (CREATE, path("/Users/u/state/isolated/s1/tree/src/new"), true),
            (CREATE, path("/Users/u/state/isolated/s1/tree/.git/refs/heads/x"), true),
            (WRITE, path("/Users/u/state/isolated/s1/tree/.git/hooks/pre-commit"), false),
            (WRITE, path("/Users/u/state/isolated/s1/tree/.git/objects/info/alternates"), false),
            (UNLINK, path(TREE), false),
            (READ, path("/Users/u/w/.git/objects/pack/x.pack"), true),
            (CREATE, path("/Users/u/w/.git/objects/pack/y.pack"), false),
            (READ, path("/Users/u/w/.git/config"), false),
            (READ, path("/Users/u/w/src/main.rs"), false),
            (WRITE, path("/Users/u/w/src/main.rs"), false),
            (READ, path("/Users/u/w/tools/run"), false),
            (READ, path("/Users/u/state/isolated/s1/manifest"), false),
            (WRITE, path("/Users/u/state/isolated/s1/manifest"), false),
            (READ, path("/Users/u/state/isolated/s2/tree/src/main.rs"), false),
            (READ, path("/Users/u/state/keys.json"), false),
            (WRITE, path("/Users/u/state/run/s1/spill"), true),
            (CREATE, path("/private/var/folders/x/T/s1/a"), true),
        ];
        let places = MacPaths {
            workspace: TREE.into(),
            git: GitDirectories {
                repositories: vec![format!("{TREE}/.git").into()],
                ..GitDirectories::default()
            },
            pins: Vec::new(),
            original: Some("/Users/u/w".into()),
            objects: Some("/Users/u/w/.git/objects".into()),
            toolchains: vec!["/Users/u/w/tools".into()],
            ..places()
        };
        (places, decisions)
    }

    /// The policies with what they decide.
    fn cases() -> Vec<(Policy, MacPaths, Vec<Decision>)> {
        let reading: Vec<Decision> = vec![
            (CREATE, path("/Users/u/w/new"), false),
            (READ, path("/Users/u/data/x"), true),
            (WRITE, path("/Users/u/data/x"), false),
            (READ, path("/Users/u/main/.git/config"), true),
            (CREATE, path("/Users/u/main/.git/refs/heads/x"), false),
        ];
        let (home, secrets) = in_the_home();
        let writing = [NetworkMode::Off, NetworkMode::Hosts, NetworkMode::On].map(|mode| {
            let decisions = [of_every_policy(), of_writing(), of_network(mode)].concat();
            (policy(Profile::WorkspaceWrite, mode), places(), decisions)
        });
        let mut all = writing.to_vec();
        let decisions = [of_every_policy(), reading, of_network(NetworkMode::Off)].concat();
        all.push((policy(Profile::ReadOnly, NetworkMode::Off), places(), decisions));
        all.push((policy(Profile::WorkspaceWrite, NetworkMode::Off), home, secrets));
        let (copy, decisions) = in_a_copy();
        let mut above = policy(Profile::WorkspaceWrite, NetworkMode::Off);
        all.push((above.clone(), copy.clone(), decisions.clone()));
        // A directory that the session may write contains the workspace of the user.
        above.writable_roots.push("/Users/u".into());
        let decisions = decisions.into_iter().filter(|(_, object, is_allowed)| {
            *is_allowed || matches!(object, Object::Path(path) if path.starts_with("/Users/u/w/"))
        });
        all.push((above, copy, decisions.collect()));
        all
    }

    #[test]
    fn the_answer_about_reading_is_the_one_of_the_rules() {
        let (home, _) = in_the_home();
        let all = [
            "/Users/u/.ssh/id_ed25519",
            "/Users/u/Library/Keychains/login.keychain-db",
            "/Users/u/.config/gh/hosts.yml",
            "/Users/u/state/keys.json",
            "/usr/lib/x",
            "/nix/store/x",
            "/private/var/db/timezone/x",
            "/private/var/db/x",
            "/private/var/folders/x/T/s1/a",
            "/Users/u/w/src/main.rs",
            "/Users/u/w/.env",
            "/Users/u/data/x",
            "/Users/u/.cargo/bin/cargo",
            "/Users/u/Documents",
            "/Users/u2/x",
            "/Users/u/state/run/s1/spill",
            "/Users/u/state/run/s2/spill",
        ];
        for places in [places(), home] {
            let policy = policy(Profile::WorkspaceWrite, NetworkMode::Off);
            let profile = Seatbelt::new(&policy, &places).unwrap();
            let rules = rules(&profile);
            let meaning = Interpreter { rules: &rules };
            for path in all {
                let may_read = profile.may_read(path.as_ref()).unwrap_or(false);
                assert_eq!(meaning.allows(READ, Object::Path(path)), Ok(may_read), "{path}");
            }
        }
    }

    /// Returns the decisions that these rules make otherwise.
    fn wrong<'a>(rules: &[Form], decisions: &'a [Decision]) -> Vec<&'a Decision> {
        let meaning = Interpreter { rules };
        decisions
            .iter()
            .filter(|(name, object, is)| meaning.allows(name, *object) != Ok(*is))
            .collect()
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
    fn with_very_many_repositories_every_one_is_protected_and_none_can_be_made() {
        let mut places = places();
        let many = (0..200).map(|number| format!("/Users/u/w/many/r{number}/.git").into());
        places.git.repositories = many.collect();
        let policy = policy(Profile::WorkspaceWrite, NetworkMode::Off);
        let profile = Seatbelt::new(&policy, &places).unwrap();
        assert!(profile.has_read_only_repositories() && profile.is_short_enough());
        let mut decisions: Vec<Decision> = vec![
            (CREATE, path("/Users/u/w/many/r0/.git/refs/heads/x"), true),
            (CREATE, path("/Users/u/w/new/.gitignore"), true),
        ];
        for denied in [
            "/Users/u/w/many/r0/.git/hooks/x",
            "/Users/u/w/many/r0/.git/modules/m/config",
            "/Users/u/w/many/r0",
            "/Users/u/w/many/r199/.git/refs/heads/x",
            "/Users/u/w/many/r199/.git/hooks/x",
            "/Users/u/w/many/r199/.git/objects/info",
            "/Users/u/w/many/r199/.git",
            "/Users/u/w/deep/er/.git/config",
            "/Users/u/w/deep/er/.git",
            "/Users/u/w/.git",
        ] {
            decisions.push((CREATE, path(denied), false));
            decisions.push((CREATE, in_capitals("/Users/u/w/", denied), false));
        }
        // Moved there, they could be changed and moved back. The repository outside cannot be reached.
        for elsewhere in [
            "/private/var/folders/x/T/s1/a/.git/config",
            "/Users/u/data/a/.git/hooks/x",
            "/Users/u/main/.git/config",
        ] {
            decisions.push((CREATE, path(elsewhere), false));
        }
        let wrong = wrong(&rules(&profile), &decisions);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn very_many_repositories_above_the_workspace_of_the_user_open_neither_it_nor_other_copies() {
        let (mut places, mut decisions) = in_a_copy();
        let many = (0..200).map(|number| format!("/Users/u/z/r{number}/.git").into());
        let own: PathBuf = "/Users/u/state/isolated/s1/tree/.git".into();
        let foreign =
            ["/Users/u/w/.git", "/Users/u/w/sub/.git", "/Users/u/state/isolated/s2/tree/.git"];
        places.git.repositories =
            foreign.map(PathBuf::from).into_iter().chain([own]).chain(many).collect();
        let mut policy = policy(Profile::WorkspaceWrite, NetworkMode::Off);
        policy.writable_roots = vec!["/Users/u".into()];
        let profile = Seatbelt::new(&policy, &places).unwrap();
        assert!(profile.has_read_only_repositories());
        for foreign in [
            "/Users/u/w/.git/refs/heads/x",
            "/Users/u/w/sub/.git/refs/heads/x",
            "/Users/u/state/isolated/s2/tree/.git/refs/heads/x",
        ] {
            decisions.push((CREATE, path(foreign), false));
            decisions.push((READ, path(foreign), false));
        }
        decisions.push((CREATE, path("/Users/u/z/r0/.git/refs/heads/x"), true));
        let wrong = wrong(&rules(&profile), &decisions);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn paths_that_are_too_long_leave_no_rule_out() {
        let mut places = places();
        let long = "k".repeat(250);
        let many = (0..100).map(|number| format!("/Users/u/w/{long}/{long}{number}/.git").into());
        places.git.repositories = many.collect();
        let policy = policy(Profile::WorkspaceWrite, NetworkMode::Off);
        let profile = Seatbelt::new(&policy, &places).unwrap();
        assert!(profile.has_read_only_repositories() && profile.is_short_enough());
        let hook: &'static str = format!("/Users/u/w/{long}/{long}99/.git/hooks/x").leak();
        assert!(wrong(&rules(&profile), &[(CREATE, path(hook), false)]).is_empty());

        // Repositories that `.git` files name must have a rule each.
        let many = (0..100).map(|number| format!("/Users/u/w/{long}/{long}{number}/x").into());
        places.git.repositories = many.collect();
        assert!(!Seatbelt::new(&policy, &places).unwrap().is_short_enough());
    }

    #[test]
    fn directories_between_two_that_the_session_may_write_cannot_be_moved() {
        let mut places = places();
        places.git.repositories = vec!["/Users/u/w/a/b/c/.git".into()];
        places.git.outside = Vec::new();
        let mut policy = policy(Profile::WorkspaceWrite, NetworkMode::Off);
        policy.writable_roots = vec!["/Users/u/w/a/b".into(), "/Users/u/w/x/y".into()];
        let profile = Seatbelt::new(&policy, &places).unwrap();
        let decisions = ["/Users/u/w/a", "/Users/u/w/a/b", "/Users/u/w/a/b/c", "/Users/u/w/x"]
            .map(|denied| (UNLINK, path(denied), false));
        let wrong = wrong(&rules(&profile), &decisions);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    #[test]
    fn a_process_of_files_reads_and_changes_what_it_was_given_and_has_no_network() {
        let profile = Seatbelt::of_files(&["/Users/u/w".into()], &["/Users/u/state/i".into()]);
        let decisions = [
            (READ, path("/Users/u/w/a"), true),
            (CREATE, path("/Users/u/w/a"), false),
            (READ, path("/Users/u/state/i/a"), true),
            (CREATE, path("/Users/u/state/i/a"), true),
            (UNLINK, path("/Users/u/state/i/a"), true),
            (READ, path("/Users/u/state/keys.json"), false),
            (READ, path("/usr/bin/git"), true),
            ("network-outbound", Object::UnixSocket("/private/tmp/ssh-agent"), false),
        ];
        let wrong = wrong(&rules(&profile), &decisions);
        assert!(wrong.is_empty(), "{wrong:?}\n{}", profile.text);
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
            let Form::List(words) = rule else { panic!("{rule:?}") };
            let (operations, _) = parts(&words[1..]);
            cases.iter().any(|(rules, decisions)| {
                let rules = rules.iter();
                let rules: Vec<Form> = rules
                    .filter_map(|one| if one == rule { without(one) } else { Some(one.clone()) })
                    .collect();
                let meaning = Interpreter { rules: &rules };
                let mut decisions =
                    decisions.iter().filter(|(name, ..)| is_meant(operations, name));
                decisions.any(|(name, object, is)| meaning.allows(name, *object) != Ok(*is))
            })
        };
        // The writing ones have all rules about paths, and each mode of the network its own.
        for (rules, _) in cases.iter().take(4) {
            for rule in rules.iter().skip(2) {
                assert!(differs(rule, &|_| None), "nothing depends on {rule:?}");
                let Form::List(words) = rule else { unreachable!() };
                let (_, filters) = parts(&words[1..]);
                if filters.len() < 2 {
                    continue;
                }
                for filter in filters.iter().filter(|filter| !is_doubled(filter, filters)) {
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

    /// Whether the pattern of the same rule also matches the path of this filter. Both exist on purpose: a pattern
    /// that macOS understands otherwise takes away nothing from the path itself.
    fn is_doubled(filter: &Form, filters: &[Form]) -> bool {
        let Form::List(words) = filter else { return false };
        let [Form::Word(_), Form::Text(text)] = words.as_slice() else { return false };
        let pattern = |form: &Form| {
            match form {
            Form::List(words) => words.iter().any(
                |word| matches!(word, Form::Pattern(Pattern(regex)) if regex.is_match(text.as_bytes())),
            ),
            _ => false,
        }
        };
        filters.iter().any(pattern)
    }
}
