#!/usr/bin/env bash
# Checks quackd on a Mac, and prints a table to paste into an issue:
#
#   [DUCK=FILE] bash packaging/macos-check.sh [--service] [QUACK]
#
# QUACK is the program; without it, `cargo build --release` makes one. DUCK is the real duck (a program, or the cli.js of
# its package); without it, that of the PATH. All checks run in a temporary home with a separate daemon.
# With --service, quackd is also installed as your service and removed again: that needs your own home and no
# other daemon of yours. Exit code 1 if a check failed. On Linux the same checks run, but those of launchd.
set -uo pipefail

with_service=0
quack=''
for word in "$@"; do
  case "$word" in
    --service) with_service=1 ;;
    -*) printf 'usage: bash packaging/macos-check.sh [--service] [QUACK]\n' >&2; exit 2 ;;
    *) quack="$word" ;;
  esac
done
if [ -z "$quack" ]; then
  sources="$(cd "$(dirname "$0")/.." && pwd)"
  (cd "$sources" && cargo build --release --locked) || exit 1
  quack="${CARGO_TARGET_DIR:-$sources/target}/release/quack"
fi
quack="$(cd "$(dirname "$quack")" && pwd)/$(basename "$quack")"

user_home="$HOME"
# A short path: that of a socket has at most 104 bytes on macOS.
work="$(mktemp -d /tmp/quackd-check.XXXXXX)"
work="$(cd "$work" && pwd -P)"
export HOME="$work/home" RUBBER_DUCK_APP_SUPPORT="$work/state" NO_COLOR=1
unset XDG_CONFIG_HOME XDG_STATE_HOME
finish() {
  "$quack" stop >/dev/null 2>&1
  kill "$server" 2>/dev/null
  rm -rf "$work"
}
mkdir -p "$HOME/.ssh" "$HOME/other" "$HOME/app/src"
printf 'PRIVATE\n' >"$HOME/.ssh/id_ed25519"
printf 'PRIVATE\n' >"$HOME/other/notes"
cd "$HOME/app" || exit 1
git init -q . && printf 'hello\n' >src/main.txt && git add -A
git -c user.name=a -c user.email=a@b commit -q -m first

# A server that a session without a network must not reach.
perl -MIO::Socket::INET -e '
  $| = 1;
  my $server = IO::Socket::INET->new(Listen => 5, LocalAddr => "127.0.0.1") or die;
  print $server->sockport, "\n";
  while (my $client = $server->accept) {
    while (<$client>) { last if /^\r?$/ }
    print $client "HTTP/1.0 200 OK\r\n\r\nreached\n";
    close $client;
  }
' >"$work/port" &
server=$!
until [ -s "$work/port" ]; do sleep 0.1; done
port="$(cat "$work/port")"
trap finish EXIT

failed=0
rows=''
row() { rows="$rows| $1 | $2 | $3 |"$'\n'; }

# holds NAME COMMAND…: the command must succeed.
holds() {
  local name="$1" text
  shift
  if text="$("$@" 2>&1)"; then
    row "$name" holds ''
  else
    failed=1
    row "$name" FAILED "$(printf '%s' "$text" | tail -n 2 | tr '\n|' '  ' | cut -c 1-160)"
  fi
}

inside() { "$quack" tool bash "$1" --timeout 60s; }
# denies NAME COMMAND: the command must fail in the session.
denies() { holds "$1" is_denied "$2"; }
is_denied() { ! inside "$1"; }
# On Linux the command writes in a private home.
writes_nothing() {
  inside "mkdir -p '$HOME/other' && touch '$HOME/other/mark'"
  [ ! -e "$HOME/other/mark" ]
}
prints() { inside "$1" | grep -q -- "$2"; }
within() {
  local tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || return 1
    sleep 0.2
  done
}
worker() { "$quack" ps | sed -n 's/.*worker \([0-9]*\).*/\1/p' | head -n 1; }

case "$(uname -s)" in
  Darwin) system="macOS $(sw_vers -productVersion) $(uname -m)" ;;
  *) system="$(uname -sr) $(uname -m)" ;;
esac

holds 'a command runs' prints 'echo works' works
holds 'the session is confined' sh -c "'$quack' ps | grep ' confined' | grep -vq 'not confined'"
holds 'it writes in the workspace' inside 'echo x > new && rm new'
holds 'git works' inside 'git status && echo y >> src/main.txt && git add -A && git -c user.name=a -c user.email=a@b commit -q -m two'
holds 'search' sh -c "'$quack' grep hello | grep -q src/main.txt"
holds 'replace and undo' sh -c "'$quack' replace hello bye && grep -q bye src/main.txt && '$quack' undo && grep -q hello src/main.txt"
holds 'a job runs and is ended' sh -c "'$quack' tool bash --detach 'sleep 300' && '$quack' jobs kill job-1"
denies 'no key of ssh' "cat '$HOME/.ssh/id_ed25519'"
denies 'no other project' "cat '$HOME/other/notes'"
holds 'no write in the home' writes_nothing
denies 'no file of the daemon' "cat '$RUBBER_DUCK_APP_SUPPORT'/quackd-state.json"
denies 'no hook' 'echo x > .git/hooks/post-checkout'
denies 'no setting of git' 'git config core.fsmonitor x'
denies 'no hook by a rename' 'mv .git/hooks .git/old && mkdir .git/hooks && echo x > .git/hooks/post-checkout'
denies 'no alternates by a rename' 'mkdir -p x/info && echo /x > x/info/alternates && mv .git/objects/info .git/y && mv x/info .git/objects/info && cat .git/objects/info/alternates'
holds 'the test server answers' curl -sSf --noproxy '*' --max-time 5 "http://127.0.0.1:$port"
denies 'no network' "curl -sSf --noproxy '*' --max-time 5 http://127.0.0.1:$port"
if [ "$(uname -s)" = Darwin ]; then
  denies 'no Apple events' "osascript -e 'tell application \"Finder\" to get name'"
  denies 'no open' "open -g '$HOME/other'"
  denies 'no keychain' 'security dump-keychain'
fi
deadline() {
  "$quack" tool bash 'sleep 987654' --timeout 1s && return 1
  ! pgrep -f '^sleep 987654'
}
holds 'a deadline ends the command' deadline
kill_worker() {
  inside true && kill -9 "$(worker)" && within inside true
}
holds 'a killed worker is replaced' kill_worker
holds 'the daemon stops and starts' sh -c "'$quack' stop && '$quack' tool bash true"
holds 'metadata is seen when another program writes it' sh -c "cp '$work/state/metadata.json' '$work/m' && mv '$work/m' '$work/state/metadata.json' && '$quack' sessions"
holds 'a key is stored and removed' sh -c "printf 'sk-not-a-key\n' | '$quack' login openai && '$quack' logout openai"
real_duck() {
  # The file of a checkout has no bit for execution.
  case "$duck" in *.js) node "$duck" "$@" ;; *) "$duck" "$@" ;; esac
}
real_duck_lists() {
  "$quack" sessions && real_duck sessions | grep -q -- "$(basename "$PWD")"
}
duck="${DUCK:-$(command -v duck)}"
if [ -n "$duck" ]; then
  holds "the real duck: $duck" real_duck_lists
else
  row 'the real duck' 'not run' 'duck is not in the PATH, and DUCK names no other'
fi

# The page of remote control, as a browser loads it: without a token, which the page asks for.
page() {
  local address
  "$quack" remote enable --port 0 || return 1
  address="$("$quack" remote --json | sed -n 's/.*"httpUrl": *"\([^"]*\)".*/\1/p' | head -n 1)"
  curl -sSf --noproxy '*' --max-time 5 "${address%/}/" | grep -qi '<html' || return 1
  # Everything else needs the token.
  [ "$(curl -sS --noproxy '*' --max-time 5 -o "$work/status" -w '%{http_code}' "${address%/}/status")" = 401 ] || return 1
  curl -sSf --noproxy '*' --max-time 5 -H "Authorization: Bearer $("$quack" remote token)" "${address%/}/status"
}
holds 'the page of remote control' page
"$quack" remote disable >/dev/null 2>&1

service() {
  local pid
  export HOME="$user_home"
  unset RUBBER_DUCK_APP_SUPPORT
  "$quack" service install --yes || return 1
  pid="$("$quack" service status | sed -n 's/.*daemon: .*process \([0-9]*\).*/\1/p')"
  kill -9 "$pid" || return 1
  within sh -c "'$quack' service status | grep 'daemon: ' | grep -v 'process $pid'" || return 1
  "$quack" service install --yes && "$quack" stop && "$quack" service install --yes && "$quack" service restart
}
if [ "$with_service" = 1 ]; then
  # A subshell, because it changes the home.
  if text="$(service 2>&1)"; then row 'service' holds ''; else
    failed=1
    row 'service' FAILED "$(printf '%s' "$text" | tail -n 2 | tr '\n|' '  ' | cut -c 1-160)"
  fi
  HOME="$user_home" RUBBER_DUCK_APP_SUPPORT='' "$quack" service uninstall >/dev/null 2>&1
else
  row 'service' 'not run' '--service'
fi

printf '%s, %s, %s\n\n| check | result | |\n|---|---|---|\n%s' "$system" "$("$quack" --version)" "$(date +%F)" "$rows"
exit "$failed"
