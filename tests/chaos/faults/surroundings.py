"""The network, questions, terminals, private copies, far workers, and the page."""

import base64
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

from daemon import PATIENCE_S, NotRun, Refused, below, need, until
from faults.processes import DIED, listed_again, running
from lab import free_port

PROXY = "/dev/tcp/127.0.0.1/${http_proxy##*:}"


def by_hosts(stage, daemon, name, *rules):
    """A session whose commands reach hosts through its proxy only."""
    session = stage.session(daemon, name)
    with daemon.client() as client:
        client.bash(session, "true")
    if daemon.rows()[session]["tier"] not in ("A", "B"):
        raise NotRun(f"tier {daemon.rows()[session]['tier']} has no proxy")
    words = [word for rule in rules for word in ("--allow", rule)]
    done = daemon.quack_run("sandbox", "set", "--network", "hosts", *words, "--session", name)
    need(done.returncode == 0, done.stderr)
    return session


def proxy(stage):
    """The proxy of a session is killed, and stopped: other sessions go on, and the next connection works."""
    server = socket.create_server(("127.0.0.1", 0))
    stage.ends.append(server.close)

    def serve():
        while True:
            try:
                one = server.accept()[0]
                one.sendall(b"served\n")
                one.close()
            except OSError:
                return
    threading.Thread(target=serve, daemon=True).start()
    port = server.getsockname()[1]
    daemon = stage.daemon()
    session = by_hosts(stage, daemon, "network", f"machine:{port}")
    command = (f"exec 3<>{PROXY}; printf 'CONNECT host.quackd.internal:{port} HTTP/1.1\\r\\n\\r\\n' >&3; read -r status <&3; "
               "read -r empty <&3; head -1 <&3")
    with daemon.client() as client:
        stage.check(client.bash(session, command).startswith("served"), "the first connection")
        for n in range(stage.n(4, 60)):
            found = [process for process in below([daemon.pid]) if process.name == "quack-proxy"]
            need(found, "no proxy runs")
            if n % 4 == 3:
                found[0].send(signal.SIGSTOP)
                number = client.send("quack.tool", sessionId=session, tool="bash", arguments={"command": command}, timeoutMs=3000)
                stage.load.more()
                began = time.monotonic()
                client.receive(number)
                stage.took("answer with a stopped proxy", time.monotonic() - began, 7)
                found[0].send(signal.SIGCONT)
            else:
                found[0].send(signal.SIGKILL)
                daemon.nothing_left(found[:1])

            def works():
                return client.bash(session, command, timeoutMs=5000).startswith("served")
            began = time.monotonic()
            until("a connection", works, PATIENCE_S)
            stage.took("connection through the next proxy", time.monotonic() - began)
            stage.fired("it left the process table, or had state T")


def questions(stage):
    """A command waits for an answer of the user, and the answering client, the worker or the daemon is killed."""
    daemon = stage.daemon(f"[sandbox]\nask_wait_s = {stage.n(5, 30)}\n")
    session = by_hosts(stage, daemon, "asking")
    at = daemon.workspace("asking")
    for n in range(stage.n(3, 15)):
        watcher, client = daemon.client(), daemon.client()
        watcher.request("follow", sessionId=session, answers=True)
        connect = f"exec 3<>{PROXY}; printf 'CONNECT host{n}.example:443 HTTP/1.1\\r\\n\\r\\n' >&3"
        number = running(client, session, at, f"q{n}", f"{connect}; read -r status <&3; echo $status; sleep 0.1")
        question = watcher.event("extension_ui_request")["data"]
        stage.check(question["permission"]["target"] == f"host{n}.example:443", str(question))
        began = time.monotonic()
        if n % 3 == 0:
            watcher.close()
            text = client.receive(number)["text"]
            stage.took("end of a call whose client left", time.monotonic() - began, stage.n(7, 32))
            stage.check("403" in text or "denied" in text, text)
        elif n % 3 == 1:
            daemon.worker(session).send(signal.SIGKILL)
            text = client.receive(number)["text"]
            stage.took("error of the call", time.monotonic() - began, 1)
            stage.check(text == DIED, text)
            with daemon.client() as other:
                until("the end of the question", lambda: not other.request("quack.approvals")["pending"], PATIENCE_S)
        else:
            left = daemon.ours()
            daemon.send(signal.SIGKILL)
            stage.took("end of all processes", daemon.nothing_left(left), 2)
            listed_again(stage, daemon)
            with daemon.client() as other:
                stage.check(not other.request("quack.approvals")["pending"], "a question of the dead daemon waits")
                stage.check(other.bash(session, "echo on").startswith("on"), "the session does not go on")
        for one in (watcher, client):
            one.close()
        stage.fired("socket closed, the worker left the process table, waitpid: signal 9")


def terminals(stage):
    """The client or the worker of a terminal is killed: the program goes on without its viewer, and ends with its worker."""
    daemon = stage.daemon()
    for n in range(stage.n(2, 20)):
        session, at = stage.session(daemon, f"term-{n}"), daemon.workspace(f"term-{n}")
        with daemon.client() as client:
            terminal = client.request("quack.run", sessionId=session, cols=80, rows=24,
                                      argv=["bash", "-c", "while read -r line; do echo $line >>typed; done"])["terminalId"]
        viewer = subprocess.Popen([sys.executable, "-c", VIEWER, str(daemon.app / "daemon.sock"), session], stdout=subprocess.PIPE)
        need(viewer.stdout.readline() == b"attached\n", "the viewer did not attach")
        viewer.kill()
        code = viewer.wait(PATIENCE_S)
        viewer.stdout.close()
        with daemon.client() as client:
            screen = client.request("quack.term_attach", sessionId=session, terminalId=terminal)
            until("the end of the dead viewer",
                  lambda: client.request("quack.term_attach", sessionId=session, cols=80, rows=24)["viewers"] == 1, PATIENCE_S)
            taken = client.request("quack.term_input", sessionId=session, terminalId=screen["terminalId"],
                                   bytes=base64.b64encode(f"line-{n}\n".encode()).decode())
            stage.check(taken["taken"], "the program takes no input")
            until("the line", lambda: (at / "typed").exists() and f"line-{n}" in (at / "typed").read_text(), PATIENCE_S)
            left = below([daemon.worker(session).pid])
            client.events.clear()
            began = time.monotonic()
            daemon.worker(session).send(signal.SIGKILL)
            stage.check("Worker died" in client.event("term_exit")["data"].get("reason", ""), "no reason")
            stage.took("report of the death", time.monotonic() - began)
            stage.took("end of the program", daemon.nothing_left(left))
        stage.fired(f"waitpid: signal {-code}; the worker left the process table", 2)


VIEWER = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])
params = {"sessionId": sys.argv[2], "cols": 100, "rows": 30}
s.sendall(json.dumps({"id": "1", "method": "quack.term_attach", "params": params}).encode() + b"\\n")
s.recv(1); print("attached", flush=True)
while s.recv(65536): pass
"""
N_FILES = 150


def private_copy(stage):
    """The daemon or the process of an apply is killed while changes of a private copy are written: all of them or none."""
    daemon = stage.daemon(load=2)
    at = daemon.workspace("copied")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    (at / "old").write_text("old\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], cwd=at, check=True, env=daemon.env)
    try:
        session = stage.session(daemon, "copied", isolated=True)
    except Refused as error:
        raise NotRun(str(error)) from None
    with daemon.client(120) as client:
        client.bash(session, f"for n in $(seq {N_FILES}); do echo new >file-$n; done; echo changed >old")
    cut, whole = {"none": 0, "all": 0}, 0.0
    for n in range(stage.n(5, 50)):
        client = daemon.client(120)
        began = time.monotonic()
        number = client.send("quack.isolated", sessionId=session, action="apply")
        if not whole:
            # How long it takes without a fault.
            client.receive(number)
            whole = time.monotonic() - began
            client.request("quack.isolated", sessionId=session, action="undo")
            client.close()
            continue
        if n % 3:
            # Some files are written at this moment, or all were.
            until("an apply", lambda: (at / "file-1").exists() or client.read(0.001), PATIENCE_S, 0)
        else:
            client.read(stage.random.uniform(0.1, 1) * whole)
        has_ended = number in client.replies
        if n % 2:
            for process in below([daemon.pid]):
                if process.name == "quack-isolate":
                    process.send(signal.SIGKILL)
            try:
                client.receive(number)
            except Refused:
                pass
        else:
            left = daemon.ours()
            daemon.send(signal.SIGKILL)
            stage.took("end of all processes", daemon.nothing_left(left))
            listed_again(stage, daemon)
        client.close()
        with daemon.client(120) as client:
            began = time.monotonic()
            report = client.request("quack.isolated", sessionId=session, action="diff")
            stage.took("comparison after it", time.monotonic() - began)
            n_there = sum((at / f"file-{k}").exists() for k in range(1, N_FILES + 1))
            old, n_left = (at / "old").read_text(), len(report["files"])
            kept = {(0, "old\n", N_FILES + 1): "none", (N_FILES, "changed\n", 0): "all"}.get((n_there, old, n_left))
            stage.check(kept, f"{n_there} of {N_FILES} files are there, the old one is {old!r}, {n_left} are left")
            cut[kept or "none"] += 1
            left = [path.name for path in at.iterdir() if path.name.startswith(".quackd-")]
            stage.check(not left, f"left in the workspace: {left}")
            if n_there:
                client.request("quack.isolated", sessionId=session, action="undo")
                stage.check(not (at / "file-1").exists() and (at / "old").read_text() == "old\n", "undo took back something else")
        if not has_ended:
            stage.fired(f"waitpid: signal 9, or it left the process table; then nothing {cut['none']} times, everything {cut['all']} times")


def far_worker(stage):
    """The link process, the client of the engine or the far worker is killed during a call."""
    start = json.dumps(["bash", "-c", '"$@"; exit $?', "bash", "{command}"])
    quack = json.dumps(str(stage.quack.resolve()))
    daemon = stage.daemon(f'[engines.near]\nstart = {start}\nprogram = {quack}\ntarget = "optional"\n')
    died = re.compile(r"Error: (Worker died during bash \(.*\)\. It may have run|link to \S+ lost during bash \(.*\)\. "
                      r"The call may have had an effect there); it was not retried\.")
    client = daemon.client()
    for n in range(stage.n(4, 60)):
        if n % 4 == 0:
            at = daemon.workspace(f"far-{n}")
            session = daemon.request("quack.session_new", path=f"near:place:{at}", name=at.name)["session"]["id"]
        number = running(client, session, at, f"f{n}", "setsid sleep 300 & sleep 300")
        link = next(process for process in below([daemon.pid]) if process.name == "quack-link")
        far = below([link.pid])
        victims = {"link": link, "client": next(process for process in far if process.parent == link.pid),
                   "worker": next(process for process in far if process.name == "quack-worker")}
        name = list(victims)[n % 3]
        began = time.monotonic()
        victims[name].send(signal.SIGKILL)
        text = client.receive(number)["text"]
        stage.took("error of the call", time.monotonic() - began)
        stage.check(died.fullmatch(text), f"{name}: {text}")
        stage.took("end of the far side", daemon.nothing_left(far), 15)

        def works():
            return client.bash(session, "echo on").startswith("on")
        until("a far call", works, PATIENCE_S)
        if n % 4 == 3:
            marks = (at / "began").read_text().split()
            stage.check(len(marks) == len(set(marks)), f"a command ran again: {marks}")
            client.request("quack.session_delete", sessionId=session)
        stage.fired(f"the {', the '.join(victims)} left the process table")
    client.close()


class Page:
    """A WebSocket of remote control."""

    def __init__(self, port, token):
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nAuthorization: Bearer {token}\r\n\r\n").encode())
        self.file = self.socket.makefile("rb")
        self.status = (self.file.readline().split() + [b"", b""])[1]
        while self.file.readline() not in (b"\r\n", b""):
            pass

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        need(len(data) < 126, "a short message")
        self.socket.sendall(bytes([0x81, 0x80 | len(data)]) + mask + bytes(byte ^ mask[k % 4] for k, byte in enumerate(data)))

    def read(self):
        """Kind and text of the next message. An end of the connection is a close frame."""
        try:
            head = self.file.read(2)
        except ConnectionError:
            head = b""
        if len(head) < 2:
            return 8, b""
        size = head[1] & 127
        size = int.from_bytes(self.file.read({126: 2, 127: 8}[size]), "big") if size > 125 else size
        return head[0] & 15, self.file.read(size)

    def ping(self):
        try:
            self.send('{"id":"p","method":"ping"}')
        except ConnectionError:
            return False
        while True:
            kind, text = self.read()
            if kind == 8:
                return False
            if b'"id":"p"' in text:
                return True

    def close(self):
        self.file.close()
        self.socket.close()


def page(stage):
    """WebSockets come, go and are reset, tokens are revoked and the daemon is killed."""
    daemon, port = stage.daemon(), free_port()
    daemon.request("remote_configure", enabled=True, port=port)

    def signed_in():
        code = daemon.request("quack.page_code")["code"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        headers = {"Content-Type": "application/json", "Origin": f"http://127.0.0.1:{port}"}
        connection.request("POST", "/token", json.dumps({"code": code}), headers)
        answer = connection.getresponse()
        body = answer.read()
        need(answer.status == 200, f"{answer.status} {body}")
        return json.loads(body)
    before = daemon.n_descriptors()
    for n in range(stage.n(2, 10)):
        given = signed_in()
        for k in range(stage.n(40, 400)):
            one = Page(port, given["token"])
            need(one.status == b"101", f"status {one.status}")
            if k % 3 == 0:
                stage.check(one.ping(), "no answer to a ping")
            elif k % 3 == 1:
                one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            else:
                one.socket.sendall(b"\x81\xff\x7f")
            one.close()
            stage.fired(stage.proof)
        kept = Page(port, given["token"])
        stage.check(kept.ping(), "no answer to a ping after the churn")
        began = time.monotonic()
        daemon.request("quack.page_tokens", revoke=given["id"])
        stage.check(not kept.ping(), "a revoked token still works")
        stage.took("end of a revoked page", time.monotonic() - began)
        kept.close()
        late = Page(port, given["token"])
        stage.check(late.status != b"101", "a revoked token was accepted")
        late.close()
        until(lambda: f"{before} descriptors, not {daemon.n_descriptors()}", lambda: daemon.n_descriptors() <= before + 4, PATIENCE_S)
        given = signed_in()
        kept = Page(port, given["token"])
        daemon.send(signal.SIGKILL)
        stage.check(not kept.ping(), "a page of the dead daemon was answered")
        kept.close()
        listed_again(stage, daemon)

        def served():
            try:
                one = Page(port, given["token"])
            except OSError:
                return False
            is_open = one.status == b"101" and one.ping()
            one.close()
            return is_open
        began = time.monotonic()
        until("the page with its token", served, PATIENCE_S)
        stage.took("page after the restart", time.monotonic() - began)
        stage.fired("connections reset and half sent; close frame after the revocation; waitpid: signal 9", 2)


FAULTS = {
    "N-04": (proxy, "P-42"),
    "N-05": (questions, "P-02, P-43"),
    "N-06": (terminals, "P-70"),
    "N-07": (private_copy, "P-67"),
    "N-08": (far_worker, "P-73"),
    "N-09": (page, "P-04"),
}
