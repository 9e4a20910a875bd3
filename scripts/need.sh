# Sourced by scripts/setup.sh and by scripts that build nothing: says what goes on, and installs tools that
# are missing from the system's archive (Debian, Ubuntu). What can't be installed is named, with what to run.

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
