#!/usr/bin/env python3
"""Runs real package managers and clients against local registries, through the network by host of a session.

Usage: run.py [--quack PATH | --direct] [NAMES…]

Without names all checks run. `--direct` runs the programs in the test network without quackd, which tests the registries
themselves. Each check prints one line. The last line counts them. The exit code is 1 if one failed. A program that is missing is a printed skip.
"""

import argparse
import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lab

HERE = Path(__file__).resolve().parent
DENIED = re.compile(r"\[Sandbox: the network(?: \(([^)]*)\))? was denied[^\n]*")
# A refused program must not repeat its attempts: pip and npm would wait for more than this between theirs.
LIMIT_S = 5.0

# Node and Python do not read the system's certificates; each program is told about the CA by its own variable.
SETUP = """export SSL_CERT_FILE=$PWD/ca.pem CURL_CA_BUNDLE=$PWD/ca.pem GIT_SSL_CAINFO=$PWD/ca.pem NODE_EXTRA_CA_CERTS=$PWD/ca.pem
export PIP_CERT=$PWD/ca.pem REQUESTS_CA_BUNDLE=$PWD/ca.pem CARGO_HOME=$PWD/cargo-home npm_config_cache=$PWD/npm-cache
export npm_config_registry=https://npm.test.example/ npm_config_cafile=$PWD/ca.pem npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false
export PIP_INDEX_URL=https://pypi.test.example/simple/ PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
export UV_DEFAULT_INDEX=https://pypi.test.example/simple/ UV_NO_CACHE=1
export GOPROXY=https://go.test.example GONOSUMDB='*' GOFLAGS='-mod=mod -modcacherw' GOPATH=$PWD/gopath GOCACHE=$PWD/gocache GOSUMDB=off
export GIT_SSH_COMMAND="ssh -F /dev/null -i $PWD/user_key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
"""

FETCH = "fetch('https://plain.test.example/hello').then(r=>{if(!r.ok)throw Error(r.status+' '+r.statusText);return r.text()})"
HTTPS = ("require('https').get('https://plain.test.example/hello',r=>{r.pipe(process.stdout);"
         "if(r.statusCode!=200)process.exit(1)}).on('error',e=>{console.error(e.message);process.exit(1)})")
JAVA = """import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
  var r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("https://plain.test.example/hello")).build(),
    HttpResponse.BodyHandlers.ofString()); System.out.print(r.body()); if (r.statusCode() != 200) System.exit(1); } }
"""
SOCKET = r"""import socket, ssl, os
s = ssl.create_default_context(cafile='ca.pem').wrap_socket(socket.create_connection(('ws.test.example', 443), 5),
    server_hostname='ws.test.example')
s.sendall(b'GET /echo HTTP/1.1\r\nHost: ws.test.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n'
    b'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n')
f = s.makefile('rb')
while f.readline() not in (b'\r\n', b''): pass
mask = os.urandom(4)
s.sendall(bytes([0x81, 0x85]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(b'quack')))
assert f.read(7) == b'\x81\x05quack'
print('echo')
"""
CARGO = "cd app && cargo -q add ducktest && cargo -q build"
# name: program, hosts of its rule, command
CHECKS = {
    "cargo": ("cargo", ["index", "files"], CARGO),
    "npm": ("npm", ["npm", "files"], "cd js && npm install duckpkg"),
    "pnpm": ("pnpm", ["npm", "files"], "cd js && pnpm add duckpkg --store-dir ./store"),
    "pip": ("pip", ["pypi", "files"], "python3 -m pip install --target t duckpy"),
    "uv": ("uv", ["pypi", "files"], "uv pip install --target u duckpy"),
    "go": ("go", ["go"], "cd gomod && go get mod.test.example/duck@v1.0.0"),
    "git": ("git", ["git"], "git clone -q https://git.test.example/duck.git c && cat c/duck.txt"),
    "ssh": ("ssh", ["git:22"], "git clone -q \"root@git.test.example:$REPOS/duck.git\" s && cat s/duck.txt"),
    "curl": ("curl", ["plain"], "curl -sSf https://plain.test.example/hello"),
    "http": ("curl", ["plain"], "curl -sSf http://plain.test.example/hello"),
    "curl-bare": ("curl", ["plain"], "curl --noproxy '*' -sSf https://plain.test.example/hello"),
    "fetch": ("node", ["plain"], "node -e " + shlex.quote(FETCH + ".then(console.log)")),
    "node-https": ("node", ["plain"], "node -e " + shlex.quote(HTTPS)),
    "java": ("java", ["plain"], "java -Djavax.net.ssl.trustStore=trust.p12 -Djavax.net.ssl.trustStorePassword=changeit -cp . Get"),
    "websocket": ("python3", ["ws"], "python3 socket_client.py"),
}


class Report:
    passed = failed = skipped = 0

    def line(self, good, name, text=""):
        self.failed += not good
        self.passed += good
        print(f"{'ok' if good else 'FAILED'} {name}{': ' + text if text else ''}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}", flush=True)


def rules(hosts):
    return [host.replace(":", ".test.example:") if ":" in host else host + ".test.example" for host in hosts]


def workspace(at, servers):
    """A workspace with the files that every check needs. Commands of a check write only below it."""
    (at / "app/src").mkdir(parents=True)
    (at / "app/src/main.rs").write_text('fn main() { println!("{}", ducktest::duck()) }\n')
    (at / "app/Cargo.toml").write_text('[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n')
    (at / "app/.cargo").mkdir()
    (at / "app/.cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "duck"\n[source.duck]\nregistry = "sparse+https://index.test.example/"\n'
        f'[http]\ncainfo = "{at}/ca.pem"\n')
    (at / "js").mkdir()
    (at / "js/package.json").write_text('{"name":"app","version":"1.0.0"}')
    (at / "js/.npmrc").write_text(f"registry=https://npm.test.example/\ncafile={at}/ca.pem\n")
    (at / "gomod").mkdir()
    (at / "gomod/go.mod").write_text("module app.example/app\n\ngo 1.19\n")
    (at / "socket_client.py").write_text(SOCKET)
    shutil.copy(servers / "ca.pem", at / "ca.pem")
    if (servers / "user_key").exists():
        shutil.copy(servers / "user_key", at / "user_key")
        (at / "user_key").chmod(0o600)
    if shutil.which("javac"):
        (at / "Get.java").write_text(JAVA)
        lab.run("javac", at / "Get.java")
        lab.run("keytool", "-importcert", "-noprompt", "-storetype", "PKCS12", "-keystore", at / "trust.p12", "-storepass",
                "changeit", "-file", at / "ca.pem")
    lab.run("git", "init", "-q", at)


def script(command, servers):
    # The seconds are those of the command alone, without the start of a worker.
    return (f"{SETUP}export REPOS={servers}/repos\nbegin=$(date +%s%N)\n( {command} )\ncode=$?\n"
            "echo \"took $(( ($(date +%s%N) - begin) / 1000000 )) ms, code $code\"")


def parts(text):
    found = re.search(r"took (\d+) ms, code (\d+)", text)
    return (int(found[1]) / 1000, int(found[2])) if found else (float("inf"), None)


class Quack:
    def __init__(self, program, home, authorities):
        self.program = program
        # Its own state directory, so that the user's daemon and configuration stay out of it.
        rustup = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))
        own = {"HOME": str(home), "RUBBER_DUCK_APP_SUPPORT": str(home / "state"), "RUSTUP_HOME": rustup,
               "SSL_CERT_FILE": str(authorities)}
        self.env = {key: value for key, value in os.environ.items() if not key.startswith("QUACKD_")} | own

    def call(self, at, *argv, seconds=120):
        done = subprocess.run([self.program, *argv], cwd=at, env=self.env, capture_output=True, text=True, timeout=seconds)
        return done.stdout + done.stderr

    def bash(self, at, command, **more):
        return self.call(at, "tool", "bash", json.dumps({"command": command, **more}))

    def worker(self, at):
        """The pid of the only worker of the workspace, or None."""
        shown = subprocess.run([self.program, "ps", "--json"], cwd=at, env=self.env, capture_output=True, text=True)
        rows = json.loads(shown.stdout)["workers"] if shown.returncode == 0 else []
        found = [row.get("pid") for row in rows if row.get("workspacePath") == str(at)]
        return found[0] if len(found) == 1 else None


def refused(report, name, text, hosts):
    took, code = parts(text)
    lines = DENIED.findall(text)
    whole = DENIED.search(text)
    good = took <= LIMIT_S and code not in (0, None) and len(lines) == 1
    good = good and any(rule.split(":")[0] in lines[0] for rule in hosts) and "quack sandbox allow" in whole[0]
    report.line(good, name, f"{took:.2f} s, code {code}, denied {lines}" + ("" if good else "\n" + text[-1500:]))


def one(report, quack, name, servers, root):
    _, hosts, command = CHECKS[name]
    hosts = rules(hosts)
    at = root / name
    workspace(at, servers)
    text = script(command, servers)
    if quack is None:
        done = subprocess.run(["bash", "-c", text], cwd=at, capture_output=True, text=True, timeout=120)
        took, code = parts(done.stdout)
        good = code == 0
        report.line(good, f"{name} direct", f"{took:.2f} s" + ("" if good else "\n" + (done.stdout + done.stderr)[-1500:]))
        return
    quack.call(at, "sandbox", "set", "--network", "off")
    off = quack.bash(at, text)
    refused(report, f"{name} off", off, hosts)
    quack.call(at, "sandbox", "set", "--allow", "other.test.example")
    refused(report, f"{name} without rule", quack.bash(at, text), hosts)
    if name == "npm":
        piped = quack.bash(at, script("npm --prefix js install duckpkg 2>&1 | tail -1", servers))
        took, code = parts(piped)
        report.line(code == 0 and len(DENIED.findall(piped)) == 1, "npm through a pipe", f"{took:.2f} s, code {code}")
    before = quack.worker(at)
    quack.call(at, "sandbox", "allow", *hosts)
    allowed = quack.bash(at, text)
    took, code = parts(allowed)
    good = code == 0 and before is not None and quack.worker(at) == before and not DENIED.search(allowed)
    report.line(good, f"{name} after allow", f"{took:.2f} s, code {code}, worker {before} then {quack.worker(at)}"
                + ("" if good else "\n" + allowed[-1500:]))


def forward(report, quack, root):
    at = root / "forward"
    at.mkdir()
    (at / "page.txt").write_text("quack\n")
    quack.call(at, "sandbox", "set", "--allow", "other.test.example")
    started = quack.bash(at, "python3 -m http.server 3000 --bind 127.0.0.1", background=True)
    said = quack.call(at, "forward", "forward", "3000:3999")
    retry = ("--retry", "20", "--retry-connrefused", "--retry-all-errors", "--retry-delay", "1")
    page = subprocess.run(["curl", "-sS", *retry, "http://127.0.0.1:3999/page.txt"], capture_output=True, text=True)
    job = quack.call(at, "tool", "job_output", "job-1")
    good = page.stdout == "quack\n" and "port 3000 is 127.0.0.1:3999" in job
    report.line(good, "forward", (started + said + page.stderr + job).strip()[-300:])


def caches(report, quack, servers, root):
    """A second build after a restart downloads nothing. Neither the user nor another workspace has the download."""
    at, other = root / "caches", root / "other"
    workspace(at, servers)
    workspace(other, servers)
    build = script("unset CARGO_HOME; rm -rf app/target; " + CARGO, servers)
    quack.call(at, "sandbox", "set", "--allow", "index.test.example", "--allow", "files.test.example")
    first = quack.bash(at, build)
    quack.call(at, "stop", "--yes")
    quack.call(at, "sandbox", "set", "--network", "off")
    again = quack.bash(at, script("unset CARGO_HOME; rm -rf app/target; cd app && cargo -q build", servers))
    elsewhere = quack.bash(other, build)
    codes = [parts(text)[1] for text in (first, again, elsewhere)]
    home = Path(quack.env["HOME"])
    kept = list(home.glob(".cargo/registry/**/*ducktest*"))
    good = codes[:2] == [0, 0] and codes[2] not in (0, None) and not kept and not DENIED.search(again)
    report.line(good, "caches", f"codes {codes}, in the user's home {kept}" + ("" if good else "\n" + (first + again + elsewhere)[-2000:]))


def credentials(report, quack, servers, root):
    """git over https with the user's credential: each use needs a grant, and the password stays outside."""
    home, at = Path(quack.env["HOME"]), root / "credentials"
    helper = home / "helper"
    helper.write_text(f"#!/bin/sh\n[ \"$1\" = get ] && printf 'username=duck\\npassword={lab.TOKEN}\\n'\n")
    helper.chmod(0o755)
    (home / ".gitconfig").write_text(f"[user]\n\tname = Duck\n\temail = duck@test.example\n[credential]\n\thelper = {helper}\n")
    at.mkdir()
    lab.run("git", "init", "-q", at)
    quack.call(at, "sandbox", "set", "--allow", "git.test.example")
    used = "git.test.example/private"

    def check(name, good, text):
        report.line(good, f"credentials {name}", "" if good else text[-1500:])

    def allow(use):
        return quack.call(at, "allow", "--credential", use)

    def clone(to):
        text = quack.bash(at, f"git clone -q https://{used}.git {to} 2>&1")
        return (at / to / "duck.txt").exists(), text

    def refused(text, use):
        return f"Credential not used: {use}" in text and "quack sandbox allow --credential" in text

    def heads():
        return [lab.run("git", "-C", place, "rev-parse", "main").stdout for place in (at / "a", servers / "repos/private.git")]

    there, text = clone("a")
    check("clone without a grant", not there and refused(text, f"fetch {used}"), text)
    said = allow(f"fetch {used}")
    there, text = clone("a")
    check("clone", there, said + text)
    if not there:
        return
    push = "cd a && git push -q origin main 2>&1"
    quack.bash(at, "cd a && head -c 2000000 /dev/urandom > big && git add big && git commit -q -m more")
    text = quack.bash(at, push)
    mine, theirs = heads()
    check("push with a grant to fetch", mine != theirs and refused(text, f"push {used}"), text)
    said = allow(f"push {used}")
    text = quack.bash(at, push)
    mine, theirs = heads()
    check("push", mine == theirs, said + text)
    ask = "printf 'protocol=https\\nhost=git.test.example\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill 2>&1"
    text = quack.bash(at, f"env; cat a/.git/config ~/helper; git config --list; {ask}")
    secrets = [lab.TOKEN, base64.b64encode(f"duck:{lab.TOKEN}".encode()).decode()]
    check("secrets", "password=" not in text and not any(secret in text for secret in secrets), text)
    page = "curl -sS -o page -w '%{http_code}' http://127.0.0.1:61080/https/git.test.example/hello"
    text = quack.bash(at, page)
    check("another path", text.startswith("404"), text)
    said = quack.call(at, "sandbox", "revoke", f"push {used}", f"fetch {used}")
    there, text = clone("b")
    check("clone after revoke", not there and refused(text, f"fetch {used}"), said + text)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quack", type=Path, default=HERE.parents[1] / "target/release/quack")
    options.add_argument("--direct", action="store_true")
    options.add_argument("names", nargs="*", metavar="NAMES")
    chosen = options.parse_args()
    # The last one gives the user settings of git.
    known = [*CHECKS, "forward", "caches", "credentials"]
    if unknown := set(chosen.names) - set(known):
        options.error(f"no check {', '.join(sorted(unknown))}: choose from {', '.join(known)}")
    if not chosen.direct and not chosen.quack.is_file():
        options.error(f"{chosen.quack} does not exist: build it or name another with --quack")
    code = lab.enter([sys.executable, *sys.argv])
    if code is not None:
        return code
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qn") as scratch:
        root = Path(scratch)
        servers = root / "servers"
        servers.mkdir()
        (root / "home").mkdir()
        no_ssh = lab.start(servers)
        quack = None if chosen.direct else Quack(chosen.quack.resolve(), root / "home", servers / "ca.pem")
        for name in chosen.names or known:
            if name == "forward":
                report.skip(name, "--direct has no sessions") if quack is None else forward(report, quack, root)
            elif name == "caches":
                report.skip(name, "--direct has no sessions") if quack is None else caches(report, quack, servers, root)
            elif name == "credentials":
                report.skip(name, "--direct has no sessions") if quack is None else credentials(report, quack, servers, root)
            elif name == "ssh" and no_ssh:
                report.skip(name, no_ssh)
            elif not shutil.which(CHECKS[name][0]):
                report.skip(name, f"no {CHECKS[name][0]} in PATH")
            else:
                try:
                    one(report, quack, name, servers, root)
                except (OSError, subprocess.SubprocessError) as error:
                    report.line(False, name, str(error)[-1500:])
        if quack:
            quack.call(root, "stop")
    print(f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
