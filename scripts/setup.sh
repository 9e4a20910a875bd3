# Sourced by ./demo, ./test and ./bench, in the project's directory: installs what building needs, and
# says so. A C compiler and tools come from the system's archive (Debian, Ubuntu); Rust from there where
# it has rustup, or else by rustup's own installer. What can't be installed is named, with what to run.

. scripts/need.sh

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
