#!/usr/bin/env python3
"""Sessions whose workers run elsewhere, through real engines on this machine: sshd, Slurm with three nodes, podman, and a stub
of kubectl. `distant` is sshd behind a link with 200 ms of delay and 1 % of loss, `bare` a container with a static busybox only,
`scale` a thousand sessions. Needs root.

Usage: run.py [--quack PATH] [--far-program PATH] [--quick] [--allow-missing] [NAMES…]

A name is an engine (`ssh`), a check of it (`ssh.client`), or `faults` and `faults.silent`. Without names all checks run, which
takes long; with `--quick` the ones that take at most 4 minutes. Each check prints one line. The last line counts them. The exit code is 1 if one
failed. With `--allow-missing` an engine whose programs are missing is a printed skip.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

import escapes
import faults
import kills
import scale
import slurm
import work
from engines import ENGINES, NEEDED
from lab import Lab, Report

HERE = Path(__file__).resolve().parent
# Engines whose rows can resume a link.
RESUMES = ("ssh", "kubectl", "distant")
# Groups of checks without an engine of their own.
ALONE = {"faults": faults.CHECKS, "scale": scale.CHECKS}
# Of an engine that takes 0.4 s for each answer.
DISTANT = ("tools", "terminal", "stream", "stdin", "client", "resume", "torn_stream", "times", "lossy")
# Without bash and the programs of a distribution.
BARE = ("tools", "jobs", "terminal", "stream", "confinement", "tried", "client")
QUICK = {
    "ssh": ("tools", "terminal", "stream", "environment", "confinement", "tried", "shown", "client", "holder", "worker", "link",
            "resume", "full_disk", "hostile_targets", "missing_workspace"),
    "slurm": ("tools", "environment", "tried", "client", "pending", "no_job_stays"),
    "podman": ("tools", "confinement", "client"),
    "kubectl": ("tools", "environment"),
    "faults": ("other_version", "told_error", "words_of_client", "small_noise", "open_noise", "large_noise", "packets",
               "unknown_engine"),
}


def checks():
    """Names of all checks by group."""
    found = {}
    for name in ENGINES:
        found[name] = {**work.CHECKS, **kills.CHECKS, **faults.PLACES}
        found[name] |= kills.RESUMED if name in RESUMES else {}
        found[name] |= {"ssh": faults.SSH | escapes.CHECKS, "slurm": slurm.CHECKS | scale.SLURM,
                        "podman": escapes.CHECKS, "distant": work.DISTANT}.get(name, {})
    # The stub has no process that a server holds.
    del found["kubectl"]["server"]
    found["bare"] = {name: found["bare"][name] for name in BARE}
    found["distant"] = {name: found["distant"][name] for name in DISTANT}
    return found | ALONE


def chosen_names(options, known):
    """Names of the checks to run by group."""
    if not options.names:
        return QUICK if options.quick else {group: list(of) for group, of in known.items()}
    chosen = {}
    for text in options.names:
        group, _, name = text.partition(".")
        if group not in known or name and name not in known[group]:
            return text
        chosen.setdefault(group, []).extend([name] if name else known[group])
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quack", type=Path, default=HERE.parents[1] / "target/release/quack")
    parser.add_argument("--far-program", type=Path, help="build of quack that is sent, such as a static one")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--allow-missing", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAMES")
    options = parser.parse_args()
    known = checks()
    chosen = chosen_names(options, known)
    if isinstance(chosen, str):
        names = ", ".join(f"{group}.{name}" for group in known for name in known[group])
        parser.error(f"no check {chosen}: choose from {names}")
    if not options.quack.is_file():
        parser.error(f"{options.quack} does not exist: build it or name another with --quack")
    if os.geteuid() != 0:
        parser.error("sshd and Slurm are started with a private configuration, which needs root")
    absent = {name: sorted(program for program in NEEDED[name][0] if not shutil.which(program)) for name in ENGINES}
    if not options.allow_missing and (lacking := [name for name in chosen if absent.get(name)]):
        parser.error("missing programs, which these packages have: " + " ".join(NEEDED[name][1] for name in lacking))
    report = Report()
    with Lab(options.quack, options.far_program and options.far_program.resolve()) as lab:
        lab.is_quick = options.quick
        for group, names in chosen.items():
            if absent.get(group):
                report.skip(group, f"no {' '.join(absent[group])} in PATH")
                continue
            if group in ALONE:
                for name in names:
                    report.attempt(f"{group}.{name}", known[group][name], lab)
                continue
            if group == "bare" and not options.far_program:
                report.skip(group, "needs --far-program with a static build")
                continue
            engines = []

            def start():
                engines.append(ENGINES[group](lab))
                lab.configure()
            report.attempt(f"{group} starts", start)
            for name in names if engines else ():
                report.attempt(f"{group}.{name}", known[group][name], lab, engines[0])
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
