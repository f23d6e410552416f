"""The long run: sessions of all kinds in use while processes are killed, and the slopes of what the daemon uses."""

import base64
import math
import os
import re
import signal
import subprocess
import threading
import time

from daemon import METADATA, PATIENCE_S, UNKNOWN, Gone, Refused, below, need, processes, until
from faults.agents import Rpc, model, say

# Sessions by kind: 100 at most.
KINDS = {"plain": 30, "jobs": 10, "isolated": 10, "hosts": 10, "agent": 15, "terminal": 15, "mcp": 5, "acp": 5}
# Pause of a session between two operations, which is also varied, and after how many operations it is deleted.
PAUSE_S, LIFE = 8, 20
KILL_S = 5
# Before it, workers start for the first time, and caches fill.
WARM_UP = 0.15
BLOCKS = 12
# Threads of the daemon's pools at their limits (supervisor, remote control, web searches). A thread that is used again
# within 10 s stays.
POOLS = 32 + 8 + 16
# Descriptors of the load, which vary.
SPARE = 16
# 97.5 % quantile of Student's t with BLOCKS - 2 degrees of freedom.
T_QUANTILE = 2.228
# A killed process may end an operation with one of these. After a cut `apply` there may be nothing to undo, and `quack acp`
# deletes its sessions itself.
EXPECTED = re.compile("|".join((*UNKNOWN, "Error: Session worker ", "Error: Worker not responding", "Worker died", "gave no answer",
                                "No such terminal", "quack ended", "Broken pipe", "closed", "the turn was cut",
                                "No changes of this session were applied", "files of another session are being worked on",
                                "Session not found")))
VICTIMS = ("quack-worker", "quack-monitor", "quack-init", "quack-agent", "quack-proxy", "quack")


def slope(samples):
    """Change per hour with the half of its 95 % confidence interval, by a line through the means of blocks. Neighbouring
    samples depend on each other, the means of long blocks hardly do."""
    n = len(samples) // BLOCKS
    blocks = [samples[k * n:(k + 1) * n] for k in range(BLOCKS)]
    xs = [sum(at for at, _ in block) / n / 3600 for block in blocks]
    ys = [sum(value for _, value in block) / n for block in blocks]
    x, y = sum(xs) / BLOCKS, sum(ys) / BLOCKS
    square = sum((one - x) ** 2 for one in xs)
    rise = sum((one - x) * (other - y) for one, other in zip(xs, ys)) / square
    rest = sum((other - y - rise * (one - x)) ** 2 for one, other in zip(xs, ys))
    return rise, T_QUANTILE * math.sqrt(rest / (BLOCKS - 2) / square)


class Use:
    """One session in use: it is created, used `LIFE` times, deleted, and created again."""

    def __init__(self, run, kind, number):
        self.run, self.kind, self.name, self.n = run, kind, f"{kind}-{number}", 0
        self.daemon, self.chance = run.daemon, run.stage.random
        self.at, self.session, self.client, self.rpc = run.daemon.workspace(self.name), None, None, None
        if kind == "isolated":
            git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
            (self.at / "old").write_text("old\n")
            for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
                subprocess.run([*git, *words], cwd=self.at, check=True, env=run.daemon.env)

    def loop(self):
        while not self.run.over.wait(self.chance.uniform(0, 2 * PAUSE_S)):
            try:
                self.open()
                text = getattr(self, self.kind)() or "done"
                self.n += 1
                if self.n % LIFE == 0:
                    self.delete()
            except (Gone, Refused, OSError, ValueError) as error:
                text = f"Error: {error}"
                self.close()
            except Exception as error:  # noqa: BLE001: shown as broken
                text = f"Error: {error}"
                self.close()
            self.run.answered(self, text)
        self.close()

    def open(self):
        self.client = self.client or self.daemon.client(120)
        if not self.session:
            more = {"isolated": True} if self.kind == "isolated" else {}
            made = self.client.request("quack.session_new", path=str(self.at), name=f"{self.name}-{self.n}", **more)
            self.session = made["session"]["id"]
            if self.kind == "hosts":
                self.client.request("quack.sandbox", sessionId=self.session, action="allow", rules=["a.example"])
            if self.kind == "agent":
                self.client.request("follow", sessionId=self.session)

    def delete(self):
        session, self.session = self.session, None
        self.client.request("quack.session_delete", sessionId=session, force=True)
        self.client.events.clear()

    def close(self):
        if self.client:
            self.client.close()
        if self.rpc:
            self.rpc.kill()
        self.client = self.rpc = None

    def tool(self, name, **arguments):
        self.client.events.clear()
        return self.client.request("quack.tool", sessionId=self.session, tool=name, arguments=arguments)["text"]

    def plain(self):
        self.tool("write_file", path=str(self.at / "file"), content=f"line {self.n}\n" * 50)
        self.tool("grep_search", pattern="line", path=str(self.at))
        return self.tool("bash", command="wc -l file; seq 2000")

    def jobs(self):
        text = self.tool("bash", command="echo on; sleep 300", background=True)
        if found := re.search(r"job-\d+", text):
            self.tool("job_output", job=found[0])
            return self.tool("job_kill", job=found[0])
        return text

    def isolated(self):
        self.tool("bash", command=f"echo {self.n} >new; echo changed >old")
        for action in ("diff", "apply", "undo"):
            self.client.request("quack.isolated", sessionId=self.session, action=action)

    def hosts(self):
        return self.tool("bash", command="exec 3<>/dev/tcp/127.0.0.1/${http_proxy##*:}; printf "
                                         "'CONNECT b.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; head -1 <&3")

    def agent(self):
        self.client.events.clear()
        turn = say(self.client, self.session, f"prompt {self.n}")["turn"]
        while (event := self.client.event("agent_end")).get("turn") != turn:
            pass
        texts = [part.get("text") for message in event["data"].get("messages", []) for part in message["content"]]
        need("an answer" in texts, "the turn was cut")

    def terminal(self):
        self.client.events.clear()
        made = self.client.request("quack.run", sessionId=self.session, cols=80, rows=24, argv=["bash", "-c", "read -r x; seq 500"])
        terminal = made["terminalId"]
        self.client.request("quack.term_attach", sessionId=self.session, terminalId=terminal)
        self.client.request("quack.term_input", sessionId=self.session, terminalId=terminal,
                            bytes=base64.b64encode(b"go\n").decode())
        self.client.event("term_exit")

    def remote(self, verb, method, **params):
        if not self.rpc:
            self.rpc = Rpc(self.daemon, verb, self.at)
            self.rpc.request("initialize", protocolVersion="2025-11-25" if verb == "mcp" else 1, capabilities={},
                             clientInfo={"name": "long run", "version": "1"})
        return self.rpc.request(method, **params)

    def mcp(self):
        return self.remote("mcp", "tools/call", name="bash", arguments={"command": "echo on"})["content"][0]["text"]

    def acp(self):
        session = self.remote("acp", "session/new", cwd=str(self.at), mcpServers=[])["sessionId"]
        self.remote("acp", "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}])
        self.rpc.kill()
        self.rpc = None
        for row in self.daemon.request("sessions", all=True)["sessions"]:
            if row.get("workspacePath") == str(self.at):
                self.daemon.request("quack.session_delete", sessionId=row["id"], force=True)


class Run:
    """All uses, the kills, and the samples."""

    def __init__(self, stage, daemon):
        self.stage, self.daemon, self.over, self.lock = stage, daemon, threading.Event(), threading.Lock()
        self.n_done, self.n_cut, self.killed, self.samples = {}, {}, {}, []

    def answered(self, use, text):
        with self.lock:
            is_cut = EXPECTED.search(text)
            count = self.n_cut if is_cut else self.n_done
            count[use.kind] = count.get(use.kind, 0) + 1
            if text.startswith("Error: ") and not is_cut:
                self.stage.check(len(self.stage.broken) > 20, f"{use.name}: {text[:300]}")

    def kill(self):
        """Kills one process of the daemon or of a client."""
        names = {}
        for process in (*below([self.daemon.pid]), *(p for p in processes() if p.parent == os.getpid() and p.pid != self.daemon.pid)):
            if process.name in VICTIMS and process.runs():
                names.setdefault(process.name, []).append(process)
        if names:
            name = self.stage.random.choice(sorted(names))
            self.stage.random.choice(names[name]).send(signal.SIGKILL)
            self.killed[name] = self.killed.get(name, 0) + 1

    def sample(self, at):
        files = [path for path in self.daemon.root.rglob("*") if path.is_file() and not path.is_symlink()]
        in_state = [path for path in files if self.daemon.app in path.parents or ".local" in path.parts]
        log = sum(path.stat().st_size for path in in_state if "log" in path.name)
        self.samples.append((at, {
            "daemon MiB": self.daemon.resident_mib(), "descriptors": self.daemon.n_descriptors(),
            "threads": self.daemon.n_threads(),
            "state files MiB": sum(path.stat().st_size for path in in_state) / 2**20, "log MiB": log / 2**20,
            "metadata KiB": (self.daemon.app / METADATA).stat().st_size / 1024}))


def long_run(stage):
    """A hundred sessions of all kinds are in use for long while their processes are killed: nothing grows without end."""
    script = {"replies": [{"text": "an answer"}], "on_exhausted": "repeat_last"}
    daemon = stage.daemon(model(stage, script) + "[worker]\nmax_live = 64\n", load=2)
    run, n_before, threads_before = Run(stage, daemon), daemon.n_descriptors(), daemon.n_threads()
    threads = [threading.Thread(target=Use(run, kind, k).loop, daemon=True) for kind, n in KINDS.items() for k in range(n)]
    for thread in threads:
        thread.start()
    began, sampled = time.monotonic(), 0
    while (at := time.monotonic() - began) < 60 * stage.minutes:
        run.over.wait(KILL_S)
        run.kill()
        if at - sampled >= 0.6 * stage.minutes - KILL_S:
            sampled = at
            try:
                run.sample(at)
            except OSError:
                pass  # A file that was listed is gone.
    run.over.set()
    for thread in threads:
        thread.join(2 * PATIENCE_S)
    need(not any(thread.is_alive() for thread in threads), "an operation was not answered")
    warm = [row for row in run.samples if row[0] > WARM_UP * 60 * stage.minutes]
    need(len(warm) >= BLOCKS, f"only {len(warm)} samples")
    told = []
    for name in warm[0][1]:
        rise, half = slope([(at, values[name]) for at, values in warm])
        told.append(f"{name} {warm[0][1][name]:.1f} to {warm[-1][1][name]:.1f}, {rise:+.2f} ± {half:.2f} an hour")
        # A shorter run still warms up. Descriptors depend on the number of workers, and are counted below.
        if name == "daemon MiB" and stage.minutes >= 30:
            stage.check(rise - half < 1, f"{name} grows by {rise:.2f} ± {half:.2f} an hour")
    most = max(values["threads"] for _, values in run.samples)
    stage.check(most <= threads_before + POOLS, f"{most} threads, {threads_before} before")
    count = ", ".join(f"{kind} {run.n_done.get(kind, 0)}" for kind in KINDS)
    stage.fired(f"{stage.minutes:.0f} minutes; operations: {count}; {sum(run.n_cut.values())} cut by a kill; "
                f"{sum(run.killed.values())} kills; {'; '.join(told)}", sum(run.killed.values()))
    # Sessions of clients that were killed stay.
    with daemon.client() as client:
        for session in daemon.listed() - stage.sessions:
            client.request("quack.session_delete", sessionId=session, force=True)
    until(lambda: f"{n_before} descriptors and not {daemon.n_descriptors()}", lambda: daemon.n_descriptors() <= n_before + SPARE, PATIENCE_S)
    stage.proof += f"; descriptors: {n_before} before, {daemon.n_descriptors()} after the sessions were deleted"


FAULTS = {"F-30": (long_run, "P-31")}
