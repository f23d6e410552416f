//! Import of metadata that two programs write. The result contains all entries of both and no others. It can be
//! parsed, and importing again changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quackd_protocol::metadata::{Metadata, Session, Workspace};
use quackd_rubber_duck::fuzzing::{Imported, Importer, parsed};
use quackd_rubber_duck::rebase;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

fn sessions(metadata: &Metadata) -> BTreeSet<&str> {
    metadata.sessions.iter().map(|session| session.id.as_str()).collect()
}

fn paths(metadata: &Metadata) -> BTreeSet<&str> {
    metadata.workspaces.iter().map(|workspace| workspace.path.as_str()).collect()
}

fn check(importer: &mut Importer, base: &Metadata, ours: &Metadata, theirs: &Metadata) -> Metadata {
    let Imported { metadata, gone, rest, n_notes } = importer.import(base, ours, theirs);
    assert!(n_notes <= 20);
    let (before, here, there) = (sessions(base), sessions(ours), sessions(theirs));
    let merged = sessions(&metadata);
    assert!(merged.is_superset(&here), "of ours nothing is deleted here");
    assert!(merged.iter().all(|id| here.contains(id) || there.contains(id)), "out of nothing");
    for id in &gone.sessions {
        let id = id.as_str();
        assert!(before.contains(id) && merged.contains(id) && !there.contains(id), "{id}");
    }
    assert!(
        paths(&metadata).iter().all(|it| paths(ours).contains(it) || paths(theirs).contains(it))
    );
    // The written file parses to the same metadata.
    let written = serde_json::to_vec_pretty(&rest).expect("it is JSON");
    assert_eq!(parsed(&written).as_ref(), Some(&rest));
    // Without further changes, importing again changes nothing.
    let mut later = Importer::default();
    let again = later.import(&rest, &rest, &rest);
    assert_eq!(again.metadata, rest);
    assert!(again.gone.is_empty() && again.n_notes == 0);
    assert_eq!(
        &rebase(base, base, ours),
        ours,
        "nothing came of the save but what was handed over"
    );
    rest
}

/// Splits the input into three files.
fn files(data: &[u8]) {
    let mut texts = data.split(|byte| *byte == 0);
    let mut next = || texts.next().and_then(parsed);
    let (Some(base), Some(ours), Some(theirs)) = (next(), next(), next()) else { return };
    check(&mut Importer::default(), &base, &ours, &theirs);
}

fn session(id: u8, workspace: u8) -> Session {
    let value = json!({"id": format!("s{id}"), "workspaceId": format!("w{workspace}"), "name": ""});
    serde_json::from_value(value).expect("a session")
}

fn workspace(id: u8, path: u8) -> Workspace {
    let value = json!({"id": format!("w{id}"), "path": format!("/{path}")});
    serde_json::from_value(value).expect("a workspace")
}

/// Makes one change of a program: a kind, an entry and a value.
fn change(metadata: &mut Metadata, [kind, which, to]: [u8; 3]) {
    let (which, to) = (which % 6, to % 6);
    let known = metadata.sessions.iter_mut().find(|it| it.id.as_str() == format!("s{which}"));
    let text = if to == 0 { String::new() } else { format!("2026-01-01T00:00:0{to}Z") };
    match (kind % 10, known) {
        (0, None) => metadata.sessions.push(session(which, to).into()),
        (1, Some(_)) => metadata.sessions.retain(|it| it.id.as_str() != format!("s{which}")),
        (2, Some(known)) => known.name = text,
        (3, Some(known)) => known.pi_session_file = text,
        (4, Some(known)) => known.last_active_at = text,
        (5, Some(known)) => drop(known.other.insert("x".to_owned(), Value::from(to))),
        (6, _) => metadata.active_voice_session_id = Some(format!("s{which}").as_str().into()),
        (7, _) if metadata.workspaces.iter().all(|it| it.id.as_str() != format!("w{which}")) => {
            metadata.workspaces.push(workspace(which, to).into());
        }
        (8, _) => metadata.workspaces.retain(|it| it.path != format!("/{which}")),
        (9, _) => drop(metadata.other.insert("y".to_owned(), Value::from(to))),
        _ => {}
    }
}

/// Two programs change one file in turn, with a clock.
fn writers(data: &[u8]) {
    let mut importer = Importer::default();
    let mut held = Metadata::default();
    let (mut ours, mut theirs) = (held.clone(), held.clone());
    for step in data.chunks_exact(4).take(64) {
        let &[who, a, b, c] = step else { return };
        match who % 5 {
            0 | 1 => change(&mut ours, [a, b, c]),
            2 | 3 => change(&mut theirs, [a, b, c]),
            _ => {
                importer.wait(Duration::from_millis(u64::from(a) * 64));
                let merged = check(&mut importer, &held, &ours, &theirs);
                importer.note(&theirs, &merged);
                // The other program reads the file, or continues with its old copy.
                if b % 2 == 0 {
                    theirs = merged.clone();
                }
                (ours, held) = (merged.clone(), merged);
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((which, content)) = data.split_first() else { return };
    match which % 2 {
        0 => files(content),
        _ => writers(content),
    }
});
