"""bubblewrap. It has no policy of its own: this is the example of its README (`/usr` read-only, new `/proc` and `/dev`), with
every namespace, the workspace, and what git and python read in `/etc`."""

import subprocess

ENVIRONMENT = "the caller chooses the environment (`--clearenv`)"
CALLS = "the caller filters system calls (`--seccomp`)"
WORKSPACE = "the caller chooses what is read-only in the workspace"
OUTSIDE = {
    "env-04": ENVIRONMENT,
    **dict.fromkeys(("net-10", "net-11", "tamper-07", "tamper-08", "tamper-09", "tamper-10"), CALLS),
    **dict.fromkeys(("prot-04", "prot-05", "prot-09", "prot-12", "prot-18", "prot-20", "prot-21", "more-01", "more-02",
                     "more-03"), WORKSPACE),
    "proc-23": "the terminal is the command's own (`--new-session`)",
    "tamper-14": "output is the caller's",
}


def version():
    return subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def command(workspace, state, read_only, line):
    argv = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for name in ("bin", "sbin", "lib", "lib64"):
        argv += ["--symlink", f"usr/{name}", f"/{name}"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    argv += ["--ro-bind" if read_only else "--bind", workspace, workspace, "--chdir", workspace]
    return [*argv, "/bin/bash", "-c", line], {}
