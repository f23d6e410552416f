//! Attacks through files that other programs of the user run because something names them: git's configuration, a
//! settings file, a manifest, or a name in a git directory. The user's own git runs outside.

use crate::harness::{Daemon, Session, program, write_file};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A daemon, a repository of the user, and the variables of the user's shell.
struct World {
    daemon: Daemon,
    repo: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl World {
    #[track_caller]
    fn new() -> Self {
        let mut daemon = Daemon::absent();
        let repo = daemon.repo("repo").path().to_owned();
        fs::remove_dir(repo.join(".git")).unwrap();
        let home = daemon.home().to_owned();
        let at = |name: &str| home.join(name).display().to_string();
        let variables = vec![
            ("XDG_CONFIG_HOME", at("xdg")),
            ("GIT_CONFIG_GLOBAL", at("global")),
            ("GIT_CONFIG_SYSTEM", at("system")),
        ];
        let mut args: Vec<String> =
            variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        args.extend([env!("CARGO_BIN_EXE_quack").to_owned(), "daemon".to_owned()]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        daemon.boot_with("/usr/bin/env", &args);
        let world = Self { daemon, repo, variables };
        world.write_home("global", "[user]\nname=a\nemail=a@b\n[maintenance]\nauto=false\n");
        world.git(&["init", "-q", "-b", "main"]);
        world.git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        world
    }

    fn write_home(&self, name: &str, text: &str) {
        write_file(self.daemon.home().join(name), text);
    }

    fn write(&self, name: &str, text: &str) {
        write_file(self.repo.join(name), text);
    }

    fn program(&self, name: &str) {
        self.write(name, "#!/bin/sh\ncat\n");
        fs::set_permissions(self.repo.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the user's git outside of sessions.
    fn git(&self, args: &[&str]) {
        self.git_at(&self.repo, args);
    }

    fn git_at(&self, at: &Path, args: &[&str]) {
        let mut command = program("git");
        command.args(args).current_dir(at).env("HOME", self.daemon.home());
        command.envs(self.variables.iter().cloned()).env("GIT_ALLOW_PROTOCOL", "file");
        command.output().expect("run git");
    }

    /// Shell command that replaces the program `name` by one that leaves a mark.
    fn plant(&self, name: &str) -> String {
        let mark = self.daemon.home().join("ran");
        format!(
            "mkdir -p $(dirname {name}); printf '#!/bin/sh\\necho {name} >> {}\\ncat\\n' > {name}; \
             chmod +x {name}\n",
            mark.display()
        )
    }

    /// Names of the planted programs that the user's git has run.
    fn ran(&self) -> Vec<String> {
        let text = fs::read_to_string(self.daemon.home().join("ran")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn audit(&self) -> (Option<i32>, String) {
        let ran = self.daemon.quack(&["sandbox", "audit", "-C", self.repo.to_str().unwrap()]);
        (ran.code(), ran.stdout())
    }

    /// Fails the test unless the answer or the audit has the name.
    #[track_caller]
    fn assert_told(&self, answer: &str, name: &str) {
        let (code, audit) = self.audit();
        let lines = |text: &str| text.lines().any(|line| line.contains(name));
        let in_answer =
            answer.lines().any(|line| line.starts_with("[Sandbox: ") && line.contains(name));
        assert!(in_answer || (code == Some(1) && lines(&audit)), "{name}: {answer}\n{audit}");
    }
}

/// A command of a confined session, with errors.
#[track_caller]
fn bash(session: &Session<'_>, command: &str) -> String {
    session.bash(&format!("{{ {command}\n}} 2>&1"))
}

#[test]
fn a_program_that_any_scope_of_the_configuration_names_is_held_or_told() {
    let world = World::new();
    let repo = world.repo.display().to_string();
    for name in ["fsm", "clean", "conv.py", "hooks/pre-commit", "words", "path", "ext"] {
        world.program(&format!("tools/{name}"));
    }
    // The include and the condition have relative files, and the condition need not be true.
    world.write_home(
        "global",
        "[user]\nname=a\nemail=a@b\n[maintenance]\nauto=false\n[include]\npath=more\n\
         [includeIf \"onbranch:later\"]\npath=branch\n",
    );
    world
        .write_home("more", "[filter \"f\"]\nclean=./tools/clean\n[core]\nfsmonitor=./tools/fsm\n");
    world.write_home("branch", "[diff]\nexternal=./tools/ext\n");
    world.write_home("system", "[core]\nhooksPath=tools/hooks\n");
    world.write_home("xdg/git/config", "[alias]\nw=!sh ./tools/words\n");
    world.write_home(
        ".gitconfig",
        &format!("[alias]\np=!{repo}/tools/path\n[diff \"later\"]\ntextconv=./tools/later\n"),
    );
    world.git(&["config", "diff.d.textconv", "python3 tools/conv.py"]);
    world.write(".gitattributes", "*.c filter=f diff=d\n");
    world.write("a.c", "a\n");
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "second"]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let names = [
        "tools/fsm",
        "tools/clean",
        "tools/conv.py",
        "tools/hooks/pre-commit",
        "tools/hooks/post-commit",
        "tools/words",
        "tools/path",
        "tools/ext",
    ];
    let planted: String = names.iter().map(|name| world.plant(name)).collect();
    let answer = bash(&session, &format!("{planted} echo b >> a.c"));
    let later = bash(&session, &world.plant("tools/later"));
    assert!(later.contains("[Sandbox: tools/later was made"), "{later}");
    for args in [
        &["status", "--short"][..],
        &["diff"],
        &["add", "."],
        &["commit", "-q", "-m", "third"],
        &["w"],
        &["p"],
        &["log", "-p", "-1"],
    ] {
        world.git(args);
    }
    for name in world.ran() {
        world.assert_told(&answer, &name);
    }
    // The audit names the setting of a program that cannot be held, as in tier D.
    let (code, audit) = world.audit();
    assert_eq!(code, Some(1), "{audit}");
    assert!(audit.contains("tools/later was made: it is named by diff.later.textconv"), "{audit}");
}

#[test]
fn a_directory_above_a_named_program_is_not_replaced_unseen() {
    let world = World::new();
    world.program("tools/bin/fsm");
    world.write("other/x", "");
    world.git(&["config", "core.fsmonitor", "./tools/bin/fsm"]);
    world.git(&["config", "core.editor", "./other/bin/edit"]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let plant = world.plant("tools/bin/fsm");
    let answer = bash(&session, &format!("mv tools gone; {plant} true"));
    world.git(&["status", "--short"]);
    for name in world.ran() {
        world.assert_told(&answer, &name);
    }
    let answer = bash(&session, &format!("mv other gone2; {} true", world.plant("other/bin/edit")));
    assert!(answer.contains("[Sandbox: other/bin/edit was made"), "{answer}");
    // The audit has the state of each program that an unchanged setting names.
    let (_, audit) = world.audit();
    let expected = ".git/config  core.editor = ./other/bin/edit\n    other/bin/edit  made";
    assert!(audit.contains(expected), "{audit}");
}

#[test]
fn a_program_that_the_user_changes_outside_is_in_the_audit() {
    let world = World::new();
    world.program("tools/fsm");
    world.git(&["config", "core.fsmonitor", "./tools/fsm"]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    bash(&session, "true");
    let (code, audit) = world.audit();
    assert!(code == Some(0) && audit.contains("    tools/fsm  unchanged"), "{audit}");
    world.write("tools/fsm", "#!/bin/sh\nexit 1\n");
    let (code, audit) = world.audit();
    assert!(code == Some(1) && audit.contains("    tools/fsm  changed"), "{audit}");
    assert!(audit.contains("tools/fsm was changed: it is named by core.fsmonitor"), "{audit}");
}

/// Shell command that makes a bare repository with a hook that leaves a mark, as a remote of an old format.
fn remote(world: &World, hidden: &str, file: &str) -> String {
    let hook = world.plant(&format!("{hidden}/hooks/pre-receive"));
    format!(
        "git init -q --bare {hidden}; {hook} mkdir -p $(dirname {file}); \
         case {file} in *remotes*) printf 'URL: %s\\nPush: refs/heads/main:refs/heads/main\\n' \
         \"$PWD/{hidden}\" > {file};; *) echo \"$PWD/{hidden}\" > {file};; esac\n"
    )
}

#[test]
fn a_remote_in_an_old_format_and_a_hidden_repository_are_held_or_told() {
    let world = World::new();
    // A submodule, and a linked worktree in the workspace.
    let source = world.daemon.repo("source").path().to_owned();
    fs::remove_dir(source.join(".git")).unwrap();
    for args in [&["init", "-q", "-b", "main"][..], &["commit", "-q", "--allow-empty", "-m", "x"]] {
        world.git_at(&source, args);
    }
    world.git(&["submodule", "add", "-q", source.to_str().unwrap(), "sub"]);
    world.git(&["worktree", "add", "-q", "linked"]);
    assert!(world.repo.join(".git/modules/sub/HEAD").exists());
    assert!(world.repo.join(".git/worktrees/linked/HEAD").exists());
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    bash(&session, "true");
    for (hidden, file) in [
        (".git/lfs-cache", ".git/remotes/origin"),
        (".git/lfs/x", ".git/branches/x"),
        (".git/modules/y", ".git/modules/sub/remotes/y"),
        (".git/modules/sub/z", ".git/modules/sub/branches/z"),
        (".git/worktrees/v", ".git/remotes/v"),
        (".git/worktrees/linked/u", ".git/branches/u"),
        ("node_modules/w", ".git/remotes/w"),
    ] {
        let answer = bash(&session, &remote(&world, hidden, file));
        let remote = Path::new(file).file_name().unwrap().to_str().unwrap();
        let from = if file.contains("modules/sub") { "sub" } else { "." };
        world.git_at(&world.repo.join(from), &["push", remote, "main:pushed"]);
        // In tier D no `.git` can be written, so there is no repository.
        if world.repo.join(hidden).join("HEAD").exists() {
            world.assert_told(&answer, hidden);
        }
        if !world.ran().is_empty() {
            world.assert_told(&answer, file);
            fs::remove_file(world.daemon.home().join("ran")).unwrap();
        }
    }
}

#[test]
fn the_main_repository_of_a_linked_worktree_is_audited_too() {
    let world = World::new();
    let linked = world.daemon.home().join("linked");
    world.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
    let wire = world.daemon.wire();
    let session = wire.attach(&linked);
    bash(&session, "true");
    let audit = || {
        let ran = world.daemon.quack(&["sandbox", "audit", "-C", linked.to_str().unwrap()]);
        (ran.code(), ran.stdout())
    };
    assert_eq!(audit().0, Some(0), "{}", audit().1);
    let main = world.repo.join(".git");
    let plant = world.plant(&format!("{}/lfs/x/hooks/pre-receive", main.display()));
    let command = format!(
        "git init -q --bare {0}/lfs/x; {plant} echo x > {0}/lazygit.yml; echo y > {0}/branches/y",
        main.display()
    );
    let answer = bash(&session, &command);
    let (code, audit) = audit();
    for name in ["lfs/x/hooks/pre-receive", "lazygit.yml", "branches/y"] {
        if main.join(name).exists() {
            assert!(code == Some(1) && audit.contains(name), "{name}: {answer}\n{audit}");
        }
    }
    if main.join("lazygit.yml").exists() {
        assert!(answer.contains("lazygit.yml was made"), "{answer}");
    }
}

#[test]
fn every_name_of_a_loader_is_told_also_one_directory_deeper() {
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    // Tier D does not create names next to a repository.
    fs::remove_dir(repo.path().join(".git")).unwrap();
    repo.write("package.json", r#"{"name": "a"}"#);
    repo.write(".stylelintrc.json", r#"{"plugins": ["./tools/p.js"]}"#);
    repo.write("tools/p.js", "");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    let names = [
        ".prettierrc",
        ".prettierrc.ts",
        ".config/prettierrc",
        ".eslintrc.json",
        ".babelrc",
        ".postcssrc.json",
        ".flake8",
        ".mypy.ini",
        "tslint.json",
        ".oxlintrc.json",
        ".lazygit.yml",
        "setup.cfg",
        "AGENT.md",
        "package.yaml",
        ".newtoolrc",
        "newtool.config.js",
    ];
    for directory in ["", "packages/", "packages/a/"] {
        for name in names {
            // The rule for unknown programs applies to two levels, and `.config` is one more.
            let is_near = !name.contains("newtool") && !name.contains(".config/");
            if directory == "packages/a/" && !is_near {
                continue;
            }
            let name = format!("{directory}{name}");
            let told = session.bash(&format!("mkdir -p $(dirname {name}) && echo x > {name}"));
            let first =
                told.lines().find(|line| line.starts_with("[Sandbox: ")).unwrap_or_default();
            let last = name.rsplit('/').next().unwrap();
            assert!(first.contains(last) || first.contains(".config was made"), "{name}: {told}");
        }
    }
    for (name, text) in [
        ("package.json", r#"{"name": "a", "prettier": {"plugins": ["./e.cjs"]}}"#),
        ("package.json", r#"{"name": "a", "scripts": {"postinstall": "./e.cjs"}}"#),
        ("pyproject.toml", "[tool.mypy]\nplugins = './q.py'"),
        ("tools/p.js", "evil()"),
    ] {
        let told = session.bash(&format!("cat > {name} <<'X'\n{text}\nX"));
        assert!(told.contains(&format!("[Sandbox: {name} was ")), "{name}: {told}");
    }
    // Ordinary work.
    let ordinary = r#"echo '{"name": "b", "scripts": {"postinstall": "./e.cjs", "test": "x"}}' > package.json;
        mkdir -p src; echo x > src/crc.c; echo x > .gitignore; echo x > README.md"#;
    assert_eq!(session.bash(ordinary), "\n[Exit code: 0]");
}

#[test]
fn ordinary_work_with_git_is_not_told() {
    let world = World::new();
    world.write("a", "1\n");
    world.git(&["add", "."]);
    world.git(&["commit", "-q", "-m", "second"]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    for command in [
        "git checkout -qb x; echo 2 >> a; git commit -qam c; git checkout -q main; echo 3 >> a; git commit -qam d",
        "git merge x; git merge --abort; git rebase x; git rebase --abort; git cherry-pick x",
        "git cherry-pick --abort; echo 4 >> a; git stash; git stash pop; git checkout a",
        "git bisect start; git bisect bad; git bisect good HEAD~1; git bisect reset; git gc -q",
        "git notes add -m n; git worktree add -q w; git worktree remove w; git update-index --split-index",
        "git format-patch -1 -o p; git reset -q --hard HEAD~1; git am -q p/*; git fsck --lost-found",
    ] {
        let answer = bash(&session, command);
        assert!(!answer.contains("programs of yours"), "{command}: {answer}");
    }
    let (code, audit) = world.audit();
    assert_eq!(code, Some(0), "{audit}");
}
