#!/usr/bin/env bash
# Builds all fuzz targets and runs each for SECONDS (default: 10): `bash fuzz/run.sh [SECONDS [TARGET…]]`.
# Requires a C++ compiler. Uses the stable Rust compiler: coverage is an LLVM pass, not a nightly feature.
# Findings are in `artifacts` in the build directory. To reproduce one, pass it to the target that found it.
set -euo pipefail
fuzz="$(cd "$(dirname "$0")" && pwd)"
work="$(realpath -m "${CARGO_TARGET_DIR:-$fuzz/../target}")/fuzz"
cd "$fuzz"
seconds="${1:-10}"
shift || true

skip() { printf 'SKIPPED: nothing was fuzzed: %s\n' "$*"; exit 0; }

command -v "${CXX:-c++}" >/dev/null || skip "there is no C++ compiler"
[ "$(uname -s)" = Linux ] || skip "this has been tried on Linux only"

scratch="$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")" quackd-fuzz.XXXXXX)"
trap 'rm -rf "$scratch"' EXIT
export QUACKD_FUZZ_DIR="$scratch"

host="$(rustc -vV | sed -n 's/^host: //p')"
coverage=(
  -Cpasses=sancov-module
  -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares
)
rustc "${coverage[@]}" --emit=obj -o "$scratch/probe.o" - <<<'fn main() {}' 2>/dev/null \
  || skip "this compiler has no coverage for a fuzzer"

# With `--target`, the flags apply to the targets and not to build scripts. Not `--locked`: this lock file
# follows the dependencies of the product.
RUSTFLAGS="${coverage[*]}" cargo build --release --target "$host" --target-dir "$work" --bins

# The corpus is kept in the build directory between runs. The seeds are read-only.
one() {
  target="$1"
  mkdir -p "$work/corpus/$target" "$work/artifacts/$target"
  log="$work/$target.log"
  if "$work/$host/release/$target" "$work/corpus/$target" "seeds/$target" \
      -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=4096 -use_value_profile=1 \
      -artifact_prefix="$work/artifacts/$target/" -print_final_stats=1 >"$log" 2>&1; then
    printf '%-12s %s runs, %s\n' "$target" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
      "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
  else
    printf '%-12s FAILED; the log is %s\n' "$target" "$log"
    grep -v '^#' "$log" | tail -n 60
    return 1
  fi
}
export -f one
export work host seconds

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  for file in fuzz_targets/*.rs; do targets+=("$(basename "$file" .rs)"); done
fi
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'one {}'
