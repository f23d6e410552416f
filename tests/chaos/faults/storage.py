"""Faults of the state directory and its disk, and of the files in it."""

import fcntl
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from daemon import FILES, METADATA, PATIENCE_S, TESTS, Failure, Gone, Load, NotRun, Refused, need, until
from faults.processes import listed_again

# System calls of a save under all their names, as in tests/black_box/durability/system_calls.rs.
CALLS = ("openat,?openat2", "write,pwrite64,writev", "fsync,fdatasync", "renameat2", "?rename,?renameat")
# EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN, and their flag that flushes no log.
SHUTDOWN, NO_FLUSH = 0x8004587D, 2


class Strace:
    """strace on a process, with its log. `thread` names one thread of it."""

    def __init__(self, daemon, calls, inject, thread=None, paths=True):
        if not shutil.which("strace"):
            raise NotRun("no strace")
        self.log = daemon.root / "strace.log"
        words = ["strace", "-f", "-qq", "-o", self.log, "-e", f"trace={calls}", "-e", f"inject={calls}:{inject}"]
        if paths:
            for name in FILES:
                for suffix in ("", ".tmp", ".bak", ".bak.tmp", ".theirs"):
                    words += ["-P", daemon.app / (name + suffix)]
            words += ["-P", daemon.app]
        pid = daemon.pid
        if thread:
            # Only that thread: strace that follows a child which is just starting can block it.
            words.remove("-f")
            pid = next(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()
                       if (task / "comm").read_text() == thread + "\n")
        words.remove("-qq")
        self.child = subprocess.Popen([str(word) for word in [*words, "-p", pid]], stderr=subprocess.PIPE, text=True)
        line = self.child.stderr.readline()
        if "attached" not in line:
            self.child.wait()
            raise NotRun(f"strace: {line.strip()}")

    def end(self):
        """Detaches, and returns the log."""
        self.child.send_signal(signal.SIGINT)
        self.child.stderr.close()
        self.child.wait(PATIENCE_S)
        return self.log.read_text(errors="replace")


def attach(client, daemon, name, **more):
    """Attaches a fresh directory. Returns the id of its session."""
    return client.request("attach", path=str(daemon.workspace(name)), **more)["session"]["id"]


def kill_during_saves(stage):
    """The daemon is killed while clients change sessions."""
    daemon, n_acknowledged = stage.daemon(load=2), 0
    for n in range(stage.n(12, 500)):
        heard, threads = [], []

        def attaches(k, n=n, heard=heard):
            client = daemon.client()
            try:
                for m in range(10_000):
                    heard.append(attach(client, daemon, f"r{n}/{k}/{m}", safeMode=m % 2 == 0))
            except Gone:
                client.close()
        for k in range(3):
            threads.append(threading.Thread(target=attaches, args=(k,), daemon=True))
            threads[-1].start()
        until("an acknowledged attach", lambda: heard, PATIENCE_S, 0.001)
        end = time.monotonic() + stage.random.uniform(0.0005, 0.02)
        while time.monotonic() < end:
            pass
        daemon.send(signal.SIGKILL)
        for thread in threads:
            thread.join(PATIENCE_S)
        stage.sessions |= set(heard)
        n_acknowledged += len(heard)
        listed_again(stage, daemon)
        missing = stage.sessions - daemon.on_disk()
        stage.check(not missing, f"round {n}: acknowledged and not on disk: {missing}")
        if len(stage.sessions) > 2000:
            # At most 10,000 sessions are kept.
            for session in sorted(stage.sessions - set(stage.load.ids.values())):
                daemon.request("quack.session_delete", sessionId=session)
                stage.sessions.discard(session)
        stage.fired(f"waitpid: signal 9; {n_acknowledged} acknowledged changes")


def system_calls(stage):
    """Each system call of a save fails, or is the last one of the daemon."""
    daemon = stage.daemon(load=1)
    client, n_killed, n_refused = daemon.client(), 0, 0
    for n in range(2):
        stage.sessions.add(attach(client, daemon, f"first-{n}", safeMode=True))
    cells = [(calls, k, fault) for calls in CALLS for k in range(1, 5)
             for fault in ("signal=KILL", "error=EIO", "error=ENOSPC", "error=EACCES")]
    if stage.quick:
        cells = stage.random.sample(cells, 14)
    for n, (calls, k, fault) in enumerate(cells):
        strace = Strace(daemon, calls, f"{fault}:when={k}", thread="store")
        before = daemon.listed()
        try:
            stage.sessions.add(attach(client, daemon, f"cell-{n}", safeMode=True))
            answer = ""
        except Refused as error:
            answer = str(error)
        except Gone:
            answer = None
        if answer is None:
            strace.child.wait(PATIENCE_S)
            client.close()
            listed_again(stage, daemon)
            client, n_killed = daemon.client(), n_killed + 1
            stage.fired("waitpid: signal 9")
            continue
        is_hit = "(INJECTED)" in strace.end()
        if answer:
            n_refused += 1
            stage.check(is_hit and re.match("Disk is full|Cannot write|No permission to write", answer), f"{calls} {k}: {answer}")
            stage.check(daemon.listed() == before, f"{calls} {k} {fault}: refused, and memory changed")
        if is_hit:
            stage.fired("")
        stage.sessions.add(attach(client, daemon, f"cell-{n}", safeMode=True))
        missing = stage.sessions - daemon.on_disk()
        stage.check(not missing, f"{calls} {k} {fault}: not on disk: {missing}")
        left = [path.name for path in daemon.app.iterdir() if path.name.endswith(".tmp")]
        stage.check(not left, f"{calls} {k} {fault}: left {left}")
    stage.proof = f"INJECTED in the log of strace, or waitpid: signal 9 ({n_killed}); {n_refused} refused, {len(cells)} cells"
    client.close()


def mounted(stage, *words):
    """A daemon whose state directory is a mount, not started."""
    if os.geteuid() != 0:
        raise NotRun("no root")
    daemon = stage.daemon(start=False)
    config = (daemon.app / "quackd.toml").read_text()
    mount(daemon, *words)
    daemon.app.chmod(0o700)
    (daemon.app / "quackd.toml").write_text(config)
    return daemon


def mount(daemon, *words):
    done = subprocess.run(["mount", *map(str, words), daemon.app], capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"mount {' '.join(map(str, words))}: {done.stderr.strip()}")
    daemon.mounts.append(daemon.app)


def unmount(daemon):
    """Namespaces of processes that just ended hold the mount for a moment."""
    until("umount", lambda: subprocess.run(["umount", daemon.app], stderr=subprocess.DEVNULL).returncode == 0, PATIENCE_S)


def stop_file_system(at):
    """Stops the file system of a directory without a flush of its journal. Returns the error of a write after it."""
    descriptor = os.open(at, os.O_RDONLY)
    fcntl.ioctl(descriptor, SHUTDOWN, NO_FLUSH.to_bytes(4, "little"))
    os.close(descriptor)
    try:
        (at / "probe").write_text("x")
    except OSError as error:
        return error.strerror
    raise Failure("the file system still takes writes")


def power_cut(stage):
    """The file system of the state directory stops, without a flush of its journal, and the daemon is killed."""
    if not shutil.which("mkfs.ext4"):
        raise NotRun("no mkfs.ext4")
    daemon = stage.daemon(start=False)
    disk, config = daemon.root / "disk", (daemon.app / "quackd.toml").read_text()
    with open(disk, "wb") as file:
        file.truncate(200 << 20)
    kinds = [kind for kind in ("ext4", "xfs") if shutil.which(f"mkfs.{kind}")]
    if "xfs" in kinds:
        os.truncate(disk, 400 << 20)
    for kind in kinds:
        subprocess.run([f"mkfs.{kind}", "-q", *(["-F"] if kind == "ext4" else ["-f"]), disk], check=True)
        mount(daemon, "-o", "loop", disk)
        daemon.app.chmod(0o700)
        (daemon.app / "quackd.toml").write_text(config)
        # The configuration survives the power cut.
        os.sync()
        stage.sessions.clear()
        for n in range(stage.n(2, 20)):
            stage.took("start after a power cut", daemon.start())
            missing = stage.sessions - daemon.listed()
            stage.check(not missing, f"{kind}: lost with the power: {missing}")
            client = daemon.client()
            for k in range(stage.random.randrange(5, 60)):
                stage.sessions.add(attach(client, daemon, f"{kind}-{n}/{k}", safeMode=k % 2 == 0))
            stage.fired(f"a write: {stop_file_system(daemon.app)}; {', '.join(kinds)}")
            left = daemon.ours()
            need(daemon.end() == -signal.SIGKILL, "the daemon did not die")
            client.close()
            daemon.nothing_left(left)
            unmount(daemon)
            subprocess.run(["mount", "-o", "loop", disk, daemon.app], check=True)
        daemon.start()
        missing = stage.sessions - daemon.listed()
        stage.check(not missing, f"{kind}: lost with the power: {missing}")
        stage.check("recovered" not in daemon.log(), f"{kind}: a start had to repair files")
        if kind != kinds[-1]:
            daemon.end(signal.SIGTERM)
            unmount(daemon)
            daemon.mounts.pop()


def full_disk(stage):
    """The disk of the state directory fills, and has space again."""
    daemon = mounted(stage, "-t", "tmpfs", "-o", "size=2m", "quackd-chaos")
    daemon.start()
    stage.load = Load(daemon)
    stage.sessions |= set(stage.load.ids.values())
    client = daemon.client()
    for n in range(stage.n(3, 30)):
        stage.sessions.add(attach(client, daemon, f"kept-{n}", safeMode=True))
        before, fill = daemon.listed(), daemon.app / "fill"
        with open(fill, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError as error:
                full = error.strerror
        for k in range(2):
            try:
                # A save may reuse what another one has just freed.
                stage.sessions.add(attach(client, daemon, f"full-{n}-{k}", safeMode=k == 0))
            except Refused as error:
                stage.check(str(error).startswith("Disk is full: "), str(error))
                stage.check(daemon.listed() == before, "refused, and memory changed")
                stage.fired(f"a write: {full}; attach: Disk is full")
            before = daemon.listed()
            stage.check(daemon.listed() <= daemon.on_disk(), "memory and disk differ")
        stage.load.more()
        fill.unlink()
        stage.sessions.add(attach(client, daemon, f"full-{n}-0", safeMode=True))
    client.close()


def file_size(stage):
    """The daemon may not let a file grow."""
    daemon = stage.daemon()
    client = daemon.client()
    for n in range(stage.n(3, 50)):
        stage.sessions.add(attach(client, daemon, f"kept-{n}", safeMode=True))
        before = daemon.listed()
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
        try:
            attach(client, daemon, f"large-{n}", safeMode=True)
            stage.check(False, "an attach was acknowledged without room for it")
        except Refused as error:
            stage.check(str(error).startswith("Disk is full: "), str(error))
            stage.fired(f"refused: {str(error).rpartition(': ')[2]}")
        stage.check(daemon.listed() == before, "refused, and memory changed")
        stage.load.more(1)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        stage.sessions.add(attach(client, daemon, f"large-{n}", safeMode=True))
    client.close()


def slow_disk(stage):
    """Each flush takes 2 s: other clients do not wait for it."""
    daemon = stage.daemon()
    client = daemon.client()
    stage.sessions.add(attach(client, daemon, "before"))
    for n in range(stage.n(1, 5)):
        strace = Strace(daemon, "fsync,fdatasync", f"delay_enter={2 if not stage.quick else 1}s", thread="store")
        requests = [client.send("attach", path=str(daemon.workspace(f"slow-{n}-{k}")), safeMode=True) for k in range(20)]
        stage.load.longest_ping = 0
        with daemon.client() as other:
            longest = 0
            while not any(number in client.replies for number in requests):
                before = time.monotonic()
                other.request("ping")
                longest = max(longest, time.monotonic() - before)
                client.read(0.02)
        stage.took("ping during a flush", longest, 0.1)
        for number in requests:
            stage.sessions.add(client.receive(number)["session"]["id"])
        n_delayed = strace.end().count("(DELAYED)")
        stage.check(2 <= n_delayed < len(requests), f"{n_delayed} flushes for {len(requests)} changes")
        stage.fired(f"{n_delayed} DELAYED in the log of strace for {len(requests)} changes", n_delayed)
    client.close()


def spoils(good):
    """Contents and things in the place of a good file. A function makes what is no content."""
    def fifo(path):
        os.mkfifo(path)

    def loop(path):
        path.symlink_to(path.name)

    def large(path):
        with open(path, "wb") as file:
            file.truncate(100_000_000)
    made = {"empty": b"", "one byte": b"{", "null": b"null", "object": b"{}", "list": b"[]", "garbage": good + b"garbage",
            "zeros": bytes(len(good)), "directory": Path.mkdir, "fifo": fifo, "loop": loop, "large": large}
    made |= {f"prefix of {n}": good[:n] for n in range(2, len(good) - 2, max(1, len(good) // 40))}
    for n in range(0, len(good), max(1, len(good) // 40)):
        made[f"bit of byte {n}"] = good[:n] + bytes([good[n] ^ 4]) + good[n + 1:]
    return made


def bad_files(stage):
    """The metadata or the state is cut off, damaged, no file, or of a newer version."""
    daemon = stage.daemon(load=0)
    client = daemon.client()
    for n in range(3):
        stage.sessions.add(attach(client, daemon, f"s{n}", safeMode=n == 0))
    client.close()
    daemon.end()
    generations = {name: (daemon.app / name).read_bytes() for file in FILES for name in (file, file + ".bak")}
    cases = [(file, what, spoiled) for file in FILES for what, spoiled in spoils(generations[file]).items()]
    if stage.quick:
        cases = [*stage.random.sample(cases, 8), *(case for case in cases if case[1] in ("fifo", "directory"))]
    for file, what, spoiled in cases:
        for path in daemon.app.iterdir():
            if path.name.startswith(FILES):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name, data in generations.items():
            (daemon.app / name).write_bytes(data)
        path = daemon.app / file
        path.unlink()
        spoiled(path) if callable(spoiled) else path.write_bytes(spoiled)
        try:
            stage.took("start", daemon.start())
            # A flipped bit may be another valid text, such as another id.
            listed = daemon.listed()
            missing = stage.sessions - listed
            stage.check(not missing or what.startswith("bit"), f"{file}: {what}: lost {missing}")
            stage.check(len(listed) >= 3, f"{file}: {what}: {len(listed)} sessions")
            stage.fired(f"{len(cases)} contents of {len(FILES)} files, no session lost")
        except Failure as error:
            stage.broken.append(f"{file}: {what}: {error}")
        if daemon.child.poll() is None:
            daemon.end()
    for name, data in generations.items():
        path = daemon.app / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
    newer = b'{"version":999,"workspaces":{},"sessions":[],"future":true}'
    (daemon.app / METADATA).write_bytes(newer)
    daemon.start()
    with daemon.client() as client:
        try:
            attach(client, daemon, "new")
            stage.check(False, "a file of a newer version was changed")
        except Refused as error:
            stage.check("newer" in str(error), str(error))
    daemon.end(signal.SIGTERM)
    stage.check((daemon.app / METADATA).read_bytes() == newer, "a file of a newer version was overwritten")
    stage.fired(stage.proof)
    (daemon.app / METADATA).write_bytes(generations[METADATA])
    daemon.start()


def two_writers(stage):
    """Another program replaces the metadata every 10 ms, while clients make sessions and the daemon is killed."""
    daemon = stage.daemon()
    for n in range(stage.n(2, 10)):
        writer = subprocess.Popen(["python3", TESTS / "fixtures/second_writer.py", daemon.app / METADATA, "10", "2"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # Its first session is there, however slow the machine is.
        made = set(writer.stdout.readline().split())
        client, began = daemon.client(), time.monotonic()
        for k in range(100_000):
            if time.monotonic() - began > stage.n(2, 6):
                break
            stage.sessions.add(attach(client, daemon, f"w{n}/{k}", safeMode=k % 2 == 0))
        client.close()
        if n % 2:
            daemon.send(signal.SIGKILL)
            listed_again(stage, daemon)
        writer.stdin.close()
        made |= set(writer.stdout.read().split())
        writer.wait(PATIENCE_S)
        stage.sessions |= made
        stage.check(made, "the other program wrote nothing")
        until(lambda: f"sessions of the other program: {made - daemon.listed()}", lambda: made <= daemon.listed(), PATIENCE_S)
        stage.fired(f"the other program printed {len(made)} sessions, {k} attaches", len(made))


FAULTS = {
    "F-01": (kill_during_saves, "P-10"),
    "F-02": (system_calls, "P-06, P-10"),
    "F-03": (power_cut, "P-10"),
    "F-04": (full_disk, "P-06"),
    "F-05": (file_size, "P-06"),
    "F-15": (slow_disk, "P-06"),
    "F-24": (bad_files, "P-11"),
    "F-25": (two_writers, "P-12"),
}
