"""Starts the engines of the checks. Each function returns an `Engine`, and leaves processes that end with the lab."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lab import Engine, free_port, program, until

# Programs, and the Debian packages that have them.
NEEDED = {
    "ssh": ({"sshd", "ssh", "ssh-keygen"}, "openssh-server openssh-client"),
    "slurm": ({"slurmctld", "slurmd", "munged", "srun"}, "slurmctld slurmd munge slurm-client"),
    "podman": ({"podman", "runc", "conmon"}, "podman runc conmon"),
    "kubectl": (set(), ""),
    "bare": ({"podman", "runc", "conmon", "busybox"}, "podman runc conmon busybox-static"),
    "distant": ({"sshd", "ssh", "ssh-keygen", "ip", "nsenter"}, "openssh-server openssh-client iproute2"),
}
NODES = ("n1", "n2", "n3")


class Ssh(Engine):
    # Words before the command lines of the client and of the server.
    here = there = ()

    def __init__(self, lab, name="ssh", row=None, address="127.0.0.1"):
        super().__init__(lab, name, f"{name}:far", row)
        self.at = at = lab.root / name
        at.mkdir()
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / key], check=True)
        (at / "authorized_keys").write_bytes((at / "user_key.pub").read_bytes())
        Path("/run/sshd").mkdir(exist_ok=True)
        port = free_port()
        (at / "sshd_config").write_text(f"""Port {port}
ListenAddress {address}
HostKey {at}/host_key
AuthorizedKeysFile {at}/authorized_keys
PidFile {at}/sshd.pid
StrictModes no
UsePAM no
PrintMotd no
SetEnv HOME={lab.far_home}
""")
        (at / "known_hosts").write_text(f"[{address}]:{port} {(at / 'host_key.pub').read_text()}")
        (at / "config").write_text(f"""Host far
HostName {address}
Port {port}
IdentityFile {at}/user_key
IdentitiesOnly yes
BatchMode yes
StrictHostKeyChecking yes
UserKnownHostsFile {at}/known_hosts
""")
        self.client = lab.bin / self.name
        program(self.client, f'#!/bin/sh\nexec {" ".join(self.here)} /usr/bin/ssh -F {at}/config "$@"\n')
        self.serve()
        until(lambda: (at / "log").read_text(), lambda: subprocess.run(self.plain(), capture_output=True).returncode == 0)

    def serve(self):
        self.server = self.lab.service(*self.there, "/usr/sbin/sshd", "-D", "-e", "-f", self.at / "sshd_config",
                                       log=self.at / "log")

    def plain(self):
        return [str(self.client), "far", "true"]


class Distant(Ssh):
    """sshd in another network namespace. Each packet takes 200 ms in each direction, and one of 100 is lost."""

    # About 50 KB/s are possible.
    n_stream = 1 << 20

    def __init__(self, lab):
        other = lab.service("unshare", "--net", "sleep", "infinity")
        until("a namespace", lambda: os.readlink(f"/proc/{other.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        log = lab.root / "relay.log"
        relay = Path(__file__).with_name("relay.py")
        self.relay = lab.service("unshare", "--net", sys.executable, relay, other.pid, 0.2, 0.01, log=log)
        until(log.read_text, lambda: "ready" in log.read_text())
        self.here, self.there = (["nsenter", f"--target={pid}", "--net", "--"] for pid in (self.relay.pid, other.pid))
        # It would take minutes to send the program.
        start = [str(lab.bin / "distant"), "-T", "-o", "ConnectTimeout=10", "--", "{target}", "{command}"]
        row = {"like": "ssh", "program": str(lab.quack), "start": start, "resume": start}
        super().__init__(lab, "distant", row, "192.0.2.2")

    def repeated(self):
        """Number of TCP segments that either side sent again."""
        counts = (Path(f"/proc/{process.pid}/net/snmp").read_text() for process in (self.relay, self.server))
        fields = ([line.split() for line in text.splitlines() if line.startswith("Tcp:")] for text in counts)
        return sum(int(dict(zip(*two))["RetransSegs"]) for two in fields)


class Slurm(Engine):
    def __init__(self, lab):
        super().__init__(lab, "slurm", "slurm")
        self.at = at = lab.root / "slurm"
        for name in ("state", "munge", *(f"spool.{node}" for node in NODES)):
            (at / name).mkdir(parents=True)
        (at / "munge").chmod(0o755)
        key = at / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        socket = at / "munge/socket"
        lab.service("/usr/sbin/munged", "--foreground", "--force", f"--socket={socket}", f"--key-file={key}",
                    f"--pid-file={at}/munge/pid", f"--log-file={at}/munge/log", f"--seed-file={at}/munge/seed")
        until("munged", socket.exists)
        host = os.uname().nodename.split(".")[0]
        ports = {node: free_port() for node in ("ctld", *NODES)}
        # The tasks get the home of this scratch directory, so that nothing is written to the user's.
        program(at / "prolog", f"#!/bin/sh\necho export HOME={lab.far_home}\n")
        nodes = "".join(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[node]} CPUs=40 State=UNKNOWN\n"
                        for node in NODES)
        (at / "slurm.conf").write_text(f"""ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports['ctld']}
AuthType=auth/munge
AuthInfo=socket={socket}
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={at}/state
SlurmctldPidFile={at}/ctld.pid
SlurmctldLogFile={at}/ctld.log
SlurmdPidFile={at}/d.%n.pid
SlurmdSpoolDir={at}/spool.%n
SlurmdLogFile={at}/d.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
TaskProlog={at}/prolog
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
{nodes}PartitionName=main Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP
""")
        (at / "cgroup.conf").write_text("CgroupAutomount=no\n")
        self.env = {"SLURM_CONF": str(at / "slurm.conf")}
        for client in ("srun", "squeue", "scancel", "scontrol", "sinfo", "salloc", "sbatch"):
            program(lab.bin / client, f'#!/bin/sh\nSLURM_CONF={at}/slurm.conf exec /usr/bin/{client} "$@"\n')
        self.control()
        self.daemons = {node: self.node(node) for node in NODES}
        # Job steps may outlive the daemons of their nodes.
        lab.ends.append(lambda: self.tool("scancel", "--user", "root"))
        self.wait_idle()

    def control(self):
        self.controller = self.lab.service("/usr/sbin/slurmctld", "-D", env=self.env)

    def node(self, name):
        return self.lab.service("/usr/sbin/slurmd", "-D", "-N", name, env=self.env)

    def tool(self, *argv):
        done = subprocess.run([str(self.lab.bin / argv[0]), *argv[1:]], capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def wait_idle(self):
        def states():
            return self.tool("sinfo", "-h", "-N", "-o", "%T").split()
        until(lambda: f"idle nodes: {states()}", lambda: states() == ["idle"] * len(NODES), 60)

    def plain(self):
        return [str(self.lab.bin / "srun"), "--quiet", "true"]


class Podman(Engine):
    """A container whose files are those of this machine: without a network no image can be pulled."""

    def __init__(self, lab, name="rooted"):
        self.at = at = lab.root / name
        tree = at / "tree"
        self.fill(tree)
        # The control groups of this machine may be of both versions, which crun refuses.
        self.podman = ["podman", f"--root={at}/storage", f"--runroot={at}/run", f"--tmpdir={at}/tmp", "--runtime=runc",
                       "--cgroup-manager=cgroupfs", "--storage-driver=vfs", "--events-backend=file"]
        limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
        mounts = [*self.mounts, f"-v={lab.quack}:/opt/quack:ro", f"-v={lab.root}/work:{lab.root}/work"]
        # As in the built-in row.
        allowed = ["--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL"]
        self.options = ["run", "--rm", "-i", "--network=none", *allowed, *limits, *mounts]
        self.tree = str(tree)
        (lab.root / "work").mkdir(exist_ok=True)
        row = {"like": "podman", "program": self.program, "target": "none",
               "start": [*self.podman, *self.options, "--name=quackd-{session}", "--rootfs", self.tree, "{command}"],
               "stop": [*self.podman, "rm", "--force", "--ignore", "quackd-{session}"]}
        super().__init__(lab, name, name, row)

    def fill(self, tree):
        for name in ("usr", "etc", "tmp", "proc", "dev", "sys", "run", "root", "work", "opt"):
            (tree / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            if Path("/", name).is_symlink():
                (tree / name).symlink_to(f"usr/{name}")
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (tree / "etc/group").write_text("root:x:0:\n")
        self.program, self.mounts = "/opt/quack", ["-v=/usr:/usr:ro"]

    def plain(self):
        return [*self.podman, *self.options, "--rootfs", self.tree, "true"]


class Bare(Podman):
    """A container with nothing but a static busybox: no C library, no bash. The program is sent, so it must be static, too."""

    def __init__(self, lab):
        super().__init__(lab, "bare")

    def fill(self, tree):
        for name in ("bin", "etc", "tmp", "proc", "dev", "sys", "run", "root", "work", "var/tmp"):
            (tree / name).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), tree / "bin/busybox")
        for name in subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split():
            if name != "busybox":
                (tree / "bin" / name).symlink_to("busybox")
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        # Each start is a new container, so a mounted directory keeps the program.
        kept = self.at / "cache"
        kept.mkdir(mode=0o700)
        self.program, self.mounts = "send", [f"-v={kept}:/root/.cache"]


class Kubectl(Engine):
    """A stub: no cluster can run here. It checks the arguments and runs the far command in an empty environment."""

    def __init__(self, lab):
        super().__init__(lab, "kubectl", "kubectl:pod-1")
        self.log = lab.root / "kubectl.log"
        program(lab.bin / "kubectl", f"""#!/bin/bash
printf '%s\\n' "$*" >>{self.log}
[ "$1" = exec ] || {{ echo 'error: unknown command' >&2; exit 1; }}
shift
stdin= pod=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case "$1" in
    -i|--stdin|--stdin=true) stdin=1 ;;
    -t|--tty|-it) echo 'error: a terminal is not binary-safe' >&2; exit 1 ;;
    -*) ;;
    *) pod="$1" ;;
  esac
  shift
done
[ "$1" = -- ] && [ -n "$stdin" ] && [ "$pod" = pod-1 ] || {{ echo "error: stdin=$stdin pod=$pod" >&2; exit 1; }}
shift
exec env -i HOME={lab.far_home} PATH=/usr/bin:/bin "$@"
""")

    def plain(self):
        return [str(self.lab.bin / "kubectl"), "exec", "-i", "pod-1", "--", "true"]


ENGINES = {"ssh": Ssh, "slurm": Slurm, "podman": Podman, "kubectl": Kubectl, "distant": Distant, "bare": Bare}


def pipe_row(lab, script, **more):
    """A row whose client is a shell script of the test, for far sides that misbehave. `$@` is the far command."""
    start = ["env", "-i", f"HOME={lab.far_home}", "PATH=/usr/bin:/bin", "bash", "-c", script, "bash", "{command}"]
    return {"start": start, "program": str(lab.quack), "target": "none", **more}
