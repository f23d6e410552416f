#!/usr/bin/env python3
"""Lets Claude Code and Codex work in isolated sessions of `quack run`, again and again, against a scripted model.

Usage: agents.py [--quack PATH] [--minutes N] [AGENTS…]

Each agent gets a copy of xmltodict from PyPI. In each turn the model makes it read a file, edit it and run the project's
tests. From time to time the window is detached, attached, resized or closed. At the end the tests must pass, `quack diff`
must have the last edit, and nothing may run after `quack stop`. The memory of worker and supervisor is printed: first after
a tenth of the time, then at the end.

Needs tmux, git, node with npm, and Python with pip. The agents have the versions of ../agents/package.json.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "agents"))

from lab import Failure, Lab, Report, is_running, marked, missing, until  # noqa: E402
from model_server import Conversation, ModelServer  # noqa: E402

PROJECT = "xmltodict==0.13.0"
TEST = "python3 -m unittest discover -q tests"
EDITED = "xmltodict.py"
# A turn runs the agent, three tools and the tests; a debug build on a busy machine is slow.
TURN_S = 120


class Work(Conversation):
    """A model that makes its agent read, edit and test in each turn. The request has the turn and the results in it."""

    def __init__(self, steps):
        super().__init__([])
        self.make = steps

    def answer(self, tools, results, body):
        history = json.dumps(body.get("messages") or body.get("input"))
        before, asked, after = history.rpartition("Please begin turn ")
        if not asked or not tools:
            return {"text": "A test"}
        turn = int(re.match(r"\d+", after)[0])
        step = after.count('"tool_result"') + after.count('"function_call_output"')
        self.results = results[-3:]
        steps = self.make(turn, tools)
        if step >= len(steps):
            return {"text": f"Turn {turn} is done", "id": f"done_{turn}"}
        tool, arguments = steps[step]
        return {"tool": tool, "arguments": arguments, "id": f"call_{turn}_{step}"}


class Claude:
    name, package = "claude", "@anthropic-ai/claude-code"

    def line(self, lab, url, _at):
        names = ["DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"]
        variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"} | {name: "1" for name in names}
        lab.env.update(variables)
        options = " ".join(f"--env {name}" for name in variables)
        return f"{options} -- claude --dangerously-skip-permissions --model claude-sonnet-4-5"

    def steps(self, at):
        def steps(turn, _tools):
            path = f"{at}/{EDITED}"
            return [("Read", {"file_path": path, "offset": 1, "limit": 20}),
                    ("Edit", {"file_path": path, "old_string": f"TURN = {turn - 1}\n", "new_string": f"TURN = {turn}\n"}),
                    ("Bash", {"command": TEST, "description": "Run the tests"})]
        return steps


    def settings(self, at):
        """The first start would ask the provider for an answer, which the model is not."""
        return "~/.claude/.claude.json", json.dumps({
            "hasCompletedOnboarding": True, "theme": "dark", "bypassPermissionsModeAccepted": True,
            "customApiKeyResponses": {"approved": ["none"], "rejected": []},
            "projects": {str(at): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}}})


class Codex:
    name, package = "codex", "@openai/codex"

    def line(self, _lab, url, at):
        provider = f'model_providers.scripted={{name="scripted",base_url="{url}/v1",wire_api="responses"}}'
        settings = ['model="scripted"', 'model_provider="scripted"', provider, "check_for_update_on_startup=false",
                    f'projects={{"{at}"={{trust_level="trusted"}}}}']
        return "-- codex -a never " + " ".join(f"-c {shlex.quote(setting)}" for setting in settings)

    def steps(self, _at):
        def steps(turn, tools):
            shell = next(tool for tool in tools if tool.endswith(("exec_command", "shell_command")))
            key = "cmd" if shell.endswith("exec_command") else "command"
            edit = f"sed -i 's/^TURN = .*/TURN = {turn}/' {EDITED}"
            return [(shell, {key: command}) for command in (f"head -20 {EDITED}", edit, TEST)]
        return steps


AGENTS = {agent.name: agent for agent in (Claude(), Codex())}
# Questions of a first start, and the keys that answer them.
QUESTIONS = [
    (r"Detected a custom API key", ["Up", "Enter"]),
    (r"Trust and continue", ["Enter"]),
    (r"Press Enter to continue|press enter to continue|Security notes", ["Enter"]),
    (r"Yes, I accept", ["Down", "Enter"]),
    (r"Yes, I trust|Yes, continue|Yes, proceed|1\. Yes", ["Enter"]),
]


class Run:
    def __init__(self, lab, name, project, minutes):
        self.lab, self.name, self.agent, self.minutes = lab, name, AGENTS[name], minutes
        self.at = lab.directory(name)
        subprocess.run(["cp", "-r", f"{project}/.", self.at], check=True)
        edited = self.at / EDITED
        edited.write_text(edited.read_text() + "TURN = 0\n")
        for argv in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "import"]):
            subprocess.run(["git", "-C", self.at, *argv], check=True)
        self.server = ModelServer()
        self.server.conversation = Work(self.agent.steps(self.at))
        self.url = f"http://host.quackd.internal:{self.server.server_port}"

    def start(self):
        line = self.agent.line(self.lab, self.url, self.at)
        self.window = self.lab.window(self.at, 100, 30)
        rule = f"machine:{self.server.server_port}"
        self.lab.call("run", "-d", "--isolated", "--name", self.name, "--allow", rule, "--", "true", at=self.at)
        if hasattr(self.agent, "settings"):
            path, text = self.agent.settings(self.at)
            command = f"mkdir -p $(dirname {path}); echo {shlex.quote(text)} >{path}"
            self.lab.call("tool", "--session", self.name, "bash", json.dumps({"command": command}), at=self.at)
        self.window.command(f"{self.lab.quack} run --in {self.name} --env {self.lab.mark} {line}")
        answered = [0.0]

        def is_ready():
            text = self.window.text()
            for pattern, keys in QUESTIONS:
                if re.search(pattern, text):
                    # A key before the question is ready has no effect.
                    if time.monotonic() > answered[0] + 2:
                        answered[0] = time.monotonic()
                        self.window.keys(*keys)
                    return False
            return re.search(r"^\s*[>❯›] ?", text, re.M) and not re.search(r"^outer", text, re.M)

        until(lambda: f"the prompt of {self.name}:\n{self.window.text()}", is_ready, 120)

    def turn(self, n):
        self.window.type(f"Please begin turn {n}")
        self.window.shows(f"Please begin turn {n}", 30)
        self.window.keys("Enter")
        model = self.server.conversation

        until(lambda: f"the end of turn {n}:\n{self.window.text()}\n{model.results}",
              lambda: f"Turn {n} is done" in self.window.text(), TURN_S)

    def disturb(self, n):
        """Leaves the window and comes back, or changes its size."""
        kind = n // 3 % 4
        if kind == 0:
            self.window.keys("C-\\")
            if code := self.window.prompt(60):
                raise Failure(f"detached with {code}")
        elif kind == 1:
            self.window.close()
            self.window = self.lab.window(self.at, 100, 30)
        else:
            self.window.resize(*((100, 30) if kind == 2 else (90 + n % 40, 24 + n % 20)))
            return
        self.window.command(f"{self.lab.quack} attach {self.name}")
        self.window.shows(f"Turn {n} is done", 60)

    def work(self):
        self.start()
        begin, n, first = time.monotonic(), 0, None
        while time.monotonic() < begin + 60 * self.minutes:
            n += 1
            self.turn(n)
            if n % 3 == 0:
                self.disturb(n)
                self.window.shows(f"Turn {n} is done", 60)
            if first is None and time.monotonic() > begin + 6 * self.minutes:
                first = (n, *self.memory())
        last = (n, *self.memory())
        diff = self.lab.call("diff", "--session", self.name, at=self.at)
        if f"+TURN = {n}" not in diff or "-TURN = 0" not in diff:
            raise Failure(f"quack diff:\n{diff}")
        applied = self.lab.call("apply", "--session", self.name, "--force", at=self.at)
        tests = subprocess.run(shlex.split(TEST), cwd=self.at, capture_output=True, text=True, check=False)
        if tests.returncode or f"TURN = {n}\n" not in (self.at / EDITED).read_text():
            raise Failure(f"after apply: {applied}\n{tests.stderr}")
        return " → ".join(f"turn {turn}: supervisor {supervisor} kB, worker {worker} kB, session {session} kB"
                          for turn, supervisor, worker, session in (first or last, last))

    def memory(self):
        """Resident kilobytes of the supervisor, of the worker, and of all processes of the session."""
        row = self.lab.worker(self.name)
        return self.lab.ps()["supervisor"]["rssKb"], row["rssKb"], row["usage"]["rssKb"]


def stop(lab):
    pids = [pid for row in lab.ps()["workers"] for pid in (row["pid"], row["monitorPid"])]
    lab.call("stop", "--yes")

    def left():
        return [pid for pid in [*marked(lab.mark), *pids] if is_running(pid)]
    until(lambda: f"nothing runs: {left()}", lambda: not left())


def install(lab, names):
    """Agents from npm, in a directory of the home that sessions can read."""
    versions = json.loads((HERE.parent / "agents/package.json").read_text())["dependencies"]
    prefix = lab.home / ".npm-global"
    packages = [f"{AGENTS[name].package}@{versions[AGENTS[name].package]}" for name in names]
    npm = ["npm", "install", "-g", "--prefix", prefix, "--silent", "--no-audit", "--no-fund", *packages]
    subprocess.run(npm, check=True, timeout=600)
    lab.env["PATH"] = f"{prefix}/bin:{lab.env['PATH']}"


def project(lab):
    """Sources of the project from PyPI."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", lab.root / "pip", PROJECT]
    subprocess.run(pip, check=True, timeout=300)
    (lab.root / "sources").mkdir()
    subprocess.run(["tar", "-xzf", next((lab.root / "pip").iterdir()), "-C", lab.root / "sources"], check=True)
    return next((lab.root / "sources").iterdir())


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quack", type=Path, default=HERE.parents[1] / "target/release/quack")
    options.add_argument("--minutes", type=float, default=3)
    options.add_argument("agents", nargs="*", metavar="AGENTS")
    chosen = options.parse_args()
    names = chosen.agents or list(AGENTS)
    if unknown := set(names) - set(AGENTS):
        options.error(f"no agent {', '.join(sorted(unknown))}: choose from {', '.join(AGENTS)}")
    if absent := missing({"tmux", "git", "npm"}):
        options.error(f"missing programs: {' '.join(absent)}")
    report = Report()
    with Lab(chosen.quack) as lab:
        install(lab, names)
        sources = project(lab)
        for name in names:
            report.attempt(name, Run(lab, name, sources, chosen.minutes).work)
        report.attempt("stop", stop, lab)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
