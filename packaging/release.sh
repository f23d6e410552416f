#!/usr/bin/env bash
# Builds what is published: an archive with the executable, its pages and its licences, one with the debug
# information, the sources, and SHA256SUMS over them. The same commit gives the same bytes wherever it was
# cloned to, with the same Rust, C compiler and linker. docs/install.md says who needs what of it.
#
#   packaging/release.sh [--out DIR] [--target TRIPLE] [--deb] [--sbom] [--url BASE] [--dirty] [--binary FILE]
#                        [--pages FILE]
#
#   --out DIR        where the files go; target/release-files if absent
#   --target TRIPLE  target to build for; this machine if absent
#   --deb            make the Debian package too, by packaging/debian.sh
#   --sbom           make the list of components (CycloneDX); needs cargo-cyclonedx
#   --url BASE       address of the releases, for packaging/release/assemble.sh
#   --dirty          also from a tree that is not what is committed
#   --binary FILE    build nothing and pack this executable, which stays as it is
#   --pages FILE     executable of the same version that prints the pages, if that of the target cannot run here
#
# Needs bash, cargo, rustc, python3, GNU tar, gzip, objcopy, sha256sum, and git unless SOURCE_DATE_EPOCH is set.
# OBJCOPY names that of another target. A program for macOS has no debug information and needs none.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

fail() { printf 'release.sh: %s\n' "$*" >&2; exit 1; }
say() { printf 'release.sh: %s\n' "$*" >&2; }

out='' target='' deb=no sbom=no url='' dirty=no binary='' pages=''
while [ $# -gt 0 ]; do
  case "$1" in
    --out | --target | --url | --binary | --pages)
      [ $# -ge 2 ] || fail "$1 needs a value"
      declare "${1#--}=$2"
      shift ;;
    --deb) deb=yes ;;
    --sbom) sbom=yes ;;
    --dirty) dirty=yes ;;
    *) fail "$1 is not understood; the head of this file has what is" ;;
  esac
  shift
done

started_in="$PWD"
absolute() { case "$1" in /*) printf '%s\n' "$1" ;; *) printf '%s\n' "$started_in/$1" ;; esac; }

root="$(cd "$(dirname "$0")/.." && pwd -P)"
cd "$root"
out="$(absolute "${out:-$root/target/release-files}")"
[ -z "$binary" ] || binary="$(absolute "$binary")"
[ -z "$pages" ] || pages="$(absolute "$pages")"

host="$(rustc -vV | sed -n 's/^host: //p')"
target="${target:-$host}"
objcopy="${OBJCOPY:-objcopy}"
case "$target" in *-apple-*) objcopy='' ;; esac
for tool in cargo python3 tar gzip sha256sum ${objcopy:+"$objcopy"}; do
  command -v "$tool" >/dev/null || fail "$tool is not there"
done
[ "$sbom" = no ] || command -v cargo-cyclonedx >/dev/null || fail 'cargo-cyclonedx is not there'
tar --version | grep -q 'GNU tar' || fail 'tar is not GNU tar, which sorts the names'

version="$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)"
[ -n "$version" ] || fail 'the version was not found in Cargo.toml'

is_clone=no
if command -v git >/dev/null && [ "$(git rev-parse --show-toplevel 2>/dev/null || true)" = "$root" ]; then
  is_clone=yes
fi
if [ "$is_clone" = yes ] && [ "$dirty" = no ] && [ -n "$(git status --porcelain)" ]; then
  fail 'the tree is not what is committed; commit, or say --dirty'
fi
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
  [ "$is_clone" = yes ] || fail 'this is no clone: set SOURCE_DATE_EPOCH to the seconds of the release'
  SOURCE_DATE_EPOCH="$(git log -1 --pretty=%ct)"
fi
export SOURCE_DATE_EPOCH

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

# One archive of the directory $work/$1. Names in order, nobody's files, one time, no name in gzip's head.
pack() {
  tar --create --directory "$work" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" --mode='u=rwX,go=rX' "$1" | gzip -9 -n > "$out/$1.tar.gz"
  say "$out/$1.tar.gz"
}

# ---- the executable -------------------------------------------------------------------------------------

# No path of this machine may stand in the executable: neither where the clone is, nor whose home it was.
build() {
  local cargo_home sysroot commit from to flags='' c_flags=''
  cargo_home="${CARGO_HOME:-$HOME/.cargo}"
  sysroot="$(rustc --print sysroot)"
  commit="$(rustc -vV | sed -n 's/^commit-hash: //p')"
  # The last pair that fits wins, so the clone, in which the others may lie, is first.
  while IFS='|' read -r from to; do
    case "$from" in *[[:space:]]*) fail "C compilers cannot be told of a path with spaces: $from" ;; esac
    flags="$flags${flags:+$'\x1f'}--remap-path-prefix=$from=$to"
    c_flags="$c_flags${c_flags:+ }-ffile-prefix-map=$from=$to"
  done <<PATHS
$root|/quackd
$CARGO_TARGET_DIR|/target
$cargo_home/registry/src|/registry
$sysroot/lib/rustlib/src/rust|/rustc/$commit
PATHS
  # What the caller's shell has set for other builds must not be in this one.
  unset RUSTFLAGS CARGO_BUILD_RUSTFLAGS
  [ -n "$objcopy" ] || export CARGO_PROFILE_DIST_DEBUG=false CARGO_PROFILE_DIST_STRIP=symbols
  CARGO_ENCODED_RUSTFLAGS="$flags" CFLAGS="$c_flags" CARGO_INCREMENTAL=0 \
    cargo build --profile dist --locked --package quackd --bin quack --target "$target"
}

if [ -z "$binary" ]; then
  # A directory of its own: with other flags everything is built anew, which nobody wants for `target`.
  CARGO_TARGET_DIR="$(absolute "${CARGO_TARGET_DIR:-$root/target/package}")"
  export CARGO_TARGET_DIR
  build
  binary="$CARGO_TARGET_DIR/$target/dist/quack"
fi
[ -x "$binary" ] || fail "$binary is no executable"

# ---- the tree -------------------------------------------------------------------------------------------

name="quackd-$version-$target"
tree="$work/$name"
share="$tree/share"
mkdir -p "$tree/bin" "$work/$name-debug"

# Line tables make three quarters of the executable, and are of use only to who reads a crash. They go into
# an archive of their own; names of functions stay. Debuggers find the file if it lies beside the executable.
if [ -n "$objcopy" ]; then
  "$objcopy" --only-keep-debug "$binary" "$work/$name-debug/quack.debug"
  chmod 644 "$work/$name-debug/quack.debug"
  "$objcopy" --strip-debug "$binary" "$tree/bin/quack"
  (cd "$work/$name-debug" && "$objcopy" --add-gnu-debuglink=quack.debug "$tree/bin/quack")
else
  cp "$binary" "$tree/bin/quack"
fi
chmod 755 "$tree/bin/quack"

quack="${pages:-$tree/bin/quack}"
said="$("$quack" --version)" || fail "the executable does not run here; it prints its own pages"
[ "$said" = "quack $version" ] || fail "the executable says '$said', and Cargo.toml $version"

completion() {
  mkdir -p "$share/$2"
  "$quack" completions "$1" > "$share/$2/$3"
}
completion bash bash-completion/completions quack
completion zsh zsh/site-functions _quack
completion fish fish/vendor_completions.d quack.fish
completion elvish elvish/lib quack.elv
"$quack" man "$share/man/man1" >/dev/null

mkdir -p "$share/doc/quackd/docs"
cp README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE "$share/doc/quackd/"
cp docs/*.md "$share/doc/quackd/docs/"
python3 packaging/licences.py "$target" > "$share/doc/quackd/THIRD-PARTY-LICENCES.txt"

pack "$name"
[ -z "$objcopy" ] || pack "$name-debug"

# ---- the rest -------------------------------------------------------------------------------------------

[ "$deb" = no ] || say "$(bash packaging/debian.sh "$out/$name.tar.gz" "$out")"

if [ "$sbom" = yes ]; then
  # It writes beside the manifest. With SOURCE_DATE_EPOCH the same commit gives the same list.
  cargo cyclonedx --quiet --manifest-path crates/cli/Cargo.toml --describe binaries --format json \
    --spec-version 1.5 --target "$target"
  mv crates/cli/*.cdx.json "$out/$name.cdx.json"
  say "$out/$name.cdx.json"
fi

bash packaging/release/assemble.sh "$out" "$version" ${url:+"$url"}
