"""kill -9 and SIGSTOP of each process between a client and a far command."""

import re
import signal
import subprocess
import time

import work
from lab import GONE_S, Failure, Process, below, need, processes, until

# The error of a call whose worker or link ended, with the cause. A lost link has words of its own.
DIED = re.compile(r"Error: (?:Worker died during bash \((.*?)\)\. It may have run"
                  r"|(link to \S+ lost during bash \(.*?\))\. The call may have had an effect there); it was not retried\.")


def server_of(process, among):
    """The process of the engine's server that holds a far process: the nearest with such a name above it."""
    by_pid = {process.pid: process for process in among}
    above = by_pid.get(process.parent)
    while above and not above.name.startswith(("sshd", "slurmstepd", "conmon")):
        above = by_pid.get(above.parent)
    return above


class Scene:
    """A session with a running call, and the processes of its link and its far side. No other worker runs."""

    def __init__(self, lab, engine):
        self.lab, self.engine = lab, engine
        lab.call("stop", "--yes")
        until(lambda: f"an end of {engine.far()}", lambda: not engine.far(), GONE_S)
        self.session = lab.session(engine)
        lab.works(self.session)
        self.call = lab.begin(self.session, "echo begun >marker; sleep 6125 & sleep 6125")
        marker = engine.workspace(self.session) / "marker"
        until("the call to run", lambda: marker.exists() and len(work.sleeps("6125")) == 2)
        among = processes()
        self.link = self.one([p for p in below([lab.daemon()], among) if p.name == "quack-link"], "link process")
        self.client = self.one([p for p in among if p.parent == self.link.pid and p.name != "conmon"], "client of the engine")
        self.far = engine.far()
        self.holder = self.one(self.far[:1], "far process")
        self.worker = self.one([p for p in self.far if p.name == "quack-worker"], "far worker")

    @staticmethod
    def one(found, what):
        need(len(found) == 1, f"{len(found)} processes are a {what}: {found}")
        return found[0]

    def server(self):
        server = server_of(self.holder, processes())
        need(server, "no server was found above the far process")
        return server

    def ended(self, cause):
        """The call has one error with this cause, nothing is left, and the next call works."""
        try:
            text, _ = self.call.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.call.kill()
            raise Failure("the call did not end within 60 s") from None
        causes = [died or lost for died, lost in DIED.findall(text)]
        need(len(causes) == 1 and text.count("Error: ") == 1 and re.search(cause, causes[0]), text)
        self.nothing_left()
        self.lab.works(self.session)
        return causes[0]

    def nothing_left(self):
        left = [self.client, *self.far]

        def running():
            return [process for process in left if process.runs()] + work.sleeps("6125")
        until(lambda: f"an end of {running()}", lambda: not running(), GONE_S)


def killed(lab, engine, victim, cause):
    scene = Scene(lab, engine)
    victim(scene).send(signal.SIGKILL)
    return scene.ended(cause)


def client(lab, engine):
    return killed(lab, engine, lambda scene: scene.client, "^link to .* lost")


def holder(lab, engine):
    return killed(lab, engine, lambda scene: scene.holder, "^link to .* lost|^signal 9")


def worker(lab, engine):
    return killed(lab, engine, lambda scene: scene.worker, "^signal 9")


def server(lab, engine):
    return killed(lab, engine, lambda scene: scene.server(), "^link to .* lost")


def link(lab, engine):
    return killed(lab, engine, lambda scene: scene.link, "^signal 9")


def supervisor(lab, engine):
    """The client of the call ends, nothing is left anywhere, and the next daemon has the session."""
    scene = Scene(lab, engine)
    daemon = Process(lab.daemon())
    daemon.send(signal.SIGKILL)
    text, _ = scene.call.communicate(timeout=60)
    need(scene.call.returncode != 0 and len(text) < 500, text)
    scene.nothing_left()
    until("the end of the link process", lambda: not scene.link.runs())
    lab.works(scene.session)


def stopped(lab, engine):
    """A client that is stopped sends and receives nothing. Both sides end it."""
    scene = Scene(lab, engine)
    began = time.monotonic()
    scene.client.send(signal.SIGSTOP)
    cause = scene.ended("^link to .* lost")
    return f"{cause}; {time.monotonic() - began:.0f} s"


def starts(lab, engine):
    """kill -9 of each process as soon as it is seen, while its worker starts: at most one error, and the next call works."""
    lab.works(lab.session(engine))
    seen = []
    for victim in ("client", "link", "holder", "server", "worker", "supervisor"):
        # The stub has no server. Slurm takes the job of a killed slurmstepd as running, so the start waits for `far.queue_s`.
        if victim == "server" and engine.name in ("kubectl", "slurm"):
            continue
        lab.call("stop", "--yes")
        until(lambda: f"an end of {engine.far()}", lambda: not engine.far(), GONE_S)
        session = lab.session(engine)
        daemon = Process(lab.daemon())
        call = lab.begin(session, "echo a''nswered")
        first_seen(engine, daemon, victim).send(signal.SIGKILL)
        text, _ = call.communicate(timeout=90)
        need(text.count("Error: ") <= 1 and len(text) < 1000, f"{victim}: {text}")
        seen.append(f"{victim}: {'answered' if 'answered' in text else text.strip()[:80]}")
        lab.works(session, 60)
        lab.call("stop", "--yes")
        until(lambda: f"{victim}: an end of {engine.far()}", lambda: not engine.far(), GONE_S)
    return "; ".join(seen)


def first_seen(engine, daemon, victim):
    """The process that is this victim, as soon as it exists."""
    def found():
        among = processes()
        links = [process for process in below([daemon.pid], among) if process.name == "quack-link"]
        match victim:
            case "supervisor":
                return links and [daemon]
            case "link":
                return links
            case "client":
                pids = {process.pid for process in links}
                return [process for process in among if process.parent in pids]
        far = engine.far()
        if victim == "server":
            return [server for process in far[:1] if (server := server_of(process, among))]
        return [process for process in far if victim == "holder" or process.name == "quack-worker"]
    return until(f"a {victim}", found, pause=0)[0]


def idle(lab, engine):
    """A lost link without a call is no error of the next call."""
    scene = Scene(lab, engine)
    scene.call.kill()
    scene.call.wait()
    lab.call("abort", "--session", scene.session)
    until("the end of the command", lambda: not work.sleeps("6125"))
    scene.client.send(signal.SIGKILL)
    scene.nothing_left()
    lab.works(scene.session)


def resume(lab, engine):
    """With a grace time a command continues while its link is lost, its output is whole, and it ran once."""
    lab.configure(far={"resume_grace_s": 30})
    try:
        session = lab.session(engine)
        at = engine.workspace(session)
        lines = "echo run >>count; for i in $(seq 1 60); do echo line-$i.; echo $i >progress; sleep 0.1; done"
        argv = [lab.quack, "tool", "bash", "--raw", "--timeout", "2m", "--session", session, lines]
        call = subprocess.Popen(argv, cwd=lab.home, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        losses = []
        for mark in (10, 30):
            until(f"line {mark}", lambda: progress(at) >= mark)
            losses.append(lose(lab))
        out, errors = call.communicate(timeout=120)
        expected = "".join(f"line-{i}.\n" for i in range(1, 61))
        need(call.returncode == 0 and out == expected, f"code {call.returncode}: {out[-300:]} {errors}")
        need((at / "count").read_text() == "run\n", "the command ran again")
        need(len({loss.pid for loss in losses}) == 2, "the link was not lost twice")
    finally:
        lab.configure()


def lose(lab):
    """Kills the client of the only link. Returns it."""
    def clients():
        among = processes()
        links = {p.pid for p in below([lab.daemon()], among) if p.name == "quack-link"}
        return [p for p in among if p.parent in links]
    victim = until("a client of the engine", clients)[0]
    victim.send(signal.SIGKILL)
    return victim


def progress(at):
    try:
        return int((at / "progress").read_text() or 0)
    except (OSError, ValueError):
        return 0


def torn_stream(lab, engine):
    """Links that are lost during a stream lose and double no byte."""
    lab.configure(far={"resume_grace_s": 30})
    try:
        session, n = lab.session(engine), engine.n_stream or 64 << 20
        lab.works(session)
        at = lab.root / "torn"
        argv = [lab.quack, "tool", "bash", "--raw", "--timeout", "5m", "--session", session, f"yes quackd | head -c {n}"]
        with at.open("wb") as out:
            call = subprocess.Popen(argv, cwd=lab.home, env=lab.env, stdin=subprocess.DEVNULL, stdout=out)
        for part in (n // 8, n // 2):
            until(f"{part} bytes", lambda: at.stat().st_size >= part or call.poll() is not None, 120)
            if call.poll() is None:
                lose(lab)
        need(call.wait(300) == 0, f"code {call.returncode}")
        data = at.read_bytes()
        need(len(data) == n and data == (work.STREAM * (n // 7 + 1))[:n], f"{len(data)} bytes, or other ones")
    finally:
        lab.configure()


def new_owner(lab, engine):
    """A far worker that waits for its link to be resumed ends before the next worker of its session starts."""
    lab.configure(far={"resume_grace_s": 120})
    try:
        scene = Scene(lab, engine)
        scene.link.send(signal.SIGKILL)
        scene.call.communicate(timeout=60)
        lab.works(scene.session)
        left = [process for process in scene.far if process.runs()]
        need(not left, f"the old worker runs next to the new one: {left}")
    finally:
        lab.configure()


CHECKS = {check.__name__: check for check in (client, holder, worker, server, link, supervisor, stopped, starts, idle)}
# Only for engines with a `resume` argument list.
RESUMED = {check.__name__: check for check in (resume, torn_stream, new_owner)}
