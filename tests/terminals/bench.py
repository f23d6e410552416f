#!/usr/bin/env python3
"""Measures terminals of quack, tmux and a direct run in the same way.

Usage: bench.py [--quack PATH] [--rounds N] [--keys N]

| figure | how |
|---|---|
| echo | a byte is typed into `cat` in raw mode through a pseudoterminal, until it comes back |
| attach | `attach` is started on a pseudoterminal of 80×24, until the last row of a full screen arrives |
| drain | a program without a viewer prints 40 MB |
| true | `quack run -- true` to its end, in a running daemon |
| memory | private memory per terminal of the processes that keep it: the slope of 1 to 4 terminals, or 1 to 9 windows |

Prints a line for each figure: median, p95 where it is one, and the number of samples. shpool and nono are measured if they
are in PATH (echo and true only). Use a release build on an idle machine.
"""

import argparse
import os
import pty
import select
import shutil
import statistics
import sys
import termios
import time
import tty
from pathlib import Path

from lab import Lab, missing, until

HERE = Path(__file__).resolve().parent
RAW = "stty raw -echo; printf ready; exec cat"
# The last row has a mark that no earlier row has.
FULL = "for ((n = 1; n < 24; n++)); do printf '%-79s\\n' \"row $n\"; done; printf 'the last row'; exec sleep 1000"
DRAIN_MB = 40


class Terminal:
    """A program on a pseudoterminal of 80×24."""

    def __init__(self, argv, env, at):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(at)
            os.execvpe(argv[0], argv, env)
        termios.tcsetwinsize(self.fd, (24, 80))
        tty.setraw(self.fd)

    def until(self, part, seconds=60):
        """Reads until `part` arrives."""
        seen, end = b"", time.monotonic() + seconds
        while part not in seen:
            if not select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"{part} did not arrive: {seen[-500:]}")
            seen = seen[-4096:] + os.read(self.fd, 65536)

    def end(self):
        os.close(self.fd)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


def echo(argv, env, at, keys):
    terminal = Terminal(argv, env, at)
    terminal.until(b"ready")
    samples = []
    for n in range(keys + 20):
        byte = bytes([97 + n % 26])
        begin = time.perf_counter()
        os.write(terminal.fd, byte)
        terminal.until(byte)
        samples.append(1000 * (time.perf_counter() - begin))
    terminal.end()
    return samples[20:]


def attach(argv, env, at):
    begin = time.perf_counter()
    terminal = Terminal(argv, env, at)
    terminal.until(b"the last row")
    took = 1000 * (time.perf_counter() - begin)
    terminal.end()
    return took


def private_kb(pids):
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_"):
                total += int(line.split()[1])
    return total


def drained(begin, done):
    """MB/s until the file `done` exists, which the program makes at its end."""
    until(f"{done}", done.exists, 300)
    return DRAIN_MB / (time.perf_counter() - begin)


def row(name, samples, unit):
    samples = sorted(samples)
    p95 = f", p95 {samples[int(len(samples) * 0.95)]:.2f}" if len(samples) >= 20 else ""
    print(f"{name:24} median {statistics.median(samples):.2f}{p95} {unit} ({len(samples)} samples)", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quack", type=Path, default=HERE.parents[1] / "target/release/quack")
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--keys", type=int, default=1000)
    chosen = options.parse_args()
    if absent := missing({"tmux", "git"}):
        options.error(f"missing programs: {' '.join(absent)}")
    with Lab(chosen.quack) as lab:
        quack, at, tmux = str(lab.quack), lab.directory("bench"), ["tmux", "-S", str(lab.socket)]

        row("echo direct", echo(["bash", "-c", RAW], lab.env, at, chosen.keys), "ms")
        row("echo quack", echo([quack, "run", "--", "bash", "-c", RAW], lab.env, at, chosen.keys), "ms")
        row("echo tmux", echo([*tmux, "new-session", f"bash -c '{RAW}'"], lab.env, at, chosen.keys), "ms")
        if shutil.which("shpool"):
            # shpool starts a shell only.
            (lab.home / ".bashrc").write_text(RAW)
            row("echo shpool", echo(["shpool", "--daemonize", "attach", "bench"], lab.env, at, chosen.keys), "ms")

        lab.call("run", "-d", "--name", "full", "--", "bash", "-c", FULL, at=at)
        lab.tmux("new-session", "-d", "-s", "full", "-x", 80, "-y", 24, f"bash -c '{FULL.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'")
        for name, argv in (("quack", [quack, "attach", "full", "--read-only"]), ("tmux", [*tmux, "attach", "-t", "=full"])):
            attach(argv, lab.env, at)
            row(f"attach {name}", [attach(argv, lab.env, at) for _ in range(chosen.rounds)], "ms")

        print_all = f"yes 'the quick brown duck jumps over the lazy dog' | head -c {DRAIN_MB}000000; touch {{}}; sleep 1000"
        speeds = {"quack": [], "tmux": []}
        for n in range(max(3, chosen.rounds // 5)):
            for name in speeds:
                done = at / f"done-{name}-{n}"
                begin = time.perf_counter()
                if name == "quack":
                    lab.call("run", "-d", "--name", f"drain-{n}", "--", "bash", "-c", print_all.format(done), at=at)
                else:
                    lab.tmux("new-session", "-d", "-s", f"drain-{n}", "-x", 80, "-y", 24, "bash", "-c", print_all.format(done))
                speeds[name].append(drained(begin, done))
            lab.call("delete", f"drain-{n}", "--force", at=at)
            lab.tmux("kill-session", "-t", f"=drain-{n}")
        for name, speed in speeds.items():
            row(f"drain {name}", speed, "MB/s")

        runs = {"direct": ["true"], "quack": [quack, "run", "--", "true"]}
        if shutil.which("nono"):
            runs["nono"] = ["nono", "run", "--allow", str(at), "--", "true"]
        for name, argv in runs.items():
            samples = []
            for _ in range(chosen.rounds):
                begin = time.perf_counter()
                os.waitpid(Terminal(argv, lab.env, at).pid, 0)
                samples.append(1000 * (time.perf_counter() - begin))
            row(f"true {name}", samples, "ms")

        memory(lab, at)


def memory(lab, at):
    # Full screens: tmux allocates rows when they are used.
    def full(name):
        return FULL.replace("exec sleep", f"touch {at}/{name}; exec sleep")

    server = [int(lab.tmux("display-message", "-p", "#{pid}"))]
    before = private_kb(server)
    for n in range(8):
        lab.tmux("new-session", "-d", "-s", f"memory-{n}", "-x", 80, "-y", 24, "bash", "-c", full(f"tmux-{n}"))
        until("a full screen", (at / f"tmux-{n}").exists)
    row("memory tmux", [(private_kb(server) - before) / 8], "kB per window")

    lab.call("run", "-d", "--name", "memory", "--", "bash", "-c", full("first"), at=at)
    until("a full screen", (at / "first").exists)
    worker = [lab.worker("memory")["pid"]]
    before = private_kb(worker)
    for n in range(3):
        lab.call("run", "-d", "--in", "memory", "--", "bash", "-c", full(f"quack-{n}"), at=at)
        until("a full screen", (at / f"quack-{n}").exists)
    row("memory quack", [(private_kb(worker) - before) / 3], "kB per terminal in the worker")


if __name__ == "__main__":
    sys.exit(main())
