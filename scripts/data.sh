# Sourced by ./test and ./bench, in the project's directory: public fixtures and real blocks. They are in
# CAMBIUM_DATA (unpacked), or else in target/test-data, from packs beside this checkout or by
# scripts/public-data.

if [ -z "${CAMBIUM_DATA:-}" ]; then
  data=$PWD/target/test-data
  if ls ../shared/data/*.tar.zst >/dev/null 2>&1; then
    need zstd zstd
    mkdir -p "$data"
    for pack in ../shared/data/*.tar.zst; do
      mark=$data/.$(basename "$pack").done
      [ "$mark" -nt "$pack" ] && continue
      say "Unpacking $(basename "$pack")"
      tar -I 'zstd -d --long=27' -xf "$pack" -C "$data"
      touch "$mark"
    done
  fi
  if [ -d "$data" ]; then export CAMBIUM_DATA=$data; fi
fi
[ -n "${CAMBIUM_DATA:-}" ] ||
  say "No public fixtures: scripts/public-data fetches them. What needs them says what it skips."
