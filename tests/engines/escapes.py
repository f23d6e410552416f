"""The commands of the escape corpus in far sessions. tests/escapes runs all of it on this machine, and shows that the cases
get out where nothing holds them."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import need, processes, until

sys.path.append(str(Path(__file__).resolve().parents[1] / "escapes"))
from world import World, command_of, commands, is_true, snapshot  # noqa: E402

AT_ONCE = 3
SECONDS = 20
# As in docs/escapes.md: told by the audit, or nothing that the kernel decides.
ACCEPTED = {"prot-12": ["created", "created"], "more-03": ["host_exec"]}
# They must get out of a session with full access: one case for each kind of effect.
CONTROL = ("allow-01", "env-03", "prot-05", "prot-14", "more-04")
# Time in which a packet or a process would arrive.
ARRIVAL_S = 1.5


def violations(lab, engine, case, at, full_access):
    """Kinds of the effects that a case had."""
    world = World(at)
    try:
        world.shell(case.get("setup", ""))
        case = world.fill(case)
        must_not = case["must_not"]
        reply = lab.request("quack.session_new", path=f"{engine.on}:{world.values['WS']}")
        need(reply["ok"], str(reply))
        session = reply["data"]["session"]["id"]
        profile = "full-access" if full_access else case["profile"]
        reply = lab.request("quack.sandbox", sessionId=session, action="set", profile=profile)
        need(reply["ok"], str(reply))

        def call(command, seconds=SECONDS):
            reply = lab.request("quack.tool", sessionId=session, tool="bash", arguments=command, timeoutMs=seconds * 1000)
            return reply["data"]["text"] if reply["ok"] else str(reply)
        until("a far worker", lambda: "here-42" in call("echo here-$((40 + 2))"), 120)
        before = {predicate["path"]: snapshot(predicate["path"]) for predicate in must_not if "path" in predicate}
        facts = world.facts()
        text = call(command_of(case), max(1, case["args"].get("timeout", SECONDS)))
        ended = any(predicate.get("when") == "session_end" for predicate in must_not)
        if ended:
            lab.request("quack.session_delete", sessionId=session, force=True)
        if any(predicate["kind"] in ("net_hit", "proc_alive") for predicate in must_not):
            time.sleep(ARRIVAL_S)

        def lines(words):
            among = processes() if str(world.values["N"]) in words else engine.far()
            return [" ".join(process.argv) for process in among]
        found = [predicate["kind"] for predicate in must_not
                 if is_true(predicate, world, before, facts, text, lines)]
        if not ended:
            lab.request("quack.session_delete", sessionId=session, force=True)
        return found
    finally:
        world.end()


def escapes(lab, engine):
    """What is held on this machine is held there. A case with full access shows that its effect would be seen."""
    lab.works(lab.session(engine))

    def judge(job):
        case, full_access = job
        at = lab.root / "work" / f"{'full' if full_access else 'case'}-{case['id']}"
        return case["id"], violations(lab, engine, case, at, full_access)
    cases = commands()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        held = dict(pool.map(judge, [(case, False) for case in cases]))
        control = dict(pool.map(judge, [(case, True) for case in cases if case["id"] in CONTROL]))
    got_out = {name: kinds for name, kinds in held.items() if kinds}
    need(all(control[name] for name in CONTROL), f"held with full access: {control}")
    need(got_out == ACCEPTED, f"left: got out, right: accepted: {got_out} {ACCEPTED}")
    names = " ".join(name for name, kinds in held.items() if not kinds)
    return f"{len(held) - len(got_out)} held, accepted as on this machine: {' '.join(got_out)}; held: {names}"


CHECKS = {"escapes": escapes}
