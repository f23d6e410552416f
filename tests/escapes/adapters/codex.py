"""`codex sandbox` of @openai/codex in the modes `workspace-write` and `read-only`, with no other setting."""

import shutil
import subprocess

READS = "both modes read every file"
OUTSIDE = {
    **dict.fromkeys(("allow-45", "env-03", "env-05", "env-06", "env-08", "tamper-17"), READS),
    "env-04": "the environment is a policy of the agent",
    **dict.fromkeys(("prot-05", "prot-09", "prot-20"), "it protects `.git` at the top of the workspace"),
    "prot-12": "it protects `.git`, `.agents` and `.codex`",
    "more-06": "`/tmp` is writable in this mode",
    "proc-23": "the terminal is the command's own",
    "tamper-09": "its filter stops the network, ptrace, io_uring and mounts, and not every call of the list",
    "tamper-14": "output is the caller's",
}


def version():
    return subprocess.run(["codex", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def command(workspace, state, read_only, line):
    mode = "read-only" if read_only else "workspace-write"
    return [shutil.which("codex"), "sandbox", "-c", f'sandbox_mode="{mode}"', "--", "/bin/bash", "-c", line], {"CODEX_HOME": state}
