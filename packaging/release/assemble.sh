#!/usr/bin/env bash
# Completes a directory with archives of one version, of one or more targets: adds the archive of the sources, and
# SHA256SUMS over all files. With URL also install.sh and the files for Homebrew, AUR and mise.
#
#   packaging/release/assemble.sh DIR VERSION [URL]
#
#   URL  address of the releases, such as https://github.com/OWNER/quackd/releases. A file of version 1.2.3 is at
#        URL/download/v1.2.3/FILE, and of the newest one at URL/latest/download/FILE, as on GitHub. No file of this
#        repository has an address: this argument is the only place
set -euo pipefail
export LC_ALL=C
umask 022

fail() { printf 'assemble.sh: %s\n' "$*" >&2; exit 1; }
say() { printf 'assemble.sh: %s\n' "$*" >&2; }

[ $# -eq 2 ] || [ $# -eq 3 ] || fail 'the head of this file says how to call it'
out="$(cd "$1" && pwd -P)" version="$2" url="${3:-}"
url="${url%/}"
root="$(cd "$(dirname "$0")/../.." && pwd -P)"
cd "$root"
[[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "$version is not a version such as 0.2.0"
[[ "$url" =~ ^(https://[A-Za-z0-9._/-]+)?$ ]] || fail "$url is not an address of https"

sources="quackd-$version.tar.gz"
if command -v git >/dev/null && [ "$(git rev-parse --show-toplevel 2>/dev/null || true)" = "$root" ]; then
  git archive --format=tar --prefix="quackd-$version/" HEAD | gzip -9 -n >"$out/$sources"
  say "$out/$sources"
fi

sum() {
  [ -f "$out/$1" ] || return 0
  sha256sum "$out/$1" | cut -d' ' -f1
}

# Fills in a template, unless a file that it names was not built.
recipe() {
  local template="$1" name="$2" text sum_of file
  # One of an earlier version must not be published.
  rm -f "$out/$name"
  text="$(sed -e "s|@URL@|$url|g" -e "s|@VERSION@|$version|g" "packaging/$template")"
  while [[ "$text" =~ @SHA256:([A-Za-z0-9._-]+)@ ]]; do
    file="${BASH_REMATCH[1]}"
    sum_of="$(sum "$file")"
    if [ -z "$sum_of" ]; then
      say "left out $name: $file was not built"
      return
    fi
    text="${text//"@SHA256:$file@"/"$sum_of"}"
  done
  printf '%s\n' "$text" >"$out/$name"
  say "$out/$name"
}

if [ -n "$url" ]; then
  sed "s|@URL@|$url|g" packaging/install.sh >"$out/install.sh"
  say "$out/install.sh"
  recipe homebrew/quackd.rb quackd.rb
  recipe aur/PKGBUILD PKGBUILD
  # GitHub changes names of files that begin with a dot.
  recipe aur/SRCINFO SRCINFO
  recipe mise/mise.toml mise.toml
fi

(
  cd "$out"
  recipes=()
  [ -z "$url" ] || recipes=(PKGBUILD SRCINFO install.sh mise.toml quackd.rb)
  # Only files of this version: others may be left from an earlier one.
  for name in "$sources" "quackd-$version"-*.tar.gz "quackd-$version"-*.cdx.json "quackd_$version"-*.deb "${recipes[@]}"
  do
    [ ! -f "$name" ] || sha256sum "$name"
  done >SHA256SUMS
)
say "$out/SHA256SUMS"
