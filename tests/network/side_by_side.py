#!/usr/bin/env python3
"""Measures the network by host of quackd next to `@anthropic-ai/sandbox-runtime`, with one client for both.

Usage: side_by_side.py [--quack PATH]

srt, bwrap, socat and rg must be in PATH; a side that cannot run prints why. A busy machine distorts all figures, so the
first line is its load. Throughput has a direct figure of the same run next to it.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lab
from run import CHECKS, Quack, script, workspace

HOST = "plain.test.example:9000"
CLIENT = r'''
import base64, os, socket, statistics, sys, time, urllib.parse
via = urllib.parse.urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "")
login = ""
if via.username:
    pair = urllib.parse.unquote(via.username) + ":" + urllib.parse.unquote(via.password or "")
    login = "Proxy-Authorization: Basic " + base64.b64encode(pair.encode()).decode() + "\r\n"
def tunnel(first):
    if sys.argv[1] == "direct":
        s = socket.create_connection(("93.184.216.34", 9000), 10)  # without the resolver, as behind a proxy
    else:
        s = socket.create_connection((via.hostname, via.port), 10)
        s.sendall(f"CONNECT plain.test.example:9000 HTTP/1.1\r\nHost: plain.test.example:9000\r\n{login}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            more = s.recv(1)
            if not more: sys.exit("closed: " + repr(head))
            head += more
        if b" 200 " not in head: sys.exit("refused: " + repr(head))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(first)
    return s
def timed(times, action):
    took = []
    for _ in range(times):
        begin = time.perf_counter(); action(); took.append((time.perf_counter() - begin) * 1000)
    return statistics.median(took)
def connect():
    s = tunnel(b"e"); assert s.recv(1) == b"e"; s.close()
first = timed(500, connect)
s = tunnel(b"e"); s.recv(1)
def echo(): s.sendall(b"x" * 16); assert s.recv(16)
again = timed(2000, echo)
s = tunnel(b"b"); total = 0; begin = time.perf_counter()
while data := s.recv(1 << 18): total += len(data)
rate = total / (time.perf_counter() - begin) / 1e9
print(f"connect p50 {first:.3f} ms, round trip p50 {again:.3f} ms, {total >> 20} MiB at {rate:.2f} GB/s")
'''


def srt(settings, at, command, seconds=180):
    argv = ["srt", "--settings", settings, "bash", "-c", command]
    done = subprocess.run(argv, cwd=at, capture_output=True, text=True, timeout=seconds, check=False)
    return done.stdout + done.stderr


def starts(action):
    took = []
    for _ in range(7):
        begin = time.perf_counter()
        action()
        took.append((time.perf_counter() - begin) * 1000)
    return f"p50 {statistics.median(took):.0f} ms of 7"


def side(name, do, start, root, servers):
    print(f"{name} client: {do(root / name, 'python3 client.py proxy').strip()[-300:]}", flush=True)
    print(f"{name} start of `true`: {starts(start)}", flush=True)
    for tool in ("npm", "pip", "cargo"):
        text = do(root / name / tool, script(CHECKS[tool][2], servers))
        took = next((line for line in text.splitlines() if line.startswith("took ")), "no result: " + text.strip()[-300:])
        # The last words of the tool show whether the refusal or something else ended it.
        words = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("took ")][-3:]
        print(f"{name} {tool}, host not allowed: {took} ({' | '.join(words)[-240:]})", flush=True)


def prepare(root, name, servers):
    (root / name).mkdir()
    (root / name / "client.py").write_text(CLIENT)
    for tool in ("npm", "pip", "cargo"):
        workspace(root / name / tool, servers)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quack", type=Path)
    chosen = options.parse_args()
    code = lab.enter([sys.executable, *sys.argv])
    if code is not None:
        return code
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", flush=True)
    with tempfile.TemporaryDirectory(prefix="qn") as scratch:
        root = Path(scratch)
        servers = root / "servers"
        servers.mkdir()
        (root / "home").mkdir()
        lab.start(servers)
        (root / "client.py").write_text(CLIENT)
        done = subprocess.run([sys.executable, root / "client.py", "direct"], capture_output=True, text=True, check=False)
        print("direct client: " + (done.stdout + done.stderr).strip(), flush=True)
        missing = [name for name in ("srt", "bwrap", "socat", "rg") if not shutil.which(name)]
        if missing:
            print(f"skipped srt: no {', '.join(missing)} in PATH")
        else:
            settings = root / "srt.json"
            settings.write_text(json.dumps({
                "network": {"allowedDomains": ["plain.test.example"], "deniedDomains": []},
                "filesystem": {"denyRead": [], "allowWrite": [str(root)], "denyWrite": []}}))
            prepare(root, "srt", servers)
            side("srt", lambda at, command: srt(settings, at, command), lambda: srt(settings, root, "true"), root, servers)
        if not chosen.quack:
            print("skipped quack: no --quack")
            return 0
        quack = Quack(chosen.quack.resolve(), root / "home", servers / "ca.pem")
        prepare(root, "quack", servers)
        for at in (root / "quack", *(root / "quack" / tool for tool in ("npm", "pip", "cargo"))):
            quack.call(at, "sandbox", "set", "--allow", HOST)
        side("quack", quack.bash, lambda: quack.bash(root / "quack", "true"), root, servers)
        quack.call(root, "stop")
    return 0


if __name__ == "__main__":
    sys.exit(main())
