#!/bin/sh
# Installs quack for the current user. Needs curl, tar, and sha256sum or shasum. Uses no root rights.
#
#   curl -fsSL @URL@/latest/download/install.sh | sh
#   curl -fsSL @URL@/latest/download/install.sh | sh -s -- --to DIR
#
#   --to DIR           directory of the program [default: ~/.local/bin]
#   --version VERSION  release to install, such as 0.1.0 [default: the newest]
#   --from URL         address of the releases, such as a mirror; only https is accepted, or http on this machine
#   --dry-run          verify the archive and install nothing
#
# The sums come from the same server as the archive: they show a damaged download, not a forged release.
# docs/releasing.md has the command that verifies where the release was built.

# Only the last line runs something, and its braces make a part of it a syntax error: a cut download runs nothing.
quackd_install() {
  set -eu
  fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
  has() { command -v "$1" >/dev/null 2>&1; }

  # packaging/release/assemble.sh writes the address of the releases here.
  from='@URL@'
  to='' version='' is_dry=no
  while [ $# -gt 0 ]; do
    case "$1" in
      --to | --version | --from)
        [ -n "${2:-}" ] || fail "$1 needs a value"
        case "$1" in --to) to="$2" ;; --version) version="${2#v}" ;; --from) from="$2" ;; esac
        shift ;;
      --dry-run) is_dry=yes ;;
      --help) printf 'usage: install.sh [--to DIR] [--version VERSION] [--from URL] [--dry-run]\n'; return ;;
      *) fail "unknown option $1; known are --to, --version, --from, --dry-run and --help" ;;
    esac
    shift
  done
  case "$version" in *[!0-9A-Za-z.+-]*) fail "$version is not a version" ;; esac
  # curl also refuses a redirect to another protocol.
  case "$from" in
    *://*@*) fail "$from has a user name" ;;
    https://*) only='=https' ;;
    http://127.0.0.1:*) only='=http' ;;
    @*) fail 'this copy is not from a release; name the address of the releases with --from' ;;
    *) fail "$from does not begin with https://" ;;
  esac
  if [ -z "$to" ]; then
    [ -n "${HOME:-}" ] || fail 'HOME is not set; name a directory with --to'
    to="$HOME/.local/bin"
  fi

  case "$(uname -s)/$(uname -m)" in
    Linux/x86_64 | Linux/amd64) target=x86_64-unknown-linux-musl ;;
    Linux/aarch64 | Linux/arm64) target=aarch64-unknown-linux-musl ;;
    Darwin/x86_64) target=x86_64-apple-darwin ;;
    Darwin/arm64) target=aarch64-apple-darwin ;;
    *) fail "no release for $(uname -s) on $(uname -m); docs/install.md says how to build from the sources" ;;
  esac

  has curl || fail 'curl is required'
  get() { curl --proto "$only" --proto-redir "$only" --fail --silent --show-error --location --output "$2" "$1"; }
  if has sha256sum; then
    sum() { sha256sum "$1"; }
  elif has shasum; then
    sum() { shasum -a 256 "$1"; }
  else
    fail 'sha256sum or shasum is required to verify the download'
  fi
  has tar || fail 'tar is required'

  base="$from/latest/download"
  [ -z "$version" ] || base="$from/download/v$version"
  work="$(mktemp -d)"
  new=''
  trap 'rm -rf "$work"; [ -z "$new" ] || rm -f "$new"' EXIT
  trap 'exit 1' HUP INT TERM
  get "$base/SHA256SUMS" "$work/sums" || fail "cannot download $base/SHA256SUMS"
  # One line: 64 hexadecimal digits, two spaces, and the name of the archive for this machine.
  line="$(grep -E "^[0-9a-f]{64}  quackd-[0-9][0-9A-Za-z.+-]*-$target\.tar\.gz\$" "$work/sums" || true)"
  [ -n "$line" ] || fail "SHA256SUMS of the release has no archive for $target"
  [ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "SHA256SUMS of the release has several archives for $target"
  expected="${line%%  *}" archive="${line#*  }"
  get "$base/$archive" "$work/$archive" || fail "cannot download $base/$archive"
  found="$(sum "$work/$archive")"
  [ "${found%% *}" = "$expected" ] || fail "wrong SHA-256 sum of $archive: nothing was installed"

  name="${archive%.tar.gz}"
  tar -xzf "$work/$archive" -C "$work" "$name/bin/quack" || fail "$archive has no bin/quack"
  said="$("$work/$name/bin/quack" --version)" || fail 'the program of the release does not run on this machine'
  if [ "$is_dry" = yes ]; then
    printf 'verified %s (%s); would install it to %s/quack\n' "$archive" "$said" "$to"
    return
  fi
  mkdir -p "$to" || fail "cannot create $to"
  # Renamed within one directory, so the old program works until the new one is complete.
  new="$to/.quack.new.$$"
  cp "$work/$name/bin/quack" "$new" || fail "cannot write to $to"
  chmod 755 "$new"
  mv -f "$new" "$to/quack"
  printf 'installed %s to %s/quack\n' "$said" "$to"
  case ":${PATH:-}:" in *":$to:"*) ;; *) printf 'add %s to PATH to run it by name\n' "$to" ;; esac
  printf 'next: quack doctor. After an upgrade: quack restart\n'
}

{ quackd_install "$@"; }
