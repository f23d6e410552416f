//! Package caches: downloads of a session stay for its workspace, and only there. The user's caches
//! never change.

use crate::harness::tier::needs;
use crate::harness::{Daemon, Session, untested, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const CRATES: &str = ".cargo/registry/cache";

/// A world in which the user has one crate, and a configuration.
fn world(config: &str) -> Daemon {
    let daemon = Daemon::absent();
    let config = format!("[sandbox]\nnetwork = \"hosts\"\n{config}");
    daemon.configure(config);
    fs::create_dir_all(daemon.home().join(CRATES)).unwrap();
    fs::write(daemon.home().join(CRATES).join("a.crate"), "the user's").unwrap();
    daemon
}

fn started(config: &str) -> Daemon {
    let mut daemon = world(config);
    daemon.boot();
    daemon
}

/// Ends the daemon and starts the next one, without any process of the first.
pub(crate) fn restart(daemon: &mut Daemon, signal: Signal) {
    let below = daemon.descendants();
    daemon.signal(signal);
    daemon.wait();
    wait_for("everything below the daemon to end", || {
        below.iter().all(|process| !crate::harness::is_alive(process)).then_some(())
    });
    daemon.boot();
}

/// Names and contents of all files in a directory.
fn files(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push((entry.path(), fs::read_to_string(entry.path()).unwrap()));
        }
    }
    found.sort();
    found
}

#[track_caller]
fn users_cache_is_unchanged(daemon: &Daemon) {
    let crates = vec![(daemon.home().join(CRATES).join("a.crate"), "the user's".to_owned())];
    assert_eq!(files(&daemon.home()), crates);
    assert!(!daemon.home().join(".npm").exists());
}

/// Asserts that the user can delete and copy everything in the state directory without the rights of user 0.
#[track_caller]
fn assert_open_to_its_user(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        let (needed, mode) = match found.is_dir() {
            true => (0o700, found.permissions().mode()),
            // An archive of the state directory reads every file.
            false if found.is_file() => (0o400, found.permissions().mode()),
            false => (0, 0),
        };
        assert_eq!(mode & needed, needed, "{}", entry.path().display());
        if found.is_dir() {
            assert_open_to_its_user(&entry.path());
        }
    }
}

/// The only directory of caches, or that of the workspace.
#[track_caller]
fn layers(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemon.app().join("caches")).into_iter().flatten().flatten();
    let mut dirs: Vec<_> = entries.map(|it| it.path()).filter(|path| path.is_dir()).collect();
    dirs.sort();
    dirs
}

fn notes(session: &Session<'_>) -> String {
    let shown = session.wire.request("quack.sandbox", json!({"sessionId": session.id}));
    shown["inForce"]["notes"].to_string()
}

/// A new session of the same workspace.
pub(crate) fn another<'a>(session: &Session<'a>) -> Session<'a> {
    let new = session.wire.request("quack.session_new", json!({"path": session.path}));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (id, name) = (text(&new["session"]["id"]), text(&new["session"]["name"]));
    Session { wire: session.wire, id, name, path: session.path.clone() }
}

/// Kills the worker and waits until the daemon has noticed.
pub(crate) fn kill_worker(session: &Session<'_>) {
    let before = session.worker()["restarts"].as_u64().unwrap();
    kill(Pid::from_raw(session.pid("pid")), Signal::SIGKILL).unwrap();
    let is_noticed = || session.worker()["restarts"].as_u64().unwrap() != before;
    wait_for("the death to be noticed", || is_noticed().then_some(()));
}

const DOWNLOAD: &str =
    "set -e; echo mine > ~/.cargo/registry/cache/b.crate; rm ~/.cargo/registry/cache/a.crate
    mkdir ~/.npm/_cacache/content; echo package > ~/.npm/_cacache/content/p; echo ok";
const LOOK: &str =
    "cd ~; ls .cargo/registry/cache; cat .cargo/registry/cache/b.crate .npm/_cacache/content/p";
const FOUND: &str = "b.crate\nmine\npackage\n\n[Exit code: 0]";

#[test]
fn downloads_stay_for_later_workers_sessions_and_daemons_of_the_workspace() {
    needs!(Namespaces);
    let mut daemon = started("");
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let first = wire.attach(repo.path());
    if !first.shows_namespaces() {
        return;
    }
    assert_eq!(first.bash(DOWNLOAD), "ok\n\n[Exit code: 0]");
    assert_eq!(notes(&first), "null");
    users_cache_is_unchanged(&daemon);

    // A policy change replaces the worker, which gives the caches to the next one.
    let monitor = first.pid("monitorPid");
    let set = json!({"sessionId": first.id, "action": "set", "network": true});
    wire.request("quack.sandbox", set);
    assert_eq!(first.bash(LOOK), FOUND);
    assert_ne!(first.pid("monitorPid"), monitor);
    assert_eq!(notes(&first), "null");

    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        restart(&mut daemon, signal);
        let wire = daemon.wire();
        assert_eq!(wire.attach(repo.path()).bash(LOOK), FOUND, "{signal}");
    }
    let wire = daemon.wire();
    let old = wire.attach(repo.path());
    let second = another(&old);
    wire.request("quack.session_delete", json!({"sessionId": old.id}));
    assert_eq!(second.bash(LOOK), FOUND);
    users_cache_is_unchanged(&daemon);
    assert_open_to_its_user(&daemon.app());
    let [layer] = &*layers(&daemon) else { panic!("{:?}", layers(&daemon)) };
    for dir in [&daemon.app().join("caches"), layer] {
        assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn downloads_of_a_host_that_is_allowed_later_are_kept() {
    needs!(Namespaces);
    let daemon = Daemon::start();
    let repo = daemon.repo("a");
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    if !session.shows_namespaces() {
        return;
    }
    assert_eq!(session.bash("true"), "\n[Exit code: 0]");
    let monitor = session.pid("monitorPid");
    let set = |network: &str| {
        let set = json!({"sessionId": session.id, "action": "set", "network": network});
        wire.request("quack.sandbox", set);
    };
    set("hosts");
    assert_eq!(session.bash("echo kept > ~/.npm/_cacache/x"), "\n[Exit code: 0]");
    assert_eq!(session.pid("monitorPid"), monitor, "the same worker");
    set("on");
    assert_eq!(session.bash("cat ~/.npm/_cacache/x"), "kept\n\n[Exit code: 0]");
}

#[test]
fn an_evicted_worker_leaves_its_caches_to_the_next_one() {
    needs!(Namespaces);
    let daemon = started("[worker]\nmax_live = 1\n");
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    if !first.shows_namespaces() {
        return;
    }
    assert_eq!(first.bash(DOWNLOAD), "ok\n\n[Exit code: 0]");
    let other = wire.attach(daemon.repo("b").path());
    assert_eq!(other.bash("ls ~/.cargo/registry/cache"), "a.crate\n\n[Exit code: 0]");
    assert_eq!(first.bash(LOOK), FOUND);
    assert_eq!((notes(&first), first.worker()["restarts"].clone()), ("null".to_owned(), json!(0)));
}

#[test]
fn a_second_worker_at_the_same_time_has_its_caches_in_memory_and_says_so() {
    needs!(Namespaces);
    let daemon = started("");
    let wire = daemon.wire();
    let first = wire.attach(daemon.repo("a").path());
    if !first.shows_namespaces() {
        return;
    }
    assert_eq!(first.bash(DOWNLOAD), "ok\n\n[Exit code: 0]");
    let second = another(&first);
    let alone = "ls ~/.cargo/registry/cache; echo lost > ~/.cargo/registry/cache/c.crate";
    assert_eq!(second.bash(alone), "a.crate\n\n[Exit code: 0]");
    let note = "downloads to package caches are lost when the worker ends: another worker of this workspace keeps them";
    assert_eq!(notes(&second), json!([note]).to_string());
    // The worker after a crash gets the caches of the first one, which has ended.
    kill_worker(&first);
    wire.request("quack.session_delete", json!({"sessionId": first.id}));
    kill_worker(&second);
    assert_eq!(second.bash(LOOK), FOUND);
    assert_eq!(notes(&second), "null");
    users_cache_is_unchanged(&daemon);
}

#[test]
fn a_poisoned_crate_reaches_neither_the_user_nor_another_workspace() {
    needs!(Namespaces);
    let daemon = started("");
    let wire = daemon.wire();
    let (a, b) = (wire.attach(daemon.repo("a").path()), wire.attach(daemon.repo("b").path()));
    if !a.shows_namespaces() {
        return;
    }
    let poison =
        "echo poison > ~/.cargo/registry/cache/a.crate; cat ~/.cargo/registry/cache/a.crate
        mkdir -p ~/.npm/_cacache; echo poison > ~/.npm/_cacache/p
        setfattr -n user.overlay.opaque -v y ~/.cargo/registry ~/.npm/_cacache 2> /dev/null; true";
    assert_eq!(a.bash(poison), "poison\n\n[Exit code: 0]");
    let read = "cat ~/.cargo/registry/cache/*; ls -A ~/.npm/_cacache";
    assert_eq!(b.bash(read), "the user's\n[Exit code: 0]");
    users_cache_is_unchanged(&daemon);
    kill_worker(&a);
    assert_eq!(a.bash("cat ~/.cargo/registry/cache/*"), "poison\n\n[Exit code: 0]");

    // No path leads to the layers of any workspace.
    assert_eq!(layers(&daemon).len(), 2);
    let caches = daemon.app().join("caches");
    let reach = format!(
        "ls {0} {1} 2>/dev/null; echo x > {1}/x; mkdir -p {1}/y; ls -A {2}; find / -xdev -name upper -o -name '.gone-*' \
         2>/dev/null | head; grep -c caches /proc/self/mountinfo | grep -v 0",
        caches.display(),
        layers(&daemon)[1].display(),
        daemon.app().display()
    );
    let reached = b.bash(&reach);
    assert!(
        reached.contains("Read-only file system") || reached.contains("No such file"),
        "{reached}"
    );
    assert!(!reached.contains("upper") && !reached.contains("daemon.sock"), "{reached}");
    assert!(
        layers(&daemon).iter().all(|layer| !layer.join("x").exists() && !layer.join("y").exists())
    );
    // Neither a workspace nor a writable directory may be there.
    fs::create_dir(caches.join("ws")).unwrap();
    let answer = wire.attach(&caches.join("ws")).bash("true");
    assert!(answer.contains("lies among the daemon's own files"), "{answer}");
    let set = daemon.quack(&["sandbox", "set", "--writable", &caches.display().to_string()]);
    assert_ne!(set.code(), Some(0), "{}", set.stdout());
}

#[test]
fn a_session_that_may_not_write_does_not_get_the_kept_caches() {
    needs!(Namespaces);
    let daemon = started("profile = \"read-only\"\n");
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    if !session.shows_namespaces() {
        return;
    }
    session.bash("echo x > ~/.cargo/registry/cache/b.crate");
    assert!(layers(&daemon).is_empty());
    let set = json!({"sessionId": session.id, "action": "set", "profile": "workspace-write"});
    wire.request("quack.sandbox", set);
    assert_eq!(session.bash("ls ~/.cargo/registry/cache"), "a.crate\n\n[Exit code: 0]");
    assert_eq!(layers(&daemon).len(), 1);
    users_cache_is_unchanged(&daemon);
}

#[test]
fn without_room_for_caches_they_are_in_memory_and_kept_ones_go() {
    needs!(Namespaces);
    let mut daemon = started("");
    let repo = daemon.repo("a");
    {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        if !session.shows_namespaces() {
            return;
        }
        assert_eq!(session.bash(DOWNLOAD), "ok\n\n[Exit code: 0]");
    }
    daemon.configure("[keep]\ncaches_mb = 0\n");
    restart(&mut daemon, Signal::SIGTERM);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(session.bash("ls ~/.cargo/registry/cache"), "a.crate\n\n[Exit code: 0]");
    assert_eq!(notes(&session), "null");
    daemon.quack(&["gc"]).ok();
    assert!(layers(&daemon).is_empty());
}

/// Sets the last use of a workspace's caches.
fn used_before(layer: &Path, hours: u64) {
    let time = SystemTime::now() - Duration::from_secs(hours * 60 * 60);
    fs::File::open(layer).unwrap().set_modified(time).unwrap();
}

#[test]
fn gc_deletes_the_least_recently_used_caches_and_none_in_use() {
    needs!(Namespaces);
    let mut daemon = started("[keep]\ncaches_mb = 5\n");
    let mut used = Vec::new();
    {
        let wire = daemon.wire();
        for (name, megabytes) in [("a", 2), ("b", 2), ("c", 2), ("d", 9)] {
            let session = wire.attach(daemon.repo(name).path());
            if !session.shows_namespaces() {
                return;
            }
            let fill = format!(
                "cd ~/.cargo/registry; head -c {megabytes}M /dev/urandom > big; mkdir -p locked/deep
                 ln -s ~ link; rm cache/a.crate; chmod 0 locked/deep; chmod 500 locked"
            );
            assert_eq!(session.bash(&fill), "\n[Exit code: 0]", "{name}");
            used.extend(
                layers(&daemon).into_iter().filter(|it| !used.contains(it)).collect::<Vec<_>>(),
            );
        }
        let [a, b, c, d] = &*used else { panic!("{used:?}") };
        for (hours, layer) in [(4, a), (3, b), (2, c), (1, d)] {
            used_before(layer, hours);
        }
        // All workers run.
        let listed = daemon.quack(&["gc", "-n", "--json"]).json();
        assert_eq!(listed["items"], 0, "{listed}");
        kill_worker(&wire.attach(daemon.repo("d").path()));
        kill_worker(&wire.attach(daemon.repo("a").path()));
        used_before(a, 4);
    }
    let [a, b, c, d] = &*used else { panic!("{used:?}") };
    let name = |layer: &Path| format!("caches/{}", layer.file_name().unwrap().to_str().unwrap());
    let listed = daemon.quack(&["gc", "-n", "--json"]).json();
    let paths: Vec<_> =
        listed["found"].as_array().unwrap().iter().map(|it| it["path"].clone()).collect();
    // The caches above the limit go in any case and do not displace others.
    assert_eq!(paths, [json!(name(a)), json!(name(d))], "{listed}");
    assert!(
        daemon.quack(&["gc", "-n"]).ok().contains("Would delete 2 directories of package caches")
    );
    let deleted = daemon.quack(&["gc"]).ok();
    assert!(deleted.contains("Deleted 2 directories of package caches  11."), "{deleted}");
    assert_eq!(layers(&daemon), {
        let mut left = vec![b.clone(), c.clone()];
        left.sort();
        left
    });

    // Without a daemon.
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    daemon.configure("[keep]\ncaches_mb = 3\n");
    used_before(b, 1);
    used_before(c, 2);
    let deleted = daemon.quack(&["gc"]).ok();
    assert!(deleted.contains("Deleted 1 directory of package caches"), "{deleted}");
    assert_eq!(layers(&daemon), std::slice::from_ref(b));
    users_cache_is_unchanged(&daemon);
}

#[test]
fn caches_of_a_forgotten_workspace_and_interrupted_deletions_go_and_the_rest_stays() {
    needs!(Namespaces);
    let daemon = started("");
    let wire = daemon.wire();
    let session = wire.attach(daemon.repo("a").path());
    if !session.shows_namespaces() {
        return;
    }
    let caches = daemon.app().join("caches");
    for name in ["0123456789abcdef", ".gone-1", "the users", "0123456789ABCDEF"] {
        fs::create_dir_all(caches.join(name).join("x")).unwrap();
        used_before(&caches.join(name), 2);
    }
    let kept = layers(&daemon).len() - 2;
    daemon.quack(&["gc"]).ok();
    assert_eq!(layers(&daemon).len(), kept, "{:?}", layers(&daemon));
    assert!(caches.join("the users").exists() && caches.join("0123456789ABCDEF").exists());
}

#[test]
fn a_killed_worker_and_a_stale_mark_of_the_kernel_do_not_break_the_next_start() {
    needs!(Namespaces);
    let mut daemon = started("");
    let repo = daemon.repo("a");
    for round in 0..3 {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        if !session.shows_namespaces() {
            return;
        }
        let write = "for i in $(seq 100000); do echo $i > ~/.cargo/registry/cache/$i; echo x >> ~/.cargo/registry/cache/a.crate; done";
        let running = session.begin("bash", json!({"command": write}));
        let [layer] = &*layers(&daemon) else { panic!("{:?}", layers(&daemon)) };
        wait_for("files", || (files(layer).len() > 50).then_some(()));
        if round == 0 {
            kill_worker(&session);
            drop(running);
        } else {
            restart(&mut daemon, Signal::SIGKILL);
        }
        assert_open_to_its_user(&daemon.app());
        let cache = fs::read_dir(layer)
            .unwrap()
            .flatten()
            .map(|it| it.path())
            .find(|it| it.ends_with("work") || it.join("work").exists());
        let work = cache.unwrap().join("work/work");
        fs::create_dir_all(work.join("incompat/volatile")).unwrap();
        fs::write(work.join("incompat/volatile/dirty"), "").unwrap();
        fs::write(work.join("#1"), "copy-up").unwrap();
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        assert!(
            session
                .bash("ls ~/.cargo/registry/cache | wc -l; cat ~/.cargo/registry/cache/1")
                .ends_with("\n1\n\n[Exit code: 0]")
        );
        assert_eq!(notes(&session), "null");
        session.bash("rm -r ~/.cargo/registry/cache/[0-9]*");
    }
}

#[test]
fn a_file_system_that_cannot_hold_a_layer_means_memory_and_a_note() {
    needs!(Namespaces);
    let mut daemon = started("");
    let repo = daemon.repo("a");
    let note = "downloads to package caches are lost when the worker ends: ";
    {
        let wire = daemon.wire();
        let session = wire.attach(repo.path());
        if !session.shows_namespaces() {
            return;
        }
        // Another program made a file of a layer.
        kill_worker(&session);
        let [layer] = &*layers(&daemon) else { panic!("{:?}", layers(&daemon)) };
        let cache = fs::read_dir(layer)
            .unwrap()
            .flatten()
            .map(|it| it.path())
            .find(|it| it.join("upper").exists())
            .unwrap();
        fs::remove_dir_all(cache.join("upper")).unwrap();
        fs::write(cache.join("upper"), "").unwrap();
        assert_eq!(
            session.bash("echo x > ~/.cargo/registry/x; cat ~/.cargo/registry/x"),
            "x\n\n[Exit code: 0]"
        );
        assert!(notes(&session).contains(note), "{}", notes(&session));
        fs::remove_dir_all(layer).unwrap();
    }
    if !nix::unistd::geteuid().is_root() {
        return untested("only root mounts the directory of caches");
    }
    daemon.signal(Signal::SIGTERM);
    daemon.wait();
    let mount = format!(
        "mkdir {0}/up {0}/work && mount -t overlay overlay -o lowerdir={0}/caches,upperdir={0}/up,workdir={0}/work {0}/caches \
         && exec {1} daemon",
        daemon.app().display(),
        env!("CARGO_BIN_EXE_quack")
    );
    daemon.boot_with("unshare", &["-m", "sh", "-c", &mount]);
    let wire = daemon.wire();
    let session = wire.attach(repo.path());
    assert_eq!(
        session.bash("cat ~/.cargo/registry/cache/a.crate; echo x > ~/.cargo/registry/x"),
        "the user's\n[Exit code: 0]"
    );
    assert!(notes(&session).contains(note), "{}", notes(&session));
}
