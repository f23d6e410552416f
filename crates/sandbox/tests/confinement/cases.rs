//! Cases: each test name states one property of a confined worker.

use crate::world::{CANARY, World};
use quackd_protocol::policy::{Policy, Profile};
use std::os::unix::net::UnixListener;

type Case = fn(&World);

pub(crate) const ALL: &[(&str, Case)] = &[
    ("a_command_runs_in_the_workspace", a_command_runs_in_the_workspace),
    ("secrets_are_not_there", secrets_are_not_there),
    ("nothing_can_be_written_outside", nothing_can_be_written_outside),
    ("private_places_can_be_written_and_end_with_the_worker", private_places),
    ("the_run_directory_is_shared_and_others_are_not", the_run_directory_is_shared),
    ("read_only_changes_nothing", read_only_changes_nothing),
    ("roots_are_writable_and_hidden_things_empty", roots_and_hidden_things),
    ("a_root_behind_a_link_is_refused", a_root_behind_a_link_is_refused),
    ("home_and_root_are_no_workspaces", home_and_root_are_no_workspaces),
    ("no_right_can_be_gained", no_right_can_be_gained),
    ("dangerous_system_calls_fail", dangerous_system_calls_fail),
    ("the_machine_cannot_be_changed_through_proc", proc_cannot_change_the_machine),
    ("processes_outside_are_neither_seen_nor_signalled", processes_outside),
    ("the_network_is_a_loopback_of_its_own", the_network_is_a_loopback),
    ("sockets_outside_cannot_be_reached", sockets_outside),
    ("descriptors_do_not_leak", descriptors_do_not_leak),
    ("orphans_are_reaped_and_end_with_the_worker", orphans_are_reaped),
    ("limits_hold", limits_hold),
    ("ordinary_tools_work", ordinary_tools_work),
    ("the_users_own_toolchains_build_and_test", toolchains),
    ("git_works_and_knows_who_commits", git_works),
    ("network_on_keeps_files_confined", network_on_keeps_files_confined),
    ("the_worker_finds_programs_of_the_home_but_no_tokens", programs_of_the_home),
    ("package_caches_can_be_written_without_changing_the_users", package_caches),
];

fn root(world: &World) -> String {
    world.root.path().display().to_string()
}

fn a_command_runs_in_the_workspace(world: &World) {
    let ran = world.inside("pwd; cat notes.txt; id -u; echo written > new.txt; exit 7");
    assert_eq!(ran.code, Some(7), "{}", ran.output);
    let expected = format!("{}\nhello notes\n{}\n", world.at("ws").display(), world.user.id);
    assert_eq!(ran.output, expected);
    assert_eq!(std::fs::read_to_string(world.at("ws/new.txt")).unwrap(), "written\n");
}

fn secrets_are_not_there(world: &World) {
    let root = root(world);
    let ran = world.inside(&format!(
        "cat {root}/other/secret {root}/home/.ssh/id_ed25519 {root}/state/state.json \
         {root}/state/run/s2/spill /proc/1/environ /proc/self/environ /proc/*/environ \
         /proc/1/root{root}/other/secret /proc/self/cwd/../other/secret
         ls -a {root} {root}/home {root}/state/run; env
         grep -rs {CANARY} / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=opt
         cat /etc/shadow /etc/gshadow /etc/sudoers; ls /root /home /work /var /mnt /srv /boot 2>/dev/null
         true"
    ));
    // The name of the directory is random and could contain one of the words.
    let output = ran.ok().replace(&root, "ROOT");
    assert!(!output.contains(CANARY), "{output}");
    for absent in ["root:*", "root:$", ".ssh", "other\n", "s2", "cloudsdk", "main"] {
        assert!(
            !output.lines().any(|line| !line.contains("No such file") && line.contains(absent)),
            "{absent}: {output}"
        );
    }
}

fn nothing_can_be_written_outside(world: &World) {
    let root = root(world);
    let ran = world.inside(&format!(
        "for f in {root}/other/x /x /etc/x /usr/x /usr/bin/x /var/x /dev/x /sys/x /proc/x \
           /opt/x /lib/x /run/user/x; do
           if echo x 2>/dev/null > $f; then echo \"WROTE $f\"; fi
           if mkdir $f.d 2>/dev/null; then echo \"MADE $f.d\"; fi
         done
         # Should one of these get through, nothing is different afterwards.
         for f in /etc/passwd /usr/bin/env /etc; do
           if touch -r $f $f 2>/dev/null; then echo \"TOUCHED $f\"; fi
           if chmod $(stat -c %a $f) $f 2>/dev/null; then echo \"CHANGED $f\"; fi
         done
         mv ../ws ../ws2 2>/dev/null && echo MOVED ws
         # These are private directories that only have the same names.
         for f in {root}/p {root}/state/p {root}/state/run/p; do echo x > $f; done 2>/dev/null; true"
    ));
    assert_eq!(ran.ok(), "");
    for path in ["other/x", "p", "state/p", "state/run/p"] {
        assert!(!world.at(path).exists(), "{path}");
    }
}

fn private_places(world: &World) {
    let name = format!("probe-{}", std::process::id());
    let ran = world.inside(&format!(
        "set -e; for d in /tmp /var/tmp /dev/shm $HOME /run/lock; do echo x > $d/{name}; done
         cat ~/.gitconfig; ls -A $HOME; ls /tmp; [ ! -e {}/home/.ssh ]",
        root(world)
    ));
    let output = ran.ok();
    assert!(output.contains("name = \"Ann\"\n\temail = \"ann@example.org\""), "{output}");
    assert!(!output.contains("alias"), "{output}");
    for place in ["/tmp", "/var/tmp", "/dev/shm", "/run/lock"] {
        assert!(!std::path::Path::new(place).join(&name).exists(), "{place}");
    }
    assert!(!world.at("home").join(&name).exists());
}

fn the_run_directory_is_shared(world: &World) {
    let run = world.at("state/run/s1").display().to_string();
    world.inside(&format!("echo spill > {run}/out; ls {run}/.. {run}/../..")).ok();
    assert_eq!(std::fs::read_to_string(world.at("state/run/s1/out")).unwrap(), "spill\n");
}

fn read_only_changes_nothing(world: &World) {
    let world = World::new(world.user).with(Profile::ReadOnly);
    let ran = world.inside(
        "cat notes.txt; touch x && echo TOUCHED; echo y >> notes.txt && echo WROTE
         chmod 777 notes.txt && echo CHANGED; rm -f notes.txt && echo REMOVED; echo t > /tmp/t && echo private",
    );
    let said: Vec<_> = ran.ok().lines().filter(|line| !line.contains("Read-only")).collect();
    assert_eq!(said, ["hello notes", "private"]);
}

fn roots_and_hidden_things(world: &World) {
    let mut world = World::new(world.user);
    world.make_directory("extra/deep");
    world.make_directory("ws/private");
    world.write("ws/private/key", CANARY);
    world.write("ws/token", CANARY);
    world.policy = Policy {
        writable_roots: vec![world.at("extra")],
        hidden: vec![world.at("ws/private"), world.at("ws/token"), world.at("ws/absent")],
        ..Policy::default()
    };
    let ran = world.inside(
        "echo e > ../extra/deep/e; cat token private/key; mv private p2; mv token t2; cat p2/key t2
         rm -rf private; umount private; ls -A private; echo n > notes.txt",
    );
    assert!(!ran.output.contains(CANARY), "{}", ran.output);
    assert_eq!(std::fs::read_to_string(world.at("extra/deep/e")).unwrap(), "e\n");
    assert_eq!(std::fs::read_to_string(world.at("ws/token")).unwrap(), CANARY);
    assert_eq!(std::fs::read_to_string(world.at("ws/private/key")).unwrap(), CANARY);
}

fn a_root_behind_a_link_is_refused(world: &World) {
    let mut world = World::new(world.user);
    std::os::unix::fs::symlink(world.at("other"), world.at("link")).unwrap();
    world.policy.writable_roots = vec![world.at("link")];
    let ran = world.inside("true");
    assert_eq!(ran.code, Some(71), "{}", ran.output);
    assert!(ran.output.contains("/link): "), "{}", ran.output);
}

fn home_and_root_are_no_workspaces(world: &World) {
    for (place, reason) in
        [("/", "root of the file system"), ("home", "home directory"), ("", "above")]
    {
        let mut request = world.request("true");
        request.workspace = if place == "/" { "/".into() } else { world.at(place) };
        if place.is_empty() {
            request.workspace = world.root.path().to_path_buf();
        }
        let mut command = world.command("true");
        command.env(crate::confined::VARIABLE, serde_json::to_string(&request).unwrap());
        world.become_user(&mut command);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(70), "{text}");
        assert!(text.contains(reason), "{text}");
    }
}

fn no_right_can_be_gained(world: &World) {
    let ran = world.inside(
        "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status
         unshare -U true && echo UNSHARED; unshare -r true && echo MAPPED
         mount -t tmpfs x /tmp && echo MOUNTED; umount /tmp && echo UNMOUNTED
         mount --bind / /tmp && echo BOUND; chroot / true && echo CHROOTED
         nsenter -t 1 -m true && echo ENTERED; mknod d b 8 0 && echo NODE
         su -c true && echo SU; chown 1:1 notes.txt && echo CHOWN; ulimit -c; true",
    );
    let output = ran.ok();
    let none = "0000000000000000";
    for line in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert!(output.contains(&format!("{line}\t{none}")), "{output}");
    }
    assert!(output.contains("NoNewPrivs:\t1") && output.contains("Seccomp:\t2"), "{output}");
    for word in
        ["UNSHARED", "MAPPED", "MOUNTED", "BOUND", "CHROOTED", "ENTERED", "NODE", "\nSU", "CHOWN"]
    {
        assert!(!output.contains(word), "{word}: {output}");
    }
    assert!(output.ends_with("\n0\n"), "{output}");
}

fn dangerous_system_calls_fail(world: &World) {
    let ran = world.inside(
        r#"cat > t.pl <<'E'
my $buffer = "\0" x 200;
my %calls = (ptrace=>[101,0,0,0,0], readv=>[310,$$,0,0,0,0,0], keyctl=>[250,0,-3,0,0],
  userfaultfd=>[323,1], bpf=>[321,0,0,0], io_uring=>[425,8,$buffer], unshare=>[272,0x10000000],
  setns=>[308,0,0], mount=>[165,0,0,0,0,0], fsopen=>[430,$buffer,0], open_tree=>[428,-100,"/",1],
  open_tree_attr=>[467,-100,"/",1,0,0], pidfd_getfd=>[438,0,0,0], personality=>[135,0x0040000],
  kcmp=>[312,$$,$$,0,0,0], perf=>[298,$buffer,0,-1,-1,0], handle=>[304,0,$buffer,0],
  clone_user=>[56,0x10000000,0,0,0,0], clone_net=>[56,0x40000000,0,0,0,0], add_key=>[248,"a","b","c",1,0],
  packet=>[41,17,3,0], vsock=>[41,40,1,0], netfilter=>[41,16,3,12], mptcp=>[41,2,1,262],
  alg=>[41,38,5,0], bluetooth=>[41,31,3,1], socketpair=>[53,2,1,0,$buffer],
  tiocsti=>[16,0,0x5412,"x"], tioclinux=>[16,0,0x541C,"x"], tiocsti_high=>[16,0,0xffffffff00005412,"x"]);
for my $name (sort keys %calls) {
  $! = 0; my $r = syscall($calls{$name}[0], @{$calls{$name}}[1..$#{$calls{$name}}]);
  print "$name ", ($r == -1 ? $!+0 : "REACHED"), "\n";
}
for my $n (435, 0x40000000+39) { $! = 0; my $r = syscall($n, 0, 0); print "$n ", $!+0, "\n"; }
for my $good (41) { print "unix ", syscall(41,1,1,0) >= 0 ? "ok" : "no", " ", syscall(41,2,2,0) >= 0 ? "ok":"no",
  " ", syscall(135, 0xffffffff) >= 0 ? "ok" : "no", "\n"; }
E
perl t.pl"#,
    );
    let output = ran.ok();
    let mut denied = 0;
    for line in output.lines() {
        let (name, answer) = line.split_once(' ').unwrap();
        match name {
            "435" | "1073741863" => assert_eq!(answer, "38", "{output}"),
            "unix" => assert_eq!(answer, "ok ok ok"),
            _ => {
                assert_eq!(answer, "1", "{line}: {output}");
                denied += 1;
            }
        }
    }
    assert_eq!(denied, 30, "{output}");
}

fn proc_cannot_change_the_machine(world: &World) {
    let ran = world.inside(
        "for f in $(find /proc/sys /proc/irq /proc/fs /proc/bus /proc/sysrq-trigger /proc/mtrr \
            -type f 2>/dev/null | head -3000); do
           { : >> $f; } 2>/dev/null && echo \"OPENED $f\"
         done
         # The modes are what they are outside: a change that got through would do no harm.
         chmod 666 /dev/null /dev/zero /dev/tty && echo \"CHANGED\"; touch /dev/null /dev/urandom && echo \"TOUCHED\"
         for f in kcore keys key-users timer_list; do head -c 10 /proc/$f 2>/dev/null; done
         ls -d /sys/* ; true",
    );
    let output = ran.ok();
    for word in ["OPENED", "CHANGED", "TOUCHED"] {
        assert!(!output.contains(word), "{output}");
    }
    assert!(output.trim().ends_with("/sys/devices"), "{output}");
}

fn processes_outside(world: &World) {
    let mut sleeper = std::process::Command::new("/bin/sleep");
    sleeper.arg("1000");
    world.become_user(&mut sleeper);
    let mut sleeper = sleeper.spawn().unwrap();
    let pid = sleeper.id();
    let ran = world.inside(&format!(
        "kill -9 {pid} && echo KILLED; ls /proc/{pid} 2>/dev/null; pgrep -x sleep
         kill -9 1; [ $$ -lt 50 ] && kill -9 -1; sleep 0.01; ps -e -o pid=,comm="
    ));
    assert!(!ran.output.contains("KILLED"), "{}", ran.output);
    assert!(sleeper.try_wait().unwrap().is_none(), "the process outside has ended");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let ran = world.inside("ps -e -o pid=,comm= | awk '{print $1, $2}' | head -2");
    assert!(ran.ok().starts_with("1 quack-init\n2 "), "{}", ran.output);
}

fn the_network_is_a_loopback(world: &World) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let ran = world.inside(&format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && echo REACHED
         exec 3<>/dev/udp/192.0.2.1/53 && echo ROUTED
         ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev"
    ));
    assert!(!ran.output.contains("REACHED") && !ran.output.contains("ROUTED"), "{}", ran.output);
    assert!(listener.accept().is_err());
    assert!(ran.output.ends_with("\n1\n"), "{}", ran.output);
    let ran = world.inside(
        "perl -MIO::Socket::INET -e '
           my $l = IO::Socket::INET->new(Listen=>1, LocalAddr=>\"127.0.0.1\") or die \"no server $!\";
           if (!fork) { my $c = $l->accept; print $c \"served\\n\"; exit }
           my $c = IO::Socket::INET->new(PeerAddr=>\"127.0.0.1\", PeerPort=>$l->sockport) or die \"no client $!\";
           print <$c>;'",
    );
    assert_eq!(ran.ok(), "served\n");
}

fn sockets_outside(world: &World) {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::SocketAddr;

    let path = world.at("other/socket");
    let _named = UnixListener::bind(&path).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&path, mode).unwrap();
    let name = format!("confinement-{}", world.user.id);
    let _abstract =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let connect = format!(
        "perl -MSocket -e 'for my $a (\"{}\", \"\\0{name}\") {{ socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die;
           print \"REACHED\\n\" if connect($s, pack_sockaddr_un($a)); }}'",
        path.display()
    );
    let outside = world.outside(&connect);
    assert_eq!(outside.output, "REACHED\nREACHED\n", "the test reaches nothing");
    assert!(!world.inside(&connect).ok().contains("REACHED"));
    let mut with_network = World::new(world.user);
    with_network.policy.network = true;
    assert!(!with_network.inside(&connect).ok().contains("REACHED"));
}

fn descriptors_do_not_leak(world: &World) {
    // Descriptors inherited by this program may lack close-on-exec. The same ones must be visible inside.
    let list = "ls -l /proc/self/fd | awk '{print $9}' | sort -n | tail -n +2 | tr '\\n' ' '";
    assert_eq!(world.inside(list).ok(), world.outside(list).ok());
}

fn orphans_are_reaped(world: &World) {
    let marker = format!("1000.{}", world.user.id);
    // The second sleep is an orphan that ends at once; a zombie would still be listed.
    let ran = world.inside(&format!(
        "(setsid sleep {marker} >/dev/null 2>&1 &); (sh -c 'sleep 0.01 & exit')
         for i in $(seq 500); do
           [ $(ps -e -o comm= | grep -c '^sleep') = 1 ] && echo reaped && exit; sleep 0.01
         done; ps -e -o stat=,comm="
    ));
    assert_eq!(ran.ok(), "reaped\n");
    assert!(!is_running(&marker), "something outlived the worker");
}

fn is_running(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(marker))
}

fn limits_hold(world: &World) {
    let mut world = World::new(world.user);
    world.limits = [Some(50), Some(100), Some(8192)];
    let ran = world.inside(
        "ulimit -n -u -f; ulimit -n 200 && echo RAISED; head -c 20000 /dev/zero > big; wc -c < big",
    );
    let output = &ran.output;
    assert!(
        output.contains("100") && output.contains(" 50\n") && !output.contains("RAISED"),
        "{output}"
    );
    assert!(output.trim_end().ends_with("8192"), "{output}");
}

fn ordinary_tools_work(world: &World) {
    let ran = world.inside(
        "set -e; diff <(echo a) <(echo a); mkfifo f; (echo x > f &); cat f; flock lock true
         echo int main'(){return 0;}' > m.c; if command -v gcc >/dev/null; then gcc m.c -o m && ./m; fi
         printf 'all:\\n\\techo made\\n' > Makefile; if command -v make >/dev/null; then make -s; fi
         if command -v script >/dev/null; then script -qec 'tty' /dev/null | grep -q pts; fi
         if [ -x /usr/bin/python3 ]; then /usr/bin/python3 -c '
import multiprocessing, subprocess, tempfile, socket, threading, ssl, sqlite3
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]
assert subprocess.run([\"true\"]).returncode == 0
tempfile.NamedTemporaryFile(); a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1) == b\"x\"
sqlite3.connect(\"db\").execute(\"create table t(x)\")'; fi
         if [ -x /usr/bin/node ]; then /usr/bin/node -e '
const {Worker, isMainThread} = require(\"worker_threads\");
require(\"child_process\").execSync(\"true\"); new Worker(\"1\", {eval: true}).on(\"exit\", c => process.exit(c));'; fi
         tar cf t.tar notes.txt; gzip t.tar; ps -e >/dev/null; free >/dev/null || true; nproc >/dev/null; echo end",
    );
    assert_eq!(ran.ok(), "x\nmade\nend\n");
}

fn git_works(world: &World) {
    let ran = world.inside(
        "set -e; git init -q repo; cd repo; echo a > a; git add a; git commit -qm one
         git log -1 --format='%an %ae'; git checkout -qb topic; echo b >> a; git stash -q; git stash pop -q
         git commit -qam two; git switch -q -; git merge -q topic; git gc -q; git worktree add -q ../wt topic~0 2>/dev/null || git worktree add -q ../wt HEAD
         git -C ../wt status --short; git fsck --no-progress; git log --format=%s",
    );
    let output = ran.ok();
    assert!(output.contains("Ann ann@example.org") && output.ends_with("two\none\n"), "{output}");
}

fn network_on_keeps_files_confined(world: &World) {
    let mut world = World::new(world.user);
    world.policy.network = true;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let root = root(&world);
    let ran = world.inside(&format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && echo REACHED; cat {root}/other/secret {root}/home/.ssh/*
         for f in $(find /proc/sys/net -type f 2>/dev/null); do {{ : >> $f; }} 2>/dev/null && echo OPENED $f; done; true"
    ));
    let output = ran.ok();
    assert!(
        output.starts_with("REACHED") && !output.contains(CANARY) && !output.contains("OPENED"),
        "{output}"
    );
}

fn programs_of_the_home(world: &World) {
    let mut world = World::new(world.user);
    world.make_directory("home/.cargo/bin");
    world.make_directory("home/.pyenv/shims");
    world.make_directory("home/tools/bin");
    let script = "#!/bin/sh\necho found $0\n";
    for program in ["home/.cargo/bin/c-tool", "home/.pyenv/shims/p-tool", "home/tools/bin/t-tool"] {
        world.write(program, script);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(world.at(program), mode).unwrap();
    }
    for secret in [
        "home/.cargo/credentials.toml",
        "home/.pyenv/.npmrc",
        "home/tools/key",
        "home/.cargo/config.toml",
    ] {
        world.write(secret, &format!("token = {CANARY}"));
    }
    let home = world.at("home").display().to_string();
    world.path = format!(
        "{home}/.cargo/bin:{home}/.pyenv/shims:{home}/tools/bin:{home}:/:/usr/bin:/bin:relative"
    );
    let ran = world.inside(
        "c-tool; p-tool; t-tool; cat ~/.cargo/* ~/.pyenv/.* ~/tools/* 2>/dev/null
         echo x > ~/.cargo/bin/evil || ls -A ~/tools",
    );
    let output = ran.ok();
    assert_eq!(output.matches("found").count(), 3, "{output}");
    assert!(!output.contains(CANARY) && output.ends_with("\nbin\n"), "{output}");
}

fn package_caches(world: &World) {
    world.make_directory("home/.cargo/registry/cache");
    world.write("home/.cargo/registry/cache/a.crate", "crate");
    let ran = world.inside(
        "set -e; cd ~/.cargo/registry; cat cache/a.crate; echo new > cache/b; mkdir src; echo other > cache/a.crate
         mv cache moved; cat moved/b; rm -r moved; ls",
    );
    assert_eq!(ran.ok(), "cratenew\nsrc\n");
    assert_eq!(
        std::fs::read_to_string(world.at("home/.cargo/registry/cache/a.crate")).unwrap(),
        "crate"
    );
    assert!(!world.at("home/.cargo/registry/src").exists());
}

/// Uses the real home of the user, and only runs if its toolchains exist.
fn toolchains(world: &World) {
    let Some(home) = std::env::var_os("HOME").map(std::path::PathBuf::from) else { return };
    if world.user.switch || !home.join(".cargo/bin/cargo").exists() {
        println!("  skipped: no cargo in the home of this user");
        return;
    }
    let mut world = World::new(world.user);
    let home = std::fs::canonicalize(home).unwrap();
    world.path = std::env::var("PATH").unwrap();
    world.home = Some(home.clone());
    let manifest = "[package]\nname = \"p\"\nedition = \"2024\"\n[dependencies]\ncfg-if = \"1\"\n[workspace]\n";
    world.make_directory("ws/src");
    world.write("ws/Cargo.toml", manifest);
    world.write("ws/src/lib.rs", "cfg_if::cfg_if! { if #[cfg(unix)] { #[test] fn works() {} } }");
    world.write(
        "ws/test_p.py",
        "import unittest\nclass T(unittest.TestCase):\n  def test_it(self): pass\n",
    );
    let ran = world.inside(
        "set -e; cargo build --offline -q; cargo test --offline -q 2>&1 | grep 'test result: ok. 1 passed'
         if command -v python3 >/dev/null; then python3 -m unittest -q; fi
         [ ! -e ~/.cargo/credentials.toml ]; [ ! -e ~/.ssh ]; echo end",
    );
    assert!(ran.ok().ends_with("end\n"), "{}", ran.output);
}
