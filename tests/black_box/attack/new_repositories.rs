//! Attacks through repositories that no mount protects: those that appear while a worker runs, and those beyond the
//! number that a worker protects in detail. The user's own git runs in them, as a shell prompt does.

use crate::harness::tier;
use crate::harness::{Daemon, Session, git_command, wait_for, write_file};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A daemon and a repository of the user.
struct World {
    daemon: Daemon,
    repo: PathBuf,
}

impl World {
    #[track_caller]
    fn new() -> Self {
        let daemon = Daemon::start();
        let repo = daemon.repo("repo").path().to_owned();
        fs::remove_dir(repo.join(".git")).unwrap();
        let world = Self { daemon, repo };
        world.git("", &["init", "-q"]);
        world
    }

    /// Runs the user's git outside of sessions, in a directory of the workspace.
    #[track_caller]
    fn git(&self, at: &str, args: &[&str]) {
        let mut command = git_command(&self.daemon.home(), &self.repo.join(at), args);
        command.output().expect("run git");
    }

    fn mark(&self) -> PathBuf {
        self.repo.join("ran")
    }

    /// Shell command that makes `evil` in the workspace, a program that leaves a mark.
    fn evil(&self) -> String {
        format!(
            "printf '#!/bin/sh\\necho $0 >> {}\\n' > evil; chmod +x evil; E=$PWD/evil; ",
            self.mark().display()
        )
    }

    /// Runs the commands of a user in each directory, and returns the planted programs that ran.
    fn ran(&self, directories: &[&str]) -> String {
        for at in directories {
            self.git(at, &["status"]);
            self.git(at, &["commit", "-q", "--allow-empty", "-m", "x"]);
            self.git(at, &["checkout", "-q", "-b", "other"]);
        }
        fs::read_to_string(self.mark()).unwrap_or_default()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.repo.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

#[track_caller]
fn bash(session: &Session<'_>, command: &str) -> String {
    session.bash(&format!("{{ {command}\n}} 2>&1"))
}

fn hook(path: &Path) {
    write_file(path, "#!/bin/sh\n");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_a_command_plants_in_a_repository_that_it_makes_is_set_aside_and_told() {
    let world = World::new();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let answer = bash(
        &session,
        &(world.evil()
            + "git init -q sub; git -C sub config core.fsmonitor $E; git -C sub config user.name Me
               cp evil sub/.git/hooks/post-checkout; ln -s $E sub/.git/hooks/post-commit
               git init -q --bare bare; mkdir tree; cd bare; git config core.bare false
               git config core.worktree ../tree; git config core.fsmonitor $E; cd ..
               git init -q far; git -C far config core.hooksPath ../hidden; mkdir hidden; cp evil hidden/post-commit
               mkdir file; git init -q --separate-git-dir elsewhere file; cp evil elsewhere/hooks/post-commit
               git init -q common; git init -q other; echo $PWD/other/.git > common/.git/commondir
               git -C other config core.fsmonitor $E"),
    );
    assert_eq!(world.ran(&["sub", "bare", "far", "file", "common", "other"]), "", "{answer}");
    assert!(answer.contains("[Sandbox: ") && answer.contains(".set-aside"), "{answer}");
    // Nothing is lost, and the harmless settings are in force.
    assert!(world.read("sub/.git/config.set-aside").contains("fsmonitor"));
    let kept = world.read("sub/.git/config");
    assert!(kept.contains("name = \"Me\"") && !kept.contains("fsmonitor"), "{kept}");
    assert!(world.read("sub/.git/hooks/post-checkout.set-aside").contains("echo"));
    wait_for("the record of the call", || {
        let at = world.repo.to_str().unwrap();
        let log = world.daemon.quack(&["log", "--json", "-C", at]).stdout();
        log.contains("config.set-aside").then_some(())
    });
    // The same after a later command, also through a file whose directory does not change.
    let later = bash(
        &session,
        "printf '[core]\\n\\tfsmonitor = %s\\n' $PWD/evil >> sub/.git/config; git -C sub config -l --local",
    );
    assert_eq!(world.ran(&["sub"]), "", "{later}");
    assert!(later.contains("sub/.git/config (core.fsmonitor) kept as"), "{later}");
    assert!(world.read("sub/.git/config.1.set-aside").contains("fsmonitor"));
}

#[test]
fn a_background_job_is_checked_when_it_ends() {
    let world = World::new();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let plant = world.evil() + "git init -q sub; git -C sub config core.fsmonitor $E";
    let started = session.call("bash", serde_json::json!({"command": plant, "background": true}));
    let ended = crate::harness::wait_for("the job to end", || {
        let read = session.call("job_output", serde_json::json!({"job_id": "job-1"}));
        read.contains(".set-aside").then_some(read)
    });
    assert_eq!(world.ran(&["sub"]), "", "{started}{ended}");
}

#[test]
fn hooks_beyond_the_limit_of_one_check_are_told_and_set_aside_by_the_next_one() {
    let world = World::new();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let plant = world.evil()
        + "git init -q r1; cp evil r1/.git/hooks/post-commit; for i in $(seq 2 150); do cp -r r1 r$i; done";
    let first = bash(&session, &plant);
    assert!(first.contains("new repositories or files in them were not checked"), "{first}");
    // On a busy machine the time limit of a check leaves some for a third one.
    crate::harness::wait_for("all hooks to be set aside", || {
        let next = bash(&session, "true");
        assert!(next.contains("kept as"), "{next}");
        (!next.contains("not checked")).then_some(())
    });
    let repos: Vec<String> = (1..=150).map(|i| format!("r{i}")).collect();
    let repos: Vec<&str> = repos.iter().map(String::as_str).collect();
    let is_planted = |repo: &&&str| world.repo.join(repo).join(".git/hooks/post-commit").exists();
    assert_eq!(repos.iter().find(is_planted), None);
    assert_eq!(world.ran(&repos[..3]), "");
}

#[test]
fn a_submodule_whose_settings_cannot_be_set_aside_loses_its_git_file() {
    let world = World::new();
    world.git("", &["commit", "-q", "--allow-empty", "-m", "first"]);
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let answer = bash(
        &session,
        &(world.evil()
            + "
               mkdir -p .git/modules; git init -q --separate-git-dir $PWD/.git/modules/m m
               printf '[core]\\n\\tfsmonitor = %s\\n' $E >> .git/modules/m/config"),
    );
    assert_eq!(world.ran(&["", "m"]), "", "{answer}");
    // The profile of macOS has refused the directory of the submodule.
    let is_set_aside = || world.read("m/.git.set-aside").starts_with("gitdir:");
    assert!(tier::is_macos() || is_set_aside(), "{answer}");
}

#[test]
fn a_repository_of_the_user_that_appears_keeps_its_hooks_and_settings() {
    let world = World::new();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    assert_eq!(bash(&session, "echo begun"), "begun\n\n[Exit code: 0]");
    world.git("", &["init", "-q", "mine"]);
    world.git("mine", &["config", "core.editor", "vi"]);
    hook(&world.repo.join("mine/.git/hooks/pre-commit"));
    // Change times are compared with a tolerance.
    crate::harness::wait_for("the clock to move on", || {
        let made = world.repo.join("mine/.git/hooks/pre-commit").metadata().unwrap();
        let age = made.modified().unwrap().elapsed().unwrap_or_default();
        (std::time::Duration::from_millis(200) < age).then_some(())
    });
    let answer = bash(&session, "touch new; git init -q own");
    assert!(!answer.contains("set-aside"), "{answer}");
    assert!(world.repo.join("mine/.git/hooks/pre-commit").exists());
    assert!(world.read("mine/.git/config").contains("editor = vi"));
    // A command's change of it counts.
    let answer = bash(&session, "cd mine; git config core.fsmonitor ../evil");
    assert!(answer.contains("mine/.git/config (core.editor, core.fsmonitor) kept as"), "{answer}");
    assert!(!world.read("mine/.git/config").contains("fsmonitor"));
    assert!(world.repo.join("mine/.git/hooks/pre-commit").exists());
}

#[test]
fn git_in_a_repository_that_a_command_makes_works_as_outside() {
    let world = World::new();
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let answer = bash(
        &session,
        // git must leave no process that tidies the repository in the background.
        "set -e; export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=maintenance.auto GIT_CONFIG_VALUE_0=false
         git init -q src; cd src; git config user.name a; git config user.email a@b; git commit -q --allow-empty -m x
         cd ..; git clone -q src copy; cd copy; git remote add up ../src; git fetch -q up; git switch -qc b
         git remote",
    );
    assert_eq!(answer, "origin\nup\n\n[Exit code: 0]");
    let answer = bash(
        &session,
        "cd copy; git config filter.lfs.clean 'git-lfs clean -- %f'; git config -l --local | grep lfs",
    );
    assert_eq!(answer, "filter.lfs.clean=git-lfs clean -- %f\n\n[Exit code: 0]");
}

#[test]
fn no_repository_beyond_the_number_with_its_own_mounts_is_without_protection() {
    let world = World::new();
    for number in 0..140 {
        let git = world.repo.join(format!("many/r{number}/.git"));
        for directory in ["objects/info", "refs", "hooks"] {
            fs::create_dir_all(git.join(directory)).unwrap();
        }
        fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(git.join("config"), "[core]\n").unwrap();
    }
    let wire = world.daemon.wire();
    let session = wire.attach(&world.repo);
    let answer = bash(
        &session,
        "n=0; for g in many/*/.git; do
           if echo x 2>/dev/null >> $g/config || touch $g/hooks/x 2>/dev/null || mv $g ${g}x 2>/dev/null ||
             mv ${g%/.git} $PWD/moved 2>/dev/null; then n=$((n+1)); fi
         done; echo $n changed",
    );
    assert_eq!(answer, "0 changed\n\n[Exit code: 0]");
    let shown = world.daemon.quack(&["sandbox", "show", "-C", world.repo.to_str().unwrap()]);
    assert!(shown.stdout().contains("has more than 128 git repositories"), "{}", shown.stdout());
}

#[test]
fn a_writable_directory_with_too_many_repositories_starts_no_worker() {
    let world = World::new();
    let data = world.daemon.home().join("data");
    for number in 0..2_049 {
        fs::create_dir_all(data.join(format!("r{number}/.git"))).unwrap();
    }
    let data = data.to_str().unwrap();
    let quack = |args: &[&str]| {
        let here = ["-C", world.repo.to_str().unwrap()];
        world.daemon.quack(&[args, &here].concat())
    };
    quack(&["tool", "bash", "true"]).stdout();
    quack(&["sandbox", "set", "--writable", data]).stdout();
    let refused = format!("{:?}", quack(&["tool", "bash", "true"]));
    assert!(refused.contains("has more than 2048 git repositories"), "{refused}");
    assert!(refused.contains(&format!("quack sandbox set --not-writable {data}")), "{refused}");
    quack(&["sandbox", "set", "--not-writable", data]).stdout();
    assert!(quack(&["tool", "bash", "echo works"]).stdout().contains("works"));
}
