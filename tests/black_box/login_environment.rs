//! The login environment: a service manager starts the daemon with a minimal environment, and
//! commands still find the programs of the user's login shell.

use crate::harness::{Daemon, Session, is_alive, wait_for, write_program};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const FOUND: &str = "quack\n\n[Exit code: 0]";

/// Puts `hello-duck` into a directory that only the user's start files add to PATH. Writes the
/// start files of every login shell that the user may have.
fn world(start_file: &str) -> Daemon {
    let world = Daemon::absent();
    let tools = world.home().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let tool = tools.join("hello-duck");
    write_program(&tool, "#!/bin/sh\necho quack\n");
    write_start_files(&world, start_file);
    world
}

fn write_start_files(world: &Daemon, text: &str) {
    for name in [".bash_profile", ".zprofile", ".profile"] {
        std::fs::write(world.home().join(name), text).unwrap();
    }
}

fn stop(world: &mut Daemon) {
    world.signal(Signal::SIGTERM);
    assert_eq!(world.wait(), Some(0));
}

fn bash(world: &Daemon, command: &str) -> String {
    let wire = world.wire();
    first_answer(&wire.attach(world.repo("a").path()), command)
}

/// The answer to a command that has run. A worker may need more time than a call waits for it, and it waits for the
/// login shell too.
fn first_answer(session: &Session<'_>, command: &str) -> String {
    wait_for("a worker", || {
        let text = session.bash(command);
        (!text.starts_with("Error: Session worker is restarting")).then_some(text)
    })
}

fn kept(world: &Daemon) -> PathBuf {
    world.app().join("login-environment.json")
}

/// Starts the daemon after `prepare` until its first command answers [`FOUND`]. That command waits for the login shell
/// for a few seconds, in which the shell of a busy machine may not have answered.
#[track_caller]
fn boot_until_the_first_finds(world: &mut Daemon, command: &str, prepare: impl Fn(&Daemon)) {
    let mut others = Vec::new();
    while others.len() < 8 {
        prepare(world);
        world.boot_bare();
        let answer = bash(world, command);
        if answer == FOUND {
            return;
        }
        others.push(answer);
        stop(world);
    }
    panic!("no first command has found it: {others:?}");
}

/// Removes the answer of an earlier login shell.
fn forget(world: &Daemon) {
    std::fs::remove_file(kept(world)).ok();
}

#[test]
fn the_first_command_finds_the_tools_of_the_login_shell_and_the_next_daemon_needs_no_shell() {
    let mut world = world(
        "echo noise; export OPENAI_API_KEY=secret-of-the-profile\n\
         PATH=\"$HOME/tools:$PATH\"; export PATH\n",
    );
    boot_until_the_first_finds(&mut world, "hello-duck", forget);
    assert!(!bash(&world, "env").contains("secret"));
    let text = wait_for("the answer to be kept", || {
        let text = std::fs::read_to_string(kept(&world)).ok()?;
        text.ends_with('}').then_some(text)
    });
    assert!(text.contains("/tools:") && !text.contains("secret"), "{text}");
    let mode = std::fs::metadata(kept(&world)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    stop(&mut world);

    write_start_files(&world, "sleep 1000\n");
    world.boot_bare();
    assert_eq!(bash(&world, "hello-duck"), FOUND);
    world.wait_for_log("using the cached login environment");
    stop(&mut world);

    // An incomplete file is ignored.
    write_start_files(&world, "PATH=\"$HOME/tools:$PATH\"; export PATH\n");
    boot_until_the_first_finds(&mut world, "hello-duck", |world| {
        std::fs::write(kept(world), &text[..text.len() / 2]).unwrap();
    });
}

#[test]
fn a_profile_that_hangs_delays_the_first_call_a_little_and_ends_with_the_daemon() {
    let mut world = world("trap '' TERM; setsid sleep 1000 & sleep 1000\n");
    world.boot_bare();
    assert_eq!(bash(&world, "echo quack"), FOUND);
    // The call has not waited for the profile, which still runs.
    let processes = wait_for("the profile to run", || {
        let all = world.descendants().into_iter();
        let found: Vec<_> = all.filter(|process| process.name == "sleep").collect();
        (found.len() == 2).then_some(found)
    });
    assert!(processes.iter().all(is_alive));
    stop(&mut world);
    wait_for("the profile to be gone", || (!processes.iter().any(is_alive)).then_some(()));
}

#[test]
fn a_profile_that_is_slow_counts_as_soon_as_it_has_ended() {
    let mut world = world(
        "until [ -e ~/../gates/go ]; do sleep 0.02; done; PATH=\"$HOME/tools:$PATH\"; export PATH\n",
    );
    world.boot_bare();
    let (wire, repo) = (world.wire(), world.repo("a"));
    let session = wire.attach(repo.path());
    let text = first_answer(&session, "hello-duck");
    assert!(text.contains("[Exit code: 127]"), "{text}");
    world.open_gate("go");
    wait_for("the tools to be found", || (session.bash("hello-duck") == FOUND).then_some(()));
}

#[test]
fn names_of_the_configuration_pass_but_for_the_daemons_own_keys() {
    let mut world = world("export DUCK_SOUND=quack OTHER_SOUND=moo EXA_API_KEY=secret\n");
    world.configure("[tools]\nenv = [\"DUCK_SOUND\", \"EXA_API_KEY\"]\n");
    let command = "echo $DUCK_SOUND$OTHER_SOUND$EXA_API_KEY";
    boot_until_the_first_finds(&mut world, command, forget);
}

#[test]
fn a_login_shell_that_is_not_wanted_is_not_asked() {
    let mut world = world("echo ran >>~/ran; PATH=\"$HOME/tools:$PATH\"; export PATH\n");
    world.configure("[environment]\nlogin_shell = false\n");
    world.boot_bare();
    assert_eq!(bash(&world, "echo $PATH"), "/usr/bin:/bin\n\n[Exit code: 0]");
    assert!(!world.home().join("ran").exists() && !kept(&world).exists());
}
