# Sourced by ./demo, ./test and ./bench, in the project's directory: installs what building needs, and
# says so. A C compiler and tools come from the system's archive (Debian, Ubuntu); Rust from there where
# it has rustup, or else by rustup's own installer. What can't be installed is named, with what to run.

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

fail() {
  say "$*"
  exit 1
}

has() { command -v "$1" >/dev/null 2>&1; }

# Installs packages of the system's archive.
install() {
  has apt-get || fail "This system has no apt-get: install $* by its own means, and run this again."
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    has sudo || fail "Run as root, and then this again: apt-get update && apt-get install -y $*"
    as_root=(sudo)
  fi
  update_archive
  say "Installing $*"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null ||
    fail "apt-get could not install $*: its own message above says why."
}

# Gets the lists of what the archive has, once: a fresh container has none.
update_archive() {
  [ -z "${archive_updated:-}" ] || return 0
  if [ "$(id -u)" = 0 ]; then apt-get update -qq || true; elif has sudo; then sudo apt-get update -qq || true; fi
  archive_updated=1
}

# need COMMAND PACKAGE...: installs packages if a command is missing.
need() {
  local command=$1
  shift
  has "$command" || install "$@"
}

rust_min=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
cargo_bin=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

# The version of the Rust compiler; nothing if there is none.
rust_version() { { rustc --version 2>/dev/null || true; } | sed -n 's/^rustc \([0-9][0-9.]*\).*/\1/p'; }

has_rust() {
  local version
  has cargo || return 1
  version=$(rust_version)
  [ -n "$version" ] && [ "$(printf '%s\n%s\n' "$rust_min" "$version" | sort -V | head -n 1)" = "$rust_min" ]
}

get_rustup() {
  # The archive's would be in conflict with a compiler of the archive's.
  if ! has rustc && has apt-get; then
    update_archive
    # A package that others name is known, and yet may not be there.
    if LC_ALL=C apt-cache policy rustup 2>/dev/null | grep -q 'Candidate: [^(]'; then
      install rustup
      return
    fi
  fi
  need curl curl ca-certificates
  say "Installing rustup by its own installer, over HTTPS, into $cargo_bin"
  local installer why="install Rust $rust_min or newer (https://rustup.rs), and run this again."
  installer=$(curl --proto '=https' --tlsv1.2 --silent --show-error --fail https://sh.rustup.rs) ||
    fail "rustup's installer could not be had: $why"
  sh -s -- -y -q --no-modify-path --default-toolchain none <<<"$installer" ||
    fail "rustup could not be installed: $why"
}

need cc build-essential
if ! has_rust; then
  PATH="$cargo_bin:$PATH"
fi
if ! has_rust; then
  has rustup || get_rustup
  found=$(rust_version)
  say "Installing the stable Rust toolchain (found: ${found:-none}; $rust_min or newer is needed)"
  rustup toolchain install stable --profile minimal --component rustfmt --component clippy >/dev/null ||
    fail "rustup could not install the stable toolchain: its own message above says why."
  # Whatever is the default of whoever works here stays it.
  export RUSTUP_TOOLCHAIN=stable
  hash -r
  has_rust || fail "Rust $(rust_version) was found in $(command -v rustc || echo "no place"): $rust_min or newer is needed. Run 'rustup update stable', and this again."
fi
export PATH
