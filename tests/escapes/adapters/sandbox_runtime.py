"""`srt` of @anthropic-ai/sandbox-runtime: no network, writes in the workspace only, and no reads of `~/.ssh`, as in the
examples of its README."""

import json
import shutil
import subprocess
from pathlib import Path

READS = "reads are allowed by default (`denyRead`)"
OUTSIDE = {
    **dict.fromkeys(("allow-45", "env-03", "env-06", "env-08", "tamper-17"), READS),
    "env-04": "the environment is passed on",
    "prot-05": "it looks for repositories three levels deep (`mandatoryDenySearchDepth`)",
    "more-01": "it looks for repositories before the command",
    **dict.fromkeys(("prot-09", "prot-20", "prot-21", "more-02", "more-03"), "not in its list of protected paths"),
    **dict.fromkeys(("net-10", "tamper-09"), "its filter stops Unix sockets and io_uring only"),
    "proc-23": "the terminal is the command's own",
    "tamper-14": "output is the caller's",
}


def version():
    return "srt " + subprocess.run(["srt", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def command(workspace, state, read_only, line):
    settings = {"filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [] if read_only else ["."], "denyWrite": []},
                "network": {"allowedDomains": [], "deniedDomains": []}}
    at = Path(state, "settings.json")
    at.write_text(json.dumps(settings))
    return [shutil.which("srt"), "--settings", str(at), "-c", line], {}
