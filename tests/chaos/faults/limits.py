"""Disks that hang or lose their power, and memory that the daemon cannot get."""

import json
import os
import resource
import shutil
import signal
import subprocess
import time

from daemon import PATIENCE_S, Gone, NotRun, Refused, need, until
from faults.agents import answers, model
from faults.processes import listed_again
from faults.storage import Strace, attach, stop_file_system

# A change waits that long for the disk, as in supervisor/src/methods/caller.rs.
SAVE_LIMIT_S = 20
N_FILES = 200
# Their unfinished lines need nearly as much memory as the daemon gives to all of them.
N_CLIENTS = 9


def hanging_disk(stage):
    """Each flush of the state hangs for 30 s: everything but changes of sessions goes on, and those give up after 20 s."""
    daemon = stage.daemon()
    session = next(iter(stage.load.ids.values()))
    stage.sessions.add(daemon.request("attach", path=str(daemon.workspace("before")))["session"]["id"])
    for n in range(stage.n(1, 3)):
        follower = daemon.client()
        follower.request("follow", sessionId=session)
        strace = Strace(daemon, "fsync,fdatasync", "delay_enter=30s", thread="store")
        with daemon.client() as changing, daemon.client() as client:
            began = time.monotonic()
            number, longest = changing.send("attach", path=str(daemon.workspace(f"hanging-{n}"))), 0
            while number not in changing.replies:
                changing.read(0)
                for method in ("ping", "quack.ps", "sessions"):
                    before = time.monotonic()
                    client.request(method)
                    longest = max(longest, time.monotonic() - before)
                follower.event("tool_execution_end")
                need(time.monotonic() - began < SAVE_LIMIT_S + PATIENCE_S, "attach waits for the disk without a limit")
            try:
                changing.receive(number)
                stage.check(False, "an attach was acknowledged while the disk hung")
            except Refused as error:
                stage.took("refusal of an attach", time.monotonic() - began, SAVE_LIMIT_S + 2)
                stage.proof = f"attach: {error}"
            stage.took("answer of another method", longest, 1)
        log = strace.end()
        # It hung until strace detached, or was delayed and another one hung.
        stage.check("(DELAYED)" in log or "<detached" in log, f"no flush hung: {log[-200:]}")
        stage.fired(f"a flush hung in the log of strace; {stage.proof}")
        began = time.monotonic()
        stage.sessions.add(daemon.request("attach", path=str(daemon.workspace(f"hanging-{n}")))["session"]["id"])
        stage.took("attach after it", time.monotonic() - began)
        follower.close()


def address_space(stage):
    """The daemon gets no more address space, while clients send large requests and create sessions."""
    daemon = stage.daemon()
    line = b'{"id":"1","method":"quack.tool","params":{"x":"' + b"x" * (7 << 20)
    ends = {"went on": 0, "aborted": 0}
    for n in range(stage.n(3, 20)):
        size = int(open(f"/proc/{daemon.pid}/statm").read().split()[0]) * resource.getpagesize()
        left, client = daemon.ours(), daemon.client()
        more = stage.random.randrange(0, 4) << 20
        limits = resource.prlimit(daemon.pid, resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))
        crowd = []
        try:
            for k in range(N_CLIENTS):
                crowd.append(daemon.client())
                crowd[-1].socket.sendall(line)
                stage.sessions.add(attach(client, daemon, f"space-{n}-{k}", safeMode=True))
            for one in crowd:
                one.socket.sendall(b'"}}\n')
        except (Gone, OSError, Refused):
            pass
        for one in crowd:
            one.close()
        client.close()

        def end():
            try:
                return daemon.request("ping") and "went on"
            except (Gone, OSError):
                return daemon.child.poll() is not None and "aborted"
        kind = until("an answer or the end of the daemon", end, PATIENCE_S)
        ends[kind] += 1
        if kind == "aborted":
            stage.took("end of all processes", daemon.nothing_left(left), 2)
            listed_again(stage, daemon, -signal.SIGABRT)
        else:
            resource.prlimit(daemon.pid, resource.RLIMIT_AS, limits)
        stage.fired(f"prlimit: at most 4 MiB more; the daemon went on {ends['went on']} times and aborted {ends['aborted']} times")


def power_cut_at_work(stage):
    """The file system stops without a flush while a private copy is applied, after recorded states and answers of the agent."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        raise NotRun("no root, or no mkfs.ext4")
    script = {"rules": [], "replies": [{"text": "whole answer"}], "on_exhausted": "repeat_last"}
    daemon = stage.daemon("", start=False)
    disk, at = daemon.root / "disk", daemon.root / "m"
    at.mkdir()
    with open(disk, "wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", disk], check=True)
    daemon.mounts.append(at)
    mount = ["mount", "-o", "loop", disk, at]
    if (done := subprocess.run(mount, capture_output=True, text=True)).returncode:
        raise NotRun(done.stderr.strip())
    daemon.app, daemon.home = at / "app", at / "home"
    daemon.env |= {"HOME": str(daemon.home), "RUBBER_DUCK_APP_SUPPORT": str(daemon.app)}
    for directory in (daemon.app, daemon.home):
        directory.mkdir(mode=0o700)
    daemon.configure(model(stage, script))
    work = daemon.workspace("copied")
    (work / "old").write_text("old\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=work, check=True, env=daemon.env)
    daemon.start()
    session = stage.session(daemon, "copied", isolated=True)
    os.sync()
    cut, whole = {"none": 0, "all": 0}, 0.0
    for n in range(stage.n(4, 20)):
        with daemon.client(120) as client:
            if not whole:
                # How long it takes without a fault.
                client.bash(session, f"for n in $(seq {N_FILES}); do echo first >file-$n; done")
                began = time.monotonic()
                isolated(client, session, "apply")
                whole = time.monotonic() - began
                os.sync()
            client.bash(session, f"for n in $(seq {N_FILES}); do echo {n} >file-$n; done; echo changed-{n} >old")
            client.request("follow", sessionId=session)
            prompt = f"prompt {n}"
            answer = answers(client, session, prompt)[0]
            stage.check(answer == "whole answer", f"the agent: {answer}")
            states = until("a recorded state", lambda: isolated(client, session, "checkpoints")["checkpoints"], PATIENCE_S)
            number, began = client.send("quack.isolated", sessionId=session, action="apply"), time.monotonic()
            end = began + stage.random.uniform(0.2, 2) * whole
            while time.monotonic() < end:
                client.read(0.01)
            was_answered = number in client.replies
        error = stop_file_system(at)
        left = daemon.ours()
        need(daemon.end() == -signal.SIGKILL, "the daemon did not die")
        daemon.nothing_left(left)
        until("umount", lambda: subprocess.run(["umount", at], stderr=subprocess.DEVNULL).returncode == 0, PATIENCE_S)
        subprocess.run(mount, check=True)
        stage.took("start after a power cut", daemon.start())
        with daemon.client(120) as client:
            stage.check(stage.sessions <= daemon.listed(), "a session is lost")
            found = applied(client, session, work, n)
            stage.check(found, "neither all nor none of the changes are there")
            stage.check(found != "none" or not was_answered, "an apply that was answered is lost")
            cut[found or "none"] += 1
            kept = isolated(client, session, "checkpoints")["checkpoints"]
            stage.check(len(kept) >= 1, f"no state is left of {len(states)}")
            isolated(client, session, "restore", number=kept[0]["number"], dryRun=True)
            text = json.dumps(client.request("quack.agent", sessionId=session, command={"type": "get_messages"}))
            stage.check(prompt in text, f"the conversation lost {prompt!r}")
        journal = daemon.quack_run("log", "--all", "--json")
        n_calls = len([json.loads(line) for line in journal.stdout.splitlines()])
        stage.check(journal.returncode == 0, f"the journal: {journal.stderr[-300:]}")
        stage.fired(f"a write: {error}; of an apply, nothing {cut['none']} times, everything {cut['all']} times; "
                    f"{n_calls} calls are in the journal")


def isolated(client, session, action, **more):
    return client.request("quack.isolated", sessionId=session, action=action, **more)


def applied(client, session, work, n):
    """`all` or `none` of the changes of a round, by the workspace and by the report. `None`: a part."""
    texts = [(work / f"file-{k}").read_text() if (work / f"file-{k}").exists() else "" for k in range(1, N_FILES + 1)]
    is_new = [text == f"{n}\n" for text in texts] + [(work / "old").read_text() == f"changed-{n}\n"]
    n_left = len(isolated(client, session, "diff")["files"])
    return {(True, True): "all", (False, False): "none"}.get((all(is_new), any(is_new))) if (n_left == 0) == all(is_new) else None


FAULTS = {
    "F-23": (address_space, "P-22"),
    "F-31": (hanging_disk, "P-01"),
    "F-32": (power_cut_at_work, "P-52, P-57, P-67, P-68"),
}
