#!/usr/bin/env python3
"""A client of quackd in one file: Python 3.9 or newer, standard library only.

As a program:

    quack_client.py [--dir DIR] [--session REF] follow
    quack_client.py [--dir DIR] [--session REF] tool NAME [ARGUMENTS]
    quack_client.py [--dir DIR] [--session REF] say MESSAGE...

As a module: `Client` is a connection, `request` sends a request, `events` yields events.
docs/protocol.md describes the messages, and `quack schema` prints them as JSON Schema.

Exit codes: 0 done, 1 refused or failed, 2 usage, 3 no daemon. A shell shows 130 after Ctrl-C.
"""

import argparse
import collections
import hashlib
import json
import os
import re
import signal
import socket
import sys

PROTOCOL = 1
# Maximum length of a line of the daemon, 8 MiB and a line end; docs/protocol.md, "Lines".
MAX_LINE = 8 * 1024 * 1024 + 2


class DaemonError(Exception):
    """The daemon is not running, has closed the connection, or uses another protocol."""


class Refused(Exception):
    """The daemon replied with `ok: false`. The text is for display only."""


def state_directory(env=os.environ):
    """Returns the state directory by the rule of `quack`. The fallback path of the socket hashes this text."""
    given = env.get("RUBBER_DUCK_APP_SUPPORT", "").strip()
    if given:
        return given
    home = env.get("HOME", "").strip()
    if not os.path.isabs(home):
        raise DaemonError("HOME is not set to an absolute path; set it, or RUBBER_DUCK_APP_SUPPORT")
    shared = os.path.join(home, "Library/Application Support/RubberDuck")
    if sys.platform == "darwin":
        container = os.path.join(
            home, "Library/Containers/co.blode.rubber-duck/Data/Library/Application Support/RubberDuck"
        )
        return container if not os.path.exists(shared) and os.path.exists(container) else shared
    state = env.get("XDG_STATE_HOME", "").strip()
    ours = os.path.join(state if os.path.isabs(state) else os.path.join(home, ".local/state"), "quackd")
    in_use = any(
        os.path.lexists(os.path.join(ours, name))
        for name in ("metadata.json", "metadata.json.bak", "quackd.lock")
    )
    return shared if not in_use and os.path.isdir(shared) else ours


def socket_path(env=os.environ):
    """Returns the socket in the state directory, or a short path in ~/.quackd if that is too long."""
    state = state_directory(env)
    preferred = re.sub("/+", "/", state + "/daemon.sock")
    units = len(preferred.encode("utf-16-le", "surrogatepass")) // 2
    most_bytes = 103 if sys.platform == "darwin" else 107
    if units < 104 and len(os.fsencode(os.path.abspath(preferred))) <= most_bytes:
        return preferred
    digest = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    return os.path.join(env.get("HOME", ""), ".quackd", "duck-%s.sock" % digest)


class Client:
    """One connection. Not thread-safe."""

    def __init__(self, path=None, connect_timeout=5.0):
        self._path = path or socket_path()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(connect_timeout)
        try:
            self._socket.connect(self._path)
        except OSError as error:
            self._socket.close()
            raise DaemonError(
                "no daemon listens on %s (%s); `quack` starts one" % (self._path, error)
            ) from error
        # No timeout: a command may print nothing for any time.
        self._socket.settimeout(None)
        self._lines = self._socket.makefile("rb")
        self._events = collections.deque()
        self._last_id = 0
        spoken = self.request("ping").get("protocol")
        if spoken != PROTOCOL:
            self.close()
            raise DaemonError("the daemon speaks protocol %s, this client %s" % (spoken, PROTOCOL))

    def close(self):
        self._lines.close()
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def request(self, method, **params):
        """Sends a request and returns the `data` of the reply (an empty dict without data).

        Events that arrive before the reply are queued for `events`."""
        self._last_id += 1
        wanted = "%d" % self._last_id
        line = json.dumps({"id": wanted, "method": method, "params": params})
        try:
            self._socket.sendall(line.encode() + b"\n")
        except OSError as error:
            raise DaemonError("the daemon has closed the connection") from error
        while True:
            message = self._read()
            if "event" in message:
                self._events.append(message)
            elif message.get("id") == wanted:
                if not message.get("ok"):
                    raise Refused(message.get("error", "no reason was given"))
                return message.get("data") or {}
            elif message.get("id") == "unknown":
                # The daemon rejects this client: too many connections, or a line is too long.
                raise DaemonError(message.get("error", "the daemon refuses this client"))

    def events(self):
        """Yields the events of the followed session. Ends when the daemon closes the connection."""
        while True:
            if self._events:
                yield self._events.popleft()
                continue
            try:
                message = self._read()
            except DaemonError:
                return
            if "event" in message:
                yield message

    def _read(self):
        try:
            line = self._lines.readline(MAX_LINE)
        except OSError as error:
            raise DaemonError("the daemon has closed the connection") from error
        if not line.endswith(b"\n"):
            raise DaemonError("the daemon has closed the connection")
        return json.loads(line)


def print_event(event):
    """Prints one event. Ignores unknown ones, which newer daemons may send."""
    data, name = event["data"], event["event"]
    if name == "message_update":
        delta = data["assistantMessageEvent"]
        if delta["type"] == "text_delta":
            print(delta.get("delta", ""), end="", flush=True)
    elif name == "message_end" and data["message"].get("role") == "assistant":
        print(flush=True)
    elif name == "tool_execution_start":
        print("[tool] %s %s" % (data["toolName"], json.dumps(data.get("args", {}))), flush=True)
    elif name == "tool_execution_update" and "delta" in data:
        print(data["delta"], end="", flush=True)
    elif name == "tool_execution_end":
        print("[tool] %s %s" % (data["toolName"], "failed" if data["isError"] else "done"), flush=True)
    elif name == "prompt_error":
        print("[error] %s" % data["error"], flush=True)
    elif name == "extension_error":
        print("[error] %s" % data["error"], flush=True)
    elif name == "extension_ui_closed":
        print("[question] closed: %s" % data["reason"], flush=True)
    elif name == "session_deleted":
        print("[session] deleted", flush=True)


def answer(question):
    """Prints a question of Pi and reads the answer, one line of stdin. The end of stdin cancels."""
    kind, words = question["method"], [question.get("title"), question.get("message")]
    text = " ".join(word for word in words if word)
    if kind == "confirm":
        text += " [y/n]"
    elif kind == "select":
        options = question.get("options", [])
        text += "".join("\n  %d: %s" % (n, option) for n, option in enumerate(options, 1))
    print("[question] %s" % text, flush=True)
    line = sys.stdin.readline()
    typed = line.strip()
    if not line:
        return {"cancelled": True}
    if kind == "confirm":
        return {"confirmed": typed.lower() in ("y", "yes")}
    if kind == "select":
        if not typed.isdigit() or not 1 <= int(typed) <= len(options):
            return {"cancelled": True}
        return {"value": options[int(typed) - 1]}
    return {"value": typed}


def say(client, session, message):
    """Sends a prompt to the session's Pi and prints the turn. Returns False if it failed.

    Assumes that no other client sends prompts to the session. Otherwise, `seq` of the reply and the text of
    the next `message_start` identify the turn."""
    client.request("say", sessionId=session, message=message, preferPi=True)
    went_well = True
    for event in client.events():
        print_event(event)
        name, data = event["event"], event["data"]
        if name == "extension_ui_request" and data["method"] in ("confirm", "select", "input", "editor"):
            try:
                client.request("extension_ui_response", sessionId=session, id=data["id"], **answer(data))
            except Refused as refused:
                # Another client has answered, or the question timed out. Continue.
                print("[question] %s" % refused, flush=True)
        elif name == "prompt_error":
            # After a crash of Pi an `agent_end` follows, but not after a refused prompt.
            return False
        elif name == "message_end" and data["message"].get("stopReason") == "error":
            went_well = False
            print("[error] %s" % data["message"].get("errorMessage", "the model has failed"), flush=True)
        elif name == "agent_end":
            return went_well
    raise DaemonError("the daemon has closed the connection")


def run_tool(client, session, name, arguments):
    """Runs a tool and prints its result. Returns False if it failed."""
    try:
        arguments = json.loads(arguments)
    except ValueError:
        pass  # Not JSON: the text is the tool's main parameter.
    result = client.request("quack.tool", sessionId=session, tool=name, arguments=arguments)
    print(result["text"], flush=True)
    return not result["isError"]


def main():
    parser = argparse.ArgumentParser(description="A small client of quackd.")
    parser.add_argument("--dir", default=".", help="directory of the session, which is created if it does not exist")
    parser.add_argument("--session", help="id or name of a session, instead of --dir")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("follow", help="print events until Ctrl-C")
    tool = verbs.add_parser("tool", help="run a tool")
    tool.add_argument("name")
    tool.add_argument("arguments", nargs="?", default="{}", help="JSON, or the text of the main parameter")
    said = verbs.add_parser("say", help="send a prompt to Pi and print the reply")
    said.add_argument("message", nargs="+")
    asked = parser.parse_args()
    with Client() as client:
        session = asked.session
        if session is None:
            attached = client.request("attach", path=os.path.abspath(asked.dir), activate=False)
            session = attached["session"]["id"]
        if asked.verb == "tool":
            return run_tool(client, session, asked.name, asked.arguments)
        followed = client.request("follow", sessionId=session)
        print("[follow] %s %s" % (followed["sessionName"], followed["workspacePath"]), flush=True)
        if asked.verb == "say":
            return say(client, session, " ".join(asked.message))
        for event in client.events():
            print_event(event)
        return True


if __name__ == "__main__":
    # Ctrl-C ends the program at once. Python's own handler runs only after the current system call, so a
    # signal just before a read would wait for the next line.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        sys.exit(0 if main() else 1)
    except Refused as refused:
        print("error: %s" % refused, file=sys.stderr)
        sys.exit(1)
    except DaemonError as error:
        print("error: %s" % error, file=sys.stderr)
        sys.exit(3)
