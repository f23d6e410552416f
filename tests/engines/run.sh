#!/usr/bin/env bash
# Installs the engines that are missing (Debian, as root), and runs the checks: `bash tests/engines/run.sh --quack PATH`.
set -euo pipefail
cd "$(dirname "$0")"
apt-get install -y -q --no-install-recommends openssh-server openssh-client slurmctld slurmd munge slurm-client podman runc \
  conmon busybox-static iproute2 >/dev/null
exec python3 run.py "$@"
