#!/usr/bin/env bash
# Sets the clock of a virtual machine and suspends the machine, while a daemon works (P-13). Use it with run.sh:
#
#   tests/vm/run.sh KERNEL.deb 'bash tests/vm/clock.sh'
set -euo pipefail
quack="$PWD/target/debug/quack"
HOME="$(mktemp -d)"
export HOME NO_COLOR=1
cd "$(mktemp -d)"
git init -q .

tool() { "$quack" tool --no-stdin bash "$1" 2>&1; }
uptime_s() { cut -d. -f1 /proc/uptime; }
set_clock() { date -s "$(date -u -d "$1" +%FT%TZ)"; }
worker() { "$quack" ps --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["workers"][0]["pid"])'; }
fail() {
  printf 'FAILED: %s\n' "$1"
  "$quack" logs --level warn
  exit 1
}

# The first worker of an emulated machine may need more than its 10 s.
until tool 'echo first'; do :; done
before="$(worker)"

for change in '-1 hour' '+10 years' '-10 years' '+1 day' '-1 day'; do
  set_clock "$change"
  answer="$(tool 'sleep 1; echo alive' || true)"
  [[ "$answer" = *alive* ]] || fail "after $change: $answer"
done

began="$(uptime_s)"
tool '{"command":"sleep 100","timeout_ms":20000}' >late &
sleep 5
set_clock '+1 hour'
sleep 5
set_clock '-2 hours'
wait $! || true
took=$(($(uptime_s) - began))
cat late
grep -q 'timed out after 20s' late || fail 'no deadline'
((took >= 20 && took < 60)) || fail "the deadline of 20 s came after $took s"

tool '{"command":"sleep 15; echo slept","timeout_ms":60000}' >slept &
sleep 5
rtcwake -m mem -s 90
wait $! || true
cat slept
grep -q slept slept || fail 'no answer after the suspend'
checks="$("$quack" doctor || true)"
[[ "$checks" = *'the machine slept for'* ]] || fail "doctor does not name the suspend: $checks"
[ "$(worker)" = "$before" ] || fail 'another worker'
"$quack" stop
