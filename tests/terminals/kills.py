"""kill -9 of each process of quack while vim is open in a window."""

import json
from pathlib import Path

from lab import Failure, is_running, kill, marked, until


def opened(lab, name, options=""):
    """vim in a session `name`, with its window and the modes before."""
    at = lab.directory(name)
    (at / "words").write_text("duck\n")
    window = lab.window(at)
    before = window.stty(), window.flags()
    vim = "vim -u NONE -i NONE -nN --cmd 'set mouse=a' words"
    window.command(f"{lab.quack} run --name {name} {options} --env {lab.mark}-{name} -- {vim}")
    window.shows("~")
    window.type("otyped")
    window.shows("typed")
    return at, window, before


def gone(lab, name, pids):
    """Waits until no process of the session, and none of `pids`, runs."""
    def left():
        return [pid for pid in [*marked(f"{lab.mark}-{name}"), *pids] if is_running(pid)]
    until(lambda: f"nothing runs: {left()}", lambda: not left())


def restored(window, before, what):
    if (now := (window.stty(), window.flags())) != before:
        raise Failure(f"{what} left other modes:\n{before}\n{now}")


def client(lab, name):
    """The guard of a killed client restores the window, and the program continues."""
    at, window, before = opened(lab, name)
    kill(window.client())
    until(lambda: f"a killed client leaves {window.flags()}", lambda: window.flags() == before[1])
    # The shell may have written its prompt before the guard has left the alternate screen.
    window.keys("Enter")
    if (code := window.prompt()) != 137:
        raise Failure(f"code {code}")
    restored(window, before, "a killed client")
    window.command(f"{lab.quack} attach {name}")
    window.shows("typed")
    window.keys("Escape")
    window.type(":wq")
    window.keys("Enter")
    if (code := window.prompt()) != 0 or "typed" not in (at / "words").read_text():
        raise Failure(f"after attach: code {code}\n{window.text()}")
    restored(window, before, "the next attach")
    gone(lab, name, [])


def worker(lab, name):
    _, window, before = opened(lab, name)
    row = lab.worker(name)
    kill(row["pid"])
    ended(window, before, 1, "Worker died", "a killed worker")
    gone(lab, name, [row["pid"], row["monitorPid"]])
    return told(lab, window, name)


def daemon(lab, name):
    _, window, before = opened(lab, name)
    row, supervisor = lab.worker(name), lab.ps()["supervisor"]["pid"]
    kill(supervisor)
    ended(window, before, 3, "daemon", "a killed daemon")
    gone(lab, name, [row["pid"], row["monitorPid"], supervisor])
    if "(vim -u" not in (text := told(lab, window, name)):
        raise Failure(f"the next daemon does not name the program: {text}")
    return text


def ended(window, before, code, word, what):
    if (seen := window.prompt()) != code or word not in window.text():
        raise Failure(f"code {seen}, expected {code} and {word!r}:\n{window.text()}")
    restored(window, before, what)


def told(lab, window, name):
    """The next attach fails with the reason."""
    window.command(f"{lab.quack} attach {name}")
    if not (code := window.prompt()):
        raise Failure(f"attach after the death: code {code}\n{window.text()}")
    return " ".join(window.text().split("\n")[:-1])


def proxy(lab, name):
    """The program of a session with network by host continues without its proxy."""
    _, window, before = opened(lab, name, "--allow registry.example.org")
    row = lab.worker(name)
    supervisor = lab.ps()["supervisor"]["pid"]
    # The proxy starts with the first connection.
    lab.call("tool", "--session", name, "bash", json.dumps({"command": "curl -sm 5 http://registry.example.org"}))
    pids = [pid for pid in children(supervisor) if Path(f"/proc/{pid}/comm").read_text() == "quack-proxy\n"]
    if len(pids) != 1:
        raise Failure(f"{len(pids)} proxies")
    kill(pids[0])
    gone(lab, "none", pids)
    window.type("still")
    window.shows("typedstill")
    window.keys("Escape")
    window.type(":q!")
    window.keys("Enter")
    if code := window.prompt():
        raise Failure(f"code {code}\n{window.text()}")
    restored(window, before, "the end")
    if lab.worker(name)["pid"] != row["pid"]:
        raise Failure("another worker")
    gone(lab, name, [])


def children(pid):
    tasks = [task for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


CHECKS = {"kill-client": client, "kill-worker": worker, "kill-proxy": proxy, "kill-daemon": daemon}
