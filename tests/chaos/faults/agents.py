"""The agent and its model, and clients of MCP and ACP."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon import PATIENCE_S, TESTS, Failure, below, need, until
from faults.processes import listed_again

SLOW = {"name": "bash", "arguments": {"command": "echo begun >>began; sleep 300"}}


def model(stage, script):
    """Starts a scripted model server. Returns the configuration that names it."""
    directory = tempfile.mkdtemp(prefix="qm")
    stage.ends.append(lambda: shutil.rmtree(directory, ignore_errors=True))
    script_file, port = os.path.join(directory, "script.json"), os.path.join(directory, "port")
    with open(script_file, "w") as file:
        json.dump(script, file)
    server = subprocess.Popen([sys.executable, TESTS / "fixtures/fake_openai.py", "--script", script_file, "--port-file", port],
                              stdout=subprocess.DEVNULL)
    stage.ends.append(lambda: (server.kill(), server.wait()))
    number = until("the model server", lambda: os.path.exists(port) and Path(port).read_text().strip(), PATIENCE_S)
    return ('[model]\nprovider = "openai"\nname = "fake-1"\nkey = "sk-fake"\napi = "openai-completions"\n'
            f'base_url = "http://127.0.0.1:{number}/v1"\n')


def say(client, session, text):
    return client.request("say", sessionId=session, message=text, preferPi=True)


def answers(client, session, text="again"):
    """Sends a prompt, and waits for its answer: the text, and why it stopped."""
    turn = say(client, session, text)["turn"]
    while True:
        event = client.event("message_end")
        message = event["data"]["message"]
        if event.get("turn") == turn and message["role"] == "assistant" and message.get("stopReason") != "toolUse":
            while client.event("agent_end").get("turn") != turn:
                pass
            return "".join(part.get("text", "") for part in message["content"]), message.get("stopReason")


def agent_stream(stage):
    """The model's stream breaks, is malformed or hangs, or the agent or the daemon is killed during it."""
    broken = {"drop": {"drop_after": 2}, "malformed": {"malformed_after": 2}, "error": {"stream_error_after": 2},
              "overloaded": {"status": 529}}
    rules = [{"if": {"last_user": f"^{name}"}, "reply": {"text": "one two three four", "chunk_chars": 4, **how}, "times": 1}
             for name, how in broken.items()]
    hanging = {"text": "one two three", "chunk_chars": 4, "hang_after": 2, "hang_ms": 600_000}
    rules.append({"if": {"last_user": "^hang", "last_role": "user"}, "reply": hanging})
    config = model(stage, {"rules": rules, "replies": [{"text": "whole answer"}], "on_exhausted": "repeat_last"})
    daemon = stage.daemon(config, load=2)
    session = stage.session(daemon, "agent")
    for round in range(stage.n(1, 5)):
        client = daemon.client(90)
        client.request("follow", sessionId=session)
        for name in broken if round == 0 else ():
            began = time.monotonic()
            text, reason = answers(client, session, f"{name} {round}")
            stage.took("end of a turn with a broken stream", time.monotonic() - began)
            # Nothing is sent again after the first byte, and a cut answer is an error.
            stage.check(text == "whole answer" or reason == "error", f"{name}: {text!r} {reason}")
            stage.fired("")
        say(client, session, f"hang {round}")
        client.event("message_update")
        agent = until("the agent", lambda: [p for p in below([daemon.pid]) if p.name == "quack-agent"], PATIENCE_S)[0]
        began = time.monotonic()
        agent.send(signal.SIGKILL)
        client.event("agent_end")
        stage.took("end of the turn of a killed agent", time.monotonic() - began)
        stage.check(not agent.runs(), "the agent runs")
        client.events.clear()
        stage.check(answers(client, session)[0] == "whole answer", "after the agent was killed")
        say(client, session, f"hang daemon {round}")
        client.event("message_update")
        left = daemon.ours()
        daemon.send(signal.SIGKILL)
        stage.took("end of all processes", daemon.nothing_left(left), 2)
        client.close()
        listed_again(stage, daemon)
        client = daemon.client(90)
        client.request("follow", sessionId=session)
        stage.check(answers(client, session)[0] == "whole answer", "after the daemon was killed")
        text = json.dumps(client.request("quack.agent", sessionId=session, command={"type": "get_messages"}))
        for name in [*broken, "hang 0", "hang daemon 0"]:
            stage.check(text.count(f"{name}") >= 1, f"the prompt {name!r} is not in the conversation")
        client.close()
        stage.fired("the model server cut its streams; the agent left the process table; waitpid: signal 9", 2)


class Rpc:
    """A client of MCP or ACP: JSON-RPC over stdin and stdout of a subcommand."""

    def __init__(self, daemon, verb, at):
        self.child = subprocess.Popen([daemon.quack, verb], cwd=at, env=daemon.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL)
        self.number = 0

    def send(self, method, **params):
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.child.stdin.write(json.dumps(message).encode() + b"\n")
        self.child.stdin.flush()
        return self.number

    def request(self, method, **params):
        number = self.send(method, **params)
        for line in self.child.stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                need("result" in message, f"{method}: {message}")
                return message["result"]
        raise Failure(f"{method}: quack ended")

    def kill(self):
        self.child.kill()
        code = self.child.wait(PATIENCE_S)
        for file in (self.child.stdin, self.child.stdout):
            try:
                file.close()
            except OSError:
                pass
        return code


def idle(daemon, session=None):
    """Whether no call runs, of one session or outside of the load."""
    rows = daemon.request("quack.ps")["workers"]
    return not any(row.get("calls") for row in rows
                   if (row["sessionId"] == session if session else not row["sessionName"].startswith("load-")))


def mcp_client(stage):
    """`quack mcp` is killed during a call: the command ends, and the next client works."""
    daemon = stage.daemon()
    at = daemon.workspace("mcp")
    (at / ".git").mkdir()
    for n in range(stage.n(2, 30)):
        client = Rpc(daemon, "mcp", at)
        client.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "chaos", "version": "1"})
        mark = f"m{n}"
        client.send("tools/call", name="bash", arguments={"command": f"echo {mark} >>began; sleep 300; echo {mark} >>ended"})
        until("the command", lambda: (at / "began").exists() and mark in (at / "began").read_text().split(), PATIENCE_S)
        began = time.monotonic()
        code = client.kill()
        until(lambda: f"an end of {daemon.strays()}", lambda: idle(daemon), PATIENCE_S)
        stage.took("end of the command", time.monotonic() - began)
        stage.fired(f"waitpid: signal {-code}")
    client = Rpc(daemon, "mcp", at)
    client.request("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "chaos", "version": "1"})
    result = client.request("tools/call", name="bash", arguments={"command": "cat began; ls ended"})
    stage.check(all(f"m{n}" in result["content"][0]["text"].split() for n in range(stage.n(2, 30))), str(result))
    stage.check(not (at / "ended").exists(), "a command of a killed client went on")
    client.kill()
    stage.sessions |= daemon.listed()


def acp_client(stage):
    """`quack acp` loses its editor or is killed during a turn: `abort` ends the turn, and the next client works."""
    config = model(stage, {"rules": [{"if": {"last_user": "slow", "last_role": "user"}, "reply": {"tool_calls": [SLOW]}}],
                           "replies": [{"text": "done"}], "on_exhausted": "repeat_last"})
    daemon = stage.daemon(config, load=2)
    at = daemon.workspace("acp")
    (at / ".git").mkdir()
    for n in range(stage.n(2, 20)):
        (at / "began").unlink(missing_ok=True)
        client = Rpc(daemon, "acp", at)
        client.request("initialize", protocolVersion=1, clientCapabilities={})
        session = client.request("session/new", cwd=str(at), mcpServers=[])["sessionId"]
        client.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "slow"}])
        until("the command", lambda: (at / "began").exists(), PATIENCE_S)
        row = next(row for row in daemon.rows().values() if row.get("calls") and not row["sessionName"].startswith("load-"))
        began = time.monotonic()
        if n % 2:
            client.child.stdin.close()
            client.child.wait(PATIENCE_S)
        code = client.kill()
        if code:
            daemon.request("abort", sessionId=row["sessionId"])
        until(lambda: f"an end of the turn: {daemon.rows()}", lambda: idle(daemon), PATIENCE_S)
        stage.took("end of the turn", time.monotonic() - began)
        again = Rpc(daemon, "acp", at)
        again.request("initialize", protocolVersion=1, clientCapabilities={})
        session = again.request("session/new", cwd=str(at), mcpServers=[])["sessionId"]
        result = again.request("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "fast"}])
        stage.check(result.get("stopReason") == "end_turn", str(result))
        again.kill()
        stage.fired("waitpid: signal 9, or exit code 0 after its stdin was closed")
    stage.sessions |= daemon.listed()


FAULTS = {
    "N-01": (agent_stream, "P-49, P-52"),
    "N-02": (mcp_client, "P-41"),
    "N-03": (acp_client, "P-01"),
}
