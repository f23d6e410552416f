#!/usr/bin/env python3
"""Runs the commands of the escape corpus in another sandbox, and prints a table: `run.py --sandbox bwrap,codex [--json]`.

An adapter in adapters/ has three names: `version()`, `command(workspace, state, read_only, line)`, which returns the argv
that runs a command line in the sandbox and variables for it, and `OUTSIDE`, cases that the sandbox says it does not hold.
The control without a sandbox always runs. As root the cases run as an ordinary user. docs/escapes.md has results."""

import argparse
import importlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from world import World, command_of, commands, is_true, snapshot

ADAPTERS = Path(__file__).with_name("adapters")
USER = 60_999
AT_ONCE = 4
SECONDS = 20
# Time in which a packet or a process would arrive.
ARRIVAL_S = 1.5
MAX_OUTPUT = 4 << 20
# What a program that runs commands decides about their output, and a sandbox does not.
OUTPUT = {"result_bytes_gt", "output_lacks"}


def read_some(pipe, into):
    """Reads to the end and keeps the beginning."""
    while piece := pipe.read1(1 << 16):
        if len(into) < MAX_OUTPUT:
            into += piece


def run(argv, world, env, seconds):
    """Runs a command to its end or its deadline, then ends its group. Returns its output."""
    env = {**world.env, **env, "DAEMON_SECRET": world.values["CANARY"], "SSH_AUTH_SOCK": str(world.values["SOCK"])}
    child = subprocess.Popen(argv, cwd=world.values["WS"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    output = bytearray()
    reader = threading.Thread(target=read_some, args=(child.stdout, output), daemon=True)
    reader.start()
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()
    reader.join(ARRIVAL_S)
    return output.decode(errors="replace")


def processes(marks):
    """The command lines by process of a case: each has one of its marks in the arguments or the environment."""
    found = {}
    for at in Path("/proc").glob("[0-9]*"):
        try:
            line = (at / "cmdline").read_bytes()
            text = line + (at / "environ").read_bytes()
        except OSError:
            continue
        if int(at.name) != os.getpid() and any(mark.encode() in text for mark in marks):
            found[int(at.name)] = line.replace(b"\0", b" ").decode(errors="replace")
    return found


def effects(adapter, case, at):
    """Kinds of the forbidden effects that a case had in this sandbox."""
    world = World(at)
    marks = [str(at), world.values["N"]]
    try:
        state = at / "state"
        state.mkdir()
        world.shell(case.get("setup", ""))
        case = world.fill(case)
        must_not = [predicate for predicate in case["must_not"] if predicate["kind"] not in OUTPUT]
        read_only = case["profile"] == "read-only"

        def call(line, seconds):
            argv, env = adapter.command(str(world.values["WS"]), str(state), read_only, line)
            return run(argv, world, env, seconds)
        probe = call("echo here-$((40 + 2)); cat notes.txt", SECONDS)
        if "here-42" not in probe or "hello notes" not in probe:
            raise RuntimeError(f"the sandbox runs nothing: {probe[-500:]}")
        before = {predicate["path"]: snapshot(predicate["path"]) for predicate in must_not if "path" in predicate}
        facts = world.facts()
        text = call(command_of(case), max(1, case["args"].get("timeout", SECONDS)))
        if any(predicate["kind"] in ("net_hit", "proc_alive") for predicate in must_not):
            time.sleep(ARRIVAL_S)
        return [predicate["kind"] for predicate in must_not
                if is_true(predicate, world, before, facts, text, lambda words: processes(marks).values())]
    finally:
        for process in processes(marks):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        world.end()


def verdict(adapter, case, at):
    try:
        return effects(adapter, case, at)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        return f"broken: {error}"


def show(of, case, adapter):
    text = of if isinstance(of, str) else "escapes: " + ", ".join(sorted(set(of))) if of else "held"
    outside = of and adapter.OUTSIDE.get(case["id"])
    return f"{text} (not promised: {outside})" if outside else text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in ADAPTERS.glob("*.py") if path.stem != "none")
    parser.add_argument("--sandbox", required=True, help=f"names with commas between, of {', '.join(names)}")
    parser.add_argument("--json", action="store_true", help="print an object instead of a table")
    parser.add_argument("--escaped", action="store_true", help="print only rows where a case escapes from a sandbox")
    parser.add_argument("--only", default="", help="ids of cases with commas between")
    options = parser.parse_args()
    sys.path.append(str(ADAPTERS))
    adapters = {name: importlib.import_module(name) for name in ["none", *options.sandbox.split(",")]}
    versions = {name: adapter.version() for name, adapter in adapters.items()}
    only = set(filter(None, options.only.split(",")))
    # Each has an effect that a sandbox could prevent, and not only the program around it. No argument has a NUL.
    cases = [case for case in commands() if (not only or case["id"] in only) and "\0" not in case["args"]["command"]
             and any(predicate["kind"] not in OUTPUT for predicate in case["must_not"])]
    # Not in /tmp, where some sandboxes let commands write.
    base = Path(tempfile.mkdtemp(prefix="escapes", dir="/var/tmp"))
    if os.geteuid() == 0:
        os.chown(base, USER, USER)
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)
    jobs = [(name, case) for case in cases for name in adapters]
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = pool.map(lambda job: verdict(adapters[job[0]], job[1], base / f"{job[0]}-{job[1]['id']}"), jobs)
            found = dict(zip([(name, case["id"]) for name, case in jobs], done))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if options.json:
        rows = [{"id": case["id"], "class": case["class"], **{name: found[name, case["id"]] for name in adapters}}
                for case in cases]
        print(json.dumps({"versions": versions, "kernel": platform.release(), "cases": rows}, indent=1))
        return
    print("| case | class | " + " | ".join(versions.values()) + " |\n" + "|---" * (2 + len(adapters)) + "|")
    sandboxes = list(adapters)[1:]
    shown = [case for case in cases if not options.escaped or any(found[name, case["id"]] for name in sandboxes)]
    for case in shown:
        cells = [show(found[name, case["id"]], case, adapter) for name, adapter in adapters.items()]
        print(f"| {case['id']} | {case['class']} | {' | '.join(cells)} |")
    armed = [case["id"] for case in cases if found["none", case["id"]]]
    for name in adapters:
        kinds = Counter("broken" if isinstance(found[name, id], str) else "escapes" if found[name, id] else "held"
                        for id in armed)
        print(f"\n{name}: of {len(armed)} armed cases {dict(kinds)}", end="")
    print()


if __name__ == "__main__":
    main()
