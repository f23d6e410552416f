# Passes the messages of an MCP client on stdin to a server over HTTP, and its messages to stdout, one per line.
# $1: http (streamable HTTP) or sse (the older transport). $2: the URL. MCP_HEADERS: one header per line.
kind=$1 url=$2 session= version= stream= n=0
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT
options=(-sS --max-time 600 --max-filesize 8388608 -H 'Content-Type: application/json')
while IFS= read -r header; do
  [ -z "$header" ] || options+=(-H "$header")
done <<<"$MCP_HEADERS"
unset MCP_HEADERS

# One process writes to stdout, so that long messages do not mix.
exec 3> >(while IFS= read -r file; do cat "$file"; rm -f "$file"; done)

# The data of events on stdin, one per line.
events() { tr -d '\r' | awk '/^data:/ { d = d substr($0, 6) } /^$/ { if (d) print d; d = "" } END { if (d) print d }'; }

# Answers a request that has failed: its id, the file, the reason.
failed() {
  [ -z "$1" ] || {
    printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"%s"}}\n' "$1" \
      "$(printf %s "$3" | tr '\n"\\' "  '" | tr -cd ' -~' | cut -c1-200)" >"$2.out"
    echo "$2.out" >&3
  }
}

# Sends a message: the message, its id, a file.
post() {
  local status more=()
  [ -z "$session" ] || more+=(-H "Mcp-Session-Id: $session")
  [ -z "$version" ] || more+=(-H "MCP-Protocol-Version: $version")
  status=$(printf %s "$1" | curl "${options[@]}" "${more[@]}" -H 'Accept: application/json, text/event-stream' \
    --data-binary @- -D "$3.head" -o "$3.body" -w '%{http_code} %{content_type}' "$url" 2>"$3.error") ||
    { failed "$2" "$3" "$(cat "$3.error")"; return; }
  case $status in
    2*event-stream*) events <"$3.body" >"$3.out" ;;
    2*) { tr -d '\r\n' <"$3.body"; echo; } 2>/dev/null | grep . >"$3.out" ;;
    *) failed "$2" "$3" "HTTP status ${status%% *}"; return ;;
  esac
  # The answers to messages over SSE come in the stream.
  if [ "$kind" = http ] && [ -s "$3.out" ]; then echo "$3.out" >&3; fi
}

if [ "$kind" = sse ]; then
  # The stream names the address for messages first.
  exec 4< <(exec curl "${options[@]}" --max-time 86400 -N -H 'Accept: text/event-stream' "$url" 3>&-)
  stream=$!
  event= data=
  address=
  while [ -z "$address" ] && IFS= read -r -u 4 line; do
    line=${line%$'\r'}
    case $line in
      event:*) event=${line#event:} event=${event# } ;;
      data:*) data=${line#data:} data=${data# } ;;
      '') [ "$event" != endpoint ] || address=$data ;;
    esac
  done
  [ -n "$address" ] || { echo "the server has named no endpoint" >&2; exit 1; }
  origin=$(printf %s "$url" | grep -oE '^https?://[^/]+')
  case $address in
    /*) url=$origin$address ;;
    "$origin"/*) url=$address ;;
    *) echo "the server names an endpoint elsewhere" >&2; exit 1 ;;
  esac
  while IFS= read -r -u 4 line; do
    line=${line%$'\r'}
    case $line in
      data:*) n=$((n + 1)); printf '%s\n' "${line#data:}" >"$directory/event$n"; echo "$directory/event$n" >&3 ;;
    esac
  done &
fi

while IFS= read -r message; do
  n=$((n + 1)) id=
  [[ $message =~ \"id\":([0-9]+),\"(jsonrpc|method)\" ]] && id=${BASH_REMATCH[1]}
  file=$directory/$n
  if [[ $message == *'"method":"initialize"'* ]]; then
    post "$message" "$id" "$file"
    session=$(tr -d '\r' <"$file.head" 2>/dev/null | grep -i '^mcp-session-id:' | tail -1 | cut -d: -f2 | tr -d ' ')
    [[ $(cat "$file.body" 2>/dev/null) =~ \"protocolVersion\":\ *\"([0-9-]+)\" ]] && version=${BASH_REMATCH[1]}
  else
    while [ "$(jobs -rp | wc -l)" -ge 8 ]; do wait -n; done
    post "$message" "$id" "$file" &
  fi
done
kill $stream $(jobs -p) 2>/dev/null
exit 0
