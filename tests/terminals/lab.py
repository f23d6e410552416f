"""Windows of tmux, the quack under test, and what both leave behind: for the programs of this directory.

tmux is the terminal emulator: it renders the direct run and the run in quack, so that equal cells mean equal screens.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import uuid
from pathlib import Path

PATIENCE_S = 20
POLL_S = 0.05
# The prompt of the shell in each window has the exit code of the last command.
PROMPT = re.compile(r"(?:.*Killed)?outer (\d+)\$\s*$")
# Modes that a program can leave behind, and the place of the cursor.
FLAGS = ("cursor=#{cursor_flag} alternate=#{alternate_on} mouse=#{mouse_any_flag}#{mouse_sgr_flag} "
         "keypad=#{keypad_flag}#{keypad_cursor_flag} insert=#{insert_flag} origin=#{origin_flag} wrap=#{wrap_flag} "
         "region=#{scroll_region_upper}-#{scroll_region_lower}")
PLACE = "#{cursor_x},#{cursor_y}"


class Failure(Exception):
    """A promise that did not hold, with what was seen."""


class Report:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def line(self, good, name, text=""):
        self.passed += good
        self.failed += not good
        print(f"{'ok' if good else 'FAILED'} {name}{': ' + text if text else ''}", flush=True)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}", flush=True)

    def attempt(self, name, check, *arguments):
        """Runs a check, which returns a text to print. Returns whether it passed."""
        try:
            self.line(True, name, check(*arguments) or "")
        except (Failure, subprocess.SubprocessError, OSError) as error:
            self.line(False, name, str(error))
            return False
        return True

    def end(self):
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped")
        return 1 if self.failed else 0


def until(what, check, seconds=PATIENCE_S):
    """Polls until `check` returns something true, and returns it. `what` may be a function that describes the state."""
    end = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(POLL_S)


def missing(programs):
    """Programs that are not in PATH. Their Debian packages have the same names."""
    return sorted(program for program in programs if not shutil.which(program))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def marked(mark):
    """Processes with this text in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_running(entry.name):
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def styled(captured):
    """Rows as texts such as `{31;1}red{}`. tmux writes only the changes of a style, and those in several ways."""
    style, rows = {}, []
    for line in captured.split("\n"):
        row, shown = "", {}
        for codes, words in re.findall(r"(?:\x1b\[([\d;:]*)m|\x0e|\x0f)|([^\x1b\x0e\x0f]+|\x1b)", line):
            if words:
                row += "" if style == shown else "{" + ";".join(str(style[kind]) for kind in sorted(style)) + "}"
                row, shown = row + words, dict(style)
            else:
                change(style, codes.split(";"))
        rows.append(row)
    return rows


def change(style, codes):
    """Applies the codes of one SGR sequence of tmux."""
    codes = [int(code.split(":")[0] or 0) for code in codes]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style.clear()
        elif code in (38, 48, 58):
            n = 4 if codes[:1] == [2] else 2
            style[code], codes = f"{code};" + ";".join(map(str, codes[:n])), codes[n:]
        elif code in (39, 49, 59):
            style.pop(code - 1, None)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style[38] = code
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style[48] = code
        elif code == 22:
            style.pop(1, None), style.pop(2, None)
        elif 23 <= code <= 29:
            style.pop(code - 20, None)
        else:
            style[code] = code


class Lab:
    """A scratch directory with a daemon and a tmux server of its own."""

    def __init__(self, quack):
        self.quack = Path(quack).resolve()
        # The path of a socket has at most 107 bytes.
        self.root = Path(tempfile.mkdtemp(prefix="qt"))
        self.home = self.root / "home"
        self.home.mkdir()
        self.mark = f"TERMINALS_MARK={uuid.uuid4().hex}"
        rustup = os.environ.get("RUSTUP_HOME", os.path.expanduser("~/.rustup"))
        self.env = {"HOME": str(self.home), "RUBBER_DUCK_APP_SUPPORT": str(self.home / "state"), "RUSTUP_HOME": rustup,
                    "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TERM": "xterm-256color", "PS1": "outer $?$ ",
                    "SHELL": "/bin/bash", "HISTFILE": ""}
        self.windows = 0
        # The end of this program by a signal must clean up too.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        config = self.root / "tmux.conf"
        config.write_text('set -g default-terminal xterm-256color\nset -g status off\n'
                          'set -g prefix None\nset -s escape-time 0\nset -s exit-empty off\nset -g history-limit 2000\n')
        self.socket = self.root / "tmux.socket"
        self.tmux("-f", config, "new-session", "-d", "-s", "lab", "sleep infinity")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call("stop", "--yes")
        self.tmux("kill-server")
        for pid in marked(self.mark):
            kill(pid)
        shutil.rmtree(self.root, ignore_errors=True)

    def tmux(self, *argv):
        done = subprocess.run(["tmux", "-S", str(self.socket), *map(str, argv)], capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise Failure(f"tmux {argv[0]}: {done.stderr.strip()}")
        return done.stdout

    def call(self, *argv, at=None, seconds=120):
        """Output of a subcommand of quack."""
        done = subprocess.run([self.quack, *map(str, argv)], cwd=at or self.root, env=self.env, capture_output=True,
                              text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        return done.stdout + done.stderr

    def bash(self, at, command):
        """Runs a command as the tool of an agent does."""
        return self.call("tool", "bash", json.dumps({"command": command}), at=at)

    def ps(self):
        done = subprocess.run([self.quack, "ps", "--json"], cwd=self.root, env=self.env, capture_output=True, text=True,
                              timeout=60)
        return json.loads(done.stdout)

    def worker(self, session):
        """The row of a session's worker, by the name of the session."""
        return next(row for row in self.ps()["workers"] if row["sessionName"] == session)

    def directory(self, name):
        at = self.root / name
        at.mkdir(parents=True)
        subprocess.run(["git", "init", "-q", at], check=True)
        return at

    def window(self, at, cols=80, rows=24):
        return Window(self, at, cols, rows)


class Window:
    """A window of tmux with a shell, whose prompt is `outer CODE$`."""

    def __init__(self, lab, at, cols, rows):
        lab.windows += 1
        self.lab = lab
        self.name = f"w{lab.windows}"
        self.target = f"={self.name}:"
        variables = [f"{name}={value}" for name, value in lab.env.items()]
        lab.tmux("new-session", "-d", "-s", self.name, "-x", cols, "-y", rows, "-c", at, "env", "-i", *variables, "bash",
                 "--noprofile", "--norc", "-i")
        self.resize(cols, rows)
        self.prompt()

    def resize(self, cols, rows):
        """Resizes the window. tmux tells the programs later, so this waits for it."""
        self.lab.tmux("resize-window", "-t", self.target, "-x", cols, "-y", rows)
        until("tmux resizes the terminal", lambda: self.size() == (cols, rows))

    def size(self, new=None):
        """Size that the programs see. With `new`, sets it, which tmux does not notice."""
        fd = os.open(self.lab.tmux("display-message", "-p", "-t", self.target, "#{pane_tty}").strip(), os.O_RDWR | os.O_NOCTTY)
        try:
            if new:
                fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", new[1], new[0], 0, 0))
            return tuple(os.get_terminal_size(fd))
        finally:
            os.close(fd)

    def keys(self, *names):
        """Presses keys with names of tmux, such as Enter, C-z or Escape."""
        self.lab.tmux("send-keys", "-t", self.target, *names)

    def type(self, text):
        self.lab.tmux("send-keys", "-t", self.target, "-l", "--", text)

    def command(self, line):
        """Types a command line. The program begins at the upper left."""
        self.type(f"clear; {line}")
        self.keys("Enter")

    def text(self):
        return self.lab.tmux("capture-pane", "-p", "-t", self.target).rstrip("\n")

    def flags(self):
        return self.lab.tmux("display-message", "-p", "-t", self.target, FLAGS).strip()

    def cells(self):
        """Rows with their styles, then the modes and the place of the cursor."""
        rows = styled(self.lab.tmux("capture-pane", "-p", "-e", "-t", self.target).rstrip("\n"))
        return rows, self.lab.tmux("display-message", "-p", "-t", self.target, f"{PLACE} {FLAGS}").strip()

    def shows(self, part, seconds=PATIENCE_S):
        until(lambda: f"{part!r} on the screen:\n{self.text()}", lambda: part in self.text(), seconds)

    def prompt(self, seconds=PATIENCE_S):
        """Waits for the prompt of the shell in the row of the cursor. Returns the exit code in it."""
        def at_cursor():
            row = self.lab.tmux("display-message", "-p", "-t", self.target, "#{cursor_y}").strip()
            return PROMPT.match(self.lab.tmux("capture-pane", "-p", "-t", self.target, "-S", row, "-E", row))
        return int(until(lambda: f"the prompt:\n{self.text()}", at_cursor, seconds)[1])

    def stty(self):
        """Modes of the terminal, at a prompt."""
        at = self.lab.root / f"stty-{self.name}"
        at.unlink(missing_ok=True)
        self.type(f"stty -a >{at}.new; mv {at}.new {at}")
        self.keys("Enter")
        until(f"the modes of {self.name}", at.exists)
        return at.read_text()

    def shell(self):
        """Process id of the shell."""
        return int(self.lab.tmux("display-message", "-p", "-t", self.target, "#{pane_pid}"))

    def client(self):
        """Process id of the command that the shell runs in the foreground."""
        def child():
            return Path(f"/proc/{self.shell()}/task/{self.shell()}/children").read_text().split()
        return int(until("a child of the shell", child)[0])

    def close(self):
        """Closes the window while its programs run."""
        self.lab.tmux("kill-session", "-t", f"={self.name}")
