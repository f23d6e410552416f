"""Ordinary work of a session on each engine, and what stays confined there."""

import hashlib
import os
import re
import subprocess
import time
from pathlib import Path

from lab import SECRET, Process, below, need, processes, until

STREAM = b"quackd\n"


def size(lab, engine):
    return engine.n_stream or (64 if lab.is_quick else 1024) << 20


def checksum(n):
    """Digest of the first `n` bytes of `yes quackd`."""
    digest, block = hashlib.sha256(), STREAM * (1 << 17)
    while n:
        digest.update(block[:n])
        n -= min(n, len(block))
    return digest.hexdigest()


def tools(lab, engine):
    session = lab.session(engine)
    # The machine of the checks is the far machine, too.
    at = engine.workspace(session)
    answer = lab.tool(session, "write_file", {"path": "duck.txt", "content": "one\ntwo\n"})
    need((at / "duck.txt").read_text() == "one\ntwo\n", answer)
    need("two" in lab.tool(session, "read_file", {"path": "duck.txt"}), "read_file does not show the file")
    answer = lab.tool(session, "edit_file", {"path": "duck.txt", "old_text": "two", "new_text": "three"})
    need((at / "duck.txt").read_text() == "one\nthree\n", answer)
    answer = lab.tool(session, "grep_search", {"pattern": "thr.e"})
    need("duck.txt" in answer, answer)
    answer = lab.bash(session, "pwd; cat duck.txt; exit 3")
    need(str(at) in answer and "three" in answer and "3" in answer, answer)
    need(lab.bash(session, "cd / && echo $((6 * 7))").startswith("42"), "bash does not calculate")


def jobs(lab, engine):
    session = lab.session(engine)
    gate = engine.workspace(session) / "gate"
    lab.tool(session, "bash", {"command": "until [ -e gate ]; do sleep 0.1; done; echo job-done", "background": True})
    need("job-1" in lab.tool(session, "jobs", {}), "the job is not listed")
    gate.touch()
    until("the job's output", lambda: "job-done" in lab.call("tool", "job_output", "job-1", "--session", session))
    # The next one is ended with everything that it started.
    lab.tool(session, "bash", {"command": "sleep 6123 & sleep 6123", "background": True})
    until("the job's processes", lambda: len(sleeps("6123")) == 2)
    lab.call("tool", "job_kill", "job-2", "--session", session)
    until("the end of the job's processes", lambda: not sleeps("6123"))


def sleeps(seconds):
    return [process for process in processes() if process.argv == ["sleep", seconds]]


def terminal(lab, engine):
    session = lab.session(engine)
    answer = lab.tool(session, "bash", {"command": "stty size; read -r x; echo got-$x", "tty": True})
    name = re.search(r"term-\d+", answer)
    need(name, answer)

    def screen():
        return lab.tool(session, "term_read", {"terminal": name[0]})
    until(lambda: screen(), lambda: "24 80" in screen())
    lab.tool(session, "term_write", {"terminal": name[0], "text": "duck", "keys": ["Enter"]})
    until(lambda: screen(), lambda: "got-duck" in screen())


def stream(lab, engine):
    """A long output arrives whole, and memory of the daemon, the link process and the far worker stays bounded."""
    session, n = lab.session(engine), size(lab, engine)
    lab.works(session)
    began = time.monotonic()
    argv = [lab.quack, "tool", "bash", "--raw", "--timeout", "10m", "--session", session, f"yes quackd | head -c {n}"]
    client = subprocess.Popen(argv, cwd=lab.home, env=lab.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    digest = hashlib.sha256()
    while block := client.stdout.read(1 << 20):
        digest.update(block)
    code, took = client.wait(60), time.monotonic() - began
    need(code == 0 and digest.hexdigest() == checksum(n), f"code {code}, another checksum")
    daemon = Process(lab.daemon())
    involved = [daemon, *(p for p in below([daemon.pid]) if p.name == "quack-link"), *engine.far()]
    peaks = {process.name: process.peak_mib() for process in involved}
    need({"quack-link", "quack-worker"} <= set(peaks) and max(peaks.values()) < 512, f"peaks in MiB: {peaks}")
    words = ", ".join(f"{name} {peak} MiB" for name, peak in peaks.items())
    return f"{n >> 20} MiB in {took:.1f} s; most memory: {words}"


def stdin(lab, engine):
    """The input of a command arrives whole."""
    session, data = lab.session(engine), os.urandom(min(3_000_000, engine.n_stream or 3_000_000))
    done = subprocess.run([lab.quack, "tool", "bash", "--raw", "--session", session, "sha256sum"], cwd=lab.home, env=lab.env,
                          input=data, capture_output=True, timeout=120)
    need(hashlib.sha256(data).hexdigest().encode() in done.stdout, f"{done.stdout} {done.stderr}")


def environment(lab, engine):
    """Nothing of the daemon's environment is in a far process."""
    session = lab.session(engine)
    answer = lab.bash(session, "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    need(SECRET not in answer and str(lab.env["RUBBER_DUCK_APP_SUPPORT"]) not in answer, answer)
    far = engine.far()
    need(far, "no far process was found")
    for process in far:
        try:
            variables = Path(f"/proc/{process.pid}/environ").read_bytes()
        except OSError:
            continue
        need(SECRET.encode() not in variables, f"{process} has {SECRET}")
    return f"{len(far)} far processes"


def confinement(lab, engine):
    """The far worker confines itself like a local one."""
    session = lab.session(engine)
    outside = lab.root / "outside"
    (lab.home / "key").write_text("the-key")
    answer = lab.bash(session, f"echo x >{outside}; cat {lab.root}/state/quackd.toml {lab.home}/key")
    need(not outside.exists() and "the-key" not in answer and "[engines" not in answer, answer)
    answer = lab.tool(session, "write_file", {"path": str(outside), "content": "x"})
    need("Error" in answer and not outside.exists(), answer)
    answer = lab.bash(session, "exec 3<>/dev/tcp/127.0.0.1/22 && echo connected")
    need("connected" not in answer, answer)
    tier = lab.row(session).get("tier")
    need(tier in ("A", "B", "D"), f"tier {tier}")
    return f"tier {tier}"


def lossy(lab, engine):
    """Packets were lost in the checks before this one."""
    need(engine.repeated(), "no segment was sent again")
    return f"{engine.repeated()} segments were sent again"


def tried(lab, engine):
    """`quack engines test` starts a worker without a daemon."""
    done = lab.run("engines", "test", engine.on, text=True)
    need(done.returncode == 0, done.stdout + done.stderr)
    need(engine.on.partition(":")[0] in lab.call("engines"), "quack engines does not list the engine")


def shown(lab, engine):
    """`ps` and `sessions` name the place."""
    session = lab.session(engine)
    lab.bash(session, "true")
    place = engine.on.rpartition(":")[2]
    for verb in ("ps", "sessions"):
        text = lab.call(verb)
        need(f"{place}:" in text, f"{verb}: {text}")


def unlike(lab, engine):
    """What needs local files or descriptors is refused with the reason."""
    at = engine.workspace("unlike")
    done = lab.run("new", "--on", engine.on, "--isolated", at, text=True)
    need(done.returncode != 0 and "isolated" in done.stderr, f"--isolated: {done}")
    session = lab.session(engine, at)
    for argv in (["--allow", "example.com"], ["--writable", "/srv"]):
        done = lab.run("sandbox", "set", *argv, "--session", session, text=True)
        need(done.returncode != 0 and done.stderr.strip(), f"{argv}: {done}")
    lab.works(session)


def deleted(lab, engine):
    """A deleted session leaves nothing on the far side, while another one of the same engine continues."""
    kept, gone = lab.session(engine), lab.session(engine)
    lab.works(kept)
    before = {process.pid for process in engine.far()}
    lab.bash(gone, "sleep 6124 >/dev/null 2>&1 &")
    lab.works(gone)
    new = [process for process in engine.far() if process.pid not in before]
    need(new, "no far process was found")
    lab.call("delete", gone, "--yes")
    until(lambda: f"an end of {[p for p in new if p.runs()]}", lambda: not any(p.runs() for p in new))
    lab.works(kept)


def quoted(lab, engine):
    """A path with characters of shells is only a path."""
    mark = lab.root / "mark"
    at = engine.workspace("sp'a \"c$(touch mark);`touch mark`&|")
    session = lab.session(engine, at)
    answer = lab.bash(session, "pwd; touch here")
    need((at / "here").exists(), answer)
    need(not mark.exists() and not list(lab.root.glob("**/mark")), "a shell read the path")


def times(lab, engine):
    """The first call of a session and later ones, against the engine's client alone."""
    def median(count, run):
        took = []
        for _ in range(count):
            began = time.monotonic()
            run()
            took.append(time.monotonic() - began)
        return sorted(took)[count // 2] * 1000

    def plain():
        done = subprocess.run(engine.plain(), capture_output=True, text=True, timeout=60)
        need(done.returncode == 0, done.stderr)

    def first():
        session = lab.session(engine)
        need("42" in lab.bash(session, "echo $((6 * 7))"), "the first call failed")

    session = lab.session(engine)
    lab.works(session)
    rows = [("plain client", median(5, plain)), ("new session and first call", median(3, first)),
            ("later call", median(20, lambda: lab.bash(session, "true")))]
    return ", ".join(f"{name} {took:.0f} ms" for name, took in rows)


CHECKS = {check.__name__: check for check in (tools, jobs, terminal, stream, stdin, environment, confinement, tried, shown,
                                              unlike, deleted, quoted, times)}
# Only for the link with delay and loss.
DISTANT = {"lossy": lossy}
