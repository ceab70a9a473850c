# shellcheck shell=bash
# Sourced by the scripts beside it: where things are, and the few steps that several of them take.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
CPPRUN_VENV=$(realpath -sm -- "${CPPRUN_VENV:-$root/.venv}")
export CPPRUN_VENV

say() { printf '==> %s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2; exit 1; }

# Prints the comment at the head of the script, which is its help, and ends.
show_help() { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 0; }

# A C++ compiler that reads LibTorch's headers takes up to 2 GB, so memory limits the jobs as well as cores.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo)
  [ "$memory_gb" -ge 1 ] || memory_gb=1
  echo $((cores < memory_gb ? cores : memory_gb))
}

# build FOLDER PRESET [cmake -D options...] -- [targets...]: configures, then builds the targets (default: all).
build() {
  local folder=$1 preset=$2 definitions=() output
  shift 2
  while [ "$1" != -- ]; do definitions+=("$1"); shift; done
  shift
  cd "$root" || exit
  say "Configuring $folder"
  output=$(cmake --preset "$preset" -B "$folder" -DCPPRUN_VENV="$CPPRUN_VENV" "${definitions[@]}" 2>&1) || {
    printf '%s\n' "$output" >&2
    return 1
  }
  say "Building $folder (a first build takes minutes; later ones build only what changed)"
  cmake --build "$folder" -j "$(build_jobs)" ${1:+--target "$@"}
}
