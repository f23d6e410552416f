"""A daemon in its own directories, with real sessions and a scripted model server behind the real agent."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

from browser import free_port, wait_for

ROOT = Path(__file__).resolve().parents[2]


class Refused(Exception):
    """The daemon refused a request."""


class Wire:
    """A client of the daemon's socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.file = self.socket.makefile("rw", encoding="utf-8", newline="\n")
        self.number = 0
        self.replies = {}

    def send(self, method, **params):
        self.number += 1
        self.file.write(json.dumps({"id": str(self.number), "method": method, "params": params}) + "\n")
        self.file.flush()
        return str(self.number)

    def receive(self, number):
        while number not in self.replies:
            line = self.file.readline()
            if not line:
                raise Refused("the daemon closed the connection")
            message = json.loads(line)
            if "id" in message:
                self.replies[message["id"]] = message
        message = self.replies.pop(number)
        if not message["ok"]:
            raise Refused(message["error"])
        return message.get("data")

    def request(self, method, **params):
        return self.receive(self.send(method, **params))

    def close(self):
        self.socket.close()


class World:
    """State directory, home, repository, daemon and model server. Everything ends with `close`."""

    def __init__(self, quack, script=None, config=""):
        self.quack = str(Path(quack).resolve())
        self.dir = Path(tempfile.mkdtemp(prefix="q", dir="/tmp"))
        self.app = self.dir / "app"
        self.repo = self.dir / "home" / "project"
        self.model = None
        for path in (self.app, self.repo):
            path.mkdir(parents=True)
        self.app.chmod(0o700)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(self.dir / "home"), "LANG": "C.UTF-8",
            "RUBBER_DUCK_APP_SUPPORT": str(self.app),
        }
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
        (self.repo / "README.md").write_text("# A project\n")
        (self.repo / "main.py").write_text("".join(f"print({n})\n" for n in range(40)))
        for args in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run([*git, *args], cwd=self.repo, check=True, env=self.env)
        if script is not None:
            config += self.start_model(script)
        (self.app / "quackd.toml").write_text(config)
        self.start()
        self.wire.request("remote_configure", enabled=True, port=free_port())

    def start(self):
        self.daemon = subprocess.Popen(
            [self.quack, "daemon"], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=open(self.dir / "daemon.err", "w"), start_new_session=True,
        )
        self.wire = wait_for("the daemon", self.connect, 60)

    def stop(self):
        self.wire.close()
        self.daemon.send_signal(signal.SIGTERM)
        try:
            self.daemon.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.daemon.pid, signal.SIGKILL)
            self.daemon.wait()

    def start_model(self, script):
        path, port = self.dir / "script.json", self.dir / "port"
        path.write_text(json.dumps(script))
        self.model = subprocess.Popen(
            ["python3", str(ROOT / "tests/fixtures/fake_openai.py"), "--script", str(path), "--port-file", str(port)],
            stdout=subprocess.DEVNULL, start_new_session=True,
        )
        wait_for("the model server", lambda: port.exists() and port.read_text().strip())
        return (
            '[model]\nprovider = "openai"\nname = "fake-1"\nkey = "sk-fake"\napi = "openai-completions"\n'
            f'base_url = "http://127.0.0.1:{port.read_text().strip()}/v1"\n'
        )

    def connect(self):
        try:
            wire = Wire(self.app / "daemon.sock")
            wire.request("ping")
            return wire
        except (OSError, Refused):
            return None

    def run(self, *args, check=True):
        """Runs a subcommand of quack and returns what it printed."""
        done = subprocess.run([self.quack, *args], env=self.env, cwd=self.repo, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise AssertionError(f"quack {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def session(self, name, **params):
        return self.wire.request("quack.session_new", path=str(self.repo), name=name, **params)["session"]["id"]

    def tool(self, session, command, tool="bash"):
        return self.wire.request("quack.tool", sessionId=session, tool=tool, arguments=command)

    def link(self, **rights):
        """Returns a link with a one-time code, as `quack open` opens it."""
        data = self.wire.request("quack.page_code", **rights)
        return f"{data['status']['httpUrl']}/#code={data['code']}"

    def close(self):
        self.stop()
        if self.model:
            self.model.kill()
            self.model.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
