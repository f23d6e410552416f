#!/usr/bin/env bash
# Creates a draft release on GitHub from a directory that packaging/release/assemble.sh has completed. A maintainer
# reads it and publishes it.
#
#   packaging/release/publish.sh TAG DIR
#
# Needs gh and GH_TOKEN. With DRY_RUN=1 it verifies the files and prints the command.
set -euo pipefail
cd "$(dirname "$0")/../.."

[ $# -eq 2 ] || { printf 'usage: publish.sh TAG DIR\n' >&2; exit 2; }
version="$(bash packaging/release/version.sh --check "$1")"
dir="$2"
(cd "$dir" && sha256sum --quiet --check SHA256SUMS)
# A release without one of its targets is a mistake.
for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-apple-darwin aarch64-apple-darwin; do
  for file in "quackd-$version-$target.tar.gz" "quackd-$version-$target.cdx.json"; do
    grep -qF "  $file" "$dir/SHA256SUMS" || { printf 'publish.sh: %s is missing\n' "$file" >&2; exit 1; }
  done
done
notes="$(mktemp)"
trap 'rm -f "$notes"' EXIT
bash packaging/release/version.sh --notes "$version" >"$notes"
mapfile -t files < <(cd "$dir" && cut -d' ' -f3 SHA256SUMS)
run=()
[ "${DRY_RUN:-0}" = 0 ] || run=(echo)
"${run[@]}" gh release create "$1" --draft --verify-tag --title "quackd $version" --notes-file "$notes" \
  "${files[@]/#/$dir/}" "$dir/SHA256SUMS"
