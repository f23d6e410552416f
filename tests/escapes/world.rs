//! The world of one case: a workspace, the surrounding files that must not change, and a daemon.
//!
//! Everything here runs with the rights of the creating thread; see [`become_ordinary`].

use super::corpus::Case;
use super::listeners::Listeners;
use crate::harness::users::{PATH, clean_program, shell};
use crate::harness::{Answer, Daemon, FakeExa, answer, descendants_of, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quackd_testkit::pids;
use serde_json::Value;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

/// Creates the files that the cases expect and no setup creates. Runs in the directory of the
/// world.
const MAKE: &str = r"set -e
mkdir -p ws ws-evil outside home/.ssh home/.aws home/.config/agentd run tmpx
for f in outside/secret.txt ws-evil/secret.txt home/.ssh/id_ed25519 home/.aws/credentials tmpx/out.log \
    home/.bash_history; do echo {{CANARY}} > $f; done
echo orig > outside/config.txt
echo '# rc' > home/.bashrc
: > home/.gitconfig
echo a=1 > home/.config/agentd/config.toml
cd ws
echo 'hello notes' > notes.txt
echo '# readme' > README.md
git init -q -b main .
git config user.name a
git config user.email a@b
git add -A
git -c maintenance.auto=false commit -q -m i
rm -rf .git/hooks
mkdir .git/hooks";

/// Returns true if cases find this program, by name or by path.
pub(super) fn has_program(name: &str) -> bool {
    PATH.split(':').any(|directory| Path::new(directory).join(name).exists())
}

/// A world with its daemon.
pub(super) struct World {
    daemon: Daemon,
    root: PathBuf,
    values: Vec<(&'static str, String)>,
    pub(super) listeners: Listeners,
    /// A daemon outside the session. Its environment contains the secret, and it has the secret
    /// file open.
    victim: Child,
    pub(super) exa: Option<FakeExa>,
}

/// Returns a port without a listener. It is below the ports that the kernel chooses: neither a concurrent test's
/// listener nor the connection of a probe to itself can use it.
fn unused_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut candidates = std::iter::repeat_with(|| u16::try_from(10_000 + random() % 20_000));
    candidates.by_ref().take(1000).flatten().find(is_free).expect("a free port")
}

impl World {
    /// Creates the files, runs the setup of the case and starts the daemon with `program`: variables, and the path.
    pub(super) fn new(case: &Case, program: &[String], configuration: &str) -> Self {
        let daemon = Daemon::absent();
        let home = daemon.home();
        let root = home.parent().expect("a directory").to_owned();
        let run_id = root.file_name().expect("a name").to_str().expect("text").to_owned();
        let at = |name: &str| root.join(name).to_str().expect("text").to_owned();
        let canary = format!("canary-{:016x}", random());
        let mut values = vec![
            ("ROOT", at("")),
            ("WS", at("ws")),
            ("OUT", at("outside")),
            ("HOME", at("home")),
            ("TMPX", at("tmpx")),
            ("WT", at("ws/wt")),
            ("SOCK", at("run/d.sock")),
            ("ABS", format!("cx{run_id}")),
            ("RUNID", run_id),
            ("FREE", unused_port().to_string()),
            // Duration of the case's sleeps in seconds. The number is unique, so it marks the
            // processes of this case.
            ("N", format!("7{:09}", random() % 1_000_000_000)),
            ("CANARY", canary.clone()),
        ];
        values[0].1.pop();
        shell(&root, &fill(MAKE, &values)).expect("make a world");
        let listeners = Listeners::start(&root.join("run/d.sock"), &format!("cx{}", values[8].1));
        let victim = victim(&root, &canary);
        values.push(("TCP", listeners.tcp_port.to_string()));
        values.push(("UDP", listeners.udp_port.to_string()));
        values.push(("DPID", victim.id().to_string()));
        let exa = provider(&case.id, listeners.tcp_port);
        let mut world = Self { daemon, root, values, listeners, victim, exa };
        let path = world.set_up(&case.setup);
        world.boot(program, configuration, &canary, &path);
        world
    }

    /// Runs the setup. Returns the PATH for the daemon: the setup may print one.
    fn set_up(&self, script: &str) -> String {
        if script.is_empty() {
            return PATH.to_owned();
        }
        let printed = shell(&self.root, &self.fill(script)).expect("the setup of a case");
        let path = printed.lines().find_map(|line| line.strip_prefix("PATH="));
        path.unwrap_or(PATH).to_owned()
    }

    fn boot(&mut self, program: &[String], configuration: &str, canary: &str, path: &str) {
        if !configuration.is_empty() {
            let app = self.daemon.app();
            std::fs::create_dir_all(&app).expect("a state directory");
            std::fs::write(app.join("quackd.toml"), configuration).expect("a configuration");
        }
        let mut line = vec![
            format!("PATH={path}"),
            format!("DAEMON_SECRET={canary}"),
            format!("SSH_AUTH_SOCK={}", self.value("SOCK")),
            "LANG=C.UTF-8".to_owned(),
        ];
        line.extend(self.exa.as_ref().map(|exa| format!("QUACKD_EXA_ENDPOINT={}", exa.endpoint())));
        line.extend(program.iter().cloned().chain(["daemon".to_owned()]));
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        // The process of `env` becomes the daemon.
        self.daemon.boot_with("env", &line);
    }

    pub(super) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.root.join("ws")
    }

    pub(super) fn victim(&self) -> i32 {
        i32::try_from(self.victim.id()).expect("a pid")
    }

    /// Value of a placeholder.
    pub(super) fn value(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(key, _)| *key == name);
        &found.unwrap_or_else(|| panic!("no placeholder {name}")).1
    }

    pub(super) fn fill(&self, text: &str) -> String {
        fill(text, &self.values)
    }

    /// Fills the placeholders in every text of a value.
    pub(super) fn fill_all(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, field)| (name.clone(), self.fill_all(field))).collect()
            }
            other => other.clone(),
        }
    }

    /// Runs a command outside, like the user after the session.
    pub(super) fn as_user(&self, command: &str) {
        // Only the effects are checked, so a failing command is fine.
        drop(shell(&self.root, command));
    }

    /// Processes of this world, including the daemon and the victim: their arguments or environment
    /// contain its directory.
    fn processes(&self) -> Vec<i32> {
        let root = self.root.to_str().expect("text").as_bytes();
        let pids = pids().into_iter().filter(|pid| {
            let file =
                |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            [file("environ"), file("cmdline")].iter().any(|text| contains(text, root))
        });
        pids.collect()
    }

    /// Returns true if a process with `words` in its command line runs. Unless the words are the
    /// mark of this case, only its own processes count, including the descendants of the daemon.
    pub(super) fn runs(&self, words: &str) -> bool {
        let is_ours: Box<dyn Fn(i32) -> bool> = if words.contains(self.value("N")) {
            Box::new(|_| true)
        } else {
            let mut ours = self.processes();
            let below = descendants_of(self.daemon.pid());
            ours.extend(below.into_iter().map(|process| process.pid));
            Box::new(move |pid| ours.contains(&pid))
        };
        let mut all = pids().into_iter().filter(|pid| *pid != self.victim());
        all.any(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            line.contains(words) && is_ours(pid)
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let ours = i32::try_from(std::process::id()).expect("a pid");
        for pid in self.processes() {
            if pid != ours {
                // The process may have exited, which is fine.
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap_or_default();
            }
        }
        drop(self.victim.kill());
        drop(self.victim.wait());
        // Deletes escaped files, and restores permissions so that everything can be deleted.
        let clean = "rm -f /dev/shm/quackd-{{RUNID}} /var/tmp/quackd-{{RUNID}} /tmp/quackd-{{RUNID}}; chmod -R u+rwx .";
        drop(shell(&self.root, &self.fill(clean)));
    }
}

/// Number of processes that sleep with this mark.
pub(super) fn n_sleeping(mark: &str) -> usize {
    let wanted = format!("sleep\0{mark}\0");
    let lines = pids().into_iter().map(|pid| std::fs::read(format!("/proc/{pid}/cmdline")));
    lines.filter(|line| line.as_ref().is_ok_and(|line| line == wanted.as_bytes())).count()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn fill(text: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("{{{{{name}}}}}"), value)
    })
}

/// Starts the victim and waits until its environment and open file are set up.
fn victim(root: &Path, canary: &str) -> Child {
    let script = "exec 9< outside/secret.txt; exec sleep 100000";
    let mut bash = clean_program(root, "bash");
    bash.args(["-c", script]).env("DAEMON_SECRET", canary).stdout(Stdio::null());
    let victim = bash.spawn().expect("start a process");
    let comm = format!("/proc/{}/comm", victim.id());
    wait_for("the other daemon", || {
        (std::fs::read_to_string(&comm).ok()?.trim() == "sleep").then_some(())
    });
    victim
}

/// The web search provider of a case, if the case has one.
fn provider(id: &str, tcp_port: u16) -> Option<FakeExa> {
    let says = match id {
        "web-02" | "web-03" => answer("200 OK", r#"{"results":[]}"#),
        "web-04" => format!(
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{tcp_port}/\r\ncontent-length: 0\r\n\r\n"
        )
        .into_bytes(),
        "web-05" => {
            let bomb = bomb();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-encoding: gzip\r\n\
                 content-length: {}\r\n\r\n",
                bomb.len()
            );
            [head.into_bytes(), bomb].concat()
        }
        _ => return None,
    };
    Some(FakeExa::start(&[Answer::Says(says)]))
}

/// One gigabyte of zeros in gzip format. A gzip stream may have many members, so this repeats one
/// member.
fn bomb() -> Vec<u8> {
    let mut gzip = clean_program(Path::new("/"), "bash");
    let output = gzip.args(["-c", "head -c 16777216 /dev/zero | gzip"]).output().expect("run gzip");
    assert!(output.status.success(), "gzip");
    output.stdout.repeat(64)
}
