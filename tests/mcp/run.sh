#!/usr/bin/env bash
# Drives `quack mcp` with public clients and test programs of the Model Context Protocol:
#
#   bash tests/mcp/run.sh [--quack PATH] [--only WORD]
#
# It installs the pinned packages next to itself, builds what is not given, and prints one line per check. Everything
# runs on loopback and in a private state directory. The exit code is 1 if a check failed. It needs Linux, npm and
# python3, and takes 2 minutes after the build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
quack=
only=
while [ $# -gt 0 ]; do
    case $1 in
        --quack) quack=$(realpath "$2"); shift 2 ;;
        --only) only=$2; shift 2 ;;
        *) sed -n '2,4p' "$0" >&2; exit 2 ;;
    esac
done

cd "$here"
if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --ignore-scripts --omit=dev --no-progress --loglevel=error
    cp package-lock.json node_modules/.installed
fi
if ! cmp -s requirements.txt venv/.installed; then
    python3 -m venv venv
    venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
    cp requirements.txt venv/.installed
fi

target=${CARGO_TARGET_DIR:-$root/target}
# With `--workspace`, crates have the features that they have in tests, and are not built again after these.
build=(--workspace --example conformance)
[ -n "$quack" ] || build+=(--bin quack)
(cd "$root" && cargo build --locked --quiet "${build[@]}")
node=$(ls node_modules/node-linux-*/bin/node | head -1)
exec "$node" run.mjs "${quack:-$target/debug/quack}" "$target/debug/examples/conformance" "$only"
