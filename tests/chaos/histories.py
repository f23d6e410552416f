"""Histories checked by a model. Clients create, delete, pin, activate, fork and use sessions, apply and undo, and another program
makes sessions, while the daemon, workers and that program are killed.

The model is the set of possible states: an operation that was sent and not acknowledged leaves both. After each history the
listed state must be one of them: acknowledged operations are neither lost nor doubled. The seed decides the operations, their
order for each client, and the kills. The scheduling of threads is that of the machine.
"""

import random
import signal
import subprocess
import sys
import threading
import time

from daemon import METADATA, PATIENCE_S, TESTS, Gone, Refused, Stage, below, until
from faults.agents import answers, model

CLIENTS, OPERATIONS = 3, 6
# A new world after so many histories, so that a seed reproduces a failure soon.
IN_ONE_WORLD = 50
KILLS = ("daemon", "daemon", "worker", "writer", "stop", "both", "none")


class Model:
    """What may be listed. `True` and `False` are known, `None` is open."""

    def __init__(self):
        self.lock = threading.Lock()
        self.there, self.pinned, self.names, self.once = {}, {}, {}, {}
        # Activations as (start, end, id), where the end of one that was not acknowledged is infinite.
        self.active = []
        self.done, self.unknown, self.refused, self.sent = set(), set(), set(), 0
        # Contents that the files of the workspace may have, and those of the private copy.
        self.files, self.copy, self.before = {"old"}, {"old"}, None


class World:
    """A daemon with sessions that stay, an isolated one, and one with a conversation."""

    def __init__(self, stage):
        self.stage = stage
        self.daemon = daemon = stage.daemon(stage.model_config, load=0)
        self.at = daemon.workspace("shared")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        for name in ("a", "b"):
            (self.at / name).write_text("old")
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run([*git, *words], cwd=self.at, check=True, env=daemon.env)
        self.kept = {name: self.new(name) for name in ("kept-0", "kept-1", "kept-2")}
        self.isolated = self.new("isolated", isolated=True)
        self.talk = self.new("talk")
        with daemon.client() as client:
            client.request("follow", sessionId=self.talk)
            answers(client, self.talk, "first")
        self.model = Model()
        self.model.active = [(0, 0, self.kept["kept-0"])]
        daemon.request("activate_session", sessionId=self.kept["kept-0"])
        self.writer = None

    def new(self, name, **more):
        return self.daemon.request("quack.session_new", path=str(self.at), name=name, **more)["session"]["id"]

    def write_beside(self):
        """Starts the other program."""
        self.writer = subprocess.Popen([sys.executable, TESTS / "fixtures/second_writer.py", self.daemon.app / METADATA, "5", "1", "rename"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def end_writer(self):
        """Ends the other program. What it printed is acknowledged."""
        self.writer.stdin.close()
        for word in self.writer.stdout.read().split():
            made, _, is_renamed = word.partition("=")
            name = f"app {made.rpartition('-')[2]}"
            # A new name that was not printed may be there.
            self.model.names[made] = {f"{name} again"} if is_renamed else {name, f"{name} again"}
            self.model.there[made] = True
        self.writer.stdout.close()
        self.writer.wait(PATIENCE_S)


class Caller:
    """One client of a history: its operations, one after the other, on its own sessions and on shared ones."""

    def __init__(self, world, number, history, seed):
        self.world, self.model, self.name = world, world.model, f"h{history}-c{number}"
        self.history, self.chance, self.mine = history, random.Random(f"{seed}/{history}/{number}"), []
        self.client = world.daemon.client()
        self.is_isolated = number == 0
        self.failure = None

    def run(self):
        kinds = ["create"] * 3 + ["delete", "delete", "pin", "activate", "activate", "fork", "use", "use", "same"]
        kinds += ["apply", "undo", "change"] * 2 if self.is_isolated else []
        try:
            for n in range(OPERATIONS):
                kind = self.chance.choice(kinds)
                with self.model.lock:
                    self.model.sent += 1
                getattr(self, kind)(n)
        except Gone:
            pass
        except Exception as error:  # noqa: BLE001: shown with the seed
            self.failure = f"{self.name}: {type(error).__name__}: {error}"
        finally:
            self.client.close()

    def made(self, name, method, **params):
        """A new session. Without an acknowledgment it may be there, under that name."""
        with self.model.lock:
            self.model.once[name] = self.model.once.get(name, 0)
        try:
            data = self.client.request(method, name=name, **params)
        except Refused as error:
            if not any(text in str(error) for text in ("exists already", "shutting down", "try again")):
                raise
            return
        session = data["session"]["id"] if "session" in data else data["sessionId"]
        with self.model.lock:
            self.model.once[name] += 1
            self.model.there[session], self.model.names[session] = True, {name}
        return session

    def create(self, n):
        self.own(self.made(f"{self.name}-{n}", "quack.session_new", path=str(self.world.at), safeMode=self.chance.random() < 0.3))

    def own(self, session):
        self.mine += [session] if session else []

    def same(self, _):
        """All clients want the same name: at most one gets it. It is not deleted in this history."""
        self.made(f"h{self.history}-same", "quack.session_new", path=str(self.world.at))

    def fork(self, n):
        self.own(self.made(f"{self.name}-{n}", "quack.fork", sessionId=self.world.talk))

    def delete(self, _):
        if not self.mine:
            return
        session = self.mine.pop(self.chance.randrange(len(self.mine)))
        self.model.there[session] = None
        try:
            self.client.request("quack.session_delete", sessionId=session, force=True)
            self.model.there[session] = False
        except Refused as error:
            if "shutting down" not in str(error):
                raise

    def pin(self, _):
        session = self.chance.choice(self.mine or [self.world.kept["kept-0"]])
        if session not in self.mine:
            return
        wanted = self.chance.random() < 0.5
        self.model.pinned[session] = self.model.pinned.get(session, {False}) | {wanted}
        try:
            self.client.request("quack.pin", sessionId=session, pinned=wanted)
            self.model.pinned[session] = {wanted}
        except Refused as error:
            if "shutting down" not in str(error):
                raise

    def activate(self, _):
        session = self.chance.choice(sorted(self.world.kept.values()))
        began, end = time.monotonic(), float("inf")
        try:
            self.client.request("activate_session", sessionId=session)
            end = time.monotonic()
        except Refused as error:
            if "shutting down" not in str(error):
                raise
        finally:
            with self.model.lock:
                self.model.active.append((began, end, session))

    def use(self, n):
        """A command with an effect in the workspace."""
        session, token = self.chance.choice(sorted(self.world.kept.values())), f"{self.name}-{n}"
        with self.model.lock:
            self.model.unknown.add(token)
        try:
            text = self.client.bash(session, f"echo {token} >>ran; echo done")
        except Refused:
            text = "Error: Session worker refused"
        with self.model.lock:
            if text.startswith("done\n"):
                self.model.unknown.discard(token)
                self.model.done.add(token)
            elif not text.startswith(("Error: Worker died", "Error: Worker gave")):
                self.model.unknown.discard(token)
                self.model.refused.add(token)

    def change(self, n):
        """Writes both files of the private copy."""
        new = f"{self.name}-{n}"
        # A killed command may have changed one of them only. Nothing is applied before another one has changed both.
        before, self.model.copy = self.model.copy, None
        try:
            command = f"echo -n {new} >a.new; echo -n {new} >b.new; mv a.new a; mv b.new b; echo done"
            text = self.client.bash(self.world.isolated, command)
        except Refused:
            text = ""
        if text.startswith("done\n"):
            self.model.copy = {new}
        elif not text.startswith("Error: Worker"):
            self.model.copy = before

    def copied(self, action, after):
        before, self.model.files = self.model.files, self.model.files | after
        try:
            written = self.client.request("quack.isolated", sessionId=self.world.isolated, action=action)["written"]
            self.model.files = after if written else before
            return written
        except Refused as error:
            # The daemon stopped before it had an answer of the process that does the work.
            if "either the work is done" not in str(error):
                self.model.files = before
        return False

    def apply(self, _):
        before = self.model.files
        if self.model.copy is None:
            return
        self.model.before = None
        if self.copied("apply", set(self.model.copy)):
            self.model.before = before

    def undo(self, _):
        # After an apply that was not acknowledged it is not known what undo takes back.
        if self.model.before is not None:
            before, self.model.before = self.model.before, None
            self.copied("undo", before)


def strike(world, kind, chance):
    """Kills something in the middle of a history. Returns what died."""
    end = time.monotonic() + chance.uniform(0.002, 0.15)
    while time.monotonic() < end:
        time.sleep(0.001)
    daemon, died = world.daemon, []
    if kind in ("worker", "both"):
        for process in below([daemon.pid]):
            if process.name == "quack-worker":
                process.send(signal.SIGKILL)
                died.append("worker")
                break
    if kind in ("writer", "both"):
        world.writer.send_signal(signal.SIGKILL)
        died.append("writer")
    if kind in ("daemon", "both", "stop"):
        daemon.send(signal.SIGTERM if kind == "stop" else signal.SIGKILL)
        code = daemon.child.wait(PATIENCE_S)
        died.append(f"daemon {code}")
    return died


def verify(world, fail):
    """The listed state is one of the possible ones."""
    daemon, now = world.daemon, world.model

    def visible():
        listed = {row["id"]: row for row in daemon.request("sessions", all=True)["sessions"]}
        return listed if all(session in listed and listed[session]["name"] in now.names[session]
                             for session, is_there in now.there.items() if is_there) else None
    # Changes of the other program are visible soon.
    try:
        listed = until("sessions", visible, PATIENCE_S)
    except Exception:  # noqa: BLE001: reported below
        listed = {row["id"]: row for row in daemon.request("sessions", all=True)["sessions"]}
    known = {*world.kept.values(), world.isolated, world.talk}
    for session in known - set(listed):
        fail(f"the session {session} is lost")
    for session, is_there in now.there.items():
        if is_there is not None and is_there != (session in listed):
            fail(f"{session} {now.names.get(session)}: {'lost' if is_there else 'there again'}")
        if session in listed and now.names.get(session) and listed[session]["name"] not in now.names[session]:
            fail(f"{session} has the name {listed[session]['name']}, not {now.names[session]}")
        if session in listed and bool(listed[session].get("pinned")) not in now.pinned.get(session, {False}):
            fail(f"{session}: pinned is {listed[session].get('pinned')}")
    names = [row["name"] for row in listed.values()]
    for name, n in now.once.items():
        if n > 1 or names.count(name) > 1:
            fail(f"{name}: {n} acknowledged, {names.count(name)} listed")
    for session in set(listed) - known - set(now.there):
        if listed[session]["name"] not in now.once and not session.startswith("app-"):
            fail(f"nobody made {session} {listed[session]['name']}")
    possible = {session for _, end, session in now.active
                if not any(begin > end and to != float("inf") for begin, to, _ in now.active)}
    active = {session for session, row in listed.items() if row["isActive"]}
    if not active <= possible or len(active) > 1:
        fail(f"active is {active}, possible are {possible}")
    ran = (world.at / "ran").read_text().split() if (world.at / "ran").exists() else []
    if len(ran) != len(set(ran)) or now.done - set(ran) or now.refused & set(ran):
        fail(f"commands: {len(ran) - len(set(ran))} twice, {now.done - set(ran)} lost, {now.refused & set(ran)} refused and ran")
    with daemon.client() as client:
        client.request("quack.isolated", sessionId=world.isolated, action="diff")
    files = {(world.at / name).read_text() for name in ("a", "b")}
    if len(files) != 1 or not files <= now.files:
        fail(f"the files have {files}, possible are {now.files}")
    now.files = files
    return listed


def forget(world, listed):
    """Deletes the sessions of a history, whose model becomes that of the next one."""
    now, known = world.model, {*world.kept.values(), world.isolated, world.talk}
    with world.daemon.client() as client:
        for session in set(listed) - known:
            client.request("quack.session_delete", sessionId=session, force=True)
    active = next((session for session, row in listed.items() if row["isActive"]), None)
    now.there, now.pinned, now.names, now.once = {}, {}, {}, {}
    now.active, now.before = [(0, 0, active)] if active else now.active, None


def history(world, number, seed, failures):
    """Runs one history and checks it. Returns what was killed."""
    chance = random.Random(f"{seed}/{number}")
    world.write_beside()
    callers = [Caller(world, k, number, seed) for k in range(CLIENTS)]
    threads = [threading.Thread(target=caller.run, daemon=True) for caller in callers]
    for thread in threads:
        thread.start()
    died = strike(world, chance.choice(KILLS), chance)
    for thread in threads:
        thread.join(2 * PATIENCE_S)
    world.end_writer()
    if world.daemon.child.poll() is not None:
        world.daemon.start()
    where = f"history {number} of seed {seed} (killed: {', '.join(died) or 'nothing'})"
    listed = verify(world, lambda text: failures.append(f"{where}: {text}"))
    failures += [f"{where}: {caller.failure}" for caller in callers if caller.failure]
    forget(world, listed)
    return died


def histories(stage: Stage):
    """Concurrent operations on sessions, files and conversations, and kills: the state is one that the model allows."""
    stage.model_config = model(stage, {"replies": [{"text": "hello"}], "on_exhausted": "repeat_last"})
    world, seed, n, sent, killed = None, stage.random.randrange(1 << 30), 0, 0, {}
    end = time.monotonic() + 30
    while n < stage.n(40, stage.n_histories) and (not stage.quick or time.monotonic() < end) and not stage.broken:
        if n % IN_ONE_WORLD == 0:
            if world:
                sent += world.model.sent
                world.daemon.end(signal.SIGTERM)
            world = World(stage)
            # Only the last world has sessions to check at the end.
            stage.daemons = [world.daemon, *stage.daemons[:-1]]
        for what in history(world, n, seed, stage.broken):
            killed[what] = killed.get(what, 0) + 1
        n += 1
        stage.fired(f"{n} histories with {sent + world.model.sent} operations; waitpid and /proc: " +
                    ", ".join(f"{what} {times}" for what, times in sorted(killed.items())))


FAULTS = {"H-01": (histories, "P-04, P-10, P-12, P-67")}
