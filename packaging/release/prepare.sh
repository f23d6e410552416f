#!/usr/bin/env bash
# Installs the tools that packaging/release.sh needs for TARGET on a machine of CI: Debian, Ubuntu or macOS.
#
#   packaging/release/prepare.sh TARGET
#
# On GitHub, later steps of the job find them: $GITHUB_PATH.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -eq 1 ] || { printf 'usage: prepare.sh TARGET\n' >&2; exit 2; }
sudo=()
[ "$(id -u)" = 0 ] || sudo=(sudo)

case "$1" in
  *-linux-musl)
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      musl-tools binutils dpkg-dev ;;
  *-apple-darwin)
    # GNU tar sorts names, and the scripts need a bash that is newer than Apple's.
    brew install --quiet bash coreutils gnu-tar
    for formula in coreutils gnu-tar; do
      printf '%s/libexec/gnubin\n' "$(brew --prefix "$formula")" >>"${GITHUB_PATH:-/dev/null}"
    done ;;
  *) printf 'prepare.sh: no release for %s\n' "$1" >&2; exit 1 ;;
esac
rustup target add "$1"
# No --quiet: a compilation takes minutes.
command -v cargo-cyclonedx >/dev/null || cargo install cargo-cyclonedx --version 0.5.9 --locked
