//! Tests of undoing and redoing.

use super::world::{World, outcomes};
use crate::replace::journal::undo_id::{MAX_ENTRIES, UndoId};
use crate::replace::journal::{Backup, Expect, Journal, UndoError, apply_blocking};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn undoing_restores_byte_for_byte_and_can_be_undone() {
    let world = World::new(&[("a", "a\r\n\u{e9}a"), ("sub/b", "\u{feff}a\n\n")]);
    fs::write(world.ws("c"), b"\xff\xfea\0\r\0\n\0").unwrap();
    fs::set_permissions(world.ws("a"), fs::Permissions::from_mode(0o700)).unwrap();
    let before = world.contents();
    let first = world.replace("a", "\u{fc}").undo_id.unwrap();
    let after = world.contents();
    assert_eq!(before.len(), after.iter().filter(|(name, new)| before[*name] != **new).count());

    let undone = world.undo_last().unwrap();
    assert_eq!((&undone.what, undone.applied.n_written()), (&first.to_string(), 3));
    assert_eq!(world.contents(), before);
    let by = undone.applied.undo_id.unwrap();
    let again = world.undo(&first).unwrap_err();
    assert_eq!(again.to_string(), format!("'{first}' is undone already, by '{by}'"));
    assert!(matches!(world.undo_last(), Err(UndoError::Nothing)));

    // Redone, and then undone by another worker as the last replacement.
    let redone = world.undo(&by).unwrap().applied.undo_id.unwrap();
    assert_eq!(world.contents(), after);
    let world = world.next_worker();
    assert_eq!(world.undo_last().unwrap().what, redone.to_string());
    assert_eq!(world.contents(), before);
    assert_eq!(fs::metadata(world.ws("a")).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(world.left_over().is_empty());
}

#[test]
fn a_file_that_others_changed_is_left_and_may_be_undone_later() {
    let world = World::new(&[("a", "a"), ("b", "a"), ("c", "a")]);
    let id = world.replace("a", "b").undo_id.unwrap();
    world.write("a", "mine");
    fs::remove_file(world.ws("b")).unwrap();
    let undone = world.undo(&id).unwrap();
    let expected = [("a", "changed since"), ("b", "is gone"), ("c", "written")];
    let expected = expected.map(|(name, why)| (name, why.to_owned()));
    assert_eq!(outcomes(&undone.applied), expected);
    assert_eq!(world.read("a"), "mine");
    world.write("a", "b");
    world.write("b", "b");
    let rest = world.undo(&id).unwrap();
    assert_eq!(outcomes(&rest.applied)[2].1, "has the wanted content already");
    assert_eq!((world.read("a").as_str(), world.read("b").as_str()), ("a", "a"));
    assert!(matches!(world.undo(&id), Err(UndoError::AlreadyUndone { .. })));
}

#[test]
fn steps_are_undone_one_after_the_other() {
    let world = World::new(&[("a", "1")]);
    let ids: Vec<UndoId> = (1..4)
        .map(|n| world.replace(&n.to_string(), &(n + 1).to_string()).undo_id.unwrap())
        .collect();
    // The first replacement does not match the current content.
    let early = world.undo(&ids[0]).unwrap();
    assert_eq!(outcomes(&early.applied), [("a", "changed since".to_owned())]);
    assert!(early.applied.undo_id.is_none());
    for expected in ["3", "2", "1"] {
        world.undo_last().unwrap();
        assert_eq!(world.read("a"), expected);
    }
    assert!(matches!(world.undo_last(), Err(UndoError::Nothing)));
}

#[test]
fn only_the_newest_are_kept() {
    let world = World::new(&[("a", "0")]);
    let mut ids: Vec<UndoId> = Vec::new();
    for n in 0..MAX_ENTRIES + 2 {
        let applied = world.replace("^.*$", &(n + 1).to_string());
        let oldest = n.checked_sub(MAX_ENTRIES).map(|oldest| &ids[oldest]);
        assert_eq!(applied.dropped.first(), oldest);
        ids.push(applied.undo_id.unwrap());
    }
    assert!(ids.is_sorted());
    let gone = world.undo(&ids[0]).unwrap_err();
    assert!(matches!(gone, UndoError::Unknown(_)), "{gone}");
    assert_eq!(fs::read_dir(world.base.join("run/journal")).unwrap().count(), MAX_ENTRIES);
}

#[test]
fn the_oldest_make_room_for_large_originals() {
    let large = "a".repeat(3000);
    let mut world = World::new(&[("a", &large), ("b", "x")]);
    world.journal = Journal::kept_in(world.base.join("run")).with_max_bytes(8000);
    let first = world.replace("a", "b").undo_id.unwrap();
    let second = world.replace("b", "a");
    assert!(second.dropped.is_empty());
    let third = world.replace("a", "b");
    assert_eq!(third.dropped, [first]);
    // An undo without space for its own originals continues without them.
    world.journal = Journal::kept_in(world.base.join("run")).with_max_bytes(6000);
    let undone = world.undo_last().unwrap();
    assert_eq!((undone.what, undone.applied.undo_id), (third.undo_id.unwrap().to_string(), None));
    assert_eq!(world.read("a"), large);
}

#[test]
fn what_has_no_originals_or_no_id_is_not_undone() {
    let world = World::new(&[("a", "a")]);
    assert!(matches!(world.undo_last(), Err(UndoError::Nothing)));
    for id in ["", "1", "1-2", "../1-00000000", "1-0000000G", "01-00000000", "1-00000000"] {
        assert!(matches!(world.undo(&id), Err(UndoError::Unknown(_))), "{id}");
    }
    let (plan, none) = (world.plan("a", "b"), Expect::default());
    apply_blocking(world.session(), &plan, &none, Backup::None, &|| false).unwrap();
    let refused = world.undo_last().unwrap_err().to_string();
    let rest = refused.strip_prefix("the last change, '1-").unwrap();
    assert!(rest.ends_with("', was made without a backup and cannot be undone"), "{refused}");
    assert!(world.next_worker().recover().is_empty());
}

fn replace_without_backup(world: &World, pattern: &str, replacement: &str) {
    let plan = world.plan(pattern, replacement);
    let applied =
        apply_blocking(world.session(), &plan, &Expect::default(), Backup::None, &|| false);
    assert!(applied.unwrap().undo_id.is_none());
}

#[test]
fn an_older_replacement_is_not_taken_for_the_last_one_that_has_no_backup() {
    let world = World::new(&[("a", "1"), ("b", "x")]);
    let first = world.replace("x", "y").undo_id.unwrap();
    let second = world.replace("y", "z").undo_id.unwrap();
    replace_without_backup(&world, "1", "2");
    // Nothing is written, so this does not count as a replacement.
    replace_without_backup(&world, "nothing of this", "");
    let world = world.next_worker();
    let before = world.contents();
    let refused = world.undo_last().unwrap_err();
    assert!(
        matches!(&refused, UndoError::LastHasNoOriginals { id, older }
            if second < *id && *older == [second.clone(), first.clone()]),
        "{refused}"
    );
    let end = format!("; older ones can be undone by id: {second}, {first}");
    assert!(refused.to_string().ends_with(&end), "{refused}");
    assert_eq!(world.contents(), before);
    world.undo(&second).unwrap();
    assert_eq!((world.read("a").as_str(), world.read("b").as_str()), ("2", "y"));
    // A newer replacement with a backup becomes the last one.
    let third = world.replace("2", "3").undo_id.unwrap();
    assert_eq!(world.undo_last().unwrap().what, third.to_string());
    assert!(matches!(world.undo_last(), Err(UndoError::LastHasNoOriginals { .. })));
}

#[test]
fn replacements_without_backup_take_one_place_of_those_that_have_one() {
    let world = World::new(&[("a", "0"), ("b", "x")]);
    let first = world.replace("x", "y").undo_id.unwrap();
    for n in 0..MAX_ENTRIES + 2 {
        replace_without_backup(&world, "^.*$", &(n + 1).to_string());
    }
    assert_eq!(fs::read_dir(world.base.join("run/journal")).unwrap().count(), 2);
    world.write("b", "y");
    assert_eq!(world.undo(&first).unwrap().applied.n_written(), 1);
}

#[test]
fn one_that_died_without_backup_is_the_last_one_if_it_has_changed_a_file() {
    for (content, is_last) in [("b", true), ("a", false)] {
        let world = World::new(&[("a", "a"), ("x", "x")]);
        let first = world.replace("x", "y").undo_id.unwrap();
        replace_without_backup(&world, "a", "b");
        let mut names = fs::read_dir(world.base.join("run/journal")).unwrap();
        let entry = names
            .find(|name| name.as_ref().unwrap().file_name().to_string_lossy().starts_with("2-"));
        let manifest = entry.unwrap().unwrap().path().join("manifest.jsonl");
        let text = fs::read_to_string(&manifest).unwrap();
        let begun: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
        fs::write(&manifest, begun).unwrap();
        world.write("a", content);
        let world = world.next_worker();
        let undone = world.undo_last();
        if is_last {
            assert!(matches!(undone, Err(UndoError::LastHasNoOriginals { .. })), "{undone:?}");
        } else {
            assert_eq!(undone.unwrap().what, first.to_string());
        }
    }
}

#[test]
fn where_the_last_one_cannot_be_undone_older_ones_are_named() {
    let world = World::new(&[("a", "1"), ("b", "1"), ("c", "x")]);
    let first = world.replace("x", "y").undo_id.unwrap();
    let second = world.replace("1", "2").undo_id.unwrap();
    world.write("a", "mine");
    let undone = world.undo_last().unwrap();
    assert_eq!((&undone.what, undone.applied.n_written()), (&second.to_string(), 1));
    assert_eq!(undone.older, std::slice::from_ref(&first));
    fs::remove_file(world.ws("b")).unwrap();
    let undone = world.undo_last().unwrap();
    assert_eq!((&undone.what, undone.applied.n_written()), (&second.to_string(), 0));
    assert_eq!(undone.older, std::slice::from_ref(&first));
    // An undo by id lists no older entries.
    assert!(world.undo(&second).unwrap().older.is_empty());
    assert_eq!(world.undo(&first).unwrap().applied.n_written(), 1);
    assert_eq!(world.read("c"), "x");
    assert!(world.undo_last().unwrap().older.is_empty());
}

#[test]
fn an_interrupted_replacement_is_told_by_the_next_answer_and_can_be_undone() {
    let world = World::new(&[("a", "a"), ("b", "a"), ("c", "a"), ("d", "a")]);
    let before = world.contents();
    let id = world.replace("a", "b").undo_id.unwrap();
    // Simulates a crash after the first two files, while the second was written in place.
    let manifest = world.base.join("run/journal").join(id.to_string()).join("manifest.jsonl");
    let text = fs::read_to_string(&manifest).unwrap();
    let steps: Vec<&str> = text.lines().take(5).collect();
    fs::write(&manifest, format!("{}\n{{\"wro", steps.join("\n"))).unwrap();
    let tag = |line: &str| line.split("\"tag\":\"").nth(1).unwrap()[..16].to_owned();
    for (name, content, staged) in [("b", "b\u{0}", "a"), ("c", "a", "b"), ("d", "changed", "")] {
        let step =
            steps.iter().find(|line| line.contains(&format!("\"path\":\"{name}\""))).unwrap();
        world.write(name, content);
        if !staged.is_empty() {
            world.write(&format!(".quackd-{}.tmp", tag(step)), staged);
        }
    }
    let world = world.next_worker();
    assert!(matches!(world.undo(&"9-00000000"), Err(UndoError::Unknown(_))));
    assert!(world.left_over().is_empty());
    // The error did not report it.
    let told = world.replace("nothing of this", "").interrupted;
    let told: Vec<_> = told
        .iter()
        .map(|one| (&one.undo_id, one.n_new, one.n_old, one.n_torn, one.n_other))
        .collect();
    assert_eq!(told, [(&id, 1, 1, 1, 1)]);
    assert!(world.replace("nothing of this", "").interrupted.is_empty());
    let undone = world.undo_last().unwrap();
    assert_eq!((&undone.what, undone.applied.n_written()), (&id.to_string(), 2));
    world.write("d", "a");
    assert_eq!(world.contents(), before);
    // It stays reported in the same way until it is completely undone.
    let world = world.next_worker();
    assert_eq!(world.recover().len(), 1);
    world.undo(&id).unwrap();
    assert!(world.next_worker().recover().is_empty());
}
