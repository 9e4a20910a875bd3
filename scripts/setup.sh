# Sourced by ./demo, ./test and ./bench: installs what building needs, and says so.

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# need COMMAND PACKAGE...: installs Debian packages if a command is missing.
need() {
  local command=$1
  shift
  command -v "$command" >/dev/null 2>&1 && return
  command -v apt-get >/dev/null 2>&1 || {
    say "'$command' is missing, and this system has no apt-get: install it and run this again."
    exit 1
  }
  say "Installing $* (for '$command')"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

need cc build-essential
if ! command -v cargo >/dev/null 2>&1; then
  [ -f "$HOME/.cargo/env" ] && . "$HOME/.cargo/env"
fi
if ! command -v cargo >/dev/null 2>&1; then
  need rustup rustup
  say "Installing the stable Rust toolchain"
  rustup default stable >/dev/null
  export PATH="$HOME/.cargo/bin:$PATH"
fi
