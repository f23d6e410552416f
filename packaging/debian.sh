#!/usr/bin/env bash
# Makes a Debian package of an archive that packaging/release.sh has made, and prints its path.
#
#   packaging/debian.sh quackd-VERSION-TARGET.tar.gz [DIR]
#
#   DIR  where the package goes; beside the archive if absent
#
# The same archive gives the same package. Nothing is run when it is installed or removed: it holds files
# only, and what a user turns on (`quack service install`) is that user's.
# DEBFULLNAME and DEBEMAIL, as in other Debian tools, say who answers for the package.
# Needs bash, python3, GNU tar, gzip, objcopy, dpkg-deb and dpkg-shlibdeps (packages dpkg and dpkg-dev), and must be
# able to run the executable.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

fail() { printf 'debian.sh: %s\n' "$*" >&2; exit 1; }

[ $# -ge 1 ] && [ $# -le 2 ] || fail 'the head of this file says how to call it'
for tool in python3 tar gzip objcopy dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || fail "$tool is not there"
done
[ -f "$1" ] || fail "$1 is not there"
archive="$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")"
out="$(cd "${2:-$(dirname "$archive")}" && pwd -P)"
name="$(basename "$archive" .tar.gz)"
case "$name" in
  quackd-*-x86_64-unknown-linux-gnu | quackd-*-x86_64-unknown-linux-musl) architecture=amd64 ;;
  quackd-*-aarch64-unknown-linux-gnu | quackd-*-aarch64-unknown-linux-musl) architecture=arm64 ;;
  *) fail "$name is no archive for a Debian machine" ;;
esac
version="${name#quackd-}"
version="${version%%-*}-1"
maintainer="${DEBFULLNAME:-The quackd authors} <${DEBEMAIL:-quackd@localhost}>"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
tar --extract --directory "$work" --file "$archive"
staged="$work/$name"
tree="$work/tree"
# The time of every file, and of what is made here: that of the release.
SOURCE_DATE_EPOCH="$(stat -c %Y "$staged/bin/quack")"
export SOURCE_DATE_EPOCH

doc="$tree/usr/share/doc/quackd"
mkdir -p "$tree/usr/bin" "$doc"

# Debian wants executables without symbols. Who needs them has the archive.
objcopy --strip-unneeded --remove-section=.comment "$staged/bin/quack" "$tree/usr/bin/quack"
chmod 755 "$tree/usr/bin/quack"

install_as() { mkdir -p "$tree/usr/share/$2" && cp "$staged/share/$1" "$tree/usr/share/$2/$3"; }
install_as bash-completion/completions/quack bash-completion/completions quack
install_as zsh/site-functions/_quack zsh/vendor-completions _quack
install_as fish/vendor_completions.d/quack.fish fish/vendor_completions.d quack.fish
install_as elvish/lib/quack.elv elvish/lib quack.elv
mkdir -p "$tree/usr/share/man"
cp -r "$staged/share/man/man1" "$tree/usr/share/man/man1"
gzip -9 -n "$tree"/usr/share/man/man1/*.1

# The units that `quack service install` would write, for everybody: in the usual place below each home, which
# is `%h` there. A user's own units, in ~/.config/systemd/user, win over them.
units="$tree/usr/lib/systemd/user"
mkdir -p "$units"
nobody=/home-of-whoever-runs-it
env -i HOME="$nobody" PATH=/usr/bin:/bin "$staged/bin/quack" service --manager systemd print --json > "$work/units.json"
python3 - "$work/units.json" "$units" "$staged/bin/quack" "$nobody" <<'PYTHON'
import json, os, sys

source, directory, program, home = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    files = json.load(file)["files"]
for file in files:
    head, body = file["text"].split("\n", 1)
    if "quack service install" not in head:
        sys.exit("debian.sh: a unit does not begin with its mark: " + head)
    body = body.replace(program, "/usr/bin/quack").replace(home, "%h")
    with open(os.path.join(directory, os.path.basename(file["path"])), "w", encoding="utf-8") as unit:
        unit.write("# Of the package quackd. `quack service install` writes one of your own, which wins.\n" + body)
PYTHON

cp "$staged/share/doc/quackd/README.md" "$staged/share/doc/quackd/SECURITY.md" "$doc/"
cp -r "$staged/share/doc/quackd/docs" "$doc/docs"
gzip -9 -n -c "$staged/share/doc/quackd/CHANGELOG.md" > "$doc/changelog.gz"
gzip -9 -n -c "$staged/share/doc/quackd/THIRD-PARTY-LICENCES.txt" > "$doc/THIRD-PARTY-LICENCES.txt.gz"
{
  printf 'quackd (%s) unstable; urgency=medium\n\n  * As it is described in changelog.gz.\n\n' "$version"
  printf ' -- %s  %s\n' "$maintainer" "$(date -R -u -d "@$SOURCE_DATE_EPOCH")"
} | gzip -9 -n > "$doc/changelog.Debian.gz"

# Paragraphs of a copyright file are set in by a space, and a dot stands for an empty line.
{
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n'
  printf 'Upstream-Name: quackd\n'
  printf 'Comment: What is linked into the executable beside its own code, and under which licences,\n'
  printf ' stands in /usr/share/doc/quackd/THIRD-PARTY-LICENCES.txt.gz.\n\n'
  printf 'Files: *\n'
  printf 'Copyright: %s\n' "$(sed -n 's/^Copyright (c) //p' "$staged/share/doc/quackd/LICENSE-MIT")"
  printf 'License: Expat or Apache-2.0\n\n'
  printf 'License: Expat\n'
  sed -e '1,/^Copyright/d' -e '/./,$!d' "$staged/share/doc/quackd/LICENSE-MIT" \
    | sed -e '/./,$!d' -e 's/^$/./' -e 's/^/ /'
  printf '\nLicense: Apache-2.0\n'
  printf ' On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n'
} > "$doc/copyright"

# The required libraries and their versions are read from the executable. A static one (musl) requires none.
mkdir -p "$work/debian"
printf 'Source: quackd\n\nPackage: quackd\nArchitecture: any\n' > "$work/debian/control"
needs="$(cd "$work" && dpkg-shlibdeps -O -e"$tree/usr/bin/quack" 2>"$work/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p')" \
  || fail "dpkg-shlibdeps failed: $(cat "$work/shlibdeps.log")"
case "$name" in
  *-gnu) [ -n "$needs" ] || fail 'the executable seems to need no library' ;;
  *-musl) [ -z "$needs" ] || fail "the static executable needs $needs" ;;
esac

mkdir -p "$tree/DEBIAN"
cat > "$tree/DEBIAN/control" <<CONTROL
Package: quackd
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size "$tree/usr" | cut -f1)
${needs:+Depends: $needs
}Recommends: ca-certificates
Suggests: git
Section: devel
Priority: optional
Description: supervisor for coding-agent sessions
 quackd runs one worker process for each session of a coding agent. A worker
 runs the tools of its session: shell commands, files, search. When it dies,
 the calls of its session fail, and nothing else does.
 .
 Commands are confined by the kernel to their workspace where it can do that.
CONTROL
(cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) > "$tree/DEBIAN/md5sums"

find "$tree" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
find "$tree" -type d -exec chmod 755 {} +
package="$out/quackd_${version}_$architecture.deb"
dpkg-deb --root-owner-group -Zxz --build "$tree" "$package" >/dev/null
printf '%s\n' "$package"
