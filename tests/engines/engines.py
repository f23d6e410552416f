"""Starts the engines of the checks. Each function returns an `Engine`, and leaves processes that end with the lab."""

import os
import subprocess
from pathlib import Path

from lab import Engine, free_port, program, until

# Programs, and the Debian packages that have them.
NEEDED = {
    "ssh": ({"sshd", "ssh", "ssh-keygen"}, "openssh-server openssh-client"),
    "slurm": ({"slurmctld", "slurmd", "munged", "srun"}, "slurmctld slurmd munge slurm-client"),
    "podman": ({"podman", "runc", "conmon"}, "podman runc conmon"),
    "kubectl": (set(), ""),
}
NODES = ("n1", "n2", "n3")


class Ssh(Engine):
    def __init__(self, lab):
        super().__init__(lab, "ssh", "ssh:far")
        self.at = at = lab.root / "ssh"
        at.mkdir()
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / name], check=True)
        (at / "authorized_keys").write_bytes((at / "user_key.pub").read_bytes())
        Path("/run/sshd").mkdir(exist_ok=True)
        port = free_port()
        (at / "sshd_config").write_text(f"""Port {port}
ListenAddress 127.0.0.1
HostKey {at}/host_key
AuthorizedKeysFile {at}/authorized_keys
PidFile {at}/sshd.pid
StrictModes no
UsePAM no
PrintMotd no
SetEnv HOME={lab.far_home}
""")
        (at / "known_hosts").write_text(f"[127.0.0.1]:{port} {(at / 'host_key.pub').read_text()}")
        (at / "config").write_text(f"""Host far
HostName 127.0.0.1
Port {port}
IdentityFile {at}/user_key
IdentitiesOnly yes
BatchMode yes
StrictHostKeyChecking yes
UserKnownHostsFile {at}/known_hosts
""")
        program(lab.bin / "ssh", f'#!/bin/sh\nexec /usr/bin/ssh -F {at}/config "$@"\n')
        self.server = lab.service("/usr/sbin/sshd", "-D", "-e", "-f", at / "sshd_config", log=at / "log")
        until(lambda: (at / "log").read_text(), lambda: subprocess.run(self.plain(), capture_output=True).returncode == 0)

    def plain(self):
        return [str(self.lab.bin / "ssh"), "far", "true"]


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
        nodes = "".join(f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[node]} CPUs=2 State=UNKNOWN\n"
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
ReturnToService=2
MpiDefault=none
{nodes}PartitionName=main Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP
""")
        (at / "cgroup.conf").write_text("CgroupAutomount=no\n")
        self.env = {"SLURM_CONF": str(at / "slurm.conf")}
        for client in ("srun", "squeue", "scancel", "scontrol", "sinfo", "salloc", "sbatch"):
            program(lab.bin / client, f'#!/bin/sh\nSLURM_CONF={at}/slurm.conf exec /usr/bin/{client} "$@"\n')
        lab.service("/usr/sbin/slurmctld", "-D", env=self.env)
        self.daemons = {node: self.node(node) for node in NODES}
        # Job steps may outlive the daemons of their nodes.
        lab.ends.append(lambda: self.tool("scancel", "--user", "root"))
        self.wait_idle()

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

    def __init__(self, lab):
        self.at = at = lab.root / "podman"
        tree = at / "tree"
        for name in ("usr", "etc", "tmp", "proc", "dev", "sys", "run", "root", "work", "opt"):
            (tree / name).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib32", "lib64"):
            if Path("/", name).is_symlink():
                (tree / name).symlink_to(f"usr/{name}")
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (tree / "etc/group").write_text("root:x:0:\n")
        # The control groups of this machine may be of both versions, which crun refuses.
        self.podman = ["podman", f"--root={at}/storage", f"--runroot={at}/run", f"--tmpdir={at}/tmp", "--runtime=runc",
                       "--cgroup-manager=cgroupfs", "--storage-driver=vfs", "--events-backend=file"]
        limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
        mounts = ["-v=/usr:/usr:ro", f"-v={lab.quack}:/opt/quack:ro", f"-v={lab.root}/work:{lab.root}/work"]
        # As in the built-in row.
        allowed = ["--security-opt=seccomp=unconfined", "--security-opt=unmask=ALL"]
        self.options = ["run", "--rm", "-i", "--network=none", *allowed, *limits, *mounts]
        self.tree = str(tree)
        (lab.root / "work").mkdir(exist_ok=True)
        row = {"like": "podman", "program": "/opt/quack", "target": "none",
               "start": [*self.podman, *self.options, "--name=quackd-{session}", "--rootfs", self.tree, "{command}"],
               "stop": [*self.podman, "rm", "--force", "--ignore", "quackd-{session}"]}
        super().__init__(lab, "rooted", "rooted", row)

    def plain(self):
        return [*self.podman, *self.options, "--rootfs", self.tree, "true"]


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


ENGINES = {"ssh": Ssh, "slurm": Slurm, "podman": Podman, "kubectl": Kubectl}


def pipe_row(lab, script, **more):
    """A row whose client is a shell script of the test, for far sides that misbehave. `$@` is the far command."""
    start = ["env", "-i", f"HOME={lab.far_home}", "PATH=/usr/bin:/bin", "bash", "-c", script, "bash", "{command}"]
    return {"start": start, "program": str(lab.quack), "target": "none", **more}
