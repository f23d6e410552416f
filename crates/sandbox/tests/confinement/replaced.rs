//! Programs outside that replace `.git/config` while commands inside try to write it, and programs on both sides that
//! change the same repository.

use crate::repositories::repository;
use crate::world::World;
use quackd_testkit::KillOnDrop;
use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

type Case = fn(&World);

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_replaced_configuration_gets_nothing_from_a_waiting_command", spinners),
    ("a_held_lock_of_the_configuration_gives_no_way_into_it", held_lock),
    ("git_answers_the_same_with_both_kinds_of_protection", the_same_answers),
    ("both_sides_share_the_locks_of_a_repository", locks),
    ("new_files_in_git_have_the_modes_of_their_command", modes),
    ("no_command_reaches_the_writable_mount_of_process_1", process_1),
    ("a_file_that_the_session_did_not_make_stays_as_it_is", own_files),
    ("a_filled_directory_takes_no_name_with_rules_inside", moved_directories),
    ("a_linked_worktree_that_is_not_visible_stays", unseen_worktree),
];

/// Number of changes of the configuration.
const CHANGES: usize = 1_000;

/// Each of these tries, without pause, to get text into `.git/config`.
const SPINNERS: &str = r#"
use Fcntl;
my $evil = "[core]\n\tfsmonitor = touch ".$ENV{PWD}."/planted; false\n";
my @ways = (
  sub { if (sysopen(my $f, ".git/config", O_WRONLY)) { syswrite($f, $evil) } },
  sub { if (sysopen(my $f, ".git/config", O_WRONLY|O_CREAT|O_APPEND)) { syswrite($f, $evil) } },
  sub { if (sysopen(my $f, ".git/config.lock", O_WRONLY)) { push @kept, $f; shift @kept if @kept > 64 }
        for my $f (@kept) { sysseek($f, 0, 0); syswrite($f, $evil) } },
  sub { if (sysopen(my $f, ".git/mine", O_WRONLY|O_CREAT)) { syswrite($f, $evil) } rename(".git/mine", ".git/config") },
  sub { link(".git/config", ".git/name"); if (sysopen(my $f, ".git/name", O_WRONLY)) { syswrite($f, $evil) } },
  sub { if (open(my $r, "<", ".git/config")) { if (sysopen(my $f, "/proc/self/fd/".fileno($r), O_WRONLY)) { syswrite($f, $evil) } } },
  sub { for my $t (glob(".git/sed*")) { if (sysopen(my $f, $t, O_WRONLY)) { syswrite($f, $evil) } } },
);
my $way = $ways[$ARGV[0]];
$| = 1; print "ready\n";
while (1) { $way->() }
"#;

/// Starts commands inside that run until the result is dropped. The kernel kills the commands with their monitor.
fn start(world: &World, script: &str) -> KillOnDrop {
    let mut command = world.command(script);
    world.become_user(&mut command);
    let mut inside = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("start");
    let mut first = [0];
    let output = inside.stdout.as_mut().expect("output");
    std::io::Read::read_exact(output, &mut first).expect("the first command runs");
    inside.into()
}

fn spin(world: &World, ways: &[usize]) -> Vec<KillOnDrop> {
    world.write("spin.pl", SPINNERS);
    let program = std::fs::read_to_string(world.at("spin.pl")).unwrap();
    world.write("ws/spin.pl", &program);
    ways.iter().map(|way| start(world, &format!("exec perl spin.pl {way}"))).collect()
}

fn spinners(world: &World) {
    let world = repository(world.user);
    let _spinning = spin(&world, &[0, 1, 2, 3, 4, 5, 6]);
    let mut script = String::from("set -e\n");
    for number in 0..CHANGES {
        // Every tenth change is made by a program that writes a temporary file next to the configuration.
        if number % 10 == 0 {
            writeln!(script, "sed -i 's/x{}$/x{number}/' .git/config", number.max(10) - 10)
                .unwrap();
        } else {
            writeln!(script, "git config user.x{} {number}", number % 50).unwrap();
        }
        writeln!(
            script,
            "! grep -q fsmonitor .git/config || {{ echo planted after {number}; exit 7; }}"
        )
        .unwrap();
        if number % 25 == 0 {
            script.push_str("sleep 0.02; git status --short > /dev/null\n");
        }
    }
    script.push_str("test ! -e planted; git config --get-regexp 'user.x.*' | wc -l");
    assert_eq!(world.outside(&script).ok().trim(), "45");
}

fn held_lock(world: &World) {
    let world = repository(world.user);
    // The lock of the user's git is no file of the session.
    world.write("ws/.git/config.lock", "[user]\n\tname = Bo\n");
    let ran = world.inside(
        "echo x >> .git/config.lock && echo WRITTEN
         rm -f .git/config.lock && echo REMOVED
         mv .git/config.lock .git/x && echo MOVED
         git config a.b c; true",
    );
    for word in ["WRITTEN", "REMOVED", "MOVED"] {
        assert!(!ran.output.contains(word), "{}", ran.output);
    }
    assert!(ran.ok().contains("could not lock config file"), "{}", ran.output);
    world.outside("mv .git/config.lock .git/config && git config user.name").ok();
}

/// Everyday commands of git. None of them depends on times or on hashes of commits that are made here.
const EVERYDAY: &str = r#"
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' GIT_EDITOR=true
run() { echo "> $*"; "$@" 2>&1; echo "= $?"; }
echo one > one; run git add one; run git commit -qm one; run git commit -q --amend -m two
run git branch topic; run git switch -q topic; echo t >> one; run git commit -qam t; run git tag -a -m v1 v1
run git switch -q -; echo m > m; run git add m; run git commit -qm m; run git merge -q --no-edit topic
run git switch -q -c side HEAD~1; echo s >> m; run git commit -qam s; run git rebase -q main
run git rebase --continue; run git checkout --theirs m; run git add m; run git rebase --continue; run git rebase --abort
run git switch -q main; run git cherry-pick side; run git cherry-pick --abort; run git revert --no-edit HEAD~1
run git stash; echo x >> one; run git stash; run git stash list; run git stash pop; run git stash drop
run git reset -q --hard; run git reset -q --soft HEAD~1; run git reset -q --hard HEAD
run git notes add -m note; run git notes show; run git worktree add -q wt HEAD; run git -C wt commit -q --allow-empty -m wt
run git worktree list --porcelain; run git worktree remove wt; run git worktree prune
run git bisect start; run git bisect bad; run git bisect good HEAD~2; run git bisect reset
run git pack-refs --all; run git gc -q; run git repack -adq; run git commit-graph write; run git fsck --no-progress --no-dangling
run git branch -D side; run git branch -m topic renamed; run git branch new; run git branch -d new
run git config a.b c; run git remote add o .; run git update-index --split-index; run git update-index --no-split-index
run git sparse-checkout list; run git update-server-info; run git rerere; run git maintenance run --task=gc -q
run git format-patch -1 --stdout > p; run git reset -q --hard HEAD~1; run git am -q p; run git apply -R p; run git checkout -q .
run git clone -q . copy; run git -C copy fetch -q; run git fetch -q ./copy main; run git pull -q ./copy main
run git symbolic-ref HEAD; run git update-ref refs/x/y HEAD; run git update-ref -d refs/x/y; run git reflog expire --all --expire=now
run git mv one eins; run git rm -q --cached m; run git clean -fdq -e spin.pl; run git restore --staged .; run git status --short
run git switch -q --detach; run git switch -q main; run git reflog; run git log --format=%s; run git ls-files -s; run git for-each-ref
"#;

fn the_same_answers(world: &World) {
    let answers = [false, true].map(|names| {
        let mut world = World::new(world.user);
        world.names = names;
        world.outside("git init -q -b main . && git add notes.txt && git commit -qm first").ok();
        let own = world.root.path().display().to_string();
        // The first commit has the time of its making.
        let script = format!("GIT_COMMITTER_DATE='2026-01-01T00:00:00Z' GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' git commit -q --amend --reset-author -m first\n{EVERYDAY}");
        let output = world.inside(&script).output.replace(&own, "ROOT");
        // With a placeholder for `commondir`, git shows the whole path.
        output.replace("ROOT/ws/.git/config", ".git/config")
    });
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let [new, old] = answers.each_ref().map(|text| lines(text));
    let differ = new.iter().zip(&old).position(|(new, old)| new != old);
    let around =
        differ.map(|at| (&new[at.saturating_sub(4)..=at], &old[at.saturating_sub(4)..=at]));
    assert_eq!(around, None, "the first difference");
    assert_eq!(new.len(), old.len());
    assert!(answers[0].matches("= 0").count() > 60, "{}", answers[0]);
}

fn locks(world: &World) {
    let world = repository(world.user);
    let count = "n=0; while [ $n -lt 300 ]; do
        ( set -C; : > .git/index.lock ) 2>/dev/null || continue
        c=$(cat counter 2>/dev/null || echo 0); echo $((c + 1)) > counter; n=$((n + 1)); rm .git/index.lock
     done";
    let inside = start(&world, &format!("echo; {count}"));
    world.outside(count).ok();
    let until = Instant::now() + Duration::from_secs(60);
    let text = || std::fs::read_to_string(world.at("ws/counter")).unwrap_or_default();
    while text().trim() != "600" {
        assert!(Instant::now() < until, "{:?}", text());
        std::thread::yield_now();
    }
    drop(inside);
}

fn modes(world: &World) {
    let world = repository(world.user);
    let ran = world.inside(
        "cd .git; (umask 027; : > a; mkdir d; : > d/x; git -C .. commit -q --allow-empty -m x)
         (umask 0; perl -e 'use Fcntl; sysopen(F, q(b), O_RDWR|O_CREAT, 0640)'); chmod 600 d/x
         echo y > d/x; echo z >> d/x; mv d/x d/y; stat -c '%a %n' a d d/y b; cat d/y; rm -r d a b; ls -d a d 2>&1",
    );
    assert!(ran.output.starts_with("640 a\n750 d\n600 d/y\n640 b\ny\nz\n"), "{}", ran.output);
}

fn process_1(world: &World) {
    let world = repository(world.user);
    let ran = world.inside(
        "ls /proc/1/fd 2>&1; for n in $(seq 0 40); do
           echo x 2>/dev/null > /proc/1/fd/$n/planted && echo WRITTEN $n
           ls /proc/1/fd/$n/ 2>/dev/null; cat /proc/1/fd/$n/config 2>/dev/null
         done
         cat /proc/1/mem > /dev/null && echo READ; kill -9 1; kill -STOP 1; git commit -q --allow-empty -m x && echo committed",
    );
    let words = ["WRITTEN", "READ", "repositoryformatversion", "planted"];
    assert!(words.iter().all(|word| !ran.output.contains(word)), "{}", ran.output);
    assert!(ran.output.contains("committed"), "{}", ran.output);
}

fn own_files(world: &World) {
    let world = repository(world.user);
    world.write("ws/.git/sedXy", "theirs\n");
    world.make_directory("ws/.git/tool");
    world.write("ws/.git/tool/state", "theirs\n");
    let ran = world.inside(
        "for f in sedXy tool/state description; do
           (echo x >> .git/$f) && echo CHANGED $f; rm -f .git/$f && echo REMOVED $f; mv .git/$f .git/z && echo MOVED $f
           echo m > .git/m; mv .git/m .git/$f && echo REPLACED $f
         done; echo x > .git/tool/new && cat .git/tool/new; rmdir .git/info .git/tool; rm -rf .git/modules
         mkdir -p .git/modules/s && echo '[core]' > .git/modules/s/config && echo module",
    );
    for word in ["CHANGED", "REMOVED", "MOVED", "REPLACED"] {
        assert!(!ran.output.contains(word), "{}", ran.output);
    }
    assert!(ran.output.contains("x\n") && ran.output.contains("module"), "{}", ran.output);
    assert_eq!(std::fs::read_to_string(world.at("ws/.git/tool/state")).unwrap(), "theirs\n");
}

fn moved_directories(world: &World) {
    let world = repository(world.user);
    world.outside("rm -rf .git/info .git/hooks").ok();
    let ran = world.inside(
        "cd .git; mkdir a b && echo '* filter=x' > a/attributes && echo x > b/pre-commit
         mv -T a info && echo MOVED; mv -T b hooks && echo MOVED; mkdir hooks && echo MADE
         mkdir info && echo x > info/exclude && mv a/attributes info/ && echo MOVED; cat info/exclude",
    );
    assert!(!ran.output.contains("MOVED") && !ran.output.contains("MADE"), "{}", ran.output);
    assert!(ran.output.ends_with("x\n"), "{}", ran.output);
}

fn unseen_worktree(world: &World) {
    let world = repository(world.user);
    world.make_directory("elsewhere");
    world
        .outside("git worktree add -q ../elsewhere && cd ../elsewhere && echo x > x && git add x")
        .ok();
    world.inside(
        "git worktree prune -v; git gc -q --prune=now; git commit -q --allow-empty -m y; true",
    );
    let state =
        world.outside("cd ../elsewhere && git status --short && git fsck --no-dangling 2>&1");
    assert_eq!(state.ok(), "A  x\n", "the index of the other worktree is as it was");
}
