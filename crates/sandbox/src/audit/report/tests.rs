//! Tests of audits with constructed trees.

use super::*;
use quackd_protocol::client::RepositoryKind;
use quackd_testkit::TestDir;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::UNIX_EPOCH;

struct World(TestDir);

impl World {
    fn new() -> Self {
        Self(TestDir::empty())
    }

    fn path(&self) -> PathBuf {
        self.0.to_path_buf()
    }

    fn write(&self, path: &str, text: &str) {
        self.0.write(path, text);
    }

    fn git(&self, at: &str, config: &str) {
        for directory in ["objects", "refs", "hooks"] {
            fs::create_dir_all(self.path().join(at).join(directory)).unwrap();
        }
        self.write(&format!("{at}/HEAD"), "ref: refs/heads/main\n");
        self.write(&format!("{at}/config"), config);
    }

    fn hook(&self, path: &str) {
        self.write(path, "#!/bin/sh\n");
        fs::set_permissions(self.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn begin(&self) -> Snapshot {
        let root = fs::File::open(self.path()).unwrap();
        Snapshot::take_blocking(&root, &self.path(), None).unwrap()
    }

    fn audit(&self, snapshot: Option<&Snapshot>) -> Report {
        self.audit_since(snapshot, None)
    }

    fn audit_since(&self, snapshot: Option<&Snapshot>, since: Option<Duration>) -> Report {
        let budget = Budget { entries: 100_000, until: Instant::now() + Duration::from_secs(20) };
        let root = fs::File::open(self.path()).unwrap();
        audit_blocking(&root, &self.path(), Before { snapshot, since }, budget).unwrap()
    }

    /// Returns a time after the last change of all files, by the clock of the file system.
    fn later(&self) -> Duration {
        let time = || {
            self.write("clock", "x");
            let clock = fs::metadata(self.path().join("clock")).unwrap();
            let nanoseconds = u32::try_from(clock.ctime_nsec()).unwrap();
            Duration::new(clock.ctime().unsigned_abs(), nanoseconds)
        };
        let now = time();
        std::iter::repeat_with(time).find(|later| now < *later).unwrap()
    }
}

/// `path state: file key=value`, one line each.
fn told(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    for one in &report.repositories {
        let head = format!("{} {:?}", one.path, one.state);
        if one.commands.is_empty() {
            lines.push(head.clone());
        }
        for command in &one.commands {
            lines.push(format!("{head}: {} {}={}", command.file, command.key, command.value));
        }
    }
    lines
}

const PLAIN: &str = "[core]\n\tbare = false\n[remote \"origin\"]\n\turl = https://h/r\n";

#[test]
fn what_was_there_is_no_news_and_what_came_is() {
    let world = World::new();
    world.git(".git", "[core]\nhooksPath = .husky\n");
    world.hook(".git/hooks/pre-commit");
    let start = world.begin();
    let report = world.audit(Some(&start));
    assert_eq!((report.found, report.complete), (0, true));
    let known =
        [".git Same: .git/config core.hooksPath=.husky", ".git Same: .git/hooks/pre-commit hook="];
    assert_eq!(told(&report), known);
    // Changes that a commit makes.
    world.write(".git/objects/ab/cd", "x");
    world.write(".git/refs/heads/main", "x");
    world.write(".git/index", "x");
    assert_eq!(world.audit(Some(&start)), Report { entries: report.entries, ..report.clone() });
    world.git("x/.git", "[core]\nfsmonitor = evil\n");
    world.git("y/.git", PLAIN);
    let report = world.audit(Some(&start));
    assert_eq!(report.found, 1);
    assert_eq!(told(&report)[0], "x/.git New: x/.git/config core.fsmonitor=evil");
    assert_eq!(told(&report)[3], "y/.git New");
}

#[test]
fn a_repository_that_is_changed_is_found_also_by_hooks_and_a_waiting_rebase() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.git(&format!("{name}/.git"), PLAIN);
    }
    let start = world.begin();
    world.hook("a/.git/hooks/pre-commit");
    world.write("a/.git/hooks/pre-push.sample", "x");
    world.write("b/.git/rebase-merge/git-rebase-todo", "pick 1 a\nexec rm -rf ~\nx  second\n");
    // Placeholders and non-executable hooks do not count.
    world.write("c/.git/commondir", ".\n");
    world.write("c/.git/config.worktree", "");
    world.write("c/.git/hooks/README", "x");
    let report = world.audit(Some(&start));
    assert_eq!(report.found, 2);
    let expected = [
        "a/.git Changed: a/.git/hooks/pre-commit hook=",
        "b/.git Changed: b/.git/rebase-merge/git-rebase-todo exec=rm -rf ~",
        "b/.git Changed: b/.git/rebase-merge/git-rebase-todo exec=second",
    ];
    assert_eq!(told(&report), expected);
}

#[test]
fn a_directory_that_git_takes_for_a_repository_is_found_whenever_it_came() {
    let world = World::new();
    world.git("docs/old", "[core]\nfsmonitor=evil\n");
    world.git("plain", PLAIN);
    let start = world.begin();
    world.git("docs/new", "[diff]\nexternal=evil\n");
    // A `commondir` file replaces the two directories.
    world.write("short/HEAD", "ref: refs/heads/main\n");
    world.write("short/commondir", "../docs/elsewhere\n");
    world.write("docs/elsewhere/config", "[alias]\nx=!evil\n");
    let report = world.audit(Some(&start));
    assert_eq!(report.found, 3);
    let expected = [
        "docs/new New: docs/new/config diff.external=evil",
        "short New: short/commondir commondir=../docs/elsewhere",
        "short New: docs/elsewhere/config alias.x=!evil",
        "docs/old Same: docs/old/config core.fsmonitor=evil",
    ];
    assert_eq!(told(&report), expected);
    assert!(report.repositories.iter().all(|one| one.kind == RepositoryKind::Bare));
}

#[test]
fn a_git_file_is_followed_inside_and_told_if_it_leads_out() {
    let world = World::new();
    world.git(".git", "[core]\npager=mine\n");
    let start = world.begin();
    // As `git worktree add` does it.
    world.write(".git/worktrees/w/commondir", "../..\n");
    world.write(".git/worktrees/w/gitdir", "x");
    world.write("w/.git", &format!("gitdir: {}/.git/worktrees/w\n", world.path().display()));
    assert_eq!(world.audit(Some(&start)).found, 0);
    world.write("out/.git", "gitdir: /somewhere/else\n");
    world.write("in/.git", "gitdir: ../store\n");
    world.write("store/config", "[core]\nsshCommand=evil\n");
    let report = world.audit(Some(&start));
    assert_eq!(report.found, 2);
    let lines = told(&report);
    assert!(lines.contains(&"out/.git New: out/.git gitdir=/somewhere/else".to_owned()));
    assert!(lines.contains(&"in/.git New: store/config core.sshCommand=evil".to_owned()));
}

#[test]
fn nothing_is_hidden_by_a_link_or_by_its_size() {
    let world = World::new();
    let start = world.begin();
    world.git("a/.git", "");
    fs::remove_file(world.path().join("a/.git/config")).unwrap();
    symlink("../../settings", world.path().join("a/.git/config")).unwrap();
    let padding = "# x\n".repeat(70_000);
    world.git("b/.git", &format!("{padding}[core]\nfsmonitor=evil\n"));
    let padding = "[a]\nb\n".repeat(5000);
    world.git("c/.git", &format!("{padding}[core]\nfsmonitor=evil\n"));
    symlink("a/.git", world.path().join("d.git")).unwrap();
    fs::create_dir(world.path().join("d")).unwrap();
    symlink("../a/.git", world.path().join("d/.git")).unwrap();
    let report = world.audit(Some(&start));
    let mut lines = told(&report);
    lines.sort();
    let expected = [
        "a/.git New: a/.git/config link=is a link, which is not followed here, and git follows it",
        "b/.git New: b/.git/config size=is too large to be read here, and git reads it",
        "c/.git New: c/.git/config settings=has more settings than are read",
        "d/.git New: d/.git link=is no file and no directory",
    ];
    assert_eq!(lines, expected);
    assert_eq!(planted(&report), ["a/.git/config Link", "d/.git/config Link"]);
    assert_eq!(report.found, 6);
}

fn planted(report: &Report) -> Vec<String> {
    let mut lines: Vec<_> =
        report.planted.iter().map(|one| format!("{} {:?}", one.path, one.kind)).collect();
    lines.sort();
    lines
}

fn fifo(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRUSR).unwrap();
}

#[test]
fn what_git_would_write_through_is_found_at_every_place_and_ordinary_things_are_not() {
    let world = World::new();
    world.git(".git", PLAIN);
    // Ordinary: a hook that is a link, an editor's lock, a submodule and branches with such names, and objects that
    // a clone shares.
    symlink("../../tools/hook", world.path().join(".git/hooks/pre-push")).unwrap();
    symlink("me@host.1", world.path().join(".git/.#COMMIT_EDITMSG")).unwrap();
    world.git(".git/modules/index", PLAIN);
    world.write(".git/refs/heads/HEAD/config", "0");
    world.write(".git/objects/aa/bb", "x");
    fs::hard_link(world.path().join(".git/objects/aa/bb"), world.path().join("kept")).unwrap();
    let start = world.begin();
    assert_eq!(planted(&world.audit(Some(&start))), [""; 0]);
    for (name, to) in [
        (".git/COMMIT_EDITMSG", "config"),
        (".git/logs/refs/remotes/o/x", "/etc/passwd"),
        (".git/modules/index/logs/HEAD", "../config"),
        (".git/modules/a/b/HEAD", "x"),
        (".git/objects/ab", "../.."),
        (".git/objects/info/alternates", "x"),
        (".git/worktrees/w/HEAD", "../../config"),
        ("sources/HEAD", "../README"),
        ("sources/lib.rs", "../lib.rs"),
    ] {
        let path = world.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }
    // `sources` only looks like a repository: other names in it do not count.
    for directory in
        ["sources/objects", "sources/refs", ".git/index", ".git/logs/HEAD", ".git/info"]
    {
        fs::create_dir_all(world.path().join(directory)).unwrap();
    }
    fifo(&world.path().join(".git/info/x"));
    drop(std::os::unix::net::UnixListener::bind(world.path().join(".git/MERGE_MSG")).unwrap());
    fs::hard_link(world.path().join("kept"), world.path().join(".git/packed-refs")).unwrap();
    let report = world.audit(Some(&start));
    let expected = [
        ".git/COMMIT_EDITMSG Link",
        ".git/MERGE_MSG Socket",
        ".git/index Directory",
        ".git/info/x Fifo",
        ".git/logs/HEAD Directory",
        ".git/logs/refs/remotes/o/x Link",
        ".git/modules/a/b/HEAD Link",
        ".git/modules/index/logs/HEAD Link",
        ".git/objects/ab Link",
        ".git/objects/info/alternates Link",
        ".git/packed-refs HardLink",
        ".git/worktrees/w/HEAD Link",
        "sources/HEAD Link",
    ];
    assert_eq!(planted(&report), expected);
    assert!(expected.len() <= report.found, "{}", report.found);
}

#[test]
fn a_sweep_removes_links_and_special_files_that_are_new_and_nothing_else() {
    let world = World::new();
    world.git(".git", PLAIN);
    symlink("config", world.path().join(".git/MERGE_MSG")).unwrap();
    let start = world.begin();
    let sweep = |removes: bool| {
        let root = fs::File::open(world.path()).unwrap();
        let swept = start
            .check_blocking(&start.unchecked(), &root, &world.path(), removes.then_some(UNIX_EPOCH))
            .unwrap()
            .unwrap()
            .planted;
        let words = |one: &quackd_protocol::client::AuditPlanted| {
            format!("{} {:?} {}", one.path, one.kind, one.removed)
        };
        let mut lines: Vec<_> = swept.iter().map(words).collect();
        lines.sort();
        lines
    };
    assert_eq!(sweep(true), [""; 0]);
    symlink("config", world.path().join(".git/COMMIT_EDITMSG")).unwrap();
    world.git("new/deep/.git", PLAIN);
    fs::create_dir(world.path().join("new/deep/.git/logs")).unwrap();
    fifo(&world.path().join("new/deep/.git/logs/HEAD"));
    fs::create_dir(world.path().join(".git/index")).unwrap();
    world.write(".git/HEAD", "another");
    fs::hard_link(world.path().join(".git/HEAD"), world.path().join(".git/ORIG_HEAD")).unwrap();
    let names = [".git/COMMIT_EDITMSG Link", "new/deep/.git/logs/HEAD Fifo"];
    assert_eq!(sweep(false), names.map(|name| format!("{name} false")));
    assert_eq!(sweep(true), names.map(|name| format!("{name} true")));
    assert_eq!(sweep(true), [""; 0]);
    for stays in
        [".git/MERGE_MSG", ".git/index", ".git/HEAD", ".git/ORIG_HEAD", "new/deep/.git/HEAD"]
    {
        assert!(fs::symlink_metadata(world.path().join(stays)).is_ok(), "{stays}");
    }
    // Known names come first.
    world.git("many/.git", PLAIN);
    for n in 0..2000 {
        world.write(&format!("many/.git/{n}"), "");
    }
    symlink("config", world.path().join("many/.git/TAG_EDITMSG")).unwrap();
    world.git("kind", PLAIN);
    symlink("config", world.path().join("kind/FETCH_HEAD")).unwrap();
    fs::create_dir(world.path().join("linked")).unwrap();
    symlink("../kind", world.path().join("linked/.git")).unwrap();
    assert_eq!(sweep(true), ["many/.git/TAG_EDITMSG Link true"]);
    // Git no longer follows the link, because it has another name.
    assert!(fs::symlink_metadata(world.path().join("linked/.git")).is_err());
    assert!(fs::symlink_metadata(world.path().join("linked/.git.set-aside")).is_ok());
    // A new link with an old name is new.
    fs::remove_file(world.path().join(".git/MERGE_MSG")).unwrap();
    fs::write(world.path().join("holds the number"), "").unwrap();
    symlink("config", world.path().join(".git/MERGE_MSG")).unwrap();
    assert_eq!(sweep(true), [".git/MERGE_MSG Link true"]);
}

#[test]
fn what_is_told_is_bounded_and_steers_nothing() {
    let world = World::new();
    let start = world.begin();
    let many = "[core]\npager = \"\u{1b}[31mx\"\n".repeat(500);
    world.git("a\u{1b}b/.git", &many);
    for n in 0..200 {
        world.git(&format!("many/{n}/.git"), PLAIN);
    }
    let report = world.audit(Some(&start));
    assert_eq!((report.repositories.len(), report.not_listed), (MAX_LISTED, 137));
    let first = &report.repositories[0];
    assert_eq!(first.path, "a\u{fffd}b/.git");
    assert_eq!(first.commands.len(), 33);
    assert_eq!(first.commands[0].value, "\u{fffd}[31mx");
    assert_eq!(first.commands[32].value, "468 more");
}

#[test]
fn an_audit_that_could_not_see_all_says_so() {
    let world = World::new();
    for n in 0..50 {
        world.write(&format!("d{n}/e/f"), "");
    }
    let start = world.begin();
    let root = fs::File::open(world.path()).unwrap();
    let report = |entries, until| {
        let budget = Budget { entries, until };
        let before = Before { snapshot: Some(&start), since: None };
        audit_blocking(&root, &world.path(), before, budget).unwrap()
    };
    let later = Instant::now() + Duration::from_secs(20);
    assert!(report(100_000, later).complete);
    assert!(!report(0, later).complete);
    // Without a snapshot no repository is reported as unchanged.
    assert!(!world.audit(None).complete);
    world.git(".git", "[core]\npager=mine\n");
    assert_eq!(world.audit(None).found, 1);
}

#[test]
fn names_that_programs_obey_are_found_at_any_depth() {
    let world = World::new();
    world.write("a/b/c/d/.envrc", "x");
    world.write("a/b/c/d/mise.toml", "x");
    let before = world.begin();
    assert_eq!(world.audit(Some(&before)).found, 0);
    world.write("a/b/c/d/.envrc", "other");
    world.write("a/b/c/d/.hg/hgrc", "x");
    world.write("a/b/c/d/eslint.config.js", "x");
    world.write("a/b/c/d/venv/x", "at the top only");
    world.write("node_modules/p/.pi/x", "of a package");
    fs::remove_file(world.path().join("a/b/c/d/mise.toml")).unwrap();
    let report = world.audit(Some(&before));
    let files: Vec<_> =
        report.files.iter().map(|one| format!("{} {}", one.path, one.change.name())).collect();
    let expected = [
        "a/b/c/d/.envrc changed",
        "a/b/c/d/.hg/hgrc made",
        "a/b/c/d/eslint.config.js made",
        "a/b/c/d/mise.toml removed",
    ];
    assert_eq!((files.as_slice(), report.found), (&expected.map(str::to_owned)[..], 4));
}

#[test]
fn changes_of_earlier_workers_are_found_by_their_times() {
    let world = World::new();
    world.git(".git", "[core]\npager = mine\n");
    world.git("x/.git", PLAIN);
    world.write(".envrc", "mine");
    world.write(".vscode/settings.json", "{}");
    world.write("package.json", r#"{"name": "a"}"#);
    let since = world.later();
    assert_eq!(world.audit_since(None, Some(since)).found, 0);
    assert!(world.audit_since(None, Some(since)).complete);

    world.write("x/.git/config", "[core]\nfsmonitor = evil\n");
    world.write(".vscode/settings.json", "{ }");
    world.write("a/b/c/.envrc", "deep");
    world.write("package.json", r#"{"name": "b"}"#);
    let again = world.begin();
    assert_eq!(world.audit(Some(&again)).found, 0);
    for snapshot in [Some(&again), None] {
        let report = world.audit_since(snapshot, Some(since));
        let changed: Vec<_> =
            report.files.iter().map(|one| format!("{} {}", one.path, one.change.name())).collect();
        assert_eq!(changed, [".vscode/settings.json changed", "a/b/c/.envrc changed"]);
        let repositories = [
            "x/.git Changed: x/.git/config core.fsmonitor=evil",
            ".git Same: .git/config core.pager=mine",
        ];
        assert_eq!(
            (told(&report).as_slice(), report.found),
            (&repositories.map(str::to_owned)[..], 3)
        );
        assert!(report.complete);
    }
    // A change of this worker is reported once, as the snapshot has it.
    world.write(".vscode/tasks.json", "{}");
    let report = world.audit_since(Some(&again), Some(since));
    assert!(files(&report).iter().any(|line| line.starts_with(".vscode/tasks.json made: ")));
    assert!(files(&report).iter().all(|line| !line.starts_with(".vscode changed")));
}

#[test]
fn the_report_of_another_directory_has_absolute_paths() {
    let world = World::new();
    world.git(".git", "[core]\npager = mine\n");
    let start = world.begin();
    let mut report = world.audit(Some(&start));
    let other = World::new();
    let since = Some(other.later());
    other.write(".envrc", "x");
    other.git(".git", "[core]\nfsmonitor = evil\n");
    symlink("/etc/passwd", other.path().join(".git/COMMIT_EDITMSG")).unwrap();
    add_report(&mut report, &other.path(), other.audit_since(None, since));
    let at = other.path().to_string_lossy().into_owned();
    let path = format!("{at}/.git");
    assert_eq!(report.files[0].path, format!("{at}/.envrc"));
    assert_eq!(planted(&report), [format!("{path}/COMMIT_EDITMSG Link")]);
    assert_eq!(
        told(&report),
        [
            format!("{path} Changed: {path}/config core.fsmonitor=evil"),
            ".git Same: .git/config core.pager=mine".to_owned()
        ]
    );
    assert_eq!((report.found, report.complete), (3, true));
}

/// `path change: why` of each changed file.
fn files(report: &Report) -> Vec<String> {
    let line =
        |one: &crate::audit::Change| format!("{} {}: {}", one.path, one.change.name(), one.why);
    report.files.iter().map(line).collect()
}

#[test]
fn names_in_a_git_directory_that_git_does_not_write_are_found_also_in_linked_ones() {
    let world = World::new();
    world.git(".git", PLAIN);
    world.git(".git/modules/m", PLAIN);
    world.write("m/.git", "gitdir: ../.git/modules/m\n");
    world.write(".git/worktrees/w/HEAD", "ref: refs/heads/w\n");
    world.write(".git/worktrees/w/commondir", "../..\n");
    world.write(".git/old.yml", "x");
    let start = world.begin();
    assert_eq!(world.audit(Some(&start)).found, 0);
    world.write(".git/ORIG_HEAD", "0");
    world.write(".git/index.lock", "");
    assert_eq!(world.audit(Some(&start)).found, 0);
    world.write(".git/lazygit.yml", "x");
    world.write(".git/old.yml", "xy");
    world.write(".git/modules/m/tool.json", "x");
    world.write(".git/worktrees/w/lazygit.yml", "x");
    let why = "is in a git directory, and git does not write it";
    let expected = [
        ".git/lazygit.yml made",
        ".git/modules/m/tool.json made",
        ".git/old.yml changed",
        ".git/worktrees/w/lazygit.yml made",
    ];
    let report = world.audit(Some(&start));
    assert_eq!(files(&report), expected.map(|name| format!("{name}: {why}")));
    // A remote in an old format is one thing more.
    world.write(".git/modules/m/branches/x", "/tmp/evil\n");
    let report = world.audit(Some(&start));
    assert!(
        told(&report)
            .contains(&"m/.git Changed: .git/modules/m/branches/x remote=/tmp/evil".to_owned())
    );
    assert!(files(&report).iter().any(|line| line.starts_with(".git/modules/m/branches made")));
}

#[test]
fn repositories_inside_of_git_directories_are_found() {
    let world = World::new();
    world.git(".git", PLAIN);
    world.git(".git/modules/m", PLAIN);
    world.write("m/.git", "gitdir: ../.git/modules/m\n");
    world.write(".git/worktrees/w/HEAD", "ref: refs/heads/w\n");
    world.write(".git/worktrees/w/commondir", "../..\n");
    world.git(".git/modules/unused", "[core]\npager=mine\n");
    // A repository that is as new as the start may be later than it.
    let limit = Instant::now() + Duration::from_secs(20);
    let mut start = world.begin();
    while world.audit(Some(&start)).found != 0 {
        assert!(Instant::now() < limit, "an old repository counts as new");
        start = world.begin();
    }
    let places = [
        ".git/lfs/a",
        ".git/modules/m/b",
        ".git/modules/new",
        ".git/objects/ab/c",
        ".git/worktrees/w/d",
        ".git/worktrees/e",
        "node_modules/p/f",
    ];
    for place in places {
        world.git(place, PLAIN);
        world.hook(&format!("{place}/hooks/pre-receive"));
    }
    let report = world.audit(Some(&start));
    // Two of them are also unknown names in a git directory.
    assert_eq!((report.found, report.complete), (places.len() + 2, true));
    for place in places {
        let line = format!("{place} New: {place}/hooks/pre-receive hook=");
        assert!(told(&report).contains(&line), "{line}: {:?}", told(&report));
    }
}

#[test]
fn keys_of_a_manifest_and_files_that_settings_name_are_compared() {
    let world = World::new();
    world.write("package.json", r#"{"name": "a"}"#);
    world.write("a/.prettierrc", r#"{"plugins": ["./tools/p", "../q.cjs", "missing.js"]}"#);
    world.git(".git", PLAIN);
    world.write(".git/hooks/pre-commit", "#!/bin/sh\nexec ./scripts/check.sh\n");
    for name in ["a/tools/p.js", "q.cjs", "other.js", "pkg/x.js", "scripts/check.sh"] {
        world.write(name, "x");
    }
    world.write("pkg/package.json", r#"{"prettier": {"plugins": ["./x.js"]}}"#);
    world.write("AGENTS.md", "Edit `other.js`.");
    let start = world.begin();
    world.write(
        "package.json",
        r#"{"name": "b", "dependencies": {"x": "1"}, "scripts": {"t": "y"}}"#,
    );
    world.write("other.js", "y");
    world.write("new/package.json", "{}");
    assert_eq!(world.audit(Some(&start)).found, 0);
    for name in ["a/tools/p.js", "q.cjs", "pkg/x.js", "scripts/check.sh"] {
        world.write(name, "another");
    }
    world.write("package.json", r#"{"name": "b", "babel": {"plugins": ["./b.js"]}}"#);
    world.write("new/package.json", r#"{"scripts": {"prepare": "./evil"}}"#);
    let keys = "has keys that name programs for tools to run";
    let expected = [
        "a/tools/p.js changed: is named by a/.prettierrc".to_owned(),
        format!("new/package.json made: {keys}"),
        format!("package.json changed: {keys}"),
        "pkg/x.js changed: is named by pkg/package.json".to_owned(),
        "q.cjs changed: is named by a/.prettierrc".to_owned(),
        "scripts/check.sh changed: is named by .git/hooks/pre-commit".to_owned(),
    ];
    assert_eq!(files(&world.audit(Some(&start))), expected);
}

#[test]
fn settings_files_of_unknown_programs_are_found_near_the_top() {
    let world = World::new();
    world.write("a/.known.yml", "x");
    let start = world.begin();
    for name in
        ["newrc.yml", ".newtool", "a/new.config.js", "a/.newdir/x", "src/.gitkeep", "a/b/.deep"]
    {
        world.write(name, "x");
    }
    world.write("a/.known.yml", "another");
    let report = world.audit(Some(&start));
    let names: Vec<_> =
        report.files.iter().map(|one| format!("{} {}", one.path, one.change.name())).collect();
    let expected = [
        ".newtool made",
        "a/.known.yml changed",
        "a/.newdir made",
        "a/new.config.js made",
        "newrc.yml made",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_check_is_skipped_only_while_nothing_changed_that_the_last_one_has_read() {
    let world = World::new();
    world.git(".git", PLAIN);
    world.git("sub/.git", PLAIN);
    world.write(".git/logs/HEAD", "");
    world.write("src/main.rs", "");
    world.write(".envrc", "abc");
    let start = world.begin();
    let root = fs::File::open(world.path()).unwrap();
    let mut last = start.unchecked();
    let check = |last: &mut crate::audit::Checked| {
        let checked = start.check_blocking(last, &root, &world.path(), Some(UNIX_EPOCH)).unwrap();
        let is_skipped = checked.is_none();
        checked.into_iter().for_each(|now| *last = now.checked);
        is_skipped
    };
    let limit = Instant::now() + Duration::from_secs(20);
    let changes: [&dyn Fn(); 5] = [
        &|| world.write("new.rs", ""),
        &|| world.write(".git/logs/x", ""),
        &|| symlink("x", world.path().join("sub/.git/FETCH_HEAD")).unwrap(),
        &|| world.write(".envrc", "xyz"),
        &|| fs::remove_dir_all(world.path().join("src")).unwrap(),
    ];
    for change in changes {
        // The time of a new directory may be equal for two changes.
        while !check(&mut last) {
            assert!(Instant::now() < limit, "no check is ever skipped");
        }
        assert!(check(&mut last), "nothing changed");
        change();
        assert!(!check(&mut last), "something changed");
    }
}

#[test]
fn a_check_neither_reports_nor_changes_hidden_paths() {
    let world = World::new();
    let root = crate::Root::open(&world.path()).unwrap();
    let root = root.with_hidden(&[world.path().join("secret")]);
    let start = world.begin().hiding(&root);
    let settings = "[core]\n\tfsmonitor = evil\n";
    for at in ["secret", "shown"] {
        world.git(&format!("{at}/.git"), settings);
        world.write(&format!("{at}/.envrc"), "x");
        symlink("config", world.path().join(at).join(".git/MERGE_MSG")).unwrap();
    }
    // This leads to the hidden repository.
    world.write("lead/.git", "gitdir: ../secret/.git\n");

    let handle = fs::File::open(world.path()).unwrap();
    let before = start.unchecked();
    let found = start.check_blocking(&before, &handle, &world.path(), Some(UNIX_EPOCH));
    let found = found.unwrap().unwrap();
    let changes = before.changes(&found.checked).into_iter().map(|one| one.path).collect();
    let planted = found.planted.into_iter().map(|one| one.path).collect();
    let set_aside = found.set_aside.into_iter().map(|one| one.path).collect();
    let lists: [(Vec<String>, &str); 3] = [
        (changes, "shown/.envrc"),
        (planted, "shown/.git/MERGE_MSG"),
        (set_aside, "shown/.git/config"),
    ];
    for (paths, shown) in lists {
        assert!(paths.iter().any(|path| path == shown), "{shown}: {paths:?}");
        assert!(paths.iter().all(|path| !path.contains("secret")), "{paths:?}");
    }
    let config = fs::read_to_string(world.path().join("secret/.git/config")).unwrap();
    assert_eq!(config, settings);
    assert!(world.path().join("secret/.git/MERGE_MSG").is_symlink());
}
