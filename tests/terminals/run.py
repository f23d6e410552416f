#!/usr/bin/env python3
"""Compares programs in `quack run` with a direct run, cell by cell, and kills the processes of quack under them.

Usage: run.py [--quack PATH] [--quick] [--attacks] [--allow-missing] [NAMES…]

Each program runs twice in windows of tmux with the same size and gets the same keys. The rows with their colors, the
place of the cursor and the modes must become equal within 20 s. Without names, all programs, the menus of vttest and the
kills run; with --quick a part of them. --attacks runs the load of attacks.py, which needs minutes.

Differences that are allowed, with their reasons:
- After another size, bash and python get Ctrl-L first: tmux moves the rows of the normal screen when its window changes,
  and a screen that quack draws again has no rows above the window to take back. vim makes its windows equal first,
  because their widths depend on every size between.
- htop: only its frame is compared (programs.py), because the processes, times and loads differ.
- vim asks the terminal nothing: quack answers with its own name, and tmux with another one.
- The lines above the window are not compared.
"""

import argparse
import re
import shlex
import sys
from pathlib import Path

import attacks
import kills
from lab import PATIENCE_S, Failure, Lab, Report, marked, missing, until
from programs import PROGRAMS, RUST, VTTEST, VTTEST_DIFFERENT, WORDS

HERE = Path(__file__).resolve().parent
QUICK = ["less", "bash", "vttest-1", "kill-client", "kill-worker"]


def press(window, actions):
    for kind, words in actions:
        if kind == "key":
            window.keys(*words)
        else:
            window.type(words)


class Pair:
    """The same program directly and in quack."""

    def __init__(self, lab, name, program):
        self.lab, self.name, self.program = lab, name, program
        self.at = [lab.directory(f"{side}/{name}") for side in ("direct", "quack")]
        for at in self.at:
            (at / "words").write_text(WORDS + "\n")
            (at / "main.rs").write_text(RUST)
        self.direct, self.quack = (lab.window(at, 80, 24) for at in self.at)
        self.before = self.modes()

    def modes(self):
        return self.quack.stty(), self.quack.flags()

    def call(self, line):
        self.quack.command(f"{shlex.quote(str(self.lab.quack))} {line}")

    def start(self):
        self.direct.command(f"env {self.lab.mark} bash -c {shlex.quote(self.program.command)}")
        self.call(f"run --name {self.name} --env {self.lab.mark} -- bash -c {shlex.quote(self.program.command)}")
        for window in (self.direct, self.quack):
            window.shows(self.program.ready)
        self.same("start")

    def look(self, window):
        rows, place = window.cells()
        return (self.program.mask(rows), "") if self.program.mask else (rows, place)

    def same(self, what, before=None, seconds=PATIENCE_S):
        """Waits until both screens are equal, and are not the screen `before`."""
        seen = []

        def is_equal():
            seen[:] = [self.look(self.direct), self.look(self.quack)]
            return seen[0] != before and seen[0] == seen[1]

        def difference():
            (rows, place), (others, other_place) = seen
            lines = [f"row {n}: {a!r} is {b!r} in quack" for n, (a, b) in enumerate(zip(rows, others)) if a != b][:6]
            if len(rows) != len(others):
                lines.append(f"{len(rows)} rows are {len(others)} in quack")
            if place != other_place:
                lines.append(f"{place} is {other_place} in quack")
            return f"{what}: equal screens:\n  " + "\n  ".join(lines or [f"the screen did not change:\n{self.direct.text()}"])

        until(difference, is_equal, seconds)

    def both(self, actions):
        for window in (self.direct, self.quack):
            press(window, actions)

    def step(self, actions):
        before = self.look(self.direct)
        self.both(actions)
        self.same(f"after {actions}", before)

    def settle(self, what):
        """Presses the keys until the screens are equal: the programs may get them before the new size."""
        for _ in range(PATIENCE_S // 2 if self.program.settled else 0):
            self.both(self.program.settled)
            try:
                return self.same(what, seconds=2)
            except Failure:
                pass
        return self.same(what)

    def detach(self):
        self.quack.keys("C-\\")
        code = self.quack.prompt()
        if code or "[detached from" not in self.quack.text():
            raise Failure(f"detached with {code}:\n{self.quack.text()}")
        self.restored("detach")

    def restored(self, what):
        self.quack.keys("C-l")
        self.quack.prompt()
        if (now := self.modes()) != self.before:
            raise Failure(f"after {what} the terminal has other modes:\n{self.before}\n{now}")

    def attach(self, options=""):
        self.call(f"attach {self.name} {options}")

    def resize(self, cols, rows):
        for window in (self.direct, self.quack):
            window.resize(cols, rows)


def compare(lab, name):
    """All cases of one program."""
    pair = Pair(lab, name, PROGRAMS[name])
    pair.start()
    for step in pair.program.steps:
        pair.step(step)

    pair.detach()
    pair.attach()
    pair.same("attached again")

    pair.quack.close()
    pair.quack = lab.window(pair.at[1], 80, 24)
    pair.attach()
    pair.same("attached after the window was closed")

    second_viewer(pair)

    pair.detach()
    pair.resize(100, 30)
    pair.attach("--size")
    pair.settle("attached with another size")

    pair.resize(80, 24)
    pair.settle("with the first size")
    # Faster than tmux would. It does not notice: the last size is that of its window.
    for size in [*((60 + 7 * n % 50, 12 + 5 * n % 25) for n in range(19)), (80, 24)]:
        for window in (pair.direct, pair.quack):
            window.size(size)
    pair.settle("after 20 sizes")
    pair.both(pair.program.touch)
    pair.same("typed after 20 sizes")

    pair.both(pair.program.quit)
    codes = [window.prompt() for window in (pair.direct, pair.quack)]
    if codes != [pair.program.code] * 2:
        raise Failure(f"exit codes {codes}, expected {pair.program.code}\n{pair.quack.text()}")
    pair.restored("the end")


def second_viewer(pair):
    """A smaller window that only reads shows a part of the screen, and changes nothing for the first one."""
    cols, rows = 60, 12
    second = pair.lab.window(pair.at[1], cols, rows)
    second.command(f"{shlex.quote(str(pair.lab.quack))} attach {pair.name} --read-only")
    second.shows(f"screen is 80×24, window {cols}×{rows}")

    def is_part():
        whole = pair.quack.text().split("\n")
        whole += [""] * (24 - len(whole))
        part = second.text().split("\n")[:rows - 1]
        return any(all(not have.isascii() or have[:cols].rstrip() == row.rstrip() for have, row in zip(whole[top:], part))
                   for top in range(24 - rows + 2))

    if pair.program.mask is None:
        until(lambda: f"a part of the screen:\n{second.text()}\n--- of\n{pair.quack.text()}", is_part)
    pair.both(pair.program.touch)
    pair.same("with a second viewer")
    second.keys("C-\\")
    if code := second.prompt():
        raise Failure(f"the second viewer detached with {code}")
    second.close()


def vttest(lab, name):
    """Each screen of a menu of vttest. A screen of VTTEST_DIFFERENT must differ, so that the list stays true."""
    program = VTTEST[name]
    pair = Pair(lab, name, program)
    pair.start()
    pids = [pid for pid in marked(lab.mark) if Path(f"/proc/{pid}/comm").read_text() == "vttest\n"]
    if len(pids) != 2:
        raise Failure(f"{len(pids)} processes of vttest")
    different = set()
    answer(pair, pids, program.steps)
    for n in range(60):
        try:
            pair.same(f"screen {n}", seconds=2 if n in VTTEST_DIFFERENT[name] else PATIENCE_S)
        except Failure:
            if n not in VTTEST_DIFFERENT[name]:
                raise
            different.add(n)
        if program.ready in pair.direct.text():
            break
        answer(pair, pids, "")
    if different != set(VTTEST_DIFFERENT[name]):
        raise Failure(f"only the screens {sorted(different)} differ")
    pair.both(program.quit)
    codes = [window.prompt() for window in (pair.direct, pair.quack)]
    if codes != [0, 0]:
        raise Failure(f"exit codes {codes}")
    pair.restored("the end")
    return f"{n} screens, {len(different)} with known differences"


def answer(pair, pids, line):
    """Types a line, and waits until vttest reads again in both windows. Some screens are equal to the one before, and
    some are drawn slowly, so the screen does not show this."""
    def n_reads(pid):
        return int(re.search(r"syscr: (\d+)", Path(f"/proc/{pid}/io").read_text())[1])

    before = [n_reads(pid) for pid in pids]
    pair.both((("text", line + "\r"),))
    for pid, old in zip(pids, before):
        until("vttest reads the next line", lambda: n_reads(pid) > old
              and Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 "), 60)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--quack", type=Path, default=HERE.parents[1] / "target/release/quack")
    options.add_argument("--quick", action="store_true")
    options.add_argument("--attacks", action="store_true")
    options.add_argument("--allow-missing", action="store_true")
    options.add_argument("names", nargs="*", metavar="NAMES")
    chosen = options.parse_args()
    checks = {name: (compare, PROGRAMS[name].package) for name in PROGRAMS}
    checks |= {name: (vttest, "vttest") for name in VTTEST}
    checks |= {name: (check, "vim") for name, check in kills.CHECKS.items()}
    loads = {name: (check, "bash") for name, check in attacks.CHECKS.items()}
    names = chosen.names or (list(loads) if chosen.attacks else QUICK if chosen.quick else list(checks))
    checks |= loads
    if unknown := set(names) - set(checks):
        options.error(f"no check {', '.join(sorted(unknown))}: choose from {', '.join(checks)}")
    if not chosen.quack.is_file():
        options.error(f"{chosen.quack} does not exist: build it or name another with --quack")
    needed = {"tmux", "git"} | {checks[name][1] for name in names}
    absent = missing(needed)
    if absent and (not chosen.allow_missing or {"tmux", "git"} & set(absent)):
        options.error(f"missing programs, which packages of the same names have: {' '.join(absent)}")
    report = Report()
    with Lab(chosen.quack) as lab:
        for name in names:
            check, package = checks[name]
            if package in absent:
                report.skip(name, f"no {package} in PATH")
            else:
                report.attempt(name, check, lab, name)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
