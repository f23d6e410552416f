//! Tests of [`super`] with files in a workspace. Only Linux finds changes of them.

#![cfg(target_os = "linux")]

use super::*;
use std::fs;

fn begun(at: &Path) -> WatchedFiles {
    let watched = WatchedFiles::default();
    watched.begin_blocking(&Root::open(at).unwrap());
    watched
}

#[tokio::test]
async fn each_change_is_told_once_and_the_first_memory_stays() {
    let tree = tempfile::tempdir().unwrap();
    let watched = begun(tree.path());
    let all = Confinement::default();
    assert_eq!(watched.look(&all).await, ReportedChanges::default());
    fs::write(tree.path().join(".envrc"), "x").unwrap();
    let told = watched.look(&all).await;
    assert_eq!(told.list, [".envrc was made"]);
    assert_eq!(
        told.after(Some("[a]".into())).unwrap(),
        "[a]\n[Sandbox: .envrc was made; programs of yours may run what stands there. \
         quack sandbox audit shows it]"
    );
    assert_eq!(watched.look(&all).await, ReportedChanges::default());
    // The baseline survives this, and a second call.
    watched.begin_blocking(&Root::open(tree.path()).unwrap());
    let root = fs::File::open(tree.path()).unwrap();
    assert_eq!(watched.snapshot().unwrap().changes_blocking(&root).unwrap().len(), 1);
    fs::remove_file(tree.path().join(".envrc")).unwrap();
    fs::write(tree.path().join(".npmrc"), "x").unwrap();
    assert_eq!(
        watched.look(&all).await.line.unwrap(),
        "[Sandbox: .envrc was removed, and 1 more; programs of yours obeyed what stood there. \
         quack sandbox audit shows it]"
    );
}

#[tokio::test]
async fn nothing_is_looked_at_where_nothing_may_be_written_and_nothing_without_a_memory() {
    let tree = tempfile::tempdir().unwrap();
    let watched = begun(tree.path());
    fs::write(tree.path().join(".envrc"), "x").unwrap();
    let mut read_only = Confinement::default();
    read_only.policy.profile = quackd_protocol::policy::Profile::ReadOnly;
    assert_eq!(watched.look(&read_only).await, ReportedChanges::default());
    assert_eq!(
        WatchedFiles::default().look(&Confinement::default()).await,
        ReportedChanges::default()
    );
}
