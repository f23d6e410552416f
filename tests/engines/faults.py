"""Far sides that do not start, or misbehave, and targets that attack: each has one clear error, and the daemon serves on."""

import json
import re
import subprocess

from engines import pipe_row
from lab import Engine, need, until

READY = '{"proto":1,"version":"%s","received":0}'
# Characters that a terminal obeys.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def version(lab):
    return re.search(r"\d+\.\d+\.\d+\S*", lab.call("--version"))[0]


def odd(lab, name, script, **more):
    """An engine of a far side that this script is."""
    engine = Engine(lab, name, name, pipe_row(lab, script, **more))
    lab.configure()
    return engine


def one_error(lab, engine, *parts, at=None, timeout="8s"):
    """A call of a new session has one error with these parts, and the daemon serves on."""
    session = lab.session(engine, at)
    pid = lab.daemon()
    text = lab.bash(session, "echo answered", timeout=timeout)
    need("answered" not in text and text.count("Error: ") == 1 and len(text) < 2000, text)
    need(not CONTROL.search(text.replace("\n", "")), f"control characters: {text!r}")
    for part in parts:
        need(re.search(part, text), f"no {part!r} in: {text}")
    need(lab.daemon() == pid, "another daemon")
    lab.call("delete", session, "--yes")
    return text.strip()[:200]


def other_version(lab):
    engine = odd(lab, "newer", f"echo 'quackd: ready {READY % '9.9.9'}'; cat >/dev/null")
    return one_error(lab, engine, r"9\.9\.9", re.escape(version(lab)))


def other_protocol(lab):
    ready = (READY % version(lab)).replace('"proto":1', '"proto":77')
    return one_error(lab, odd(lab, "protocol", f"echo 'quackd: ready {ready}'; cat >/dev/null"), "77")


def told_error(lab):
    return one_error(lab, odd(lab, "told", "echo 'quackd: error no duck here'; cat >/dev/null"), "no duck here")


def words_of_client(lab):
    """The last words of the client are the reason, without control characters."""
    script = "printf 'ssh: connect to host duck: \\033[31mNo route\\007\\n' >&2; exit 255"
    return one_error(lab, odd(lab, "words", script), "No route")


def long_words(lab):
    return one_error(lab, odd(lab, "long", "head -c 50000000 /dev/zero | tr '\\0' x >&2; exit 1"), "link to")


def silent(lab):
    """A far side that never becomes ready."""
    return one_error(lab, odd(lab, "silent", "exec sleep 6126"), "", timeout="25s")


def small_noise(lab):
    engine = odd(lab, "banner", 'yes "welcome to quackd: the duck" | head -c 5000; echo; exec "$@"')
    session = lab.session(engine)
    lab.works(session)


def open_noise(lab):
    """The text of a login script may have no end of line, before a program that is there and before one that is sent."""
    for program in (str(lab.quack), "send"):
        engine = odd(lab, "prompt", "printf 'Last login: today'; exec \"$@\"", program=program)
        lab.works(lab.session(engine))


def large_noise(lab):
    engine = odd(lab, "flood", 'yes "welcome" | head -c 1000000; echo; exec "$@"')
    return one_error(lab, engine)


def endless_noise(lab):
    return one_error(lab, odd(lab, "endless", "exec cat /dev/zero"))


def packets(lab):
    """Packets that break the protocol, after a correct handshake."""
    ready = f"echo 'quackd: ready {READY % version(lab)}'; read -r line; "
    frame = json.dumps({"link": {"lost": {"reason": "forged"}}}, separators=(",", ":"))
    hostile = {
        "kind": "printf '\\011\\000\\000\\000\\000'",
        "size": "printf '\\000\\177\\377\\377\\377'; cat /dev/zero",
        "acknowledged": "printf '\\001\\000\\000\\000\\010\\177\\000\\000\\000\\000\\000\\000\\000'",
        "short": "printf '\\001\\000\\000\\000\\001\\000'",
        "end": "printf '\\003\\000\\000\\000\\004true'",
        "garbage": "head -c 100000 /dev/urandom",
        # A frame of the link process itself, in a correct packet: 1 byte, a length, a frame with a length.
        "report": f"printf '\\000\\000\\000\\000\\{len(frame) + 4:03o}\\000\\000\\000\\{len(frame):03o}%s' '{frame}'",
    }
    seen = []
    for name, script in hostile.items():
        text = one_error(lab, odd(lab, f"packet-{name}", f"{ready}{script}; exec cat >/dev/null"))
        need("forged" not in text, f"a frame of the far side was obeyed: {text}")
        seen.append(name)
    return ", ".join(seen)


def unknown_engine(lab):
    done = lab.run("new", "--on", "nosuch:host", "/w", text=True)
    need(done.returncode != 0 and "nosuch" in done.stderr, str(done))


def missing_program(lab):
    lab.engines["gone"] = Engine(lab, "gone", "gone", {**pipe_row(lab, ""), "start": ["/nosuch/client", "{command}"]})
    lab.configure()
    return one_error(lab, lab.engines["gone"], "/nosuch/client")


def missing_workspace(lab, engine):
    return one_error(lab, engine, "/nosuch/workspace", at="/nosuch/workspace")


def refused_workspace(lab, engine):
    """A directory of the system is refused there as here."""
    done = lab.run("new", "--on", engine.on, "--name", "etc", "/etc", text=True)
    text = done.stderr
    if done.returncode == 0:
        text = lab.bash("etc", "echo answered")
        lab.call("delete", "etc", "--yes")
    need("/etc" in text and "answered" not in text, text)
    return text.strip()[:200]


def full_disk(lab, engine):
    """The program does not fit: an error, and no part of the program stays."""
    # A running far worker would keep the directory, and a program that is there need not be sent.
    lab.call("stop", "--yes")
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "quackd-test", lab.far_home], capture_output=True,
                           text=True)
    need(mount.returncode == 0, mount.stderr)
    try:
        text = one_error(lab, engine, "(?i)space|write|disk|full", timeout="1m")
        kept = sum(path.stat().st_size for path in lab.far_home.rglob("*") if path.is_file())
        need(kept < 1 << 16, f"{kept} bytes stay")
        return text
    finally:
        lab.call("stop", "--yes")
        subprocess.run(["umount", "-l", lab.far_home], check=True)


def full_home(lab, engine):
    """The disk is full once the program is there: a worker starts or has one error, and works when there is space again."""
    lab.call("stop", "--yes")
    size = (lab.far_program or lab.quack).stat().st_size + (8 << 20)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "quackd-test", lab.far_home], check=True)
    try:
        session = lab.session(engine)
        lab.works(session, 60)
        filler = lab.far_home / "filler"
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=64k"], stderr=subprocess.DEVNULL)
        long = lab.bash(session, "seq 1 300000; echo l''ast")
        need("last" in long or long.count("Error: ") == 1, f"a long output: {long[-300:]}")
        lab.call("stop", "--yes")
        text = lab.bash(session, "echo a''nswered")
        need("answered" in text or text.count("Error: ") == 1, text)
        filler.unlink()
        lab.works(session, 90)
        return f"with a full disk: {text.strip()[:200]}"
    finally:
        lab.call("stop", "--yes")
        subprocess.run(["umount", "-l", lab.far_home], check=True)


def full_workspace(lab, engine):
    """A file that does not fit is one error and is not there, and the session goes on."""
    lab.call("stop", "--yes")
    at = engine.workspace("full")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "quackd-test", at], check=True)
    try:
        session = lab.session(engine, at)
        lab.works(session)
        text = lab.tool(session, "write_file", {"path": "small", "content": "x"})
        need((at / "small").exists(), text)
        text = lab.bash(session, "head -c 3000000 /dev/zero >large || echo f''ailed; rm large")
        need("failed" in text, text)
        subprocess.run(["dd", "if=/dev/zero", f"of={at}/filler", "bs=4k"], stderr=subprocess.DEVNULL)
        text = lab.tool(session, "write_file", {"path": "small", "content": "y" * 100_000})
        need("Error" in text and re.search("(?i)space|full", text), text)
        need((at / "small").read_text() == "x", "the old content is lost")
        lab.works(session)
        return text.strip()[:200]
    finally:
        lab.call("stop", "--yes")
        subprocess.run(["umount", "-l", at], check=True)


def gone_workspace(lab, engine):
    """A workspace that is deleted while its worker runs: one error with the path, and it works when it is there again."""
    session = lab.session(engine)
    at = engine.workspace(session)
    lab.works(session)
    at.rmdir()
    text = lab.bash(session, "pwd >&2; echo a''nswered", timeout="20s")
    need("answered" not in text and text.count("Error: ") == 1 and str(at) in text, text)
    at.mkdir()
    lab.works(session, 90)
    return text.strip()[:200]


def hostile_targets(lab, engine):
    """No target is an option, and no shell reads one."""
    mark = lab.root / "pwned"
    name = engine.name
    lab.works(lab.session(engine))
    refused = [f"-oProxyCommand=touch {mark}", f"-oProxyCommand=touch\t{mark}", "a b", "a\nb", "a\x1b[2J", "-F/dev/stdin",
               "x" * 300]
    for target in refused:
        done = lab.run("new", "--on", f"{name}:{target}", "/w", text=True)
        need(done.returncode != 0 and not CONTROL.search(done.stderr.replace("\n", "")), f"{target!r}: {done}")
        reply = lab.request("quack.session_new", path=f"{name}:{target}:/w")
        need(reply["ok"] is False and not CONTROL.search(reply["error"]), f"{target!r}: {reply}")
    # Without white space these may be names for the engine, which fails to find them.
    for target in (f"a;cd${{IFS}}..;touch${{IFS}}{mark.name}", f"$(touch${{IFS}}{mark.name})", f"`touch${{IFS}}{mark.name}`",
                   "a|id", "a&id", "'", '"', "\\", "a@-oProxyCommand=id"):
        done = lab.run("new", "--on", f"{name}:{target}", "--name", "hostile", "/w", text=True)
        if done.returncode == 0:
            text = lab.bash("hostile", "echo answered", timeout="5s")
            need("answered" not in text and "uid=" not in text, f"{target!r}: {text}")
            lab.call("delete", "hostile", "--yes")
    found = [at for at in lab.root.rglob("pwned")]
    need(not found and not (lab.home / mark.name).exists(), f"a shell read a target: {found}")


def unreachable(lab, engine):
    """No server: the client's words are the reason, and a later call works."""
    engine.server.kill()
    engine.server.wait()
    # Its connections live in other processes.
    lab.call("stop", "--yes")
    text = one_error(lab, engine, "(?i)refused|lost")
    engine.serve()
    session = lab.session(engine)
    until("the server", lambda: subprocess.run(engine.plain(), capture_output=True).returncode == 0)
    lab.works(session)
    return text


CHECKS = {check.__name__: check for check in (
    other_version, other_protocol, told_error, words_of_client, long_words, small_noise, open_noise, large_noise, endless_noise,
    packets, unknown_engine, missing_program, silent)}
# Of an engine.
PLACES = {check.__name__: check for check in (missing_workspace, refused_workspace, gone_workspace)}
SSH = {check.__name__: check for check in (full_disk, full_home, full_workspace, hostile_targets, unreachable)}
