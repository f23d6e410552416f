//! P-12: another program reads the metadata, changes its copy and writes it back while quackd saves, like the
//! macOS app. Uses real files; unit tests cover the import itself.

#[cfg(test)]
mod tests {
    use quackd_protocol::metadata::{Metadata, Session, Shared, Workspace};
    use quackd_rubber_duck::{Files, Gone, Opened, Paths, Saved, Writer, open_blocking, rebase};
    use quackd_store::{Origin, Snapshot, StoreError};
    use serde_json::json;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    fn session(id: &str) -> Shared<Session> {
        let value = json!({"id": id, "workspaceId": "w", "name": id});
        serde_json::from_value(value).unwrap()
    }

    fn metadata(sessions: &[&str]) -> Metadata {
        let workspace: Shared<Workspace> =
            serde_json::from_value(json!({"id": "w", "path": "/w"})).unwrap();
        Metadata {
            workspaces: vec![workspace],
            sessions: sessions.iter().map(|id| session(id)).collect(),
            ..Metadata::default()
        }
    }

    fn snapshot(sessions: &[&str]) -> Snapshot {
        Snapshot { metadata: metadata(sessions).into(), ..Snapshot::default() }
    }

    fn metadata_only(metadata: Metadata) -> Snapshot {
        Snapshot { metadata: metadata.into(), ..Snapshot::default() }
    }

    fn ids(metadata: &Metadata) -> Vec<&str> {
        metadata.sessions.iter().map(|session| session.id.as_str()).collect()
    }

    fn paths(dir: &Path) -> Paths {
        Paths { metadata: dir.join("metadata.json"), state: dir.join("quackd-state.json") }
    }

    fn open(dir: &Path) -> Opened {
        open_blocking(paths(dir))
    }

    fn settle(dir: &Path) {
        let path = paths(dir).state;
        let mut state: serde_json::Value =
            serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        state["settled"] = true.into();
        fs::write(path, state.to_string()).unwrap();
    }

    fn on_disk(dir: &Path) -> Vec<String> {
        let text = fs::read(dir.join("metadata.json")).unwrap();
        let metadata: Metadata = serde_json::from_slice(&text).unwrap();
        ids(&metadata).into_iter().map(str::to_owned).collect()
    }

    /// Writes like the app: a new file, renamed into place.
    fn app_writes(dir: &Path, metadata: &Metadata) {
        app_writes_to(dir, "metadata.json", metadata);
    }

    #[expect(clippy::disallowed_methods, reason = "it is the other program that renames here")]
    fn app_writes_to(dir: &Path, file: &str, metadata: &Metadata) {
        let new = dir.join("app.tmp");
        fs::write(&new, serde_json::to_vec(metadata).unwrap()).unwrap();
        fs::rename(new, dir.join(file)).unwrap();
    }

    /// Creates a directory whose file has these sessions, and its writer.
    fn world(sessions: &[&str]) -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().unwrap();
        app_writes(dir.path(), &metadata(sessions));
        let mut files = open(dir.path()).files.unwrap();
        files.save_blocking(&snapshot(sessions)).unwrap();
        // As after an orderly end a while ago: the other program knows everything.
        settle(dir.path());
        drop(files);
        let files = open(dir.path()).files.unwrap();
        (dir, files)
    }

    #[test]
    fn a_save_brings_what_the_other_has_written_and_keeps_both() {
        let (dir, mut files) = world(&["s"]);
        assert!(!files.has_changed_blocking());
        app_writes(dir.path(), &metadata(&["s", "app"]));
        assert!(files.has_changed_blocking());
        let saved = files.save_blocking(&snapshot(&["s", "ours"])).unwrap();
        assert_eq!(ids(&saved.metadata), ["s", "ours", "app"]);
        assert_eq!(on_disk(dir.path()), ["s", "ours", "app"]);
        assert!(!saved.is_behind && !files.has_changed_blocking());
        // There is nothing to merge and nothing to write.
        let inode = fs::metadata(dir.path().join("metadata.json")).unwrap().modified().unwrap();
        let again =
            files.save_blocking(&Snapshot { metadata: saved.metadata.clone(), ..snapshot(&[]) });
        let again = again.unwrap();
        assert_eq!((again.metadata, again.gone), (saved.metadata, Gone::default()));
        let now = fs::metadata(dir.path().join("metadata.json")).unwrap().modified().unwrap();
        assert_eq!(inode, now);
    }

    #[test]
    fn an_old_copy_that_is_put_back_loses_nothing_of_ours() {
        let (dir, mut files) = world(&["s"]);
        files.save_blocking(&snapshot(&["s", "ours"])).unwrap();
        app_writes(dir.path(), &metadata(&["s", "app"]));
        let saved = files.save_blocking(&snapshot(&["s", "ours"])).unwrap();
        assert_eq!(on_disk(dir.path()), ["s", "ours", "app"]);
        assert_eq!(saved.gone, Gone::default());
    }

    #[test]
    fn what_the_other_has_deleted_is_told_and_not_written_again_until_it_is_kept() {
        let (dir, mut files) = world(&["s", "t"]);
        app_writes(dir.path(), &metadata(&["s"]));
        let saved = files.save_blocking(&snapshot(&["s", "t", "new"])).unwrap();
        assert_eq!(ids(&saved.metadata), ["s", "t", "new"]);
        assert_eq!(saved.gone.sessions, ["t".into()]);
        assert_eq!(on_disk(dir.path()), ["s", "new"]);
        // A process of this session runs, so the caller keeps it.
        let kept = Snapshot { metadata: saved.metadata, ..Snapshot::default() };
        let saved = files.save_blocking(&kept).unwrap();
        assert_eq!(saved.gone, Gone::default());
        assert_eq!(on_disk(dir.path()), ["s", "t", "new"]);
    }

    #[test]
    fn a_file_that_became_unusable_is_moved_aside_and_ours_is_written_again() {
        let spoilt: [fn(&Path); 4] = [
            |path| fs::write(path, "{\"version\": 1, \"work").unwrap(),
            |path| fs::write(path, "{}").unwrap(),
            |path| fs::write(path, "").unwrap(),
            |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
        ];
        for spoil in spoilt {
            let (dir, mut files) = world(&["s", "t"]);
            spoil(&dir.path().join("metadata.json"));
            assert!(files.has_changed_blocking());
            let saved = files.save_blocking(&snapshot(&["s", "t"])).unwrap();
            let aside = saved.set_aside.unwrap();
            assert_eq!(aside.path, dir.path().join("metadata.json.corrupt-1"));
            assert!(aside.path.exists() && !aside.reason.is_empty());
            assert_eq!(on_disk(dir.path()), ["s", "t"]);
            // A program that lost the file also lost our sessions: a missing session was not deleted then.
            app_writes(dir.path(), &metadata(&["s"]));
            let saved = files.save_blocking(&snapshot(&["s", "t"])).unwrap();
            assert_eq!((saved.gone, saved.set_aside), (Gone::default(), None));
            assert_eq!(on_disk(dir.path()), ["s", "t"]);
        }
    }

    #[test]
    fn a_file_that_was_removed_is_written_again() {
        let (dir, mut files) = world(&["s"]);
        fs::remove_file(dir.path().join("metadata.json")).unwrap();
        assert!(files.has_changed_blocking());
        files.save_blocking(&snapshot(&["s"])).unwrap();
        assert_eq!(on_disk(dir.path()), ["s"]);
    }

    #[test]
    fn a_newer_format_is_left_alone_and_asked_about_once() {
        let (dir, mut files) = world(&["s"]);
        let newer = r#"{"version":2,"everything":"else"}"#;
        fs::write(dir.path().join("metadata.json"), newer).unwrap();
        assert!(files.has_changed_blocking());
        let refused = files.save_blocking(&snapshot(&["s", "t"]));
        assert!(matches!(refused, Err(StoreError::TooNew { found: 2, .. })), "{refused:?}");
        assert!(!files.has_changed_blocking());
        assert_eq!(fs::read_to_string(dir.path().join("metadata.json")).unwrap(), newer);
        app_writes(dir.path(), &metadata(&["s"]));
        assert!(files.has_changed_blocking());
        files.save_blocking(&snapshot(&["s", "t"])).unwrap();
        assert_eq!(on_disk(dir.path()), ["s", "t"]);
    }

    #[test]
    fn after_a_kill_nothing_is_missing_that_was_acknowledged_before_or_after() {
        let (dir, mut files) = world(&["s"]);
        files.save_blocking(&snapshot(&["s", "ours"])).unwrap();
        // The app writes its old copy back, and the daemon is killed before it reads that.
        app_writes(dir.path(), &metadata(&["s", "app"]));
        drop(files);
        let opened = open(dir.path());
        assert_eq!(ids(&opened.snapshot.metadata), ["s", "ours", "app"]);
        assert_eq!((opened.metadata.unwrap().0, opened.restored), (Origin::File, 1));
    }

    #[test]
    fn after_a_kill_what_was_taken_out_of_the_way_unread_is_there() {
        let (dir, mut files) = world(&["s"]);
        files.save_blocking(&snapshot(&["s", "ours"])).unwrap();
        drop(files);
        let theirs = serde_json::to_vec(&metadata(&["s", "app"])).unwrap();
        fs::write(dir.path().join("metadata.json.theirs"), theirs).unwrap();
        let Opened { snapshot, files, .. } = open(dir.path());
        assert_eq!(ids(&snapshot.metadata), ["s", "ours", "app"]);
        // The next save contains it and removes the leftovers.
        let mut files = files.unwrap();
        assert!(files.has_changed_blocking(), "so there is a next save");
        files.save_blocking(&snapshot).unwrap();
        assert_eq!(on_disk(dir.path()), ["s", "ours", "app"]);
        assert!(!dir.path().join("metadata.json.theirs").exists());
    }

    #[test]
    fn after_a_kill_a_name_is_kept_that_was_taken_out_of_the_way_unread() {
        // The other program has named a session that it made just before, and then perhaps another file.
        for (last, name) in [(None, "second"), (Some("third"), "third")] {
            let (dir, mut files) = world(&["s"]);
            files.save_blocking(&snapshot(&["s", "app"])).unwrap();
            drop(files);
            let named = |name: &str| {
                let mut copy = metadata(&["s", "app"]);
                copy.sessions[1].name = name.to_owned();
                serde_json::to_vec(&copy).unwrap()
            };
            fs::write(dir.path().join("metadata.json.theirs"), named("second")).unwrap();
            if let Some(last) = last {
                fs::write(dir.path().join("metadata.json"), named(last)).unwrap();
            }
            let Opened { snapshot, files, .. } = open(dir.path());
            let names: Vec<_> =
                snapshot.metadata.sessions.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, ["s", name]);
            files.unwrap().save_blocking(&snapshot).unwrap();
            assert_eq!(open(dir.path()).snapshot.metadata.sessions[1].name, name);
        }
    }

    #[test]
    fn after_a_kill_an_old_copy_takes_back_neither_a_name_nor_the_active_session() {
        let value = |name: &str, active: &str| {
            let mut copy = metadata(&["s", "t", "u"]);
            copy.sessions[0].name = name.to_owned();
            copy.active_voice_session_id = Some(active.into());
            copy
        };
        // The other program wrote what it had read two or three changes ago: in place, or in the way of a save.
        for file in ["metadata.json", "metadata.json.theirs"] {
            for (name, active) in [("first", "s"), ("second", "t")] {
                let (dir, mut files) = world(&["s", "t", "u"]);
                for (name, active) in [
                    ("first", "s"),
                    ("second", "t"),
                    ("third", "u"),
                    ("third", "s"),
                    ("third", "u"),
                ] {
                    files.save_blocking(&metadata_only(value(name, active))).unwrap();
                }
                drop(files);
                app_writes_to(dir.path(), file, &value(name, active));
                let opened = open(dir.path());
                assert_eq!(*opened.snapshot.metadata, value("third", "u"), "{file} {name}");
                if file == "metadata.json" {
                    continue;
                }
                // It writes an old copy after the start.
                let mut files = opened.files.unwrap();
                files.save_blocking(&opened.snapshot).unwrap();
                app_writes(dir.path(), &value(name, active));
                let saved = files.save_blocking(&opened.snapshot).unwrap();
                assert_eq!(*saved.metadata, value("third", "u"), "after the start: {name}");
            }
        }
    }

    #[test]
    fn after_a_kill_an_old_copy_brings_no_deleted_session_back() {
        for file in ["metadata.json", "metadata.json.theirs"] {
            let (dir, mut files) = world(&["s", "t", "u"]);
            for left in [&["s", "t"][..], &["s", "t", "new"], &["s", "new"], &["s"], &["s", "last"]]
            {
                files.save_blocking(&snapshot(left)).unwrap();
            }
            drop(files);
            app_writes_to(dir.path(), file, &metadata(&["s", "t", "u", "new", "app"]));
            let opened = open(dir.path());
            assert_eq!(ids(&opened.snapshot.metadata), ["s", "last", "app"], "{file}");
            // It writes an old copy after the start.
            let mut files = opened.files.unwrap();
            files.save_blocking(&opened.snapshot).unwrap();
            app_writes(dir.path(), &metadata(&["s", "t", "new", "app"]));
            let saved = files.save_blocking(&opened.snapshot).unwrap();
            assert_eq!(ids(&saved.metadata), ["s", "last", "app"], "{file}");
        }
    }

    #[test]
    fn after_a_kill_a_change_of_the_other_counts_as_before() {
        let (dir, mut files) = world(&["s", "t"]);
        files.save_blocking(&snapshot(&["s", "t", "ours"])).unwrap();
        drop(files);
        let mut changed = metadata(&["s", "t", "ours"]);
        changed.sessions[1].name = "new".to_owned();
        changed.active_voice_session_id = Some("t".into());
        for file in ["metadata.json", "metadata.json.theirs"] {
            app_writes_to(dir.path(), file, &changed);
            assert_eq!(*open(dir.path()).snapshot.metadata, changed, "{file}");
        }
    }

    #[test]
    fn our_state_serves_if_the_shared_file_cannot() {
        let (dir, mut files) = world(&["s"]);
        files.save_blocking(&snapshot(&["s", "ours"])).unwrap();
        drop(files);
        let path = dir.path().join("metadata.json");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "{broken").unwrap();
        let opened = open(dir.path());
        assert_eq!(ids(&opened.snapshot.metadata), ["s", "ours"]);
        let (origin, _) = opened.metadata.unwrap();
        assert!(matches!(origin, Origin::Backup { quarantined: Some(_), .. }));
    }

    #[test]
    fn what_another_program_writes_into_the_file_and_does_not_finish_costs_nothing_of_ours() {
        let (dir, mut files) = world(&["s"]);
        files.save_blocking(&snapshot(&["s", "kept"])).unwrap();
        let path = dir.path().join("metadata.json");
        // Write into the existing file, without a rename.
        let torn = r#"{"version":1,"workspaces":[{"id":"w","pa"#;
        fs::write(&path, torn).unwrap();
        drop(files);
        let Opened { snapshot, files, .. } = open(dir.path());
        assert_eq!(ids(&snapshot.metadata), ["s", "kept"]);
        assert_eq!(fs::read_to_string(dir.path().join("metadata.json.corrupt-1")).unwrap(), torn);
        // Like above, while the daemon runs.
        let mut files = files.unwrap();
        files.save_blocking(&snapshot).unwrap();
        fs::write(&path, torn).unwrap();
        let saved = files.save_blocking(&snapshot).unwrap();
        assert_eq!(saved.set_aside.unwrap().path, dir.path().join("metadata.json.corrupt-2"));
        assert_eq!(on_disk(dir.path()), ["s", "kept"]);
    }

    #[test]
    fn a_link_in_the_place_of_the_file_is_set_aside_and_what_it_points_to_left_alone() {
        let (dir, mut files) = world(&["s"]);
        let path = dir.path().join("metadata.json");
        let other = dir.path().join("other");
        let text = serde_json::to_string(&metadata(&["not-ours"])).unwrap();
        fs::write(&other, &text).unwrap();
        for n in 1..=2 {
            fs::remove_file(&path).unwrap();
            std::os::unix::fs::symlink(&other, &path).unwrap();
            // First at a save, then at a start.
            let found = match n {
                1 => files.save_blocking(&snapshot(&["s"])).unwrap().metadata,
                _ => open(dir.path()).snapshot.metadata,
            };
            assert_eq!(ids(&found), ["s"]);
            let aside = dir.path().join(format!("metadata.json.corrupt-{n}"));
            assert_eq!(fs::read_link(aside).unwrap(), other);
            assert_eq!(fs::read_to_string(&other).unwrap(), text);
        }
    }

    #[test]
    fn what_is_missing_at_a_start_was_deleted_only_if_it_was_seen_before_the_end() {
        let (dir, files) = world(&["s", "t"]);
        files.finish_blocking();
        app_writes(dir.path(), &metadata(&["s"]));
        assert_eq!(ids(&open(dir.path()).snapshot.metadata), ["s"]);
        // A change just before the end: a program that has read the file before may still write it.
        let mut files = open(dir.path()).files.unwrap();
        files.save_blocking(&snapshot(&["s", "u"])).unwrap();
        files.finish_blocking();
        app_writes(dir.path(), &metadata(&["s"]));
        assert_eq!(ids(&open(dir.path()).snapshot.metadata), ["s", "u"]);
    }

    #[test]
    fn a_view_that_a_kill_left_behind_brings_nothing_back() {
        let (dir, mut files) = world(&["s", "old"]);
        let view = fs::read(dir.path().join("metadata.json")).unwrap();
        let mut renamed = metadata(&["s"]);
        renamed.sessions[0].name = "renamed".into();
        files.save_blocking(&metadata_only(metadata(&["s", "old"]))).unwrap();
        files.save_blocking(&metadata_only(renamed.clone())).unwrap();
        drop(files);
        // As if the kill had come between the two files.
        fs::write(dir.path().join("metadata.json"), view).unwrap();
        let opened = open(dir.path());
        assert_eq!(*opened.snapshot.metadata, renamed);
        assert!(opened.files.unwrap().has_changed_blocking(), "the view is due");
    }

    #[test]
    fn a_damaged_state_is_rebuilt_from_the_shared_file() {
        let (dir, mut files) = world(&["s"]);
        files.save_blocking(&snapshot(&["s", "t"])).unwrap();
        drop(files);
        fs::write(dir.path().join("quackd-state.json"), "{broken").unwrap();
        fs::remove_file(dir.path().join("quackd-state.json.bak")).unwrap();
        let opened = open(dir.path());
        assert_eq!(ids(&opened.snapshot.metadata), ["s", "t"]);
        assert!(matches!(opened.state.unwrap().0, Origin::Lost { .. }));
        assert_eq!(opened.metadata.unwrap().0, Origin::File);
    }

    #[test]
    fn what_an_older_version_left_when_it_was_killed_is_taken_over() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, sessions: &[&str]| {
            let text = serde_json::to_vec(&metadata(sessions)).unwrap();
            fs::write(dir.path().join(name), text).unwrap();
        };
        // The app had put an old copy back, and another one came during a save.
        write("metadata.json", &["s", "app"]);
        write("metadata.json.ours", &["s", "ours"]);
        write("metadata.json.theirs", &["s", "other"]);
        let Opened { snapshot, files, .. } = open(dir.path());
        assert_eq!(ids(&snapshot.metadata), ["s", "ours", "app", "other"]);
        files.unwrap().save_blocking(&snapshot).unwrap();
        assert_eq!(on_disk(dir.path()), ["s", "ours", "app", "other"]);
        let leftovers = ["metadata.json.ours", "metadata.json.theirs"];
        assert!(leftovers.iter().all(|name| !dir.path().join(name).exists()));
        // Without a usable shared file, its copy serves.
        for sessions in [&["s", "ours"], &["s", "bak"]] {
            let dir = tempfile::tempdir().unwrap();
            let name =
                if sessions[1] == "bak" { "metadata.json.bak" } else { "metadata.json.ours" };
            fs::write(dir.path().join("metadata.json"), "{broken").unwrap();
            let text = serde_json::to_vec(&metadata(sessions)).unwrap();
            fs::write(dir.path().join(name), text).unwrap();
            let opened = open(dir.path());
            assert_eq!(ids(&opened.snapshot.metadata), sessions);
            assert!(matches!(opened.metadata.unwrap().0, Origin::Backup { .. }));
        }
    }

    /// The app writes as fast as possible while the daemon saves.
    #[tokio::test]
    async fn a_program_that_writes_without_end_loses_nothing_and_nothing_is_lost_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let directory: PathBuf = dir.path().to_owned();
        app_writes(&directory, &metadata(&["s"]));
        let writer = Writer::start(open(&directory).files.unwrap()).unwrap();
        let app = std::thread::spawn(move || {
            let path = directory.join("metadata.json");
            let mut made = Vec::new();
            for n in 0..200 {
                // Read, change, write back: a save of the daemon may come in between.
                let Ok(text) = fs::read(&path) else { continue };
                let mut copy: Metadata = serde_json::from_slice(&text).unwrap();
                copy.sessions.push(session(&format!("app-{n}")));
                // Wait until the daemon has read the last write: the app may overwrite its own files.
                app_writes(&directory, &copy);
                made.push(format!("app-{n}"));
                for _ in 0..10_000 {
                    let now: Metadata =
                        serde_json::from_slice(&fs::read(&path).unwrap_or_default())
                            .unwrap_or_default();
                    let last = made.last().unwrap();
                    if now.sessions.iter().any(|it| it.id.as_str() == last) {
                        break;
                    }
                    std::thread::yield_now();
                }
            }
            made
        });
        let mut memory = Arc::clone(&snapshot(&["s"]).metadata);
        let mut n_made = 0;
        while !app.is_finished() || n_made < 50 {
            let id = format!("our-{n_made}");
            n_made += 1;
            Arc::make_mut(&mut memory).sessions.push(session(&id));
            let saved = save(&writer, &mut memory).await;
            assert!(ids(&saved.metadata).contains(&id.as_str()));
            assert_eq!(saved.gone, Gone::default());
        }
        let app = app.join().unwrap();
        while save(&writer, &mut memory).await.is_behind {}
        let there = on_disk(dir.path());
        let ours = (0..n_made).map(|n| format!("our-{n}"));
        for id in ours.chain(app) {
            assert!(there.contains(&id), "{id} is lost: {there:?}");
        }
        assert_eq!(there, ids(&memory));
    }

    async fn save(writer: &Writer, memory: &mut Arc<Metadata>) -> Saved {
        let snapshot = Snapshot { metadata: Arc::clone(memory), ..Snapshot::default() };
        let saved = writer.save(snapshot.clone()).await.unwrap();
        *memory = rebase(&snapshot.metadata, &saved.metadata, memory).into();
        saved
    }

    #[tokio::test]
    async fn a_change_of_the_other_is_told_within_two_seconds() {
        let dir = tempfile::tempdir().unwrap();
        app_writes(dir.path(), &metadata(&["s"]));
        let writer = Writer::start(open(dir.path()).files.unwrap()).unwrap();
        writer.save(snapshot(&["s"])).await.unwrap();
        let changed = writer.changed();
        // Changes before the first save may already have been notified.
        drop(tokio::time::timeout(Duration::from_millis(600), changed.notified()).await);
        let mut all = vec!["s"];
        // A busy machine may need several attempts.
        for name in ["app", "app-2", "app-3", "app-4", "app-5"] {
            let ours = snapshot(&all);
            all.push(name);
            let begin = Instant::now();
            app_writes(dir.path(), &metadata(&all));
            let told = tokio::time::timeout(Duration::from_secs(60), changed.notified()).await;
            told.expect("word of the change");
            let saved = writer.save(ours).await.unwrap();
            assert_eq!(ids(&saved.metadata), all);
            if begin.elapsed() < Duration::from_secs(2) {
                return;
            }
        }
        panic!("not told within two seconds");
    }
}
