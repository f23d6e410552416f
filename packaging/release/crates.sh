#!/usr/bin/env bash
# Checks that `cargo install quackd` would work: packs every crate as `cargo publish` does, without uploading, and
# installs quack from the packed crates and crates.io alone, in an empty directory.
#
#   packaging/release/crates.sh [--list] [OPTION…]
#
#   --list   only packs the crates, in less than two minutes
#   OPTION   for `cargo install`, such as --debug
#
# The program is installed to $CARGO_TARGET_DIR/crates/bin. From a tree with changes: CRATES_DIRTY=1.
set -euo pipefail
cd "$(dirname "$0")/../.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
source_dir="$PWD"

is_list=no
if [ "${1:-}" = --list ]; then
  is_list=yes
  shift
fi
dirty=()
[ "${CRATES_DIRTY:-0}" = 0 ] || dirty=(--allow-dirty)
packed="$CARGO_TARGET_DIR/package/tmp-crate"
rm -rf "$packed"
cargo publish --workspace --dry-run --locked --no-verify "${dirty[@]}"
crates=("$packed"/quackd*.crate)
[ -f "${crates[0]}" ] || { printf "crates.sh: cargo left no crate in %s\n" "$packed" >&2; exit 1; }
printf '%s crates, %s bytes\n' "${#crates[@]}" "$(cat "${crates[@]}" | wc -c)"
[ "$is_list" = no ] || exit 0

# Outside of the clone, so that no file and no setting of the workspace is found by chance.
# The toolchain stays that of the clone.
RUSTUP_TOOLCHAIN="$(rustup show active-toolchain | cut -d' ' -f1)"
export RUSTUP_TOOLCHAIN
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
{
  printf '[patch.crates-io]\n'
  for crate in "${crates[@]}"; do
    tar -xzf "$crate"
    name="$(basename "$crate" .crate)"
    printf '%s = { path = "%s/%s" }\n' "${name%-*}" "$work" "$name"
  done
} >patch.toml
package="$(find . -maxdepth 1 -name 'quackd-[0-9]*' -type d)"
cd "$package"
# The lock file of the workspace with the packed crates in place of the members: all other versions stay.
cp "$source_dir/Cargo.lock" .
cargo update --workspace --quiet --config "$work/patch.toml"
cargo install --path . --locked --root "$CARGO_TARGET_DIR/crates" --config "$work/patch.toml" --force "$@"
# The wire's and the page's files have to be in the program.
"$CARGO_TARGET_DIR/crates/bin/quack" --version
"$CARGO_TARGET_DIR/crates/bin/quack" schema >/dev/null
