"""A daemon in its own directories, its clients, and the load during a fault."""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS / "engines"), str(TESTS / "page")]
from lab import Failure, Process, below, need, processes, until  # noqa: E402
from world import Refused, Wire  # noqa: E402

# The patience of the other tests: a slow machine breaks no promise.
PATIENCE_S = 45
METADATA, STATE = "metadata.json", "quackd-state.json"
FILES = (METADATA, STATE)
# Errors of calls that may have run, and of calls that did not run.
UNKNOWN = ("Error: Worker died during ", "Error: Worker gave no answer during ", "Error: link to ")
REFUSED = ("Error: Session worker ", "Error: Worker not responding", "Error: Daemon is shutting down",
           "Error: Too many commands are running")


class NotRun(Exception):
    """This machine cannot inject the fault, with the reason."""


class Gone(Exception):
    """The daemon closed the connection."""


class Client(Wire):
    """A connection that fails if a request is answered twice, or not within the patience."""

    def __init__(self, path, seconds=PATIENCE_S):
        super().__init__(path)
        self.socket.settimeout(seconds)
        self.seconds, self.data = seconds, bytearray()
        self.waiting, self.events = set(), []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, method, **params):
        try:
            number = super().send(method, **params)
        except TimeoutError:
            raise Failure(f"{method} could not be sent within {self.seconds} s") from None
        except OSError as error:
            raise Gone(str(error)) from error
        self.waiting.add(number)
        return number

    def line(self, seconds):
        """The next line, `None` if it does not come in time."""
        while (end := self.data.find(b"\n")) < 0:
            try:
                if not select.select([self.socket], [], [], seconds)[0]:
                    return None
                block = self.socket.recv(1 << 20)
            except (OSError, ValueError) as error:
                raise Gone(str(error)) from error
            if not block:
                raise Gone("closed")
            self.data += block
        line = bytes(self.data[:end])
        del self.data[:end + 1]
        return line

    def read(self, seconds=None):
        """Reads one reply or event. `None` if none comes within `seconds`; without a number, that is a failure."""
        line = self.line(self.seconds if seconds is None else seconds)
        if line is None:
            need(seconds is not None, f"no reply within {self.seconds} s to {self.waiting}")
            return None
        message = json.loads(line)
        if "id" not in message:
            self.events.append(message)
            return message
        number = message["id"]
        need(number in self.waiting, f"a reply without a request, or a second one: {line[:300]}")
        self.waiting.remove(number)
        self.replies[number] = message
        return message

    def receive(self, number):
        while number not in self.replies:
            self.read()
        message = self.replies.pop(number)
        if not message["ok"]:
            raise Refused(message["error"])
        return message.get("data")

    def bash(self, session, command, **more):
        """Runs a command and returns the text of its answer."""
        return self.request("quack.tool", sessionId=session, tool="bash", arguments={"command": command}, **more)["text"]

    def event(self, name, seconds=PATIENCE_S):
        """Waits for the next event of this name."""
        end = time.monotonic() + seconds
        while True:
            for n, event in enumerate(self.events):
                if event["event"] == name:
                    return self.events.pop(n)
            need(time.monotonic() < end, f"no event {name} within {seconds} s")
            self.read()


class Daemon:
    """State directory, home and daemon. It runs as `quack daemon` below this program."""

    def __init__(self, quack, config=""):
        self.quack = str(Path(quack).resolve())
        # The path of a socket has at most 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="qc", dir="/tmp"))
        self.app, self.home = self.root / "app", self.root / "home"
        for directory in (self.app, self.home):
            directory.mkdir(mode=0o700)
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8",
                    "RUBBER_DUCK_APP_SUPPORT": str(self.app)}
        self.configure(config)
        self.child = self.pid = None
        self.mounts = []

    def configure(self, text):
        """Writes the configuration of the next start. The shell of the user's login is not started, which saves time."""
        (self.app / "quackd.toml").write_text("[environment]\nlogin_shell = false\n" + text)

    def start(self, *before, env=None, seconds=PATIENCE_S):
        """Starts the daemon, perhaps through another program. Returns the time until it answers."""
        began = time.monotonic()
        self.child = subprocess.Popen([*before, self.quack, "daemon"], env={**self.env, **(env or {})}, cwd=self.home,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            need(self.child.poll() is None, f"the daemon exited with {self.child.returncode}: {self.log()[-600:]}")
            try:
                with self.client(5) as client:
                    return client.request("ping")
            except (OSError, Gone, Failure):
                return None
        self.pid = until("an answer of the daemon", answers, seconds, 0.01)["pid"]
        return time.monotonic() - began

    def client(self, seconds=PATIENCE_S):
        return Client(self.app / "daemon.sock", seconds)

    def request(self, method, **params):
        with self.client() as client:
            return client.request(method, **params)

    def send(self, number):
        os.kill(self.pid, number)

    def end(self, number=signal.SIGKILL, seconds=PATIENCE_S):
        """Sends a signal and waits for the end. Returns what `waitpid` reports."""
        self.send(number)
        return self.child.wait(seconds)

    def quack_run(self, *argv, seconds=120, **more):
        return subprocess.run([self.quack, *map(str, argv)], cwd=self.home, env=self.env, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=seconds, **more)

    def workspace(self, name):
        at = self.home / name
        at.mkdir(parents=True, exist_ok=True)
        return at

    def log(self):
        try:
            return (self.app / "duck-daemon.log").read_text(errors="replace")
        except OSError:
            return ""

    def on_disk(self):
        """Ids of the sessions in the metadata and the state, which has those that the metadata does not have yet."""
        found = set()
        for name in FILES:
            sessions = json.loads((self.app / name).read_bytes())["sessions"]
            found |= set(sessions) if isinstance(sessions, dict) else {session["id"] for session in sessions}
        return found

    def listed(self):
        return {session["id"] for session in self.request("sessions", all=True)["sessions"]}

    def rows(self):
        return {row["sessionId"]: row for row in self.request("quack.ps")["workers"]}

    def worker(self, session):
        """The process of the session's worker."""
        def found():
            pid = self.rows().get(session, {}).get("pid")
            try:
                return pid and Process(pid)
            except OSError:
                return None
        return until(f"a worker of {session}", found, PATIENCE_S)

    def ours(self):
        """Processes of this daemon, wherever they are. No other program has its path in the environment."""
        found = [process for process in processes() if process.mentions(self.root) and process.pid != os.getpid()]
        return found + [process for process in below([self.pid]) if process.pid not in {other.pid for other in found}]

    def strays(self):
        """Processes of commands."""
        return [process for process in below([self.pid]) if not process.name.startswith("quack") and process.runs()]

    def resident_mib(self):
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024

    def n_descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def last_descriptor(self):
        return max(int(number) for number in os.listdir(f"/proc/{self.pid}/fd"))

    def n_threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def processor_s(self):
        after = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")

    def nothing_left(self, left, seconds=PATIENCE_S):
        """Waits for the end of these processes. Returns the time."""
        began = time.monotonic()

        def running():
            return [process for process in left if process.runs()]
        until(lambda: f"an end of {running()}", lambda: not running(), seconds, 0.01)
        return time.monotonic() - began

    def close(self):
        if self.child and self.child.poll() is None:
            for number, seconds in ((signal.SIGCONT, 0), (signal.SIGTERM, 20), (signal.SIGKILL, 20)):
                try:
                    self.send(number)
                    self.child.wait(seconds)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
            self.child.kill()
            self.child.wait()
        for mount in reversed(self.mounts):
            subprocess.run(["umount", "-l", mount], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.root, ignore_errors=True)


class Load:
    """Sessions that run commands with a visible effect, one caller each, and a client that pings."""

    def __init__(self, daemon, n=3):
        self.daemon, self.over = daemon, threading.Event()
        self.names = {f"load-{k}": daemon.workspace(f"load-{k}") for k in range(n)}
        self.ids, self.done, self.unknown, self.refused, self.wrong = {}, set(), set(), set(), []
        self.longest_call = self.longest_ping = 0.0
        for name, at in self.names.items():
            self.ids[name] = daemon.request("quack.session_new", path=str(at), name=name)["session"]["id"]
        self.threads = [threading.Thread(target=self.guarded, args=(self.calls, name), daemon=True) for name in self.names]
        self.threads.append(threading.Thread(target=self.guarded, args=(self.pings,), daemon=True))
        for thread in self.threads:
            thread.start()
        until("a call of each session of the load", lambda: self.wrong or len({t.split(":")[0] for t in self.done}) == n,
              PATIENCE_S)

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except Exception as error:  # noqa: BLE001: the fault must show any failure of the load
            self.wrong.append(f"load: {type(error).__name__}: {str(error)[:300]}")

    def connected(self):
        """A connection, as soon as there is a daemon. `None` at the end of the load."""
        while True:
            try:
                return self.daemon.client()
            except OSError:
                if self.over.wait(0.02):
                    return None

    def calls(self, name):
        n, client = 0, None
        while not self.over.is_set():
            client = client or self.connected()
            if not client:
                return
            n += 1
            token, began = f"{name}:{n}", time.monotonic()
            try:
                text = client.bash(self.ids[name], f"echo {token} >>ran; echo done")
            except Gone:
                self.unknown.add(token)
                client.close()
                client = None
                continue
            except Refused as error:
                text = f"Error: {error}"
            self.longest_call = max(self.longest_call, time.monotonic() - began)
            self.sort(token, text)
            self.over.wait(0.03)
        if client:
            client.close()

    def sort(self, token, text):
        if text == "done\n\n[Exit code: 0]":
            self.done.add(token)
        elif text.startswith(UNKNOWN):
            self.unknown.add(token)
        elif text.startswith(REFUSED):
            self.refused.add(token)
        else:
            self.wrong.append(f"{token}: unexpected answer: {text[:300]}")

    def pings(self):
        client = None
        while not self.over.wait(0.05):
            client = client or self.connected()
            if not client:
                return
            began = time.monotonic()
            try:
                client.request("ping")
                self.longest_ping = max(self.longest_ping, time.monotonic() - began)
            except Gone:
                client.close()
                client = None

    def more(self, n=3):
        """Waits until each session has run further commands: the daemon serves during the fault."""
        count = len(self.done) + n * len(self.names)
        until("calls of the load", lambda: self.wrong or len(self.done) >= count, PATIENCE_S)

    def stop(self):
        """Ends the load. Returns what broke: answers that do not fit to the commands that ran."""
        self.over.set()
        for thread in self.threads:
            thread.join(PATIENCE_S + 5)
            if thread.is_alive():
                self.wrong.append("a call of the load was not answered")
        ran = [line for at in self.names.values() if (at / "ran").exists() for line in (at / "ran").read_text().split("\n") if line]
        once = set(ran)
        if len(once) != len(ran):
            self.wrong.append(f"{len(ran) - len(once)} commands ran twice")
        self.wrong += [f"{token} was answered and did not run" for token in sorted(self.done - once)]
        self.wrong += [f"{token} was refused and ran" for token in sorted(self.refused & once)]
        return self.wrong


class Stage:
    """One fault: a daemon under load, the count of injections with their proofs, and the broken promises."""

    def __init__(self, quack, quick, seed):
        self.quack, self.quick, self.random = quack, quick, random.Random(seed)
        self.times, self.proof, self.broken, self.late = 0, "", [], []
        self.delays, self.daemons, self.ends = {}, [], []
        self.load, self.sessions = None, set()

    def n(self, quick, long):
        """Repetitions of the short and the long form."""
        return quick if self.quick else long

    def daemon(self, config="", load=3, start=True, **more):
        """The daemon of this fault, with its load."""
        daemon = Daemon(self.quack, config)
        self.daemons.append(daemon)
        if start:
            daemon.start(**more)
            if load:
                self.load = Load(daemon, load)
                self.sessions |= set(self.load.ids.values())
        return daemon

    def session(self, daemon, name, **more):
        """Creates a session, and remembers that it was acknowledged."""
        at = daemon.workspace(name)
        session = daemon.request("quack.session_new", path=str(at), name=name, **more)["session"]["id"]
        self.sessions.add(session)
        return session

    def fired(self, proof, times=1):
        self.times += times
        self.proof = proof

    def check(self, good, text):
        """A promise that breaks is recorded, and the fault continues."""
        if not good:
            self.broken.append(text)
        return good

    def took(self, what, seconds, limit=None):
        """A delay, which is late above the limit of its promise."""
        if seconds >= self.delays.get(what, -1):
            self.delays[what] = seconds
        if limit is not None and seconds > limit:
            self.late.append(f"{what}: {seconds:.2f} s, promised {limit} s")

    def settle(self):
        """Checks what holds after every fault: the calls of the load, the sessions, the disk, the processes."""
        if self.load:
            self.broken += self.load.stop()
            self.took("call of the load", self.load.longest_call)
            self.took("ping", self.load.longest_ping)
        for daemon in self.daemons:
            if daemon.child is None or daemon.child.poll() is not None:
                continue
            for session in (self.load.ids.values() if self.load and daemon is self.load.daemon else ()):
                def works():
                    with daemon.client() as client:
                        return client.bash(session, "echo works").startswith("works")
                began = time.monotonic()
                until(lambda: f"a call of {session}", works, PATIENCE_S)
                self.took("first call after it", time.monotonic() - began)
            if daemon is self.daemons[0]:
                missing = self.sessions - daemon.listed()
                self.check(not missing, f"acknowledged sessions are not listed: {sorted(missing)}")
                missing = self.sessions - daemon.on_disk()
                self.check(not missing, f"acknowledged sessions are not on disk: {sorted(missing)}")
            until(lambda: f"an end of {daemon.strays()}", lambda: not daemon.strays(), PATIENCE_S)
            left = daemon.ours()
            code = daemon.end(signal.SIGTERM)
            self.check(code == 0, f"the daemon exited with {code}")
            self.took("end of all processes", daemon.nothing_left(left))

    def close(self):
        if self.load:
            self.load.over.set()
        for end in reversed(self.ends):
            end()
        for daemon in self.daemons:
            daemon.close()
