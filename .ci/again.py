#!/usr/bin/env python3
"""Runs the tests that failed in LOG, the output of `cargo test --no-fail-fast`, once more and alone.

More than a thousand tests start real daemons here, and a race in one of them says nothing about a change elsewhere. A
test that passes now is reported as FLAKY: it has a fault of its own, to be mended. More than ten failures, a failure
without a name (a build, a crash), and a test that fails again end with code 1.
"""

import re
import subprocess
import sys

MAX_FAILED = 10


def failed(log):
    """Returns the arguments of cargo for the programs that failed, and the names of the tests."""
    targets = re.search(r"^error: \d+ targets? failed:\n((?:    `.*`\n)+)", log, re.M)
    lists = re.findall(r"^failures:\n((?:    \S+\n)+)", log, re.M)
    programs = re.findall(r"`(.*)`", targets.group(1)) if targets else []
    return programs, [name for names in lists for name in names.split()]


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        programs, names = failed(log.read())
    if not programs or not len(programs) <= len(names) <= MAX_FAILED:
        print(f"not run again: {len(names)} tests in {len(programs)} programs failed")
        return 1
    passed = set()
    for program in programs:
        # Not the package: with `--workspace` the programs that exist are run, with `-p` all dependencies are built again,
        # with other features.
        kind = re.sub(r"-p \S+ ?", "", program).split()
        command = ["cargo", "test", "--locked", "--workspace", *kind, "--"]
        command += ["--test-threads=1", "--exact", *names]
        ran = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace")
        print(ran.stdout, end="")
        if ran.returncode != 0:
            return 1
        passed.update(re.findall(r"^test (\S+) \.\.\. ok$", ran.stdout, re.M))
    if not passed.issuperset(names):
        print(f"not every test was found: {sorted(set(names) - passed)}")
        return 1
    for name in names:
        print(f"FLAKY: {name} failed once and passed alone; find the race")
    return 0


if __name__ == "__main__":
    sys.exit(main())
