"""Start, stop and environment of the daemon, and commands that take all processes or memory."""

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from daemon import PATIENCE_S, TESTS, Gone, Load, NotRun, Refused, below, need, until
from faults.processes import listed_again
from faults.storage import Strace, attach


def clock(stage):
    """The daemon's clock is set: an hour back, ten years forward, and back."""
    if not shutil.which("cc"):
        raise NotRun("no C compiler for the clock that can be set")
    daemon = stage.daemon(start=False)
    library, offsets = daemon.root / "clock.so", daemon.root / "offsets"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, TESTS / "fixtures/set_clock.c"], check=True)
    offsets.write_bytes(bytes(16))
    daemon.start(env={"LD_PRELOAD": str(library), "CLOCK_OFFSETS": str(offsets)})
    stage.load = Load(daemon)
    stage.sessions |= set(stage.load.ids.values())
    client = daemon.client()
    session, seconds = stage.session(daemon, "clock"), stage.n(2, 5)
    for hours in ([-1, 87_660, 0] if stage.quick else [-1, 87_660, 0, 24, -24, 0]):
        number = client.send("quack.tool", sessionId=session, tool="bash", arguments={"command": "sleep 100"},
                             timeoutMs=1000 * seconds)
        began = time.monotonic()
        with open(offsets, "r+b") as file:
            file.write((hours * 3600 * 10**9).to_bytes(8, "little", signed=True))
        reply = client.receive(number)
        took = time.monotonic() - began
        stage.check(reply["timedOut"] and took > seconds - 0.2, f"{hours} h: after {took:.2f} s: {reply['text']}")
        stage.took("after the deadline", took - seconds, 0.7)
        started = daemon.request("quack.session_new", path=str(daemon.workspace("clock")), name=f"at-{hours}-{stage.times}")
        stage.sessions.add(started["session"]["id"])
        shown = next(row["lastActiveAt"] for row in daemon.request("sessions", all=True)["sessions"]
                     if row["id"] == started["session"]["id"])
        stage.check((hours > 80_000) == (int(shown[:4]) >= time.gmtime().tm_year + 9), f"the time of a new session is {shown}")
        stage.fired("times of new sessions follow the clock that was set")
    client.close()


def second_daemons(stage):
    """Twenty daemons start at the same time, also with a lock and a socket that a killed one left."""
    daemon = stage.daemon(load=0)
    stage.session(daemon, "kept")
    for n in range(stage.n(3, 50)):
        daemon.end()
        began = time.monotonic()
        many = [subprocess.Popen([daemon.quack, "daemon"], env=daemon.env, cwd=daemon.home, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(stage.n(8, 20))]
        try:
            until("an end of all but one", lambda: sum(one.poll() is None for one in many) <= 1, PATIENCE_S)
            stage.took("until one is left", time.monotonic() - began)
            alive = [one for one in many if one.poll() is None]
            need(len(alive) == 1, f"{len(alive)} daemons run")
            daemon.child = alive[0]

            def answers():
                try:
                    return daemon.request("ping")["pid"]
                except (OSError, Gone):
                    return None
            daemon.pid = until("an answer", answers, PATIENCE_S)
            stage.check(daemon.pid == alive[0].pid, "another daemon answers")
            codes = {one.returncode for one in many if one is not alive[0]}
            stage.check(codes == {0}, f"exit codes {codes}")
            stage.fired(f"waitpid: exit code 0 of {len(many) - 1}")
        finally:
            for one in many:
                if one is not daemon.child:
                    one.kill()
                    one.wait()
    daemon.end()
    stage.load = None
    daemon.start()


def stop_races(stage):
    """The daemon gets SIGTERM during saves and starts of workers, also twice."""
    daemon = stage.daemon()
    for n in range(stage.n(6, 100)):
        heard, wrong = [], []

        def attaches(k, n=n, heard=heard, wrong=wrong):
            client = daemon.client()
            try:
                for m in range(10_000):
                    heard.append(attach(client, daemon, f"t{n}/{k}/{m}", safeMode=m % 2 == 0))
            except Refused as error:
                if "shutting down" not in str(error):
                    wrong.append(str(error))
            except Gone:
                pass
            client.close()
        threads = [threading.Thread(target=attaches, args=(k,), daemon=True) for k in range(2)]
        for thread in threads:
            thread.start()
        until("an acknowledged attach", lambda: heard, PATIENCE_S, 0.001)
        end = time.monotonic() + stage.random.uniform(0, 0.05)
        while time.monotonic() < end:
            pass
        left, began = daemon.ours(), time.monotonic()
        daemon.send(signal.SIGTERM)
        if n % 3 == 2:
            daemon.send(signal.SIGTERM)
        code = daemon.child.wait(PATIENCE_S)
        stage.took("end of the daemon", time.monotonic() - began)
        stage.check(code == 0, f"exit code {code}")
        for thread in threads:
            thread.join(PATIENCE_S)
        stage.sessions |= set(heard)
        stage.check(not wrong, f"refused with {wrong}")
        stage.took("end of all processes", daemon.nothing_left(left))
        listed_again(stage, daemon, code)
        stage.fired("waitpid: exit code 0")


def fork_bomb(stage):
    """A command forks without end."""
    daemon = stage.daemon()
    session = stage.session(daemon, "bomb")
    with daemon.client(120) as client:
        client.bash(session, "true")
        for n in range(stage.n(1, 5)):
            number = client.send("quack.tool", sessionId=session, tool="bash", timeoutMs=4000,
                                 arguments={"command": "b() { b | b & }; b; sleep 60"})
            most = 0
            until("processes of the bomb",
                  lambda: len(below([daemon.pid])) > 100 or number in client.replies or client.read(0.05), PATIENCE_S)
            stage.load.longest_call = 0
            while number not in client.replies:
                most = max(most, len(below([daemon.pid])))
                client.read(0.1)
            reply = client.receive(number)
            stage.took("call of another session meanwhile", stage.load.longest_call, 1)
            stage.check(most < 1000, f"{most} processes")
            until(lambda: f"an end of {daemon.strays()[:5]}", lambda: not daemon.strays(), PATIENCE_S)
            stage.fired(f"at most {most} processes in /proc; {reply['text'].strip().splitlines()[-1][:60]}")


def memory(stage):
    """Commands take more memory than their session may have."""
    daemon = stage.daemon("[limits]\nsession_memory_mb = 128\n")
    session = stage.session(daemon, "memory")
    commands = ("head -c 1G /dev/zero | tail -c 1G | cat >/dev/null; echo went-on", "python3 -c 'x = bytearray(1 << 30)'; echo code-$?")
    with daemon.client() as client:
        client.bash(session, "true")
        worker = daemon.worker(session)
        for n in range(stage.n(1, 5)):
            for command in commands:
                began = time.monotonic()
                reply = client.request("quack.tool", sessionId=session, tool="bash", arguments={"command": command})
                stage.took("answer", time.monotonic() - began)
                text = reply["text"]
                stage.check(reply.get("ceiling") in ("session_memory", "memory") or "137" in text or "Killed" in text, text)
                stage.fired(f"the answer: {text.strip().splitlines()[0][:80]}")
                stage.check(client.bash(session, "echo on").startswith("on"), "the session does not go on")
        if not worker.runs():
            # The daemon ends it if the session is above its limit for 2 s, which a slow machine does by itself.
            stage.late.append("the worker did not survive")


def missing_things(stage):
    """The daemon starts without a home, temporary directory, PATH, or a state directory that it may write."""
    daemon = stage.daemon(start=False)
    cases = {"no HOME": {"HOME": None}, "no TMPDIR": {"TMPDIR": "/nonexistent"},
             "PATH of launchd": {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
             "no PATH": {"PATH": None}, "no SHELL": {"SHELL": "/nonexistent/bash"}, "no LANG": {"LANG": None}}
    for name, change in cases.items():
        before = dict(daemon.env)
        daemon.env = {key: value for key, value in {**before, **change}.items() if value is not None}
        try:
            stage.took("start", daemon.start())
            environ = Path(f"/proc/{daemon.pid}/environ").read_bytes().split(b"\0")
            key, value = next(iter(change.items()))
            has = [word for word in environ if word.startswith(key.encode() + b"=")]
            need(has == ([] if value is None else [f"{key}={value}".encode()]), f"{name}: the daemon has {has}")
            with daemon.client() as client:
                at = daemon.workspace("missing")
                session = client.request("attach", path=str(at))["session"]["id"]
                text = client.bash(session, "echo served")
                stage.check(text.startswith("served"), f"{name}: {text}")
                client.request("doctor")
            stage.fired(f"/proc shows the environment: {', '.join(cases)}")
            daemon.end(signal.SIGTERM)
        finally:
            daemon.env = before
    read_only(stage, daemon)
    daemon.start()
    stage.load = Load(daemon)
    stage.sessions |= set(stage.load.ids.values())


def read_only(stage, daemon):
    """With a state directory on a read-only mount the daemon does not start, and says why."""
    if os.geteuid() != 0:
        return
    for words in (["--bind", daemon.app], ["-o", "remount,bind,ro"]):
        subprocess.run(["mount", *map(str, words), daemon.app], check=True)
    daemon.mounts.append(daemon.app)
    done = subprocess.run([daemon.quack, "daemon"], env=daemon.env, cwd=daemon.home, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    stage.check(done.returncode != 0 and "ead-only" in done.stderr, f"code {done.returncode}: {done.stderr[-300:]}")
    stage.fired(f"{stage.proof}, read-only state directory: {done.stderr.strip()[-80:]}")
    subprocess.run(["umount", daemon.app], check=True)
    daemon.mounts.remove(daemon.app)


def random_errors(stage):
    """Each 100th to 900th call of one system call of the daemon fails."""
    daemon = stage.daemon()
    end = time.monotonic() + stage.n(10, 120)
    n_injected = n_deaths = 0
    while time.monotonic() < end:
        calls = stage.random.choice(["write", "fsync,fdatasync", "openat", "read", "sendto", "socketpair", "statx", "epoll_ctl"])
        step = stage.random.randrange(100, 900)
        error = stage.random.choice(["EIO", "ENOSPC", "EMFILE", "ENOMEM"])
        strace = Strace(daemon, calls, f"error={error}:when={step}+{step}", paths=False)
        until_ = time.monotonic() + 6
        client = daemon.client()
        try:
            for k in range(10_000):
                if time.monotonic() > until_:
                    break
                try:
                    stage.sessions.add(attach(client, daemon, f"e{stage.times}/{k}"))
                except Refused:
                    pass
        except Gone:
            pass
        client.close()
        if daemon.child.poll() is None:
            n_injected += strace.end().count("(INJECTED)")
        else:
            strace.child.wait(PATIENCE_S)
            n_injected += strace.log.read_text(errors="replace").count("(INJECTED)")
            n_deaths += 1
            listed_again(stage, daemon, daemon.child.returncode)
        stage.times = n_injected
    stage.fired(f"INJECTED in the log of strace; the daemon ended {n_deaths} times", 0)


FAULTS = {
    "F-14": (clock, "P-13"),
    "F-21": (fork_bomb, "P-18"),
    "F-22": (memory, "P-19, P-35"),
    "F-26": (second_daemons, "P-21"),
    "F-27": (stop_races, "P-05"),
    "F-28": (missing_things, "P-11"),
    "F-29": (random_errors, "P-22"),
}
