//! Tests of the visible and hidden paths of a plan. They need no privileges.

use super::super::overlay::CacheDirectoryError;
use super::*;

fn facts() -> HostFacts {
    let mut git_settings = git::CarriedSettings::default();
    git_settings.excludes = Some("*.ign\n".into());
    HostFacts {
        built: Vec::new(),
        places: SessionDirs {
            workspace: "/home/u/work/ws".into(),
            run_dir: "/home/u/.local/state/quackd/run/s1".into(),
            state_dir: "/home/u/.local/state/quackd".into(),
            home: "/home/u".into(),
        },
        uid: 1000,
        gid: 1000,
        system: vec![
            SystemDirectory::Directory("/usr".into()),
            SystemDirectory::Directory("/etc".into()),
            SystemDirectory::Directory("/opt".into()),
            SystemDirectory::Link { at: "/bin".into(), to: "usr/bin".into() },
        ],
        secrets: vec!["/etc/shadow".into(), "/home/u/.pyenv/.npmrc".into()],
        shown: vec![ReadOnlyBind {
            at: "/home/u/.pyenv".into(),
            from: "/home/u/.pyenv".into(),
            is_directory: true,
        }],
        caches: vec!["/home/u/.cargo/registry".into()],
        missing_caches: vec!["/home/u/.npm/_cacache".into()],
        private: vec!["/srv/tools/cargo".into()],
        resolver: Some("/run/systemd/resolve/stub-resolv.conf".into()),
        hosts_file: Some(("/etc/hosts".into(), "127.0.0.1 localhost\n".into())),
        git_settings,
    }
}

fn plan(policy: &Policy) -> MountPlan {
    MountPlan::new(policy, &facts()).unwrap()
}

fn mount<'p>(plan: &'p MountPlan, at: &str) -> Option<&'p Mount> {
    plan.mounts.get(Path::new(at))
}

#[test]
fn only_what_is_named_is_shown() {
    let plan = plan(&Policy::default());
    for shown in ["/usr/bin/env", "/etc/passwd", "/home/u/work/ws/x", "/home/u/.pyenv/shims"] {
        assert!(plan.shows(Path::new(shown)), "{shown}");
    }
    for hidden in [
        "/etc/shadow",
        "/home/u/.ssh/id",
        "/home/u/work/other",
        "/home/u/.pyenv/.npmrc",
        "/home/u/.local/state/quackd/run/s2",
        "/var/lib",
        "/run/user/1000/bus",
        "/root",
        "/tmp/x",
        "/",
    ] {
        assert!(!plan.shows(Path::new(hidden)), "{hidden}");
    }
    assert_eq!(mount(&plan, "/etc/shadow"), Some(&Mount::Empty));
    assert_eq!(mount(&plan, "/bin"), Some(&Mount::Link { to: "usr/bin".into() }));
    let config =
        Mount::File { content: "[core]\n\texcludesFile = \"~/.gitignore_of_user\"\n".into() };
    assert_eq!(mount(&plan, "/home/u/.gitconfig"), Some(&config));
    let excludes = Mount::File { content: "*.ign\n".into() };
    assert_eq!(mount(&plan, "/home/u/.gitignore_of_user"), Some(&excludes));
}

#[test]
fn a_directory_comes_before_what_is_in_it() {
    let plan = plan(&Policy::default());
    let order: Vec<_> = plan.mounts.keys().collect();
    for (place, at) in order.iter().enumerate() {
        assert!(!order[..place].iter().any(|before| before.starts_with(at)), "{at:?}");
    }
}

#[test]
fn read_only_leaves_nothing_of_the_user_writable() {
    let policy = Policy {
        profile: Profile::ReadOnly,
        writable_roots: vec!["/srv/data".into()],
        ..Policy::default()
    };
    let plan = plan(&policy);
    let writable: Vec<_> = plan.writable().filter(|at| plan.mounts[*at].is_of_the_host()).collect();
    assert_eq!(
        writable,
        [
            // Changes of a cache go to its private layer.
            Path::new("/home/u/.cargo/registry"),
            Path::new("/home/u/.local/state/quackd/run/s1"),
        ]
    );
}

#[test]
fn the_network_brings_the_names_of_the_resolver() {
    let resolver = "/run/systemd/resolve/stub-resolv.conf";
    let off = plan(&Policy::default());
    assert!(matches!(mount(&off, resolver), Some(Mount::File { .. })));
    let mut facts = facts();
    facts.resolver = Some("/etc/resolv.conf".into());
    let in_etc = MountPlan::new(&Policy::default(), &facts).unwrap();
    assert!(matches!(mount(&in_etc, "/etc/resolv.conf"), Some(Mount::Over { .. })));
    let hosts = Some(&Mount::Over { content: "127.0.0.1 localhost\n".into() });
    assert_eq!(mount(&in_etc, "/etc/hosts"), hosts);
    let on = plan(&Policy { network: true, ..Policy::default() });
    assert_eq!(mount(&on, "/etc/hosts"), None);
    assert!(on.network && mount(&on, resolver).is_some());
}

#[test]
fn what_is_hidden_covers_what_is_shown_and_keeps_what_is_beneath() {
    let mut facts = facts();
    facts.places.state_dir = "/opt/quackd".into();
    facts.places.run_dir = "/opt/quackd/run/s1".into();
    let policy = Policy {
        hidden: vec!["/home/u/work/ws/.env".into(), "/home/u/absent".into()],
        ..Policy::default()
    };
    let plan = MountPlan::new(&policy, &facts).unwrap();
    assert_eq!(mount(&plan, "/opt/quackd"), Some(&Mount::Private { mode: 0o700 }));
    assert!(
        plan.shows(Path::new("/opt/quackd/run/s1/x")) && !plan.shows(Path::new("/opt/quackd/x"))
    );
    assert_eq!(mount(&plan, "/home/u/work/ws/.env"), Some(&Mount::Empty));
    assert_eq!(mount(&plan, "/home/u/absent"), None);
}

#[test]
fn pins_in_what_is_hidden_are_left_out() {
    let hidden = ["ws/private", "main/.git/private", "other"];
    let hidden = hidden.map(|name| Path::new("/home/u/work").join(name)).into();
    let policy = Policy { hidden, ..Policy::default() };
    let mut plan = plan(&policy);
    let pin = |at: &str| Pin { at: at.into(), read_only: true };
    let handle = std::fs::File::open("/").unwrap().into();
    let main = git::Main { handle, path: "/home/u/work/main/.git".into() };
    let handle = std::fs::File::open("/").unwrap().into();
    let other = git::Main { handle, path: "/home/u/work/other/.git".into() };
    let protection = crate::confine::git_mounts::Protection {
        pins: vec![pin("/home/u/work/ws/.git/config"), pin("/home/u/work/ws/private/.git/config")],
        repositories: vec![main, other],
        layout: GitLayout::default(),
        git_directories: vec!["/home/u/work/ws/.git".into()],
        troubles: Vec::new(),
        unseen_worktrees: vec![
            "/home/u/work/wt".into(),
            "/srv/wts/b".into(),
            "/home/u/.pyenv/c".into(),
            "/proc/d".into(),
            "/home/u/work/ws/private/e".into(),
        ],
    };
    plan.protect(&protection).unwrap();
    let empty = Mount::File { content: String::new() };
    for (worktree, stands) in [
        ("/home/u/work/wt", true),
        ("/srv/wts/b", true),
        ("/home/u/.pyenv/c", false),
        ("/proc/d", false),
        ("/home/u/work/ws/private/e", false),
    ] {
        let file = format!("{worktree}/.git");
        assert_eq!(mount(&plan, &file), stands.then_some(&empty), "{worktree}");
        assert_eq!(mount(&plan, worktree), stands.then_some(&Mount::Way), "{worktree}");
    }
    let Some(Mount::File { content }) = mount(&plan, "/home/u/.gitconfig") else { panic!() };
    assert!(content.contains("excludesFile") && content.ends_with(git::KEEP_WORKTREES));
    assert!(plan.verified.contains_key(Path::new("/home/u/work/main/.git")));
    assert_eq!(plan.pins, [pin("/home/u/work/ws/.git/config")]);
    assert!(plan.shows(Path::new("/home/u/work/main/.git/HEAD")));
    for closed in ["main/secret", "main/.git/private/x", "other/.git/HEAD"] {
        assert!(!plan.shows(&Path::new("/home/u/work").join(closed)), "{closed}");
    }
}

#[test]
fn places_that_hold_too_much_are_no_workspaces() {
    let refused = [
        "/",
        "/home",
        "/home/u",
        "/home/u/.local",
        "/home/u/.local/state/quackd",
        "/home/u/.local/state/quackd/run/s1",
        "/home/u/.local/state/quackd/run.old-7/s1",
        "/home/u/.local/state/quackd/pi-sessions",
        "/home/u/.local/state/quackd/Sessions/x",
        "/proc/1",
        "/usr",
        "/etc",
        "/tmp",
        "/run",
        "/sys/x",
    ];
    for workspace in refused {
        let mut facts = facts();
        facts.places.workspace = workspace.into();
        let refused = MountPlan::new(&Policy::default(), &facts);
        assert!(matches!(refused, Err(PlanError::Workspace { .. })), "{workspace}");
    }
    for workspace in ["/srv/ws", "/tmp/x", "/opt/x", "/usr/src/x", "/home/u/a", "/home/v"] {
        let mut facts = facts();
        facts.places.workspace = workspace.into();
        assert!(MountPlan::new(&Policy::default(), &facts).is_ok(), "{workspace}");
    }
    let full = Policy { profile: Profile::FullAccess, ..Policy::default() };
    assert_eq!(MountPlan::new(&full, &facts()), Err(PlanError::FullAccess));
}

#[test]
fn a_workspace_in_the_state_directory_shows_nothing_else_of_it() {
    let mut facts = facts();
    facts.places.workspace = "/home/u/.local/state/quackd/ws".into();
    for root in ["/srv/other", "/home/u/.local/state"] {
        let policy = Policy { writable_roots: vec![root.into()], ..Policy::default() };
        let plan = MountPlan::new(&policy, &facts).unwrap();
        let shows = |at: &str| plan.shows(Path::new(at));
        assert!(shows("/home/u/.local/state/quackd/ws/src"), "{root}");
        for own in ["", "/daemon.sock", "/remote-auth-token", "/run/s2", "/ws2"] {
            let own = format!("/home/u/.local/state/quackd{own}");
            assert!(!shows(&own), "{own} beside {root}");
        }
    }
}

#[test]
fn a_workspace_that_is_hidden_is_refused() {
    for hidden in ["/home/u/work/ws", "/home/u/work"] {
        let policy = Policy { hidden: vec![hidden.into()], ..Policy::default() };
        assert!(MountPlan::new(&policy, &facts()).is_err(), "{hidden}");
    }
}

#[test]
fn what_only_leads_to_the_workspace_is_read_only_and_what_programs_write_is_not() {
    let ways = |workspace: &str, roots: &[&str]| {
        let mut facts = facts();
        facts.places.workspace = workspace.into();
        let policy = Policy {
            writable_roots: roots.iter().map(PathBuf::from).collect(),
            ..Policy::default()
        };
        let plan = MountPlan::new(&policy, &facts).unwrap();
        let ways = plan.mounts.into_iter().filter(|(_, mount)| *mount == Mount::Way);
        ways.map(|(at, _)| at.display().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ways("/home/u/work/ws", &[]), ["/home/u/work"]);
    assert_eq!(ways("/home/u/a/b/ws", &[]), ["/home/u/a", "/home/u/a/b"]);
    assert_eq!(ways("/home/u/ws", &[]), [""; 0]);
    assert_eq!(ways("/tmp/t/ws", &[]), ["/tmp/t"]);
    // There the root is read-only.
    assert_eq!(ways("/srv/a/ws", &[]), [""; 0]);
    assert_eq!(ways("/home/u/.config/app/ws", &[]), [""; 0]);
    assert_eq!(ways("/home/u/go/src/ws", &[]), [""; 0]);
    assert_eq!(
        ways("/home/u/a/ws", &["/home/u/a/b/root", "/tmp/t/root"]),
        ["/home/u/a", "/home/u/a/b", "/tmp/t"]
    );
    assert_eq!(ways("/home/u/a/root/b/ws", &["/home/u/a/root"]), ["/home/u/a"]);
}

#[test]
fn kept_caches_get_no_mount_point_in_a_directory_of_the_user() {
    let state = tempfile::tempdir().unwrap();
    let directory = CacheDirectory::open_blocking(state.path()).unwrap();
    let missing = [
        "/home/u/.npm/_cacache",
        "/home/u/.pyenv/cache",
        "/home/u/own/cache",
        "/home/u/work",
        "/home/u/secret/cache",
        "/elsewhere",
    ];
    let policy = Policy {
        writable_roots: vec!["/home/u/own".into()],
        hidden: vec!["/home/u/secret".into()],
        ..Policy::default()
    };
    let mut plan = plan(&policy);
    plan.keep_caches(&directory, &missing.map(PathBuf::from)).unwrap();
    let kept = plan.mounts.iter().filter(|(_, mount)| **mount == Mount::Kept).map(|(at, _)| at);
    assert_eq!(kept.collect::<Vec<_>>(), [Path::new("/home/u/.npm/_cacache")]);
    // Only one worker has the directory, and the next one when that is gone.
    let again = CacheDirectory::open_blocking(state.path());
    assert!(matches!(again, Err(CacheDirectoryError::InUse)));
    directory.release_blocking();
    assert!(CacheDirectory::open_blocking(state.path()).is_ok());
}

#[test]
fn state_of_agents_is_only_at_free_places_of_the_private_home() {
    let policy = Policy {
        writable_roots: vec!["/home/u/.codex".into()],
        hidden: vec!["/home/u/.qwen/secret".into(), "/home/u/.config".into()],
        ..Policy::default()
    };
    let mut plan = plan(&policy);
    let mut keep = |at: &str| plan.keep_agent(Path::new(at), PathBuf::from("/state").join(at));
    assert!(keep(".claude"));
    // Twice, in a root of the policy, hidden, around something hidden, and in a directory of the user.
    for taken in [".claude", ".codex", ".codex/in", ".config/opencode", ".qwen", ".pyenv/x", "work"]
    {
        assert!(!keep(taken), "{taken}");
    }

    let from = PathBuf::from("/state/.claude");
    let expected = Mount::Bind { from, writable: true, is_directory: true, required: false };
    assert_eq!(plan.mounts.get(Path::new("/home/u/.claude")), Some(&expected));
    let kept = plan.mounts.values().filter(|mount| match mount {
        Mount::Bind { from, .. } => from.starts_with("/state"),
        _ => false,
    });
    assert_eq!(kept.count(), 1);
}
