# shellcheck shell=bash
# Sourced, by bash: sets up compiling and linking for macOS on Linux. Installs zig, which brings a C compiler, a linker,
# the headers of the system and its library. Fails if something is missing: nothing is skipped.

macos_targets=(aarch64-apple-darwin x86_64-apple-darwin)
zig_version=0.17.1

# The first release for arm64. Rust's own minimum for x86_64 is older.
export MACOSX_DEPLOYMENT_TARGET=11.0

macos_dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
macos_tools="${CARGO_TARGET_DIR:-$macos_dir/../../target}/tools"
mkdir -p "$macos_tools"
macos_tools="$(cd "$macos_tools" && pwd)"

if ! rustup target add "${macos_targets[@]}"; then
  printf 'FAILED: rustup cannot install the targets %s\n' "${macos_targets[*]}" >&2
  exit 1
fi

macos_zig="$macos_tools/zig-$zig_version"
if ! "$macos_zig/ziglang/zig" version >/dev/null 2>&1; then
  # Installed under another name first, so that an interrupted installation is not taken for a whole one.
  rm -rf "$macos_zig" "$macos_zig.new"
  if ! python3 -m pip install --quiet --disable-pip-version-check --no-deps \
    --target "$macos_zig.new" "ziglang==$zig_version"; then
    printf 'FAILED: pip cannot install ziglang %s from PyPI, which links for macOS\n' "$zig_version" >&2
    exit 1
  fi
  mv "$macos_zig.new" "$macos_zig"
fi
export QUACKD_ZIG="$macos_zig/ziglang/zig"
export ZIG_GLOBAL_CACHE_DIR="$macos_tools/zig-cache"
export ZIG_LOCAL_CACHE_DIR="$macos_tools/zig-cache"

# rustc and build scripts ask Xcode for the SDK unless this names a directory. It has stubs of the frameworks.
export SDKROOT="$macos_dir/stubs"
for target in "${macos_targets[@]}"; do
  lower="${target//-/_}"
  upper="${lower^^}"
  export "CC_$lower=$macos_dir/cc" "AR_$lower=$macos_dir/ar" "CARGO_TARGET_${upper}_LINKER=$macos_dir/cc"
done
