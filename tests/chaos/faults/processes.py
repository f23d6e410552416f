"""Processes that are killed or stopped: workers, their monitors, the daemon, and both."""

import signal
import time
from pathlib import Path

from daemon import Gone, PATIENCE_S, Process, below, need, processes, until

DIED = "Error: Worker died during bash (signal 9). It may have run; it was not retried."
# A worker gets at most so many restarts in 60 s.
RESTARTS = 5


def running(client, session, at, mark, command):
    """Sends a call, and returns its number as soon as the command runs."""
    number = client.send("quack.tool", sessionId=session, tool="bash",
                         arguments={"command": f"echo {mark} >>began; {command}"}, timeoutMs=120_000)
    until(f"the command of {mark}", lambda: (at / "began").exists() and mark in (at / "began").read_text().split(), PATIENCE_S)
    return number


def parts(daemon, session):
    """The worker of a session, its process 1 and its monitor, if it has them."""
    worker = daemon.worker(session)
    above, by_pid, parent = {"worker": worker}, {process.pid: process for process in processes()}, worker.parent
    while parent in by_pid and parent != daemon.pid:
        above[by_pid[parent].name.removeprefix("quack-")] = by_pid[parent]
        parent = by_pid[parent].parent
    return above


def worker_killed(stage):
    """The worker, its process 1 or its monitor is killed during a call."""
    daemon = stage.daemon()
    client, kinds = daemon.client(), {}
    for n in range(stage.n(9, 300)):
        if n % 4 == 0:
            at = daemon.workspace(f"killed-{n}")
            session = stage.session(daemon, at.name)
        number = running(client, session, at, f"m{n}", f"sleep 300; echo m{n} >>ended")
        found = parts(daemon, session)
        name = list(found)[n % len(found)]
        tree = [found["worker"], *below([found["worker"].pid])]
        began = time.monotonic()
        found[name].send(signal.SIGKILL)
        text = client.receive(number)["text"]
        stage.took("error of the call", time.monotonic() - began, 1)
        stage.check(text == DIED, f"killed {name}: {text}")
        until(f"an end of {found[name]}", lambda: not found[name].runs(), PATIENCE_S)
        stage.took("end of the command", daemon.nothing_left(tree))
        kinds[name] = kinds.get(name, 0) + 1
        stage.fired("each process left the process table: " + ", ".join(f"{k} {kinds[k]}" for k in kinds))
        if n % 4 == 3:
            stage.check((at / "began").read_text().split() == [f"m{k}" for k in range(n - 3, n + 1)], f"{at}: a command ran again")
            stage.check(not (at / "ended").exists(), f"{at}: a killed command went on")
            daemon.request("quack.session_delete", sessionId=session)
            stage.sessions.discard(session)
    client.close()


def listed_again(stage, daemon, expected=-signal.SIGKILL):
    """The daemon that was killed is gone, and the next one needs no help."""
    code = daemon.child.wait(PATIENCE_S)
    need(code == expected, f"waitpid reports {code}")
    stage.took("restart", daemon.start())
    missing = stage.sessions - daemon.listed()
    stage.check(not missing, f"acknowledged sessions are not listed after the restart: {missing}")


def daemon_killed(stage):
    """The daemon is killed while all sessions run a command."""
    daemon = stage.daemon()
    for n in range(stage.n(3, 20)):
        clients = []
        for k in range(stage.n(4, 20)):
            at = daemon.workspace(f"long-{k}")
            session = stage.session(daemon, at.name) if n == 0 else next(
                row["id"] for row in daemon.request("sessions", all=True)["sessions"] if row["name"] == at.name)
            client = daemon.client()
            clients.append((client, running(client, session, at, f"m{n}", "setsid sleep 60 & trap '' TERM; sleep 60")))
        left = daemon.ours()
        daemon.send(signal.SIGKILL)
        stage.took("end of all processes", daemon.nothing_left(left), 2)
        for client, number in clients:
            try:
                stage.check(False, f"a call of a dead daemon was answered: {client.receive(number)}")
            except Gone:
                client.close()
        listed_again(stage, daemon)
        stage.fired("waitpid: signal 9")


def daemon_and_worker_killed(stage):
    """The daemon and a worker or its monitor, in both orders, up to 50 ms apart."""
    daemon = stage.daemon()
    session, at = stage.session(daemon, "both"), daemon.workspace("both")
    for n in range(stage.n(4, 100)):
        client = daemon.client()
        running(client, session, at, f"m{n}", "setsid sleep 300 & sleep 300")
        found = parts(daemon, session)
        name = list(found)[n % len(found)]
        left, victims = daemon.ours(), [Process(daemon.pid), found[name]]
        if stage.random.random() < 0.5:
            victims.reverse()
        victims[0].send(signal.SIGKILL)
        end = time.monotonic() + stage.random.random() / 20
        while time.monotonic() < end:
            pass
        was_second = victims[1].runs()
        victims[1].send(signal.SIGKILL)
        # A monitor that dies with its daemon cannot kill: the next daemon kills the rest.
        is_excused = name != "worker"
        if not is_excused:
            stage.took("end of all processes", daemon.nothing_left(left), 5)
        listed_again(stage, daemon)
        if is_excused:
            stage.took("end after the next start", daemon.nothing_left(left), 5)
        client.close()
        stage.fired(f"waitpid: signal 9, and {name} left the process table")
        stage.both = getattr(stage, "both", 0) + was_second
    stage.proof += f"; {stage.both} times both ran at the second kill"


def restart_storm(stage):
    """Every worker of a session is killed as soon as it runs."""
    daemon = stage.daemon()
    for round in range(stage.n(1, 5)):
        session, killed = stage.session(daemon, f"storm-{round}"), set()
        client = daemon.client()

        def failed():
            row = daemon.rows().get(session, {})
            if row.get("life", {}).get("state") == "failed":
                return True
            try:
                process = row.get("pid") and row["pid"] not in killed and Process(row["pid"])
            except OSError:
                return False
            if process and process.name == "quack-worker":
                process.send(signal.SIGKILL)
                killed.add(process.pid)
            elif not row.get("pid") and not client.waiting:
                client.send("quack.tool", sessionId=session, tool="bash", arguments={"command": "sleep 60"})
            if client.waiting:
                client.read(0.02)
            return False
        used, began = daemon.processor_s(), time.monotonic()
        until(lambda: f"the state failed: {daemon.rows().get(session)}", failed, 90, 0.01)
        stage.took("until the session failed", time.monotonic() - began)
        stage.check(len(killed) == RESTARTS + 1, f"{len(killed)} workers started")
        before = time.monotonic()
        with daemon.client() as other:
            text = other.bash(session, "echo no")
        stage.took("refusal", time.monotonic() - before, 1)
        stage.check(text.startswith(f"Error: Session worker failed {RESTARTS} times"), text)
        daemon.request("attach", path=str(daemon.workspace(f"storm-{round}")))
        with daemon.client() as other:
            text = other.bash(session, "echo again")
        stage.check(text.startswith("again"), f"after an attach: {text}")
        stage.fired(f"{len(killed)} workers left the process table, {daemon.processor_s() - used:.1f} s of CPU with the load",
                    len(killed))
        client.close()


def worker_stopped(stage):
    """A worker is stopped: for a moment, which changes nothing, and for longer than 15 s, which ends it."""
    daemon = stage.daemon()
    session, at = stage.session(daemon, "stopped"), daemon.workspace("stopped")
    client = daemon.client()
    for n, seconds in enumerate((1, 20) if stage.quick else (1, 5, 20, 1, 5, 20)):
        number = running(client, session, at, f"s{n}", f"sleep {2 if seconds < 6 else 100}")
        worker = daemon.worker(session)
        worker.send(signal.SIGSTOP)
        until("the state T", lambda: state(worker) in "Tt")
        began = time.monotonic()
        if seconds < 6:
            until("time", lambda: time.monotonic() - began >= seconds, PATIENCE_S)
            worker.send(signal.SIGCONT)
            text = client.receive(number)["text"]
            # A machine that stands still for 6 s stops the worker for longer.
            stage.check(text.startswith("\n[Exit code: 0]"), f"after {seconds} s: {text}")
        else:
            text = client.receive(number)["text"]
            stage.took("kill of a stopped worker", time.monotonic() - began, 18)
            stage.check(text.startswith("Error: Worker died during bash (not responding)"), text)
            stage.check(time.monotonic() - began > 14, "killed too early")
            worker.send(signal.SIGCONT)
            daemon.nothing_left([worker])
        stage.fired("/proc shows state T")
    client.close()


def state(process):
    try:
        return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def daemon_stopped(stage):
    """The daemon is stopped and continued. Clients that came in between are served, and no worker is killed."""
    daemon = stage.daemon()
    session, at = stage.session(daemon, "kept"), daemon.workspace("kept")
    client = daemon.client()
    for n in range(stage.n(1, 3)):
        number = running(client, session, at, f"d{n}", "sleep 3; echo finished")
        worker = daemon.worker(session)
        daemon.send(signal.SIGSTOP)
        until("the state T", lambda: state(Process(daemon.pid)) in "Tt")
        early = daemon.client(PATIENCE_S + 90)
        ping = early.send("ping")
        began, seconds = time.monotonic(), stage.n(8, 40)
        # The clients of the load wait 45 s for a reply.
        until("time", lambda: time.monotonic() - began >= seconds, 90)
        daemon.send(signal.SIGCONT)
        continued = time.monotonic()
        early.receive(ping)
        text = client.receive(number)["text"]
        stage.took("answers after SIGCONT", time.monotonic() - continued, 2)
        stage.check(text.startswith("finished"), text)
        stage.check(worker.runs(), "the worker was killed")
        early.close()
        stage.fired(f"/proc shows state T, {seconds} s")
    client.close()


FAULTS = {
    "F-08": (worker_killed, "P-02"),
    "F-09": (daemon_killed, "P-04"),
    "F-10": (daemon_and_worker_killed, "P-04"),
    "F-11": (restart_storm, "P-03"),
    "F-12": (worker_stopped, "P-14"),
    "F-13": (daemon_stopped, "P-15"),
}
