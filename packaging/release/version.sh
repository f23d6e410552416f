#!/usr/bin/env bash
# The version of the next release, from the section Unreleased of CHANGELOG.md. Its headings decide: Breaking and
# Removed are a new major version (a new minor one before 1.0.0), Added, Changed and Deprecated a new minor one, and
# other headings a patch. If nothing was released yet, it is the version in Cargo.toml.
#
#   version.sh                  prints the next version
#   version.sh --set [VERSION]  writes it to Cargo.toml and both lock files, and dates the section
#   version.sh --check TAG      fails unless TAG is vVERSION of Cargo.toml, and CHANGELOG.md has its section
#   version.sh --notes VERSION  prints the section of a release
set -euo pipefail
cd "$(dirname "$0")/../.."

fail() { printf 'version.sh: %s\n' "$*" >&2; exit 1; }

# Prints the lines below the heading `## $1`, with or without a date.
section() { awk -v name="$1" '/^## /{inside = ($2 == name); next} inside' CHANGELOG.md; }

current="$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)"
[[ "$current" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "version in Cargo.toml is '$current'"

next_version() {
  local headings major minor patch
  headings="$(section Unreleased | sed -n 's/^### //p')"
  section Unreleased | grep '^- ' >/dev/null || fail 'the section Unreleased of CHANGELOG.md has no line'
  if ! grep -Eq '^## [0-9]+\.' CHANGELOG.md; then
    printf '%s\n' "$current"
    return
  fi
  IFS=. read -r major minor patch <<<"$current"
  if grep -Eqx 'Breaking|Removed' <<<"$headings" && [ "$major" != 0 ]; then
    printf '%s.0.0\n' $((major + 1))
  elif grep -Eqx 'Breaking|Removed|Added|Changed|Deprecated' <<<"$headings"; then
    printf '%s.%s.0\n' "$major" $((minor + 1))
  else
    printf '%s.%s.%s\n' "$major" "$minor" $((patch + 1))
  fi
}

set_version() {
  local version="$1" old
  [[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "$version is not a version such as 0.2.0"
  ! grep -q "^## $version " CHANGELOG.md || fail "CHANGELOG.md has a section $version already"
  old="${current//./\\.}"
  # The version of the workspace, and the exact versions by which the crates name each other.
  sed -i -e "/^\[workspace\.package\]/,/^\[/s/^version = \"$old\"/version = \"$version\"/" \
    -e "s/\(version = \"=\)$old\"/\1$version\"/" Cargo.toml
  sed -i -e "s/^## Unreleased\$/&\n\n## $version - $(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%F)/" \
    -e 's/ Nothing has been released yet\.$//' CHANGELOG.md
  # Only the versions of this workspace change.
  cargo update --workspace --quiet
  cargo update --workspace --quiet --manifest-path fuzz/Cargo.toml
  printf '%s\n' "$version"
}

case "${1:-}" in
  '') next_version ;;
  --set)
    version="${2:-$(next_version)}"
    set_version "$version" ;;
  --check)
    [ "${2:-}" = "v$current" ] || fail "tag '${2:-}' is not v$current, the version in Cargo.toml"
    grep -Eq "^## ${current//./\\.} - [0-9]{4}-[0-9]{2}-[0-9]{2}\$" CHANGELOG.md \
      || fail "CHANGELOG.md has no dated section $current: packaging/release/version.sh --set"
    printf '%s\n' "$current" ;;
  --notes)
    [ -n "${2:-}" ] || fail '--notes needs a version'
    notes="$(section "$2")"
    [ -n "$notes" ] || fail "CHANGELOG.md has no section $2"
    printf '%s\n' "$notes" ;;
  *) fail "unknown option $1" ;;
esac
