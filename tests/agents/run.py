#!/usr/bin/env python3
"""Runs a coding agent with quackd's tools against a scripted model server.

Usage: run.py AGENT [--quack PATH] [--record [FILE]] [--traffic FILE] [--keep]

The agent runs in a private home and a private network namespace, where only loopback exists. README.md has the setup.
"""

import argparse
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hosts import HOSTS
from model_server import NAMESPACE, ModelServer

HERE = Path(__file__).resolve().parent
ISOLATED = "QUACKD_AGENTS_ISOLATED"
RUN_TIMEOUT_S = 180
PATIENCE_S = 45
# GNU sleep accepts a fraction, which makes the process of this run recognizable.
SLEEP = f"600.{os.getpid()}"

STEPS = [
    {"tool": "bash", "arguments": {"command": "echo duck-$((40 + 2))"}},
    {"tool": "edit_file", "arguments": {"path": "notes.txt", "old_text": "one duck", "new_text": "two ducks"}},
    {"tool": "bash", "arguments": {"command": "echo x > .git/hooks/pre-commit"}},
    {"tool": "write_file", "arguments": {"path": "../outside.txt", "content": "x"}},
    {"text": "The script is at its end"},
]


def isolate():
    """Starts this program again in a network namespace with only loopback, if the system allows one."""
    if os.environ.get(ISOLATED):
        return
    for options in (["-n"], ["-rn"]):
        command = ["unshare", *options]
        try:
            allowed = subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            allowed = False
        if allowed:
            os.environ[ISOLATED] = "yes"
            os.execvp("unshare", [*command, sys.executable, *sys.argv])
    os.environ[ISOLATED] = "no"


def bring_loopback_up():
    """Does what `ip link set lo up` does, without the program."""
    up, get_flags, set_flags = 1, 0x8913, 0x8914
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, get_flags, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", request)[1]
        fcntl.ioctl(control, set_flags, struct.pack("16sH14x", b"lo", flags | up))


class Run:
    """A private home with a repository, and the processes started there."""

    def __init__(self, host, quack, traffic):
        self.root = Path(tempfile.mkdtemp(prefix="agents-"))
        self.home = self.root / "home"
        self.repo = self.home / "repo"
        self.host = host
        self.quack = quack
        self.traffic = traffic
        self.server = ModelServer()
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.failed = 0
        self.passed = 0
        self.exclusive = False
        self.children = []
        self.repo.mkdir(parents=True)
        (self.repo / "notes.txt").write_text("one duck\n")
        kept = {name: os.environ[name] for name in ("LANG", "TERM", "TMPDIR") if name in os.environ}
        path = f"{HERE}/node_modules/.bin:{os.environ['PATH']}"
        self.env = kept | {"PATH": path, "HOME": str(self.home), "NO_COLOR": "1"} | host.env(self.url)
        self.quick(["git", "init", "-q", "."])

    def quick(self, command, timeout=60):
        """Runs a command to its end and returns its output."""
        return subprocess.run(
            command, cwd=self.repo, env=self.env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False,
        )

    def start(self, prompt, name):
        """Starts the agent in a session of its own; its output goes to a file."""
        log = open(self.root / f"{name}.log", "wb")
        child = subprocess.Popen(
            self.host.command(prompt), cwd=self.repo, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )
        log.close()
        self.children.append(child)
        return child

    def output(self, name):
        return (self.root / f"{name}.log").read_text(errors="replace")

    def check(self, title, passed, detail=""):
        if passed:
            self.passed += 1
        else:
            self.failed += 1
        print(f"{'pass' if passed else 'FAIL'}  {title}" + ("" if passed else f": {detail}"), flush=True)

    def calls(self):
        """Returns the running calls that `quack ps` shows, or None without an answer."""
        shown = self.quick([self.quack, "ps", "--json"])
        try:
            return [call for worker in json.loads(shown.stdout)["workers"] for call in worker["calls"]]
        except (ValueError, KeyError):
            return None

    def end(self, keep):
        for child in self.children:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        self.quick([self.quack, "stop"])
        for pid in processes("sleep", SLEEP):
            os.kill(pid, signal.SIGKILL)
        if keep:
            (self.root / "requests.json").write_text(json.dumps(self.server.conversation.requests, indent=1))
            print(f"kept  {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)


def processes(*words):
    """Process ids whose whole command line is `words`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line.rstrip(b"\0").split(b"\0") == [word.encode() for word in words]:
                found.append(int(entry.name))
    return found


def wait_until(condition, seconds=PATIENCE_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return bool(condition())


def install(run):
    """Adds quackd to the agent's configuration."""
    run.host.configure(run.home, run.url)
    done = run.quick([run.quack, "mcp", "install", run.host.name, "--exclusive"])
    run.exclusive = done.returncode == 0
    if not run.exclusive:
        print(f"note  quack mcp install: {done.stderr.strip()}")
        run.host.add(run, [run.quack, "mcp"])
    if run.traffic:
        tee(run)


def tee(run):
    """Puts a recorder between the agent and quackd: each line of both directions goes to the file."""
    script = run.root / "tee-quack"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE}/tee.py {run.traffic} {run.quack} \"$@\"\n")
    script.chmod(0o755)
    for path in run.host.config_files(run.home):
        path.write_text(path.read_text().replace(f'"{run.quack}"', f'"{script}"'))


def play(run):
    """The conversation with calls that end. Returns the transcript."""
    conversation = run.server.play(STEPS)
    child = run.start("Follow the script", "play")
    try:
        code = child.wait(RUN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        code = "none, after the timeout"
    results = conversation.results + [""] * 4
    output = run.output("play")
    ours = [tool for tool in conversation.tools if NAMESPACE in tool]
    wanted = {"bash", "read_file", "edit_file", "write_file"}
    listed = {name for name in wanted for tool in ours if tool.endswith(name)}
    if run.exclusive:
        own = [tool for tool in run.host.own_tools if tool in conversation.tools]
        run.check("has no shell and edit tools of its own", ours and not own, own)
    hook = run.repo / ".git/hooks/pre-commit"
    run.check("lists the tools", listed == wanted, ours or output[-2000:])
    run.check("runs a command", "duck-42" in results[0], results[0])
    notes = (run.repo / "notes.txt").read_text()
    run.check("edits a file", notes == "two ducks\n", f"{notes!r}, {results[1]}")
    denied = "denied" in results[2] or "protected" in results[2]
    run.check("sees a denial of the kernel", denied and not hook.exists(), results[2])
    escaped = (run.home / "outside.txt").exists()
    run.check("sees a denial of the tool", "escapes" in results[3] and not escaped, results[3])
    run.check("ends with the text of the model", STEPS[-1]["text"] in output and code == 0, f"{code} {output[-2000:]}")
    return transcript(run, conversation)


def cancel(run):
    """A long command, and an interrupt of the agent."""
    run.server.play([{"tool": "bash", "arguments": {"command": f"sleep {SLEEP}"}}, {"text": "done"}])
    child = run.start("Follow the script", "cancel")
    started = wait_until(lambda: processes("sleep", SLEEP) and run.calls())
    run.check("shows a running call", started, f"{run.calls()} {run.output('cancel')[-2000:]}")
    shown = run.quick([run.quack, "ps"]).stdout
    run.check("quack ps names the agent", run.host.client in shown, shown)
    # Ctrl-C in a terminal reaches the whole process group.
    os.killpg(child.pid, signal.SIGINT)
    sent = time.monotonic()
    gone = wait_until(lambda: not processes("sleep", SLEEP))
    took = time.monotonic() - sent
    run.check("an interrupt ends the command", started and gone, f"sleep {SLEEP} still runs")
    run.check("no call is left", wait_until(lambda: run.calls() == []), run.calls())
    exited = wait_until(lambda: child.poll() is not None)
    run.check("the agent exits", exited, "still runs")
    print(f"note  the command ended {took:.1f} s after the interrupt, exit code {child.poll()}")


def transcript(run, conversation):
    calls = []
    for step, result in zip(STEPS, conversation.results):
        calls.append({"tool": step["tool"], "arguments": step["arguments"], "result": clean(run, result)})
    ours = sorted(tool for tool in conversation.tools if NAMESPACE in tool)
    return {"agent": run.host.name, "tools": ours, "calls": calls}


def clean(run, text):
    """Removes what differs between two runs, and what Claude Code appends to a result."""
    text = re.sub(r"\s*<system-reminder>.*?</system-reminder>", "", text, flags=re.DOTALL)
    text = text.replace(str(run.repo), "<repo>").replace(str(run.home), "<home>")
    text = re.sub(r"\d{4}-\d\d-\d\d[T ][0-9:.]+Z?", "<time>", text)
    text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>", text)
    return re.sub(r"\b\d+(\.\d+)? ?(ms|s|seconds)\b", "<duration>", text)


def compare(run, found, record):
    fixture = HERE / "transcripts" / f"{run.host.name}.json"
    if record is not None:
        target = Path(record) if record else fixture
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
        print(f"note  wrote {target}")
        return
    if not fixture.exists():
        return run.check("the transcript is the recorded one", False, "there is none; use --record")
    kept = json.loads(fixture.read_text())
    differing = [key for key in kept if kept[key] != found.get(key)]
    detail = "\n".join(f"{key}: {found.get(key)}" for key in differing)
    run.check("the transcript is the recorded one", not differing, detail)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("agent", choices=sorted(HOSTS))
    parser.add_argument("--quack", default=str(HERE.parents[1] / "target/release/quack"), help="the program to test")
    parser.add_argument("--record", nargs="?", const="", metavar="FILE", help="write the transcript, do not compare it")
    parser.add_argument("--traffic", metavar="FILE", help="write the lines between the agent and quackd")
    parser.add_argument("--keep", action="store_true", help="keep the private home and the requests to the model")
    args = parser.parse_args()
    if not (HERE / "node_modules").is_dir():
        parser.error(f"no agents: run npm install --prefix {HERE}")
    isolate()
    if os.environ[ISOLATED] == "yes":
        bring_loopback_up()
    else:
        print("note  no network namespace here: only the settings keep the agent off the network")
    traffic = args.traffic and os.path.abspath(args.traffic)
    run = Run(HOSTS[args.agent], str(Path(args.quack).resolve()), traffic)
    try:
        print(f"note  {args.agent} {run.quick([run.host.program, '--version']).stdout.strip()}")
        install(run)
        compare(run, play(run), args.record)
        cancel(run)
        unknown = sorted(set(run.server.conversation.unknown_paths))
        if unknown:
            print(f"note  unknown requests: {', '.join(unknown)}")
    finally:
        run.end(args.keep)
    print(f"{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
