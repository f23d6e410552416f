"""Registries, git servers and a WebSocket echo for tests of the network by host.

`enter` runs a program in new namespaces. The servers listen at a public address in a second network namespace, so a
proxy that refuses private addresses and the addresses of its own machine still reaches them. Nothing leaves the machine.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import shutil
import socket
import socketserver
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from pathlib import Path

ADDRESS = "93.184.216.34"
CLIENT = "10.99.0.1"
NAMES = [f"{name}.test.example" for name in ("index", "files", "npm", "pypi", "go", "git", "ws", "plain", "other")]
MARK = "QUACK_NETWORK_LAB"
# Password of the user `duck`, who alone may read and write private.git.
TOKEN = "s3cret-of-duck"


def enter(argv):
    """Runs argv in private network and mount namespaces. Returns its exit code, or None if we are inside already."""
    if os.environ.get(MARK):
        return None
    # A real root keeps its user ids, because sshd changes its own.
    flags = "-nm" if os.geteuid() == 0 else "-rnm"
    # The pid namespace ends every server and daemon with the run.
    return subprocess.call(["unshare", flags + "pf", "--mount-proc", "--kill-child", *argv], env={**os.environ, MARK: "1"})


def run(*argv, **more):
    return subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True, **more)


def certificates(at):
    """A private CA and one certificate for all names."""
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=quackd test CA",
        "-keyout", at / "ca.key", "-out", at / "ca.pem")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test.example",
        "-keyout", at / "server.key", "-out", at / "server.csr")
    names = ",".join(f"DNS:{name}" for name in NAMES)
    (at / "ext").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:false\n")
    run("openssl", "x509", "-req", "-days", "2", "-in", at / "server.csr", "-CA", at / "ca.pem", "-CAkey", at / "ca.key",
        "-CAcreateserial", "-extfile", at / "ext", "-out", at / "server.pem")


def tgz(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return out.getvalue()


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def pages():
    """All static answers, by host and path."""
    crate = tgz({
        "ducktest-1.0.0/Cargo.toml": '[package]\nname = "ducktest"\nversion = "1.0.0"\nedition = "2021"\n',
        "ducktest-1.0.0/src/lib.rs": 'pub fn duck() -> &\'static str { "quack" }\n',
    })
    row = {"name": "ducktest", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(crate).hexdigest(), "features": {},
           "yanked": False}
    pack = tgz({"package/package.json": '{"name":"duckpkg","version":"1.0.0"}', "package/index.js": "module.exports=1\n"})
    sha = base64.b64encode(hashlib.sha512(pack).digest()).decode()
    npm = {"name": "duckpkg", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
        "name": "duckpkg", "version": "1.0.0",
        "dist": {"tarball": "https://files.test.example/duckpkg-1.0.0.tgz", "integrity": "sha512-" + sha}}}}
    info = "duckpy-1.0.0.dist-info"
    wheel = zipped({
        "duckpy.py": "X = 1\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: duckpy\nVersion: 1.0.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: quackd\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"duckpy.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    })
    file = "duckpy-1.0.0-py3-none-any.whl"
    link = f'<a href="https://files.test.example/{file}#sha256={hashlib.sha256(wheel).hexdigest()}">{file}</a>'
    mod = "module mod.test.example/duck\n\ngo 1.19\n"
    at = "mod.test.example/duck@v1.0.0/"
    go = "/mod.test.example/duck/@v/"
    return {
        ("index", "/config.json"): json.dumps({"dl": "https://files.test.example/crates"}),
        ("index", "/du/ck/ducktest"): json.dumps(row) + "\n",
        ("files", "/crates/ducktest/1.0.0/download"): crate,
        ("npm", "/duckpkg"): json.dumps(npm),
        ("files", "/duckpkg-1.0.0.tgz"): pack,
        ("pypi", "/simple/duckpy/"): f"<!DOCTYPE html><html><body>{link}</body></html>",
        ("files", "/" + file): wheel,
        ("go", go + "list"): "v1.0.0\n",
        ("go", go + "v1.0.0.info"): '{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}',
        ("go", go + "v1.0.0.mod"): mod,
        ("go", go + "v1.0.0.zip"): zipped({at + "go.mod": mod, at + "duck.go": "package duck\n\nconst X = 1\n"}),
    }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    static = {}
    repos = ""

    def log_message(self, *_):
        pass

    def answer(self, status, body, kind="text/html", headers=()):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        host = (self.headers.get("Host") or "").split(":")[0].split(".")[0]
        path = self.path.split("?")[0]
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.websocket()
        if host == "git":
            return self.git()
        if path == "/hello":
            return self.answer(200, f"hello from {host}\n")
        if path.startswith("/redirect/"):
            target = base64.urlsafe_b64decode(path[len("/redirect/"):]).decode()
            return self.answer(302, "", headers=[("Location", target)])
        found = self.static.get((host, path))
        if found is None:
            return self.answer(404, "not here\n")
        kind = "application/json" if host == "npm" else "text/html"
        return self.answer(200, found, kind)

    do_HEAD = do_GET

    def do_POST(self):
        self.git()

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def git(self):
        body = self.body()
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        path, _, query = self.path.partition("?")
        login = "Basic " + base64.b64encode(f"duck:{TOKEN}".encode()).decode()
        is_private = path.startswith("/private.git/")
        if is_private and self.headers.get("Authorization") != login:
            return self.answer(401, "log in\n", headers=[("WWW-Authenticate", 'Basic realm="git"')])
        env = {"PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": self.repos, "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
               "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(len(body)),
               "CONTENT_TYPE": self.headers.get("Content-Type", ""), "HOME": self.repos,
               "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "REMOTE_ADDR": CLIENT}
        # With a user, git-http-backend accepts a push.
        env |= {"REMOTE_USER": "duck"} if is_private else {}
        done = subprocess.run(["git", "-c", "safe.directory=*", "http-backend"], input=body, env=env, capture_output=True)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        status = int(fields.pop("Status", "200").split()[0])
        self.answer(status, rest, fields.pop("Content-Type", "text/plain"), fields.items())

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        # One short masked frame comes back without its mask.
        head = self.rfile.read(2)
        size = head[1] & 0x7F
        mask = self.rfile.read(4)
        data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
        self.wfile.write(bytes([head[0], size]) + data)
        self.close_connection = True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512
    context = None

    def finish_request(self, request, address):
        # The handshake happens in the thread of the connection: a silent client holds up nobody.
        try:
            if self.context:
                request = self.context.wrap_socket(request, server_side=True)
            super().finish_request(request, address)
        except OSError:
            pass


def sshd(at):
    """Starts an SSH server on port 22. Returns why it cannot, or None."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")
    if not program:
        return "no sshd in PATH (Debian: openssh-server)"
    if " 4294967295" not in Path("/proc/self/uid_map").read_text():
        return "sshd changes its user, which needs a real root"
    for key in ("host", "user"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / f"{key}_key")
    passwd = Path("/etc/passwd").read_text()
    if "\nsshd:" not in passwd:
        (at / "passwd").write_text(passwd + "sshd:x:65534:65534::/run/sshd:/usr/sbin/nologin\n")
        run("mount", "--bind", at / "passwd", "/etc/passwd")
    run("mount", "-t", "tmpfs", "run", "/run")
    os.makedirs("/run/sshd", mode=0o755)
    (at / "authorized").write_text((at / "user_key.pub").read_text())
    (at / "sshd_config").write_text(
        f"ListenAddress {ADDRESS}\nPort 22\nHostKey {at}/host_key\nAuthorizedKeysFile {at}/authorized\n"
        f"PermitRootLogin yes\nStrictModes no\nUsePAM no\nPidFile none\n")
    child = subprocess.Popen([program, "-D", "-f", at / "sshd_config", "-E", at / "sshd.log"])
    time.sleep(0.5)
    return None if child.poll() is None else "sshd ended: " + (at / "sshd.log").read_text().strip()[-200:]


def blast(listener):
    """Echoes small messages after a first byte `e`; sends 1 GiB after a first byte `b`."""

    def talk(stream):
        with stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if stream.recv(1) == b"b":
                for _ in range(1024):
                    stream.sendall(bytes(1 << 20))
                return
            stream.sendall(b"e")
            while data := stream.recv(4096):
                stream.sendall(data)

    while True:
        threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()


def serve(at):
    """The program of the second network namespace."""
    at = Path(at)
    Handler.static = pages()
    Handler.repos = str(at / "repos")
    for port in (80, 443):
        server = Server((ADDRESS, port), Handler)
        if port == 443:
            server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            server.context.load_cert_chain(at / "server.pem", at / "server.key")
        threading.Thread(target=server.serve_forever, daemon=True).start()
    listener = socket.create_server((ADDRESS, 9000), backlog=512)
    threading.Thread(target=blast, args=(listener,), daemon=True).start()
    reason = sshd(at)
    (at / "ssh.txt").write_text(reason or "")
    (at / "ready").touch()
    threading.Event().wait()


def start(at):
    """Makes the network and its servers in `at`. Call it inside of the namespaces of `enter`."""
    at = Path(at)
    certificates(at)
    work = at / "work"
    run("git", "init", "-q", "-b", "main", work)
    (work / "duck.txt").write_text("quack\n")
    who = ("-c", "user.name=Duck", "-c", "user.email=duck@test.example")
    run("git", "-C", work, "add", ".")
    run("git", "-C", work, *who, "commit", "-q", "-m", "first")
    for name in ("duck", "private"):
        run("git", "clone", "-q", "--bare", work, at / f"repos/{name}.git")
    hosts = "127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{ADDRESS} {name}\n" for name in NAMES)
    (at / "hosts").write_text(hosts)
    run("mount", "--bind", at / "hosts", "/etc/hosts")
    run("ip", "link", "set", "lo", "up")
    child = subprocess.Popen(["unshare", "-nm", sys.executable, __file__, "wait", at])
    mine = os.readlink("/proc/self/ns/net")
    until(lambda: os.readlink(f"/proc/{child.pid}/ns/net") != mine)
    run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far")
    run("ip", "link", "set", "far", "netns", child.pid)
    run("ip", "addr", "add", CLIENT + "/24", "dev", "near")
    run("ip", "link", "set", "near", "up")
    run("ip", "route", "add", ADDRESS + "/32", "dev", "near")
    inside = ("nsenter", "-t", child.pid, "-n", "ip")
    run(*inside, "link", "set", "lo", "up")
    run(*inside, "addr", "add", ADDRESS + "/32", "dev", "far")
    run(*inside, "link", "set", "far", "up")
    run(*inside, "route", "add", "10.99.0.0/24", "dev", "far")
    (at / "go").touch()
    until(lambda: (at / "ready").exists())
    return (at / "ssh.txt").read_text() or None


def until(ready, seconds=20):
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError("the test network did not start")
        time.sleep(0.05)


if __name__ == "__main__" and sys.argv[1:2] == ["wait"]:
    until(lambda: (Path(sys.argv[2]) / "go").exists())
    serve(sys.argv[2])
