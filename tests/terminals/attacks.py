"""Attacks on terminals that need minutes of load or many windows. The others have tests in Rust:

| attack | test |
|---|---|
| dropped sequences, split at every byte, with BEL, ST, CAN and C1, in UTF-8 | crates/terminal/tests/filter.rs, fuzz/fuzz_targets/terminal.rs, black_box/run_command/filtered.rs |
| 100 MB/s of output of 64 terminals, with a viewer that never reads | `load` here; one terminal: black_box/terminals/hostile.rs, viewers.rs |
| resizes and titles | black_box/terminals/viewers.rs (a_storm_of_sizes_ends_with_the_last_one), hostile.rs (a_flood_of_titles…), `run.py` (20 sizes) |
| 500×1,000 screens on 64 terminals | `screens` here; one: black_box/terminals/hostile.rs (the_largest_screen…) |
| answers to queries injected as input | black_box/terminals/hostile.rs (queries_are_answered_exactly_once…) |
| detach keys under kitty, modifyOtherKeys, caps lock and num lock | crates/terminal/tests/detach_key.rs, black_box/run_command/detaching.rs |
| TIOCSTI, and the terminal of another session | black_box/terminals/confined.rs |
| another terminal of the same session, a stolen controlling terminal | `steal` here |
| kill -9 of client, worker, proxy and daemon with vim open | `run.py` (kill-…) |
| hooks and logins in the state of agents | black_box/agents.rs |
| `xdg-open` | not built, so nothing is passed to the client |
| a recording over its limit | `recording` here; crates/tools/src/terminals/recording.rs |
| a 10 MB paste with an embedded end-of-paste | `paste` here; black_box/run_command/detaching.rs |
"""

import json
import socket
import time

from lab import Failure, is_running, marked, until

N_SESSIONS, N_TERMINALS = 16, 4
LOAD_S = 20
# Bounds that are far above the figures that are printed: a debug build has them too.
SUPERVISOR_KB = 512 * 1024
SCREEN_KB = 64 * 1024


class Wire:
    """One connection of a client."""

    def __init__(self, lab):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(str(lab.home / "state/daemon.sock"))
        self.lines = self.socket.makefile("rb")

    def request(self, method, **params):
        self.socket.sendall(json.dumps({"id": "1", "method": method, "params": params}).encode() + b"\n")
        while True:
            reply = json.loads(self.lines.readline() or b"{}")
            if reply.get("id") == "1":
                if not reply["ok"]:
                    raise Failure(f"{method}: {reply['error']}")
                return reply.get("data")
            if not reply:
                raise Failure(f"{method}: the connection was closed")


def fleet(lab, name, script, count=64, **size):
    """Starts a script on `count` terminals of 16 sessions. Returns their ids and the directories."""
    # Starts the daemon.
    lab.bash(lab.directory(f"{name}/first"), "true")
    wire, terminals, places = Wire(lab), [], []
    for n in range(N_SESSIONS):
        at = lab.directory(f"{name}/{n}")
        places.append(at)
        session = wire.request("quack.session_new", path=str(at), name=f"{name}-{n}")["session"]["id"]
        for _ in range(min(N_TERMINALS, count - len(terminals))):
            mark, value = lab.mark.split("=")
            started = wire.request("quack.run", sessionId=session, argv=["bash", "-c", script], env={mark: value}, **size)
            terminals.append((session, started["terminalId"]))
    return wire, terminals, places


def memory(lab):
    """Resident kilobytes of the supervisor, and the most of a worker."""
    ps = lab.ps()
    return ps["supervisor"]["rssKb"], max(row["rssKb"] for row in ps["workers"])


def stopped(lab, what):
    pids = [pid for row in lab.ps()["workers"] for pid in (row["pid"], row["monitorPid"])]
    lab.call("stop", "--yes")

    def left():
        return [pid for pid in [*marked(lab.mark), *pids] if is_running(pid)]
    until(lambda: f"nothing of {what} runs: {left()}", lambda: not left())


def load(lab, name):
    """63 terminals print without end, and the last one of 64 is used. Other sessions, `quack ps` and a window that reads remain usable."""
    # Each line has colors, and each block a title and a redraw.
    script = ("line=$(printf '\\e[38;5;%dmduck\\e[0m ' {1..20}); block=$(for ((n = 0; n < 500; n++)); do echo \"$line\"; done); "
              "size=${#block}; for ((n = 1; ; n++)); do printf '\\e]0;%d\\a\\e[H\\e[2J%s\\n' $n \"$block\"; "
              "echo $((n * size)) >count-$$; done")
    wire, terminals, places = fleet(lab, name, script, 63)
    deaf = Wire(lab)
    for session, terminal in terminals[:8]:
        deaf.request("quack.term_attach", sessionId=session, terminalId=terminal)

    def printed():
        counts = [int(file.read_text() or 0) for at in places for file in at.glob("count-*")]
        return sum(counts) if len(counts) == len(terminals) else 0

    first, begin = until("each terminal has printed", printed, 120), time.monotonic()
    window = lab.window(lab.directory(f"{name}/quiet"))
    window.command(f"{lab.quack} run --env PS1='in$ ' -- bash --noprofile --norc -i")
    window.shows("in$", 60)
    slowest = n = 0
    while time.monotonic() < begin + LOAD_S:
        n, asked = n + 1, time.monotonic()
        window.type(f"echo $(({n}+1000000))\n")
        window.shows(str(n + 1000000), 60)
        if "beside" not in lab.bash(places[0], "echo beside"):
            raise Failure("no command of a tool runs")
        slowest = max(slowest, time.monotonic() - asked)
    rate = (printed() - first) / (time.monotonic() - begin) / 1e6
    supervisor, worker = memory(lab)
    if supervisor > SUPERVISOR_KB:
        raise Failure(f"the supervisor has {supervisor} kB")
    window.keys("C-d")
    window.prompt(60)
    stopped(lab, name)
    return (f"{rate:.0f} MB/s, {n} keys and commands next to it, slowest {slowest:.1f} s, "
            f"supervisor {supervisor // 1024} MiB, largest worker {worker // 1024} MiB")


def screens(lab, name):
    """64 terminals with 500 rows and 1,000 columns, full of colors, on both screens."""
    script = ("for ((n = 0; n < 999; n++)); do line+=$'\\e'\"[38;5;$((n % 256))mx\"; done; "
              "full() { for ((n = 0; n < 499; n++)); do echo \"$line\"; done; }; "
              "full; printf '\\e[?1049h'; full; touch done-$$; exec sleep 1000")
    wire, terminals, places = fleet(lab, name, script, cols=1000, rows=500)
    until("the screens are full", lambda: sum(len(list(at.glob("done-*"))) for at in places) == len(terminals), 300)
    for session, terminal in terminals:
        wire.request("quack.term_attach", sessionId=session, terminalId=terminal)
    supervisor, worker = memory(lab)
    if supervisor > SUPERVISOR_KB or worker > N_TERMINALS * SCREEN_KB + SCREEN_KB:
        raise Failure(f"supervisor {supervisor} kB, largest worker {worker} kB")
    stopped(lab, name)
    return f"supervisor {supervisor // 1024} MiB, largest worker with {N_TERMINALS} of them {worker // 1024} MiB"


STEAL = """import fcntl, glob, os, termios
own = os.ttyname(0)
for path in sorted(glob.glob('/dev/pts/[0-9]*')):
    if path == own:
        continue
    tty = os.open(path, os.O_RDWR | os.O_NOCTTY)
    if os.fork() == 0:
        os.setsid()
        for name, request, argument in (('type', termios.TIOCSTI, b'x'), ('steal', termios.TIOCSCTTY, 1), ('take', termios.TIOCSCTTY, 0)):
            try:
                fcntl.ioctl(tty, request, argument)
                print(name, 'DONE')
            except OSError as error:
                print(name, 'refused', error.errno)
        os._exit(0)
    os.wait()
print('over')
"""


def steal(lab, name):
    """A program opens the terminal of another program of its session. It cannot type there, and cannot take the terminal
    away: Ctrl-C still reaches the program."""
    at = lab.directory(name)
    (at / "steal.py").write_text(STEAL)
    victim = lab.window(at)
    victim.command(f"{lab.quack} run --name {name} -- bash -c 'trap \"echo interrupted\" INT; echo ready; while :; do read -r x; done'")
    victim.shows("ready")
    thief = lab.window(at)
    thief.command(f"{lab.quack} run --in {name} -- bash -c 'python3 steal.py; exec cat'")
    thief.shows("over")
    if "DONE" in thief.text() or thief.text().count("refused") != 3:
        raise Failure(thief.text())
    victim.keys("C-c")
    victim.shows("interrupted")
    lab.call("delete", name, "--force", at=at)


def paste(lab, name):
    """A paste of 10 MB whose text ends the paste early and types a command. The program does not read. The key detaches
    at once, and the shell outside runs nothing of it."""
    at = lab.directory(name)
    window = lab.window(at)
    window.command(f"{lab.quack} run --name {name} -- bash -c 'stty raw -echo; printf \"\\e[?2004hready\"; sleep 1000'")
    window.shows("ready")
    text = lab.root / "pasted"
    text.write_bytes(b"\x1b[200~" + b"duck\r" * 1000 + b"\x1b[201~\rtouch pwned\r" + b"touch pwned\r" * 900_000 + b"\x1b[201~")
    lab.tmux("load-buffer", text)
    lab.tmux("paste-buffer", "-r", "-t", window.target)
    window.keys("C-\\")
    if code := window.prompt(60):
        raise Failure(f"code {code}")
    window.stty()
    if (at / "pwned").exists():
        raise Failure("the shell outside ran a part of the paste")
    lab.call("delete", name, "--force", at=at)


def recording(lab, name):
    """A program prints more than a recording may have. The recording ends whole, and the program continues."""
    at = lab.directory(name)
    shown = lab.call("run", "-d", "--record", "--name", name, "--json", "--", "bash", "-c",
                     "yes duck duck duck duck | head -c 90M; touch ended; exec sleep 1000", at=at)
    path = json.loads(shown)["recording"]
    until("the program has printed all", (at / "ended").exists, 300)
    size = 0
    with open(path, "rb") as lines:
        for line in lines:
            json.loads(line)
            size += len(line)
    lab.call("delete", name, "--force", at=at)
    if not 32 << 20 < size <= 64 << 20:
        raise Failure(f"{size} bytes")
    return f"{size >> 20} MiB"


CHECKS = {"steal": steal, "paste": paste, "recording": recording, "screens": screens, "load": load}
