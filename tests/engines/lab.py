"""A scratch directory with the quack under test, and engines of its own on this machine: sshd, Slurm, podman, and a stub of
kubectl.

The clients of the engines are scripts in a directory of the daemon's PATH, so that the built-in rows run as they are: each
script adds the settings of this scratch directory and becomes the real client.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PATIENCE_S = 30
POLL_S = 0.05
# A variable of the daemon. No far process may have it.
SECRET = "SECRET_X"
# Nothing of the far side may run this long after its end, in seconds. A lost link counts as lost after 10 s.
GONE_S = 15


class Failure(Exception):
    """A promise that did not hold, with what was seen."""


class Report:
    passed = failed = skipped = 0

    def line(self, good, name, text=""):
        self.passed += good
        self.failed += not good
        print(f"{'ok' if good else 'FAILED'} {name}{': ' + text if text else ''}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}", flush=True)

    def attempt(self, name, check, *arguments):
        """Runs a check, which raises `Failure` or returns a text to print."""
        try:
            self.line(True, name, check(*arguments) or "")
        except (Failure, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
            self.line(False, name, f"{type(error).__name__}: {str(error)[-1500:]}")

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0


def until(what, check, seconds=PATIENCE_S, pause=POLL_S):
    """Polls until `check` returns something true, and returns it. `what` may be a function that describes the state."""
    end = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(pause)


def need(good, text):
    if not good:
        raise Failure(text)


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A process, which is not mistaken for a later one with the same number."""

    def __init__(self, pid):
        self.pid = int(pid)
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        self.parent, self.started = int(after[1]), after[19]
        self.name = Path(f"/proc/{pid}/comm").read_text().strip()
        self.argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]

    def runs(self):
        try:
            after = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return after[0] not in "ZX" and after[19] == self.started

    def mentions(self, path):
        """Whether its environment, or the mounts of its container, have this path."""
        at = Path(f"/proc/{self.pid}")
        try:
            is_inside = os.readlink(at / "ns/mnt") != os.readlink("/proc/self/ns/mnt")
            return any(bytes(path) in (at / name).read_bytes() for name in ["environ"] + ["mountinfo"] * is_inside)
        except OSError:
            return False

    def peak_mib(self):
        """Largest resident memory until now, in MiB. 0 after its end."""
        try:
            text = Path(f"/proc/{self.pid}/status").read_text()
        except OSError:
            return 0
        return int(re.search(r"VmHWM:\s+(\d+)", text)[1]) >> 10

    def send(self, number):
        if self.runs():
            os.kill(self.pid, number)

    def __repr__(self):
        return f"{self.pid} {self.name} {' '.join(self.argv)[:80]}"


def processes():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                found.append(Process(entry))
            except (OSError, IndexError):
                pass
    return found


def below(pids, among=None):
    """The processes below these."""
    among = processes() if among is None else among
    found, new = [], set(pids)
    while new:
        children = [process for process in among if process.parent in new]
        found += children
        new = {process.pid for process in children}
    return found


class Lab:
    def __init__(self, quack, far_program=None):
        self.quack, self.far_program = Path(quack).resolve(), far_program
        # The path of a socket has at most 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="qe", dir="/tmp"))
        self.root.chmod(0o755)
        self.home, self.bin, self.far_home = self.root / "home", self.root / "bin", self.root / "far"
        for directory in (self.home, self.bin, self.far_home):
            directory.mkdir()
        # Only what the daemon needs. The path of the clients is first.
        self.env = {"HOME": str(self.home), "RUBBER_DUCK_APP_SUPPORT": str(self.root / "state"), "LANG": "C.UTF-8",
                    "PATH": f"{self.bin}:{os.environ['PATH']}", "TERM": "xterm-256color", "SHLVL": "1", SECRET: "of-the-daemon"}
        self.engines, self.ends, self.sessions, self.is_quick = {}, [], 0, False
        # The end of this program by a signal must clean up too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("stop", "--yes")
        for end in reversed(self.ends):
            end()
        shutil.rmtree(self.root, ignore_errors=True)

    def configure(self, far=None):
        """Stops the daemon, and writes the configuration with these `[far]` keys and the rows of the engines."""
        rows = {name: engine.row for name, engine in self.engines.items() if engine.row}
        # The path with the clients is that of this process, not that of a login shell.
        lines = ["[environment]", "login_shell = false"]
        far = {**({"program": str(self.far_program)} if self.far_program else {}), **(far or {})}
        lines += ["[far]", *(f"{key} = {json.dumps(value)}" for key, value in far.items())]
        for name, row in rows.items():
            lines += [f"[engines.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in row.items())]
        self.call("stop", "--yes")
        (self.root / "state").mkdir(exist_ok=True, mode=0o700)
        (self.root / "state/quackd.toml").write_text("\n".join(lines) + "\n")

    def run(self, *argv, seconds=120, stdin=subprocess.DEVNULL, **more):
        """Runs a subcommand of quack to its end."""
        return subprocess.run([self.quack, *map(str, argv)], cwd=self.home, env=self.env, stdin=stdin, timeout=seconds,
                              capture_output=True, **more)

    def call(self, *argv, **more):
        """Output and errors of a subcommand, as one text."""
        done = self.run(*argv, text=True, **more)
        return done.stdout + done.stderr

    def session(self, engine, at=None, **more):
        """A new session whose workspace is on that engine. Its name."""
        self.sessions += 1
        name = f"{engine.name}-{self.sessions}"
        done = self.run("new", "--on", engine.on, "--name", name, at or engine.workspace(name), text=True, **more)
        need(done.returncode == 0, done.stdout + done.stderr)
        return name

    def bash(self, session, command, **more):
        return self.tool(session, "bash", {"command": command}, **more)

    def tool(self, session, tool, arguments, timeout="1m", **more):
        return self.call("tool", tool, json.dumps(arguments), "--session", session, "--timeout", timeout, **more)

    def begin(self, session, command):
        """Starts a call and returns its client."""
        argv = [self.quack, "tool", "bash", json.dumps({"command": command}), "--session", session]
        return subprocess.Popen(argv, cwd=self.home, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def works(self, session, seconds=PATIENCE_S):
        """Waits until a call works. Each attempt is a new call; a call during the restart delay may fail."""
        seen = []

        def answers():
            seen[:] = [self.bash(session, "echo quack-$((40 + 2))")]
            return "quack-42" in seen[0]
        until(lambda: f"a call that works: {seen}", answers, seconds)

    def ps(self):
        """What `ps` shows. Waits for a daemon that starts."""
        done = until("an answer of ps", lambda: (done := self.run("ps", "--json", text=True)).returncode == 0 and done)
        return json.loads(done.stdout)

    def row(self, session):
        """The session's row in `ps`, empty if there is none yet."""
        return next((row for row in self.ps()["workers"] if row["sessionName"] == session), {})

    def request(self, method, **params):
        """Sends one request to the daemon, past the checks of the command line. Returns the reply."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(self.root / "state/daemon.sock"))
            client.sendall(json.dumps({"id": "1", "method": method, "params": params}).encode() + b"\n")
            return json.loads(client.makefile("rb").readline())

    def daemon(self):
        return self.ps()["supervisor"]["pid"]

    def service(self, *argv, env=None, log=None):
        """Starts a program of an engine, which ends with this one. Returns its process."""
        out = open(log or self.root / "services.log", "ab")
        child = subprocess.Popen([str(word) for word in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 env={**os.environ, **(env or {})})
        self.ends.append(lambda: (child.poll() is None and child.kill(), child.wait()))
        return child


class Engine:
    """An engine of this scratch directory. `row` is its configuration, empty for a built-in row."""

    # Size of long outputs through it, in bytes. None: that of the check.
    n_stream = None

    def __init__(self, lab, name, on, row=None):
        self.lab, self.name, self.on, self.row = lab, name, on, row or {}
        lab.engines[name] = self

    def workspace(self, name):
        at = self.lab.root / "work" / name
        at.mkdir(parents=True, exist_ok=True)
        return at

    def plain(self):
        """The argument list that runs `true` without quackd, for the table of times."""
        raise NotImplementedError

    def far(self):
        """Processes of the far side: the far workers, and all below."""
        among = processes()
        # Clients of engines have the command of the far worker as arguments, too.
        roots = [process for process in among if process.name == "quack-far"
                 or "--stdio" in process.argv and process.name not in ("podman", "srun")]
        roots = [process for process in roots if process.mentions(self.lab.root)]
        return roots + below([root.pid for root in roots], among)
