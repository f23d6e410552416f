"""Checks of what only a scheduler does: jobs that wait, drained and lost nodes, jobs that are canceled."""

import json
import re
import signal
import subprocess

import work
from engines import NODES
from kills import DIED, Scene
from lab import GONE_S, below, need, until


def jobs(engine, *options):
    return engine.tool("squeue", "-h", *options, "-o", "%i %T %r").splitlines()


def fill(engine):
    """Takes all processors. Returns the client of the job."""
    engine.lab.call("stop", "--yes")
    until(lambda: f"no jobs: {jobs(engine)}", lambda: not jobs(engine), GONE_S)
    argv = [str(engine.lab.bin / "srun"), "--quiet", "-N3", "--exclusive", "sleep", "6127"]
    client = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: f"the job that takes all: {jobs(engine)}", lambda: jobs(engine, "-t", "RUNNING"))
    return client


def waits(lab, session, reason):
    def told():
        return re.search(f"waiting for a place.*(?:{reason})", json.dumps(lab.row(session)), re.IGNORECASE)
    until(lambda: f"{reason!r} in ps: {lab.row(session)}", told)


def pending(lab, engine):
    """A job that waits is shown with Slurm's reason, can be aborted, and runs when there is a place."""
    other = fill(engine)
    try:
        session = lab.session(engine)
        call = lab.begin(session, "echo a''nswered")
        waits(lab, session, "Resources|Priority")
        lab.call("abort", "--session", session)
        text, _ = call.communicate(timeout=60)
        need("answered" not in text and call.returncode != 0, text)
        lab.call("stop", "--yes")
        until(lambda: f"no waiting job: {jobs(engine)}", lambda: not jobs(engine, "-t", "PENDING"), GONE_S)
        call = lab.begin(session, "echo a''nswered")
        waits(lab, session, "Resources|Priority")
    finally:
        other.send_signal(signal.SIGTERM)
        engine.tool("scancel", "--state=RUNNING", "--user", "root")
        other.wait(60)
    text, _ = call.communicate(timeout=120)
    # The deadline of a call may be shorter than its wait for a place: then the next call works.
    if "answered" not in text:
        lab.works(session, 60)
    return text.strip()[:100]


def pending_link(lab, engine):
    """kill -9 of the link process while its job waits. Slurm keeps the job of a killed `srun`: the next start ends it."""
    other = fill(engine)
    try:
        session = lab.session(engine)
        call = lab.begin(session, "echo a''nswered")
        waits(lab, session, "Resources|Priority")
        for process in below([lab.daemon()]):
            if process.name == "quack-link":
                process.send(signal.SIGKILL)
        old = jobs(engine, "-t", "PENDING")
        waits(lab, session, "Resources|Priority")
        until(lambda: f"another job than {old}: {jobs(engine)}",
              lambda: len(now := jobs(engine, "-t", "PENDING")) == 1 and now[0].split()[0] != old[0].split()[0], GONE_S)
        call.kill()
        call.communicate(timeout=60)
        lab.call("stop", "--yes")
        until(lambda: f"no waiting job: {jobs(engine)}", lambda: not jobs(engine, "-t", "PENDING"), GONE_S)
    finally:
        other.send_signal(signal.SIGTERM)
        engine.tool("scancel", "--user", "root")
        other.wait(60)


def queue_limit(lab, engine):
    """A wait ends after `far.queue_s`, with the reason, and its job is gone."""
    lab.configure(far={"queue_s": 5})
    other = fill(engine)
    try:
        session = lab.session(engine)
        text = lab.bash(session, "echo a''nswered")
        need("answered" not in text and text.count("Error: ") == 1, text)
        until(lambda: f"no waiting job: {jobs(engine)}", lambda: not jobs(engine, "-t", "PENDING"), GONE_S)
        return text.strip()[:200]
    finally:
        other.send_signal(signal.SIGTERM)
        engine.tool("scancel", "--user", "root")
        other.wait(60)
        lab.configure()


def drained(lab, engine):
    """Nodes that take no jobs are a reason to wait."""
    lab.call("stop", "--yes")
    until(lambda: f"no jobs: {jobs(engine)}", lambda: not jobs(engine), GONE_S)
    nodes = ",".join(NODES)
    engine.tool("scontrol", "update", f"nodename={nodes}", "state=drain", "reason=test")
    try:
        session = lab.session(engine)
        call = lab.begin(session, "echo a''nswered")
        waits(lab, session, "drain|unavail|down")
    finally:
        engine.tool("scontrol", "update", f"nodename={nodes}", "state=resume")
    call.communicate(timeout=120)
    lab.works(session, 60)


def canceled(lab, engine):
    """The administrator cancels the job."""
    scene = Scene(lab, engine)
    engine.tool("scancel", "--user", "root")
    cause = scene.ended("^link to .* lost|^signal")
    need(not jobs(engine) or len(jobs(engine)) == 1, f"jobs stay: {jobs(engine)}")
    return cause


def lost_node(lab, engine):
    """kill -9 of slurmd: the job may go on. Its session works, or has one error, and works again with the node."""
    scene = Scene(lab, engine)
    node = engine.tool("squeue", "-h", "-o", "%N").strip()
    need(node in NODES, f"node {node!r}")
    engine.daemons[node].kill()
    engine.daemons[node].wait()
    try:
        lab.works(scene.session, 60)
    finally:
        engine.daemons[node] = engine.node(node)
    lab.call("abort", "--session", scene.session)
    text, _ = scene.call.communicate(timeout=60)
    need(len(DIED.findall(text)) <= 1, text)
    lab.works(scene.session, 60)
    until("the end of the command", lambda: not work.sleeps("6125"))


def lost_controller(lab, engine):
    """kill -9 of slurmctld: running jobs go on, and a new session works once it is back."""
    session, later = lab.session(engine), lab.session(engine)
    lab.works(session)
    engine.controller.kill()
    engine.controller.wait()
    try:
        lab.works(session)
        call = lab.begin(later, "echo a''nswered")
        lab.works(session)
    finally:
        engine.control()
    text, _ = call.communicate(timeout=120)
    lab.works(later, 90)
    return text.strip()[:200]


def no_job_stays(lab, engine):
    """An idle end, a stop and a deleted session leave no job."""
    session = lab.session(engine)
    lab.works(session)
    need(len(jobs(engine)) >= 1, "no job was found")
    lab.call("stop", "--yes")
    until(lambda: f"no jobs: {jobs(engine)}", lambda: not jobs(engine), GONE_S)


CHECKS = {check.__name__: check for check in (pending, pending_link, queue_limit, drained, canceled, lost_node, lost_controller,
                                              no_job_stays)}
