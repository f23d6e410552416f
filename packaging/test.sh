#!/usr/bin/env bash
# Packs an executable by the scripts beside this one, twice and under different circumstances, and looks at
# what comes out. Called by tests/packaging.rs; ends with 77 if this machine lacks what it takes.
#
#   packaging/test.sh QUACK
set -euo pipefail

quack="$1"
step='the begin'
trap 'printf "failed: %s (line %s)\n" "$step" "$LINENO"' ERR
fail() { printf 'failed: %s: %s\n' "$step" "$*"; exit 1; }
skip() { printf 'SKIPPED: %s\n' "$*"; exit 77; }

for tool in cargo rustc python3 gzip objcopy readelf sha256sum cmp tar; do
  command -v "$tool" >/dev/null || skip "$tool is not there"
done
tar --version | grep -q 'GNU tar' || skip 'tar is not GNU tar'

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
# What is packed is a copy, so that somebody may go on editing. With git it is a clone of its own as well.
here="$work/sources/packaging"
mkdir "$work/sources"
tar --create --directory "$(dirname "$0")/.." --exclude=./target --exclude=./fuzz/target --exclude=./.git . \
  | tar --extract --directory "$work/sources"
export SOURCE_DATE_EPOCH=1767225600
clone=()
if command -v git >/dev/null; then
  clone=(--url https://example.org/releases)
  in_clone() { git -C "$work/sources" -c user.name=nobody -c user.email=nobody@localhost -c gc.auto=0 "$@" >&2; }
  export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
  in_clone init --quiet
  in_clone add --all
  in_clone commit --quiet --message 'as it is'
fi
# Whatever runs here must not find a daemon.
export RUBBER_DUCK_APP_SUPPORT="$work/state"

# The line tables and symbols of an executable that is made for tests take minutes to pack.
objcopy --strip-all "$quack" "$work/quack"
has_deb=no
deb=()
if command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null; then
  has_deb=yes
  deb=(--deb)
  # What is packed is compared, and not how well.
  export DPKG_DEB_COMPRESSOR_LEVEL=1
fi

step='packing twice'
pack() {
  bash "$here/release.sh" --binary "$work/quack" --out "$1" "${deb[@]}" "${clone[@]}" 2>"$1.log" \
    || fail "$(cat "$1.log")"
}
mkdir "$work/elsewhere"
pack "$work/one"
(cd "$work/elsewhere" && umask 077 && TZ=America/Lima LC_ALL=C.UTF-8 && export TZ LC_ALL && pack "$work/two")
cmp "$work/one/SHA256SUMS" "$work/two/SHA256SUMS" >&2
for file in "$work/one"/*; do
  cmp "$file" "$work/two/$(basename "$file")" >&2
done
(cd "$work/one" && sha256sum --quiet --check SHA256SUMS) >&2

step='the archive'
archive="$(find "$work/one" -name 'quackd-*-*.tar.gz' ! -name '*-debug.tar.gz')"
name="$(basename "$archive" .tar.gz)"
version="${name#quackd-}"
version="${version%%-*}"
tar -tzf "$archive" > "$work/names"
LC_ALL=C sort --check "$work/names" >&2
tar --numeric-owner --utc --full-time -tvzf "$archive" > "$work/listing"
! grep -v ' 0/0 .* 2026-01-01 00:00:00 ' "$work/listing" >&2 || fail 'an owner or a time is not fixed'
! grep -E '^.{5}w|^.{8}w|^[lhcbps]' "$work/listing" >&2 || fail 'modes or kinds of files'
tar -xzf "$archive" -C "$work"
tree="$work/$name"
"$tree/bin/quack" --version | grep -q '^quack [0-9]'
readelf --string-dump=.gnu_debuglink "$tree/bin/quack" | grep -q 'quack\.debug'
doc="$tree/share/doc/quackd"
for file in README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE docs/privacy.md docs/install.md; do
  [ -s "$doc/$file" ] || fail "$file is not there"
done
! grep -rlF -e "$here" -e "$work" "$tree/share" >&2 || fail 'a path of this machine'

step='the licences'
licences="$doc/THIRD-PARTY-LICENCES.txt"
for package in ring tokio serde_json; do
  grep -q "^$package [0-9.]*: [A-Z]" "$licences" || fail "$package is not listed"
done
! grep 'hold no text' "$licences" >&2 || fail 'a package without a text'
! grep -E '^(proptest|quackd[a-z-]*) [0-9]' "$licences" >&2 || fail 'ours, or only for tests'

step='the completions'
# shellcheck disable=SC1091
completed="$(
  PATH="$tree/bin:$PATH"
  . "$tree/share/bash-completion/completions/quack"
  # As bash sets them at a TAB.
  COMP_WORDS=(quack doct) COMP_CWORD=1 COMP_TYPE=9 COMP_LINE='quack doct' COMP_POINT=10
  "$(complete -p quack | sed 's/.* -F \([^ ]*\) .*/\1/')" quack doct quack
  printf '%s\n' "${COMPREPLY[@]}"
)"
[ "$completed" = doctor ] || fail "bash completes to $completed"
for file in zsh/site-functions/_quack fish/vendor_completions.d/quack.fish elvish/lib/quack.elv; do
  grep -q 'QUACK_COMPLETE' "$tree/share/$file"
done
! command -v zsh >/dev/null || zsh -n "$tree/share/zsh/site-functions/_quack"
! command -v fish >/dev/null || fish --no-execute "$tree/share/fish/vendor_completions.d/quack.fish"

step='the manual pages'
if command -v groff >/dev/null; then
  groff -K utf8 -man -Tutf8 -ww -z "$tree"/share/man/man1/*.1 >"$work/warnings" 2>&1 || fail "$(cat "$work/warnings")"
  [ ! -s "$work/warnings" ] || fail "$(cat "$work/warnings")"
fi
if command -v man >/dev/null; then
  man -l "$tree/share/man/man1/quack-tool.1" </dev/null > "$work/page"
  grep -q SYNOPSIS "$work/page"
fi
for verb in $("$tree/bin/quack" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p'); do
  [ "$verb" = help ] || grep -q '^\.TH' "$tree/share/man/man1/quack-$verb.1" || fail "no page for $verb"
done

step='what is refused'
refused() {
  local text="$1"
  shift
  if bash "$here/release.sh" "$@" >"$work/refused" 2>&1; then fail "$* was taken"; fi
  grep -qF "$text" "$work/refused" || fail "$* said $(cat "$work/refused")"
}
refused 'is not understood' --fast
refused 'needs a value' --out
refused 'is no executable' --dirty --binary "$here/licences.py.nothing" --out "$work/three"
if [ "${#clone[@]}" != 0 ]; then
  printf 'changed\n' >> "$work/sources/README.md"
  refused 'not what is committed' --binary "$work/quack" --out "$work/three"
  step='the formula'
  sources="$(find "$work/one" -name 'quackd-*.tar.gz' ! -name 'quackd-*-*')"
  grep -qxF "  sha256 \"$(sha256sum "$sources" | cut -d' ' -f1)\"" "$work/one/quackd.rb"
  grep -qxF "  url \"https://example.org/releases/download/v$version/$(basename "$sources")\"" "$work/one/quackd.rb"
  ! grep '@[A-Z0-9]*@' "$work/one/quackd.rb" >&2 || fail 'something is not filled in'
  ! command -v ruby >/dev/null || ruby -c "$work/one/quackd.rb" >/dev/null
  tar -tzf "$sources" > "$work/names"
  grep -qx 'quackd-[0-9.]*/crates/cli/Cargo\.toml' "$work/names"
else
  printf 'SKIPPED: the archive of the sources and the formula, git is not there\n'
fi
step='what is refused'
refused 'the executable says' --dirty --binary "$(command -v bash)" --out "$work/three"

[ "$has_deb" = yes ] || { printf 'SKIPPED: the Debian package, dpkg-deb or dpkg-shlibdeps is not there\n'; exit 0; }

step='the Debian package'
package="$(find "$work/one" -name '*.deb')"
field() { dpkg-deb --field "$package" "$1"; }
[ "$(field Package)" = quackd ]
[ "$(field Architecture)" = "$(dpkg --print-architecture)" ]
field Depends | grep -Eq '(^|, )libc6 \(>= 2\.[0-9]+\)' || fail "it depends on $(field Depends)"
! dpkg-deb --contents "$package" | grep -v ' root/root ' >&2 || fail 'somebody else owns a file'
if command -v lintian >/dev/null; then
  # Nobody answers for what is made here, and it is not meant for Debian itself.
  lintian --no-cfg --fail-on error,warning --suppress-tags \
    bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs \
    "$package" >"$work/lintian" 2>&1 || fail "$(cat "$work/lintian")"
fi

step='its installation'
installed="$work/root"
mkdir -p "$installed/var/lib/dpkg/info" "$installed/var/lib/dpkg/updates"
touch "$installed/var/lib/dpkg/status"
# Into a directory without libraries or a shell, and not only by root.
in_root() {
  dpkg --root="$installed" --force-not-root --force-depends --force-bad-path "$@" >"$work/dpkg" 2>&1 \
    || fail "$(cat "$work/dpkg")"
}
in_root --install "$package"
[ "$("$installed/usr/bin/quack" --version)" = "$("$quack" --version)" ]
# Without symbols it is what the archive has.
objcopy --strip-unneeded --remove-section=.comment "$tree/bin/quack" "$work/stripped"
cmp "$work/stripped" "$installed/usr/bin/quack" >&2
(cd "$installed" && md5sum --quiet --check var/lib/dpkg/info/quackd.md5sums) >&2
for file in bash-completion/completions/quack zsh/vendor-completions/_quack man/man1/quack.1.gz \
  doc/quackd/copyright doc/quackd/changelog.Debian.gz doc/quackd/THIRD-PARTY-LICENCES.txt.gz; do
  [ -s "$installed/usr/share/$file" ] || fail "$file is not there"
done

step='the units of the package'
units="$installed/usr/lib/systemd/user"
grep -qx 'ListenStream=%h/\.local/state/quackd/daemon\.sock' "$units/quackd.socket"
grep -q '^ExecStart=/usr/bin/quack daemon' "$units/quackd.service"
! grep -F -e "$work" -e whoever "$units"/* >&2 || fail 'a path of this machine'
if command -v systemd-analyze >/dev/null; then
  # The program has to be where the unit says, and a user's manager has a directory of its own.
  mkdir "$work/units" "$work/runtime"
  sed "s|/usr/bin/quack|$installed/usr/bin/quack|" "$units/quackd.service" > "$work/units/quackd.service"
  cp "$units/quackd.socket" "$work/units/"
  XDG_RUNTIME_DIR="$work/runtime" systemd-analyze --user --man=no verify "$work"/units/quackd.* >"$work/verify" 2>&1 \
    || fail "$(cat "$work/verify")"
  ! grep -F quackd "$work/verify" >&2 || fail 'the units are not as they should be'
fi

step='its removal'
in_root --purge quackd
left="$(find "$installed" -path "$installed/var/lib/dpkg" -prune -o ! -type d -print)"
[ -z "$left" ] || fail "it leaves $left"

[ ! -e "$RUBBER_DUCK_APP_SUPPORT" ] || fail 'something made a state directory'
printf 'ok: %s\n' "$(cd "$work/one" && ls | tr '\n' ' ')"
