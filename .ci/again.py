#!/usr/bin/env python3
"""Runs the tests that failed in LOG, the output of `cargo test --no-fail-fast`, once more and alone.

More than a thousand tests start real daemons here, and a race in one of them says nothing about a change elsewhere. A
test that passes now is reported as FLAKY: it has a fault of its own, to be mended. A program that ended without naming
a failed test (a signal, no memory, no thread) is run whole, after the end of its output is shown again. More than ten
failures, a failed build, and a failure that repeats end with code 1.
"""

import re
import subprocess
import sys

MAX_FAILED = 10
# Lines of a program's output that are shown again.
MAX_SHOWN = 60


def failed(log):
    """Returns per failed program: its arguments of cargo, the names of its failed tests, and the end of its output."""
    targets = re.search(r"^error: \d+ targets? failed:\n((?:    `.*`\n)+)", log, re.M)
    programs = []
    for program in re.findall(r"`(.*)`", targets.group(1)) if targets else []:
        end = re.search(rf"^error: .*`{re.escape(program)}`\n(?:\nCaused by:\n(?:  \S.*\n)*)?", log, re.M)
        output = log[: end.end()] if end else ""
        output = output[max(output.rfind("\n     Running "), output.rfind("\n   Doc-tests ")) + 1 :]
        lists = re.findall(r"^failures:\n((?:    \S+\n)+)", output, re.M)
        names = lists[-1].split() if lists else []
        programs.append((program, names, output.splitlines()[-MAX_SHOWN:]))
    return programs


def passes(program, names):
    """Runs the tests `names` of a program alone, or all of them if there are no names."""
    # Not the package: with `--workspace` the programs that exist are run, with `-p` all dependencies are built again,
    # with other features.
    kind = re.sub(r"-p \S+ ?", "", program).split()
    command = ["cargo", "test", "--locked", "--workspace", *kind]
    if names:
        command += ["--", "--test-threads=1", "--exact", *names]
    ran = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", errors="replace")
    print(ran.stdout, end="")
    missing = set(names) - set(re.findall(r"^test (\S+) \.\.\. ok$", ran.stdout, re.M))
    if missing:
        print(f"failed again, or not found: {sorted(missing)}")
    return ran.returncode == 0 and not missing


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        programs = failed(log.read())
    n_failed = sum(max(len(names), 1) for _, names, _ in programs)
    if not 0 < n_failed <= MAX_FAILED:
        print(f"not run again: {n_failed} failures in {len(programs)} programs")
        return 1
    for program, names, output in programs:
        if not names:
            print(f"{program} named no failed test. The end of its output:", *output, sep="\n")
        if not passes(program, names):
            return 1
    for program, names, _ in programs:
        for name in names or [program]:
            print(f"FLAKY: {name} failed once and passed alone; find the race")
    return 0


if __name__ == "__main__":
    sys.exit(main())
