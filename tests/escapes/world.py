"""The surroundings of one case of corpus.jsonl, and the effects that it must not have. For the programs that run commands
of the corpus elsewhere than tests/escapes/main.rs does: run.py here, and tests/engines/escapes.py."""

import json
import os
import secrets
import shutil
import socket
import subprocess
import threading
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus.jsonl")
# Kinds of effects that are not looked for: times, memory, and what only quackd decides.
UNSEEN = {"slow", "rss_mb_gt", "host_slow", "host_connect", "worker_crash", "accepted"}

WORLD = """set -e
mkdir -p ws ws-evil outside home/.ssh home/.aws home/.config/agentd run tmpx
for f in outside/secret.txt ws-evil/secret.txt home/.ssh/id_ed25519 home/.aws/credentials tmpx/out.log home/.bash_history; do
  echo {{CANARY}} >$f
done
echo orig >outside/config.txt; echo '# rc' >home/.bashrc; : >home/.gitconfig; echo a=1 >home/.config/agentd/config.toml
cd ws; echo 'hello notes' >notes.txt; echo '# readme' >README.md
git init -q -b main .; git config user.name a; git config user.email a@b; git add -A
git -c maintenance.auto=false commit -q -m i; rm -rf .git/hooks; mkdir .git/hooks"""


def commands():
    """The cases that are one command, do no harm where nothing holds them, and have an effect that is looked for."""
    cases = [json.loads(line) for line in CORPUS.read_text().splitlines()]
    return [case for case in cases if case["tool"] == "bash" and not {"skip", "only_confined", "only_limited"} & case.keys()
            and any(predicate["kind"] not in UNSEEN for predicate in case["must_not"])]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command_of(case):
    """The command line. A case with a terminal makes its own."""
    command = case["args"]["command"]
    if case["args"].get("pty"):
        quoted = command.replace("'", "'\\''")
        command = f"script -qec '{quoted}' /dev/null"
    return command


class World:
    """The files and the other processes of one case: a daemon with a secret, and sockets that record their callers."""

    def __init__(self, at):
        self.root, self.hits = at, set()
        at.mkdir(parents=True)
        self.values = {"ROOT": at, "WS": at / "ws", "OUT": at / "outside", "HOME": at / "home", "TMPX": at / "tmpx",
                       "WT": at / "ws/wt", "SOCK": at / "run/d.sock", "ABS": f"cx{at.name}", "RUNID": f"{at.name}-{os.getpid()}",
                       "FREE": free_port(), "N": f"7{secrets.randbelow(10**9):09}",
                       "CANARY": f"canary-{secrets.token_hex(8)}"}
        self.env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": str(at / "home"), "LANG": "C.UTF-8",
                    "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1"}
        self.shell(WORLD, check=True)
        self.sockets = [self.listen("tcp", socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
                        self.listen("unix", socket.AF_UNIX, socket.SOCK_STREAM, str(self.values["SOCK"])),
                        self.listen("abstract", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.values['ABS']}")]
        self.values["TCP"], self.values["UDP"] = self.sockets[0].getsockname()[1], free_port()
        env = {**self.env, "DAEMON_SECRET": self.values["CANARY"]}
        self.other = subprocess.Popen(["bash", "-c", "exec 9<outside/secret.txt; exec sleep 100000"], cwd=at, env=env,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.values["DPID"] = self.other.pid

    def listen(self, name, family, kind, address):
        listener = socket.socket(family, kind)
        listener.bind(address)
        listener.listen(16)

        def accept():
            try:
                while True:
                    caller, _ = listener.accept()
                    self.hits.add(name)
                    caller.close()
            except OSError:
                pass
        threading.Thread(target=accept, daemon=True).start()
        return listener

    def fill(self, of):
        """Replaces the placeholders in every text."""
        if isinstance(of, dict):
            return {key: self.fill(value) for key, value in of.items()}
        if isinstance(of, list):
            return [self.fill(value) for value in of]
        if isinstance(of, str):
            for key, value in self.values.items():
                of = of.replace(f"{{{{{key}}}}}", str(value))
        return of

    def shell(self, script, check=False):
        """Runs a script as the user, after or before the session."""
        subprocess.run(["timeout", "30", "bash", "-c", self.fill(script)], cwd=self.root, env=self.env, check=check,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def facts(self):
        """What another process could change of the daemon with the secret."""
        at = Path(f"/proc/{self.other.pid}")
        stat = (at / "stat").read_text().rpartition(")")[2].split()
        return {"oom_score_adj": (at / "oom_score_adj").read_text(), "limits": (at / "limits").read_text(), "nice": stat[16],
                "dead": stat[0] in "ZXTt"}

    def end(self):
        self.other.kill()
        self.other.wait()
        for listener in self.sockets:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        run_id = self.values["RUNID"]
        for place in ("/dev/shm", "/tmp", "/var/tmp"):
            Path(place, f"quackd-{run_id}").unlink(missing_ok=True)
        shutil.rmtree(self.root, ignore_errors=True)


def snapshot(path):
    path = Path(path)
    if not path.is_symlink() and not path.exists():
        return None
    found = path.lstat()
    return found.st_mode, found.st_mtime_ns, path.read_bytes() if path.is_file() else b""


def is_true(predicate, world, before, facts, text, lines):
    """Whether the forbidden effect is there. `lines` returns the command lines of processes that may be of the case."""
    path, words = predicate.get("path"), predicate.get("cmdline", "")
    now = snapshot(path) if path else None
    match predicate["kind"]:
        case "created":
            return before[path] is None and now is not None
        case "changed":
            return now != before[path]
        case "mode_changed":
            return (now or [0])[0] != (before[path] or [0])[0]
        case "file_lacks":
            return predicate["text"].encode() not in (now or (0, 0, b""))[2]
        case "output_has":
            return predicate["text"] in text
        case "output_lacks":
            return predicate["text"] not in text
        case "result_bytes_gt":
            return len(text) > predicate["value"]
        case "host_exec":
            world.shell(predicate["cmd"])
            return Path(path).exists()
        case "net_hit":
            return predicate["via"] in world.hits or predicate["via"] == "any" and bool(world.hits)
        case "daemon_attr_changed":
            return world.facts()[predicate["attr"]] != facts[predicate["attr"]]
        case "daemon_dead":
            return world.facts()["dead"]
        case "proc_alive":
            return any(words in line for line in lines(words))
        case kind if kind in UNSEEN:
            return False
        case kind:
            raise ValueError(f"unknown kind {kind}")
