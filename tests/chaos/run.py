#!/usr/bin/env python3
"""Injects faults into a real daemon under load, proves from outside that each one happened, and checks the promises of
docs/promises.md.

Usage: run.py [--quack PROGRAM] [--quick] [--only F-08,…] [--seed N] [--jobs N] [--histories N]
    [--minutes N] [--json] [--allow-missing] [--again] [--table FILE]

docs/chaos.md has the plan. Each fault has its own daemon and prints one line. With `--quick` all take at most 3 minutes.
Without it, faults are repeated more often, and a delay above its promise counts: the fault runs up to three times, until
one run keeps it. A fault that this machine cannot inject is NOT RUN, with the reason. As root that fails, unless
`--allow-missing` is given. With `--again` a fault that broke a promise runs once more, alone, and counts if it breaks
one again. Both results are shown. The exit code is 1 if a promise broke.
"""

import argparse
import datetime
import json
import os
import platform
import random
import re
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import histories
from daemon import NotRun, Stage, TESTS
from faults import agents, clients, life, limits, long_run, processes, storage, surroundings

FAULTS = dict(sorted({**storage.FAULTS, **processes.FAULTS, **clients.FAULTS, **life.FAULTS, **limits.FAULTS,
                      **long_run.FAULTS}.items()))
FAULTS |= agents.FAULTS | surroundings.FAULTS | histories.FAULTS
# Not in the short form: what takes longest, for the fewest promises.
LONG = {"F-03", "F-29", "F-30", "F-31", "F-32"}
# A run on a busy machine may be late.
ATTEMPTS = 3
# The short form has no promises of time, so that its faults can wait side by side.
QUICK_AT_ONCE = 3


def run(name, options):
    """Runs one fault. Returns its row."""
    fault, promise = FAULTS[name]
    row = {"fault": name, "what": fault.__doc__.strip().split("\n")[0].rstrip("."), "promise": promise, "times": 0, "proof": "",
           "broken": [], "late": [], "worst": "", "seconds": 0.0}
    for attempt in range(1 if options.quick else ATTEMPTS):
        stage, began = Stage(options.quack, options.quick, f"{options.seed}{name}"), time.monotonic()
        stage.n_histories, stage.minutes = options.histories, options.minutes
        try:
            fault(stage)
            stage.settle()
        except NotRun as error:
            return row | {"result": "NOT RUN", "proof": str(error)}
        except Exception as error:  # noqa: BLE001: any failure of a fault is one row of the table
            where = traceback.extract_tb(error.__traceback__)[-1]
            stage.broken.append(f"{type(error).__name__}: {str(error)[-700:]} ({Path(where.filename).name}:{where.lineno})")
            if stage.load:
                stage.broken += stage.load.wrong
        finally:
            logs = [daemon.log()[-4000:] for daemon in stage.daemons]
            stage.close()
        row |= {"times": stage.times, "proof": stage.proof, "broken": stage.broken, "late": [] if options.quick else stage.late, "logs": logs,
                "worst": worst(stage.delays), "seconds": time.monotonic() - began}
        if stage.broken or not stage.late:
            break
    if not row["times"] and not row["broken"]:
        row["broken"].append("the fault did not happen")
    row["result"] = "BROKEN" if row["broken"] else "held, late" if row["late"] else "held"
    return row


def worst(delays):
    """The longest delays, as one text."""
    longest = sorted(delays.items(), key=lambda item: -item[1])
    return ", ".join(f"{what} {seconds:.2f} s" for what, seconds in longest)


def told(row):
    text = f"{row['result']} {row['fault']} {row['what']} ({row['promise']}): "
    if row["result"] == "NOT RUN":
        return text + row["proof"]
    text += f"{row['times']} times, {row['proof']}; {row['worst']}; took {row['seconds']:.0f} s"
    return "\n    ".join([text, *row["broken"], *row["late"]])


def machine():
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"model name\s*: (.*)", text)
    return f"{os.cpu_count()} processors ({model[1] if model else platform.machine()}), Linux {platform.release().split('-')[0]}"


def table(rows, options):
    """Replaces the rows of these faults in the table of a document, which is between two marks."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=TESTS, capture_output=True, text=True).stdout.strip()
    path = Path(options.table)
    before, _, rest = path.read_text().partition("<!-- table -->\n")
    old, _, after = rest.partition("<!-- end -->")
    known = {line.split(" | ")[0].removeprefix("| "): line for line in old.splitlines() if re.match(r"\| [A-Z]-\d\d ", line)}
    for row in rows:
        cells = (row["fault"], row["what"], row["times"], row["promise"], row["result"], row["proof"], row["worst"],
                 f"{datetime.date.today()} {commit}{', short form' if options.quick else ''}")
        known[row["fault"]] = "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    lines = [f"Machine: {machine()}.", "", "| fault | what happens | times | promise | result | proof | longest delays | measured |",
             "|---|---|---|---|---|---|---|---|", *(known[name] for name in FAULTS if name in known)]
    path.write_text(f"{before}<!-- table -->\n" + "\n".join(lines) + "\n<!-- end -->" + after)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quack", type=Path, default=TESTS.parent / "target/debug/quack")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", metavar="F-08,…")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--allow-missing", action="store_true")
    parser.add_argument("--again", action="store_true", help="a broken fault counts if it breaks twice")
    parser.add_argument("--histories", type=int, default=1000, metavar="N", help="histories of the long form")
    parser.add_argument("--minutes", type=float, default=60, metavar="N", help="length of F-30, the long run")
    parser.add_argument("--jobs", type=int, metavar="N", help="faults side by side")
    parser.add_argument("--table", metavar="FILE")
    options = parser.parse_args()
    if not options.quack.is_file():
        parser.error(f"{options.quack} does not exist: build it or name another with --quack")
    names = options.only.split(",") if options.only else [name for name in FAULTS if not (options.quick and name in LONG)]
    if unknown := [name for name in names if name not in FAULTS]:
        parser.error(f"no fault {unknown[0]}: choose from {', '.join(FAULTS)}")
    print(f"seed {options.seed}, {machine()}", file=sys.stderr if options.json else sys.stdout, flush=True)
    with ThreadPoolExecutor(options.jobs or (QUICK_AT_ONCE if options.quick else 1)) as pool:
        running = [pool.submit(run, name, options) for name in names]
        for done in as_completed(running):
            print(json.dumps(done.result()) if options.json else told(done.result()), flush=True)
            if options.table:
                table([done.result()], options)
    rows = [done.result() for done in running]
    for n, row in enumerate(rows):
        if options.again and row["result"] == "BROKEN":
            print(f"{row['fault']} once more, alone", file=sys.stderr, flush=True)
            rows[n] = run(row["fault"], options)
            print(json.dumps(rows[n]) if options.json else told(rows[n]), flush=True)
            if rows[n]["result"] != "BROKEN":
                print(f"FLAKY: {row['fault']} broke a promise once; find the race", file=sys.stderr, flush=True)
    count = {result: sum(row["result"] == result for row in rows) for result in ("held", "held, late", "BROKEN", "NOT RUN")}
    print(", ".join(f"{n} {result}" for result, n in count.items()), file=sys.stderr if options.json else sys.stdout)
    is_bad = count["BROKEN"] or count["held, late"] and not options.quick
    return 1 if is_bad or count["NOT RUN"] and os.geteuid() == 0 and not options.allow_missing else 0


if __name__ == "__main__":
    sys.exit(main())
