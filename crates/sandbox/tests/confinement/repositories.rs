//! Repositories in the workspace: commits work, and nothing that a later git would run can be planted.

use crate::world::{CANARY, World};
use quackd_sandbox::confine::git_mounts;
use quackd_testkit::wait_until;
use std::collections::BTreeSet;
use std::path::Path;

type Case = fn(&World);

pub(crate) const ALL: &[(&str, Case)] = &[
    ("git_works_in_a_protected_repository", git_works),
    ("hooks_and_settings_cannot_be_planted", hooks_and_settings),
    ("a_repository_cannot_be_moved_or_removed", moving),
    ("nested_repositories_and_submodules_are_protected", nested),
    ("what_the_configuration_names_is_protected", named),
    ("links_in_place_of_protected_names_make_it_read_only", links),
    ("nothing_is_left_in_the_repository_afterwards", nothing_is_left),
    ("a_linked_worktree_works_and_is_protected", worktree),
    ("a_git_file_does_not_open_another_repository", foreign),
];

/// Both kinds of protection. The second is for systems that cannot hold system calls.
fn both(world: &World, case: impl Fn(&World)) {
    for names in [false, true] {
        let mut world = repository(world.user);
        world.names = names;
        case(&world);
    }
}

/// A world whose workspace is a repository with one commit.
pub(crate) fn repository(user: crate::world::User) -> World {
    let world = World::new(user);
    let made = world.outside(
        "git init -q . && git add notes.txt && git commit -qm first && rm -rf .git/hooks/* .git/info",
    );
    made.ok();
    world
}

fn git_works(world: &World) {
    both(world, git_works_in);
}

fn git_works_in(world: &World) {
    let ran = world.inside(
        "set -e; git status --short; echo b >> notes.txt; git diff --stat; git commit -qam second
         git branch topic; git switch -q topic; echo c >> notes.txt; git stash -q; git stash pop -q
         git commit -qam third; git switch -q -; git merge -q topic; git tag v1; git gc -q; git repack -adq
         git worktree add -q ../ws/wt HEAD~1; git -C wt log --oneline | wc -l; git worktree list | wc -l
         git reset -q --hard HEAD~1; git rebase -q topic; git fsck --no-progress --no-dangling; git log --format=%s",
    );
    assert!(ran.ok().ends_with("third\nsecond\nfirst\n"), "{}", ran.output);
    assert!(world.outside("git log --format='%s %an' -1").ok().starts_with("third Ann"));
}

/// Asserts that every command fails. Prints the output of one that does not.
fn all_fail(world: &World, commands: &[&str]) {
    let script: String = commands
        .iter()
        .enumerate()
        .map(|(number, command)| format!("( {command} ) 2>&1 && echo \"PASSED {number}\"\n"))
        .collect();
    let ran = world.inside(&format!("{script}\ntrue"));
    for (number, command) in commands.iter().enumerate() {
        assert!(!ran.output.contains(&format!("PASSED {number}\n")), "{command}: {}", ran.output);
    }
}

fn hooks_and_settings(world: &World) {
    both(world, hooks_and_settings_in);
}

fn hooks_and_settings_in(world: &World) {
    all_fail(
        world,
        &[
            "echo x > .git/hooks/pre-commit",
            "git config core.fsmonitor 'touch pwned'",
            "echo x >> .git/config",
            "rm .git/config",
            "mv .git/config .git/c",
            "ln .git/config c && echo x >> c",
            "mv .git/hooks .git/h",
            "mkdir -p h && mv h .git/hooks/",
            "rmdir .git/hooks",
            "echo x > .git/config.worktree",
            "echo .. > .git/commondir",
            "touch .git/commondir; rm .git/commondir",
            "echo '* filter=x' > .git/info/attributes",
            "mv .git/info .git/i",
            "echo /x > .git/objects/info/alternates",
            "mv .git/objects .git/o",
            "mv .git/objects/info .git/objects/i",
            "umount .git/hooks",
            "mount -o remount,rw .git/config",
            "chmod 777 .git/hooks",
            "touch .git/hooks",
        ],
    );
    assert!(!world.at("ws/pwned").exists());
}

fn moving(world: &World) {
    both(world, moving_in);
}

fn moving_in(world: &World) {
    all_fail(
        world,
        &[
            "mv .git .g",
            "rm -rf .git",
            "mkdir x && mv -T x .git",
            "perl -e 'mkdir \"y\"; exit !(0 == syscall(316, -100, \"y\", -100, \".git\", 2))'",
            "git init --separate-git-dir=elsewhere",
        ],
    );
    // Its content can be removed, like any file of the workspace. A replacement cannot be created.
    assert!(world.at("ws/.git/config").exists() && world.at("ws/.git/hooks").exists());
}

fn nested(world: &World) {
    both(world, nested_in);
}

fn nested_in(world: &World) {
    let made = world.outside(
        "mkdir -p vendor/deep/lib && git init -q vendor/deep/lib && mkdir -p .git/modules/m/hooks .git/modules/a/b/objects
         : > .git/modules/m/config; : > .git/modules/a/b/HEAD",
    );
    made.ok();
    all_fail(
        world,
        &[
            "echo x > vendor/deep/lib/.git/hooks/post-commit",
            "git -C vendor/deep/lib config core.fsmonitor x",
            "mv vendor/deep/lib/.git x",
            "mv vendor/deep/lib x",
            "mv vendor/deep x",
            "mv vendor x",
            "echo x > .git/modules/m/hooks/post-commit",
            "echo x >> .git/modules/m/config",
            "mv .git/modules x",
            "mv .git/modules/m x",
            "echo x > .git/modules/a/b/config",
            "mkdir .git/modules/a/b/hooks/x",
        ],
    );
    world.inside("set -e; cd vendor/deep/lib; echo x > f; git add f; git commit -qm nested").ok();
}

fn named(world: &World) {
    both(world, named_in);
}

fn named_in(world: &World) {
    let made = world.outside(
        "mkdir -p .githooks conf/deep; : > .gitshared; : > conf/deep/c; : > conf/more
         git config include.path ../.gitshared; git config core.hooksPath .githooks
         git config includeIf.gitdir:x.path ../conf/deep/c; printf '[include]\\npath=../more\\n' > conf/deep/c
         git config --add include.path ../absent",
    );
    made.ok();
    all_fail(
        world,
        &[
            "echo x > .gitshared",
            "mv .gitshared x",
            "echo x > .githooks/pre-commit",
            "mv .githooks x",
            "echo x > conf/deep/c",
            "mv conf x",
            "echo x > conf/more",
        ],
    );
    let ran = world.inside("true");
    assert!(ran.output.contains("/ws/absent is named by git's configuration"), "{}", ran.output);
}

fn links(world: &World) {
    let world = repository(world.user);
    world.outside("rm -rf .git/hooks && mkdir scripts && ln -s ../scripts .git/hooks").ok();
    all_fail(&world, &["rm .git/hooks", "git commit -q --allow-empty -m x", "mv .git x"]);
    assert!(world.inside("true").output.contains("/ws/.git has links"));
}

fn listing(world: &World) -> BTreeSet<String> {
    let listed = world.outside("find . -path './.git/objects/??' -prune -o -printf '%p %y %s\\n'");
    listed.ok().lines().map(str::to_owned).collect()
}

fn nothing_is_left(world: &World) {
    let mut world = repository(world.user);
    world.names = true;
    let registry = world.at("state/placeholders");
    let before = listing(&world);
    let mut command = world.command("ls -A .git .git/info; sleep 1000");
    world.become_user(&mut command);
    command.stdout(std::process::Stdio::piped());
    let mut running = command.spawn().unwrap();
    wait_until("the placeholders", || {
        world.at("ws/.git/commondir").exists() && world.at("ws/.git/info/attributes").exists()
    });
    assert_eq!(
        git_mounts::clean_blocking(&registry).unwrap().removed,
        0,
        "taken from a living worker"
    );
    assert!(world.at("ws/.git/commondir").exists());
    // The monitor is killed; the kernel ends the others.
    running.kill().unwrap();
    running.wait().unwrap();
    // Process 1 may take a moment to end; until then the repository is in use.
    let removed = std::cell::Cell::new(0);
    wait_until("the end of process 1", || {
        removed.set(removed.get() + git_mounts::clean_blocking(&registry).unwrap().removed);
        removed.get() >= 4
    });
    assert_eq!(listing(&world), before);
    assert_eq!(std::fs::read_dir(&registry).unwrap().count(), 0);
}

fn worktree(world: &World) {
    let mut world = World::new(world.user);
    world.path = "/usr/local/bin:/usr/bin:/bin".into();
    world.make_directory("main");
    let made = world.outside(
        "rm -rf * && cd ../main && git init -q . && echo a > a && git add a && git commit -qm first
         git worktree add -qf ../ws -b topic && rm -f .git/hooks/*",
    );
    made.ok();
    let ran = world.inside(
        "set -e; echo b > b; git add b; git commit -qm second; git log --format=%s; ls -A ../main",
    );
    assert_eq!(ran.ok(), "second\nfirst\n.git\n");
    let main = world.at("main").display().to_string();
    all_fail(
        &world,
        &[
            "echo 'gitdir: /x' > .git",
            "rm .git",
            &format!("echo x > {main}/.git/hooks/post-commit"),
            &format!("echo x >> {main}/.git/config"),
            &format!("echo x > {main}/.git/worktrees/ws/commondir"),
            &format!("echo x > {main}/.git/worktrees/ws/gitdir"),
            &format!("echo x > {main}/.git/worktrees/ws/config.worktree"),
            &format!("mv {main}/.git/worktrees/ws {main}/.git/worktrees/x"),
            &format!("cat {main}/a"),
        ],
    );
}

fn foreign(world: &World) {
    let world = World::new(world.user);
    world.make_directory("theirs");
    world.outside("cd ../theirs && git init -q . && git commit -qm first --allow-empty").ok();
    world.write("theirs/.git/description", CANARY);
    world.write("ws/.git", &format!("gitdir: {}\n", world.at("theirs/.git").display()));
    let ran = world.inside(&format!("git log; ls -A {}; true", world.at("theirs").display()));
    assert!(
        ran.output.contains("does not lead back") && !ran.output.contains("first"),
        "{}",
        ran.output
    );
    assert!(Path::new(&world.at("theirs/.git/HEAD")).exists());
}
