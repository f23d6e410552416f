//! Tests with a journal forged by commands of the session: it can do no more than those commands.

use super::world::{World, outcomes};
use crate::replace::journal::UndoError;
use crate::{Confinement, Toolbox};
use quackd_protocol::policy::{Policy, Profile};
use quackd_sandbox::git::GitDirectories;
use quackd_sandbox::{MacPaths, Seatbelt};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

/// The only entry of a journal.
fn entry(world: &World) -> PathBuf {
    let mut entries = fs::read_dir(world.base.join("run/journal")).unwrap();
    entries.next().unwrap().unwrap().path()
}

#[test]
fn names_that_lead_elsewhere_or_are_protected_are_left() {
    for (path, why) in [
        ("../outside/x", "changed since"),
        ("/etc/hostname", "changed since"),
        ("out/x", "changed since"),
        (".envrc", "is protected: it is run when a shell or a tool starts"),
        ("", "changed since"),
    ] {
        let world = World::new(&[("a", "a"), (".envrc", "b")]);
        fs::write(world.base.join("outside/x"), "b").unwrap();
        symlink(world.base.join("outside"), world.ws("out")).unwrap();
        let mut request = world.request("a", "b");
        request.scope.include = vec!["a".into()];
        world.apply(&world.plan_of(&request)).unwrap();
        let manifest = entry(&world).join("manifest.jsonl");
        let text = fs::read_to_string(&manifest).unwrap();
        let quoted = serde_json::to_string(path).unwrap();
        fs::write(&manifest, text.replace("\"path\":\"a\"", &format!("\"path\":{quoted}")))
            .unwrap();
        let undone = world.undo_last().unwrap();
        assert_eq!(outcomes(&undone.applied), [(path, why.to_owned())]);
        assert_eq!(fs::read_to_string(world.base.join("outside/x")).unwrap(), "b");
        assert_eq!((world.read(".envrc").as_str(), world.read("a").as_str()), ("b", "b"));
    }
}

#[test]
fn a_damaged_original_is_not_written() {
    for damage in ["", "x", "xx"] {
        let world = World::new(&[("a", "a")]);
        world.replace("a", "b");
        fs::write(entry(&world).join("originals"), damage).unwrap();
        let undone = world.undo_last().unwrap();
        let why = "its original in the journal is damaged";
        assert_eq!(outcomes(&undone.applied), [("a", why.to_owned())]);
        assert_eq!(world.read("a"), "b");
    }
}

#[test]
fn lengths_and_places_out_of_range_are_refused() {
    for (from, to) in [
        ("\"len\":1", "\"len\":18446744073709551615"),
        ("\"at\":0", "\"at\":18446744073709551615"),
        ("\"at\":0", "\"at\":9223372036854775807"),
    ] {
        let world = World::new(&[("a", "a")]);
        world.replace("a", "b");
        let manifest = entry(&world).join("manifest.jsonl");
        let text = fs::read_to_string(&manifest).unwrap();
        assert!(text.contains(from));
        fs::write(&manifest, text.replace(from, to)).unwrap();
        // The undo continues without its own journal entry, because its originals would be too large.
        let undone = world.undo_last().unwrap();
        let why = "its original in the journal is damaged";
        assert_eq!(outcomes(&undone.applied), [("a", why.to_owned())]);
    }
}

#[test]
fn links_and_fifos_in_place_of_the_journal_are_not_followed_and_not_waited_for() {
    let world = World::new(&[("a", "a")]);
    symlink(world.base.join("outside"), world.base.join("run/journal")).unwrap();
    let refused = world.apply(&world.plan("a", "b")).unwrap_err().to_string();
    assert!(refused.starts_with("the originals cannot be kept: "), "{refused}");
    assert_eq!(world.read("a"), "a");
    assert!(matches!(world.undo_last(), Err(UndoError::Nothing)));
    fs::remove_file(world.base.join("run/journal")).unwrap();

    let id = world.replace("a", "b").undo_id.unwrap();
    let manifest = entry(&world).join("manifest.jsonl");
    fs::remove_file(&manifest).unwrap();
    nix::unistd::mkfifo(&manifest, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(matches!(world.undo(&id), Err(UndoError::Unknown(_))));
    assert!(matches!(world.undo_last(), Err(UndoError::Nothing)));
    let world = world.next_worker();
    assert!(world.recover().is_empty());
    assert_eq!(world.replace("b", "c").n_written(), 1);
}

#[test]
fn a_crowd_of_forged_entries_does_not_stop_the_work() {
    let world = World::new(&[("a", "a")]);
    let journal = world.base.join("run/journal");
    for n in 0..50 {
        fs::create_dir_all(journal.join(format!("{n}-00000000"))).unwrap();
    }
    fs::create_dir(journal.join("18446744073709551615-00000000")).unwrap();
    fs::write(journal.join("3-00000001"), "a file").unwrap();
    assert_eq!(world.replace("a", "b").n_written(), 1);
    assert_eq!(world.undo_last().unwrap().applied.n_written(), 1);
}

/// The toolbox of a worker in tier M.
fn toolbox_hiding(world: &World, hidden: Vec<PathBuf>) -> Toolbox {
    let at = |name: &str| world.base.join(name);
    let policy = Policy { profile: Profile::WorkspaceWrite, hidden, ..Policy::default() };
    let places = MacPaths {
        workspace: at("ws"),
        run_dir: at("run"),
        state_dir: at("state"),
        home: at("home"),
        temporary: at("run/tmp"),
        toolchains: Vec::new(),
        git: GitDirectories::default(),
        pins: Vec::new(),
        original: None,
        objects: None,
        proxy: None,
    };
    let profile = Seatbelt::new(&policy, &places);
    assert!(profile.is_some());
    let confinement = Confinement::new(policy, true, String::new()).with_profile(profile);
    Toolbox {
        confinement: Arc::new(confinement),
        ..Toolbox::new(at("ws"), at("run"), Vec::new(), false)
    }
}

#[test]
fn a_forged_entry_does_not_show_the_content_of_a_hidden_file() {
    let world = World::new(&[("a", "a")]);
    world.replace("a", "b");
    // Simulates a crash after the file was written: the header and the step are left.
    let manifest = entry(&world).join("manifest.jsonl");
    let text = fs::read_to_string(&manifest).unwrap();
    let lines: Vec<&str> = text.lines().take(2).collect();
    fs::write(&manifest, format!("{}\n", lines.join("\n"))).unwrap();

    for (hidden, expected) in [(vec![world.ws("a")], (0, 1)), (Vec::new(), (1, 0))] {
        let toolbox = toolbox_hiding(&world, hidden);
        let recovery = toolbox.recovery().unwrap();
        assert_eq!(recovery(), 1);
        let told = toolbox.state.journal.untold_blocking();
        let told: Vec<_> = told.iter().map(|one| (one.n_new, one.n_other)).collect();
        assert_eq!(told, [expected]);
    }
}
