//! Tests commands in control groups, with every kind that is available to this user on this machine: killing,
//! counting, and processes that must stay. Prints the kinds that are not available and skips them.
//!
//! The tests of this file run one at a time: with version 2 each moves this process.

#![cfg(target_os = "linux")]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "this file is a test target"
)]
#![expect(clippy::print_stderr, reason = "figures for people")]

mod commands;

use commands::{PATIENCE, run, stdout};
use quackd_process::{
    Ceiling, CgroupBase, CgroupKind, Command, EndedBy, Exit, Finished, Group, LaunchError, Limits,
    Role, SessionPaths, harden,
};
use quackd_testkit::{Turn, assert_gone, program, wait_until_async};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const KINDS: [CgroupKind; 3] = [CgroupKind::Unified, CgroupKind::Pids, CgroupKind::Freezer];

/// Sets up this process like a worker, and locks out other tests.
async fn alone() -> Turn {
    quackd_testkit::alone(|| harden(Role::Worker).unwrap()).await
}

/// A daemon's control groups with one session.
struct World {
    base: CgroupBase,
    paths: SessionPaths,
    group: Arc<Group>,
}

impl World {
    fn open(kind: CgroupKind, processes: u32) -> Option<Self> {
        let base = CgroupBase::open_as_blocking(kind, 4096);
        let base = base.inspect_err(|error| eprintln!("not run with {kind:?}: {error}")).ok()?;
        let (paths, group) = session(&base, "first", processes);
        Some(Self { base, paths, group })
    }

    /// Kills all processes, and asserts that none is left.
    fn close(self) {
        let Self { base, paths, group } = self;
        drop(group);
        let end = paths.end_blocking(PATIENCE).unwrap();
        assert_eq!((end.killed, end.survivors, end.removed), (0, 0, true));
        let directory = base.directory();
        assert!(directory.is_dir());
        drop(base);
        assert!(!directory.exists());
    }
}

fn session(base: &CgroupBase, name: &str, processes: u32) -> (SessionPaths, Arc<Group>) {
    let limits = Limits { processes, ..Limits::default() };
    let paths = base.session_blocking(name, &limits).unwrap();
    let group = Group::open(&paths).unwrap();
    assert_eq!(group.processes(), base.total().map(|_| processes));
    (paths, Arc::new(group))
}

fn bash(group: &Arc<Group>, tag: &str, script: &str) -> Command {
    Command {
        grace: Duration::from_millis(200),
        abort_grace: Duration::from_millis(100),
        group: Some(Arc::clone(group)),
        ..commands::bash(&format!("{tag}.{}", std::process::id()), script)
    }
}

fn lines(finished: &Finished) -> Vec<String> {
    stdout(finished).lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn whatever_a_command_started_is_in_its_leaf_and_ends_with_it() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 200) else { continue };
        // The command forks as its first action. Even that process starts in the leaf.
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            "(env -i /usr/bin/setsid /bin/bash -c 'trap \"\" TERM; echo $$; cat /proc/self/cgroup; \
             sleep 600 & echo $!; : >{0}; wait' &); until [ -e {0} ]; do sleep 0.01; done",
            dir.path().join("up").display()
        );
        let finished = run(bash(&world.group, "born", &script)).await.unwrap();
        let lines = lines(&finished);
        let leaf = format!("{}/c-0", world.paths.cgroup);
        assert!(lines.iter().any(|line| line.ends_with(&leaf)), "{lines:?}");
        assert_eq!(finished.background_ended, 2, "{kind:?}");
        assert_eq!((finished.is_gone, finished.survivors), (true, 0));
        assert_gone(&[lines[0].clone(), lines[lines.len() - 1].clone()]);
        world.close();
    }
}

#[tokio::test]
async fn an_orphan_without_any_mark_ends_with_its_own_command_and_no_other() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 200) else { continue };
        let orphan = "$( (env -i setsid sleep 600 >/dev/null & echo $!) )";
        let dir = tempfile::tempdir().unwrap();
        let (up, over) = (dir.path().join("up"), dir.path().join("over"));
        let long = format!(
            "a={orphan}; touch {}; until [ -e {} ]; do sleep 0.01; done; kill -0 $a && echo $a",
            up.display(),
            over.display()
        );
        let (long, short) = tokio::join!(run(bash(&world.group, "long", &long)), async {
            wait_until_async("the command", || up.exists()).await;
            // Without a group, the orphan would be ambiguous, because the other command still runs.
            let short = run(bash(&world.group, "short", &format!("echo {orphan}"))).await;
            fs::write(&over, "").unwrap();
            short
        });
        let (long, short) = (long.unwrap(), short.unwrap());
        assert_eq!((long.exit, long.background_ended), (Exit::Code(0), 1), "{kind:?}");
        assert_eq!((short.exit, short.background_ended), (Exit::Code(0), 1), "{kind:?}");
        assert_gone(&lines(&long));
        assert_gone(&lines(&short));
        world.close();
    }
}

#[tokio::test]
async fn leaves_are_used_again() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 200) else { continue };
        for _ in 0..20 {
            let (one, other) = tokio::join!(
                run(bash(&world.group, "one", "sleep 600 &")),
                run(bash(&world.group, "other", "true"))
            );
            assert_eq!((one.unwrap().background_ended, other.unwrap().exit), (1, Exit::Code(0)));
        }
        let leaves = fs::read_dir(&world.paths.directory).unwrap().flatten();
        let names = leaves.map(|entry| entry.file_name().into_string().unwrap());
        let n_leaves = names.filter(|name| name.starts_with("c-")).count();
        assert_eq!(n_leaves, 2, "{kind:?}");
        world.close();
    }
}

#[tokio::test]
async fn everything_that_resists_is_gone_after_the_deadline() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 400) else { continue };
        let script = "trap '' TERM; for i in {1..50}; do sleep 600 & (setsid sleep 600 &); \
            (env -i setsid bash -c 'trap \"\" TERM; kill -STOP $$' &); done; echo up; \
            sleep 600; sleep 600";
        let mut command = bash(&world.group, "resists", script);
        command.deadline = Duration::from_secs(1);
        let mut finished = run(command.clone()).await.unwrap();
        while finished.stdout.total == 0 {
            // It did not come that far.
            command.deadline *= 4;
            assert!(command.deadline < PATIENCE, "{kind:?}");
            finished = run(command.clone()).await.unwrap();
        }
        assert_eq!((finished.exit, finished.ended_by), (Exit::Signal(9), EndedBy::Deadline));
        assert!(100 <= finished.stopped, "{finished:?}");
        assert_eq!((finished.is_gone, finished.survivors), (true, 0), "{kind:?}");
        let ending = finished.duration - command.deadline - command.grace;
        eprintln!("{kind:?}: {} processes gone {ending:?} after KILL", finished.stopped);
        world.close();
    }
}

#[tokio::test]
async fn endless_forking_stops_at_the_limit_and_hurts_no_other_session() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 64) else { continue };
        if world.group.processes().is_none() {
            eprintln!("not run with {kind:?}: it does not count");
            world.close();
            continue;
        }
        if kind == CgroupKind::Unified && world.base.limits_memory() {
            eprintln!(
                "not run with {kind:?}: this process is in the group of one session and cannot open another"
            );
            world.close();
            continue;
        }
        let (other_paths, other) = session(&world.base, "second", 64);
        let bomb = bash(&world.group, "bomb", "b() { b | b & }; b; sleep 600");
        let stop = bomb.cancel.clone();
        let count = world.paths.directory.join("pids.current");
        let neighbours = async {
            wait_until_async("its limit", || {
                fs::read_to_string(&count).is_ok_and(|count| count.trim() == "64")
            })
            .await;
            // The session itself gets a clear error, either here or from the shell.
            let own = run(bash(&world.group, "own", "true & wait")).await;
            match own {
                Err(error) => assert!(matches!(error, LaunchError::TooManyProcesses(_)), "{error}"),
                Ok(own) => drop(own),
            }
            let finished = run(bash(&other, "neighbour", "true | cat")).await.unwrap();
            assert_eq!(finished.exit, Exit::Code(0));
            stop.cancel();
            Instant::now()
        };
        let (bombed, stopped) = tokio::join!(run(bomb), neighbours);
        let bombed = bombed.unwrap();
        assert_eq!(bombed.ended_by, EndedBy::Abort, "the neighbour ran before its end");
        assert_eq!((bombed.is_gone, bombed.survivors), (true, 0));
        assert!(bombed.stopped <= 64, "{}", bombed.stopped);
        // A kernel before 6.1 does not report it. The extra process is this one, while it enters or leaves the group.
        if let Ok(peak) = fs::read_to_string(world.paths.directory.join("pids.peak")) {
            assert!((64..=65).contains(&peak.trim().parse::<u32>().unwrap()), "{peak}");
        }
        eprintln!("{kind:?}: {:?} gone {:?} after the abort", bombed.stopped, stopped.elapsed());
        drop(other);
        assert!(other_paths.end_blocking(PATIENCE).unwrap().removed);
        world.close();
    }
}

#[tokio::test]
async fn the_kernel_kills_what_exceeds_the_memory_of_its_session_and_the_answer_names_the_limit() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(World { base, paths, group }) = World::open(kind, 200) else { continue };
        if !base.limits_memory() {
            eprintln!("not run with {kind:?}: it limits no memory");
            World { base, paths, group }.close();
            continue;
        }
        drop(group);
        paths.end_blocking(PATIENCE).unwrap();
        drop(base);

        let base = CgroupBase::open_as_blocking(kind, 4096).unwrap();
        let memory = Some(64 << 20);
        let limits = Limits { processes: 200, memory, ..Limits::default() };
        let paths = base.session_blocking("limited", &limits).unwrap();
        let group = Arc::new(Group::open(&paths).unwrap());
        // This command has no limit for samples. Its shell survives.
        let hoard = "perl -e '$n = 1 << 20; push @h, \"x\" x $n for 1..900'; echo $?";
        let finished = run(bash(&group, "kernel", hoard)).await.unwrap();
        assert_eq!((lines(&finished), finished.exit), (vec!["137".to_owned()], Exit::Code(0)));
        let reached = Ceiling::SessionMemoryReached { limit: 0, is_own: true };
        assert_eq!(finished.ceiling, Some(reached));

        let mut sampled = bash(&group, "sampled", &format!("{hoard}; sleep 600"));
        sampled.limits.memory = memory;
        let finished = run(sampled).await.unwrap();
        assert_eq!(finished.ended_by, EndedBy::Memory);
        let Some(Ceiling::SessionMemory { limit, used }) = finished.ceiling else {
            panic!("{:?}", finished.ceiling)
        };
        // The files in memory of a session may have 256 MiB, and the kernel needs a quarter of that for them.
        assert_eq!(limit, 64 << 20);
        assert!((64 << 20..=384 << 20).contains(&used), "{used}");
        let later = run(bash(&group, "later", "echo ran")).await.unwrap();
        assert_eq!(lines(&later), ["ran"]);
        World { base, paths, group }.close();
    }
}

/// Opens the kinds of groups that limit memory, one after another. In version 2 this process would be in the group too,
/// and the kernel may kill it.
fn bases_that_limit_memory() -> impl Iterator<Item = (CgroupKind, CgroupBase)> {
    [CgroupKind::Pids, CgroupKind::Freezer].into_iter().filter_map(|kind| {
        let base = CgroupBase::open_as_blocking(kind, 4096).ok();
        let base = base.filter(CgroupBase::limits_memory);
        if base.is_none() {
            eprintln!("not run with {kind:?}: it limits no memory");
        }
        Some((kind, base?))
    })
}

#[tokio::test]
async fn a_kill_for_the_limit_of_an_outer_group_is_not_taken_for_that_of_the_session() {
    let _turn = alone().await;
    for (kind, base) in bases_that_limit_memory() {
        let limits = Limits { processes: 200, memory: Some(512 << 20), ..Limits::default() };
        let paths = base.session_blocking("inner", &limits).unwrap();
        let outer = paths.memory.as_ref().unwrap().directory.parent().unwrap().to_owned();
        let limit = |bytes: &str| fs::write(outer.join("memory.limit_in_bytes"), bytes).unwrap();
        let group = Arc::new(Group::open(&paths).unwrap());
        let hoard = "sleep 0.3; exec perl -e '$n = 1 << 20; push @h, \"x\" x $n for 1..1500'";
        let killed = |finished: &Finished| assert_eq!(finished.exit, Exit::Signal(9));

        limit("67108864");
        let mut command = bash(&group, "outer", hoard);
        command.limits.memory = limits.memory;
        let finished = run(command).await.unwrap();
        killed(&finished);
        assert_eq!(finished.ceiling, Some(Ceiling::Memory), "{kind:?}");

        limit("-1");
        let finished = run(bash(&group, "inner", hoard)).await.unwrap();
        killed(&finished);
        let reached = Ceiling::SessionMemoryReached { limit: 0, is_own: true };
        assert_eq!(finished.ceiling, Some(reached), "{kind:?}");
        World { base, paths, group }.close();
    }
}

#[tokio::test]
async fn shared_memory_segments_that_fill_a_session_are_named() {
    let _turn = alone().await;
    for (kind, base) in bases_that_limit_memory() {
        let limits = Limits { processes: 200, memory: Some(64 << 20), ..Limits::default() };
        let paths = base.session_blocking("full", &limits).unwrap();
        let group = Arc::new(Group::open(&paths).unwrap());
        // 512 MiB, of which the process maps a small part at a time: the samples find nothing.
        let fill = "perl -e '$| = 1; $id = shmget 0, 1 << 29, 01600; print $id; $s = \"x\" x 65536; \
            shmwrite $id, $s, $_ << 16, 65536 for 0..8191'";
        let mut command = bash(&group, "full", fill);
        command.limits.memory = limits.memory;
        let finished = run(command).await.unwrap();
        let id = stdout(&finished);
        let remove = ["-e", "shmctl shift, 0, 0", id.as_str()];
        assert!(program("perl").args(remove).status().unwrap().success());
        assert_eq!(finished.ceiling, Some(Ceiling::SessionMemoryFull), "{kind:?}");
        let later = run(bash(&group, "later", "echo ran")).await.unwrap();
        assert_eq!(lines(&later), ["ran"]);
        World { base, paths, group }.close();
    }
}

#[tokio::test]
async fn a_session_is_ended_from_outside_with_all_its_commands() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 200) else { continue };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pids");
        let script = format!(
            "trap '' TERM; sleep 600 & echo $! >{0}.1; (env -i setsid sleep 601 & echo $! >>{0}.1); \
             mv {0}.1 {0}; sleep 600; sleep 600",
            file.display()
        );
        let paths = world.paths.clone();
        let outside = async {
            wait_until_async("the command", || file.exists()).await;
            let begin = Instant::now();
            let end = tokio::task::spawn_blocking(move || paths.end_blocking(PATIENCE));
            let end = end.await.unwrap().unwrap();
            assert!((3..=4).contains(&end.killed), "{end:?}");
            assert_eq!((end.survivors, end.removed), (0, true));
            eprintln!("{kind:?}: a session ended in {:?}", begin.elapsed());
        };
        let (finished, ()) = tokio::join!(run(bash(&world.group, "session", &script)), outside);
        assert_eq!(finished.unwrap().exit, Exit::Signal(9));
        let pids: Vec<_> = fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect();
        assert_gone(&pids);
        // A worker without a control group still runs commands.
        let later = run(bash(&world.group, "later", "echo ran")).await.unwrap();
        assert_eq!(lines(&later), ["ran"]);
        world.close();
    }
}

#[tokio::test]
async fn what_a_dead_daemon_left_is_ended_and_what_a_living_one_has_is_not() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 200) else { continue };
        let dir = tempfile::tempdir().unwrap();
        let (runs, over) = (dir.path().join("runs"), dir.path().join("over"));
        let script = format!(
            "sleep 600 & echo $!; touch {}; until [ -e {} ]; do sleep 0.02; done; kill -0 $! && echo lives",
            runs.display(),
            over.display()
        );
        let others = async {
            wait_until_async("the command", || runs.exists()).await;
            let own = own_directory(&world);
            let dead = own.join("quackd-4194304-17-0");
            let leftover = leave_behind(kind, &dead);
            // A directory with a similar name stays.
            let strange = own.join("quackd-strange");
            fs::create_dir(&strange).unwrap();
            let second = CgroupBase::open_as_blocking(world.base.kind(), 100);
            if kind == CgroupKind::Unified {
                // This process is already in the first base's group.
                assert!(second.is_err());
            }
            drop(second);
            let gone = !dead.exists();
            let state = fs::read_to_string(format!("/proc/{}/stat", leftover.id()));
            let is_dead = state.unwrap().contains(") Z ");
            fs::remove_dir(&strange).unwrap();
            fs::write(&over, "").unwrap();
            (gone, is_dead, leftover)
        };
        let (finished, (gone, is_dead, mut leftover)) =
            tokio::join!(run(bash(&world.group, "living", &script)), others);
        assert_eq!(lines(&finished.unwrap())[1], "lives");
        if kind == CgroupKind::Unified {
            // A process in its own group does not check sibling groups. A new daemon does.
            let own = own_directory(&world);
            world.close();
            World::open(kind, 200).unwrap().close();
            assert!(!own.join("quackd-4194304-17-0").exists());
            leftover.wait().unwrap();
        } else {
            assert!(gone && is_dead, "{kind:?}");
            leftover.wait().unwrap();
            world.close();
        }
    }
}

/// Returns the directory in which daemons create theirs.
fn own_directory(world: &World) -> PathBuf {
    world.base.directory().parent().unwrap().to_owned()
}

/// Creates the leftovers of a killed daemon: a session with a process.
fn leave_behind(kind: CgroupKind, dead: &Path) -> std::process::Child {
    let sleep = program("setsid").args(["sleep", "600"]).spawn().unwrap();
    let leaf = dead.join("first.0/c-0");
    fs::create_dir_all(&leaf).unwrap();
    let file = if kind == CgroupKind::Unified { "cgroup.procs" } else { "tasks" };
    fs::write(leaf.join(file), sleep.id().to_string()).unwrap();
    sleep
}

#[tokio::test]
async fn a_dropped_command_gives_its_leaf_back_when_it_is_empty() {
    let _turn = alone().await;
    for kind in KINDS {
        let Some(world) = World::open(kind, 200) else { continue };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!(
            "trap '' TERM; env -i setsid sleep 600 & echo $! >{0}.1; mv {0}.1 {0}; sleep 600; sleep 600",
            file.display()
        );
        tokio::select! {
            _ = run(bash(&world.group, "dropped", &script)) => panic!("it ended"),
            () = wait_until_async("the command", || file.exists()) => (),
        }
        let pid = fs::read_to_string(file).unwrap().trim().to_owned();
        wait_until_async("its end", || !Path::new(&format!("/proc/{pid}")).exists()).await;
        let script = "cat /proc/self/cgroup";
        // As long as the shell is not reaped, the next command has another leaf.
        let leaf = format!("{}/c-0", world.paths.cgroup);
        let mut is_there = false;
        let begin = Instant::now();
        while !is_there {
            assert!(begin.elapsed() < PATIENCE, "its leaf stays away");
            let finished = run(bash(&world.group, "next", script)).await.unwrap();
            is_there = lines(&finished).iter().any(|line| line.ends_with(&leaf));
        }
        world.close();
    }
}
