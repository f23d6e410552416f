"""Many far sessions of one supervisor: a thousand whose far workers are small stand-ins, and a hundred jobs of Slurm."""

import re
import signal
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faults import version
from lab import GONE_S, Engine, Process, below, need, until

HERE = Path(__file__).resolve().parent
# Requests at the same time. The daemon refuses more clients than a few hundred.
AT_ONCE = 16
IDLE_S = 60


def anonymous_kib(processes):
    """Memory of these processes that no other process and no file has, in KiB."""
    total = 0
    for process in processes:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += int(re.search(r"Pss_Anon:\s+(\d+)", text)[1])
    return total


def cpu_s(processes):
    """Processor time of the threads of these processes so far, in seconds. Ticks of the clock would miss short work."""
    total = 0
    for process in processes:
        for at in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            try:
                total += int(at.read_text().split()[0])
            except OSError:
                pass
    return total / 1e9


def median_ms(count, run):
    took = []
    for _ in range(count):
        began = time.monotonic()
        run()
        took.append((time.monotonic() - began) * 1000)
    return statistics.median(took)


def new_session(lab, engine, name):
    reply = lab.request("quack.session_new", path=f"{engine.on}:{engine.workspace(name)}", name=name)
    need(reply["ok"], str(reply))
    return reply["data"]["session"]["id"]


def answer(lab, session, command, expected):
    """Makes a call, and repeats it while its session cannot start a worker yet. Returns the text."""
    def answered():
        reply = lab.request("quack.tool", sessionId=session, tool="bash", arguments=command, timeoutMs=120_000)
        seen[:] = [str(reply)]
        return reply["ok"] and re.search(expected, reply["data"]["text"])
    seen = []
    return until(lambda: f"an answer of {session}: {seen}", answered, 180)[0]


def all_answer(lab, sessions, command, expected):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda session: answer(lab, session, command, expected), sessions))


def named(processes, name):
    return [process for process in processes if process.name == name]


def thousand(lab, n=1000):
    """Far sessions of one supervisor, with real link processes. A kill of some far sides disturbs no other session."""
    stand_in = lab.root / "stand_in"
    subprocess.run(["cc", "-O1", "-o", stand_in, HERE / "stand_in.c"], check=True)
    row = {"start": [str(stand_in), version(lab), "{command}"], "program": "/none", "target": "none"}
    engine = Engine(lab, "stand-in", "stand-in", row)
    lab.configure()
    # It starts the daemon.
    lab.session(engine)
    daemon = Process(lab.daemon())
    empty = anonymous_kib([daemon])
    began = time.monotonic()
    sessions = [new_session(lab, engine, f"far-{i}") for i in range(n)]
    created = time.monotonic() - began
    began = time.monotonic()
    far = all_answer(lab, sessions, "true", r"answered by \d+")
    started = time.monotonic() - began
    need(len(set(far)) == n, f"{len(set(far))} far workers")

    children = below([daemon.pid])
    links = named(children, "quack-link")
    need(len(links) == n, f"{len(links)} link processes")
    memory = anonymous_kib([daemon]) - empty
    per_link = [anonymous_kib(of) / n for of in (links, named(children, "quack-monitor"), named(children, "stand_in"))]
    before = cpu_s([daemon]), cpu_s(links)
    time.sleep(IDLE_S)
    idle = [(after - earlier) / n * 60 / IDLE_S * 1000 for after, earlier in zip((cpu_s([daemon]), cpu_s(links)), before)]
    ps = median_ms(5, lab.ps)
    call = median_ms(20, lambda: answer(lab, sessions[0], "true", "answered"))

    victims = named(children, "stand_in")[::10]
    for victim in victims:
        victim.send(signal.SIGKILL)
    killed = {f"answered by {victim.pid}" for victim in victims}
    until("the ends of the links", lambda: not any(process.runs() for process in victims))
    again = all_answer(lab, sessions, "true", r"answered by \d+")
    others = {text for text in far if text not in killed}
    need(others <= set(again), f"{len(others - set(again))} sessions lost a worker that was not killed")
    need(not killed & set(again), "a killed worker has answered")
    began = time.monotonic()
    lab.call("stop", "--yes")
    until("the end of all processes", lambda: not any(process.runs() for process in children), GONE_S)
    stopped = time.monotonic() - began
    return (f"{n} sessions: created in {created:.1f} s, all started and answered in {started:.1f} s; supervisor "
            f"{empty} KiB + {memory / n:.1f} KiB each; anonymous memory of a link process {per_link[0]:.0f} KiB, its monitor "
            f"{per_link[1]:.0f} KiB, a stand-in {per_link[2]:.0f} KiB; processor time per idle minute and session: supervisor "
            f"{idle[0]:.2f} ms, link process {idle[1]:.2f} ms; ps --json {ps:.0f} ms, a call {call:.1f} ms; "
            f"{len(victims)} kills disturbed no other; stopped in {stopped:.1f} s")


def hundred(lab, engine, n=100):
    """Real workers in jobs on three nodes. A drained node and a killed slurmd end no other session."""
    lab.call("stop", "--yes")
    lab.session(engine)
    sessions = [new_session(lab, engine, f"job-{i}") for i in range(n)]
    began = time.monotonic()
    answer(lab, sessions[0], "echo a-$((40 + 2))", "a-42")
    first = time.monotonic() - began
    began = time.monotonic()
    all_answer(lab, sessions, "echo a-$((40 + 2))", "a-42")
    started = time.monotonic() - began
    running = engine.tool("squeue", "-h", "-t", "RUNNING", "-o", "%N").split()
    need(len(running) == n, f"{len(running)} jobs run")
    counts = {node: running.count(node) for node in sorted(set(running))}
    need(len(counts) == 3, f"jobs per node: {counts}")
    began = time.monotonic()
    all_answer(lab, sessions, "echo b-$((40 + 2))", "b-42")
    later = time.monotonic() - began

    drained, lost = sorted(counts)[:2]
    before = {row["sessionName"]: row.get("startedAt") for row in lab.ps()["workers"]}
    engine.tool("scontrol", "update", f"nodename={drained}", "state=drain", "reason=test")
    engine.daemons[lost].kill()
    engine.daemons[lost].wait()
    try:
        all_answer(lab, sessions, "echo c-$((40 + 2))", "c-42")
        after = {row["sessionName"]: row.get("startedAt") for row in lab.ps()["workers"]}
        kept = sum(before[name] == after.get(name) for name in before)
        need(kept == len(before) and all(before[f"job-{i}"] for i in range(n)), f"{len(before) - kept} workers ended")
    finally:
        engine.daemons[lost] = engine.node(lost)
        engine.tool("scontrol", "update", f"nodename={drained}", "state=resume")
    lab.call("stop", "--yes")
    until(lambda: f"no jobs: {engine.tool('squeue', '-h')}", lambda: not engine.tool("squeue", "-h").strip(), 120)
    engine.wait_idle()
    return (f"{n} jobs on {counts}: the first answered in {first:.1f} s, all in {started:.1f} s, again in {later:.1f} s; "
            f"{drained} drained and slurmd of {lost} killed: {kept} workers went on")


CHECKS = {"thousand": thousand}
SLURM = {"hundred": hundred}
