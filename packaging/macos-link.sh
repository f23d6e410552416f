#!/usr/bin/env bash
# Links quack for macOS on Linux, and compares what it needs of the system with packaging/macos/needs.txt.
# `bash packaging/macos-link.sh [TARGET…]`; without arguments both targets. Needs rustup, python3 with pip, and the
# network for the first time. The program is a debug build that shows that everything links: it was never run on a Mac.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
source packaging/macos/env.sh

targets=("$@")
[ "$#" -gt 0 ] || targets=("${macos_targets[@]}")
for target in "${targets[@]}"; do
  # Nothing of this build is run, so the cheapest one is enough.
  cargo build -p quackd --bin quack --locked --target "$target" \
    --config 'profile.dev.debug=false' --config 'profile.dev.package."*".opt-level=0'
  program="$CARGO_TARGET_DIR/$target/debug/quack"
  printf '%s: %s bytes\n' "$target" "$(stat -c %s "$program")"
  # A Mac runs an arm64 program only with a signature, and the linker makes one for arm64 only.
  case "$target" in
    aarch64-*) architecture=arm64 signature=yes ;;
    *) architecture="${target%%-*}" signature=no ;;
  esac
  needs="$(python3 packaging/macos/inspect.py "$program")"
  expected="$(
    printf 'architecture %s\n' "$architecture"
    cat packaging/macos/needs.txt
    printf 'signature %s\n' "$signature"
  )"
  printf '%s\n' "$needs"
  if ! diff -u --label expected <(printf '%s\n' "$expected") --label linked <(printf '%s\n' "$needs"); then
    printf 'FAILED: quack for %s needs other things of the system than packaging/macos/needs.txt has\n' "$target" >&2
    exit 1
  fi
done
