#!/usr/bin/env bash
# Checks what a compiler does not: arrows between folders, headers that stand alone, house rules, scripts, man
# pages, and clang-tidy on the launcher half. Runs every check and fails if any of them did.
#
#   scripts/check.sh [--no-tidy | --tidy-seconds N]
#
#   --no-tidy         leave clang-tidy out
#   --tidy-seconds N  let it begin no further file after N seconds; those that changed last come first
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage='usage: scripts/check.sh [--no-tidy | --tidy-seconds N]'
tidy_seconds=86400
case ${1-} in
  '') ;;
  --no-tidy) tidy_seconds=0 ;;
  --tidy-seconds)
    [[ ${2-} =~ ^[0-9]+$ ]] || die "--tidy-seconds takes a number; $usage"
    tidy_seconds=$2
    ;;
  -h | --help) show_help ;;
  *) die "unknown option '$1'; $usage" ;;
esac

folders=(launcher rendezvous worker_runtime trainer)
failed=()
check() { # check NAME COMMAND...: the command's success decides
  say "Checking $1"
  "${@:2}" || failed+=("$1")
}
absent() { # absent PATTERN REASON PATH...: no line of these files may match
  if git grep -nIE "$1" -- "${@:3}"; then
    echo "not allowed: $2"
    return 1
  fi
}
lengths() {
  git ls-files -- '*.[ch]pp' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' | xargs wc -l |
    awk '$2 != "total" && $1 > 500 { print $2 ": " $1 " lines, and 500 are the most"; long = 1 } END { exit long }'
}
scripts_lint() { git grep -lE '^#!.*\b(ba)?sh$' | xargs shellcheck -x -P SCRIPTDIR scripts/common.sh; }
man_pages() {
  local pages
  mapfile -t pages < <(git ls-files -- '*.[1-8]')
  [ ${#pages[@]} = 0 ] || mandoc -T lint -W warning "${pages[@]}"
}
launcher_half() { git ls-files -- 'launcher/*.cpp' 'rendezvous/*.cpp' 'worker_runtime/contract/*.cpp'; }
newest_first() {
  local file
  while read -r file; do
    printf '%s %s\n' "$(git log -1 --format=%ct -- "$file")" "$file"
  done | sort -rn | cut -d ' ' -f 2-
}
clang_tidy() {
  # shellcheck disable=SC2016  # the inner shell expands these
  launcher_half | newest_first | xargs -P "$(nproc)" -n 1 bash -c '
    if (($(date +%s) >= $0)); then
      echo "no time left for $1"
    else
      clang-tidy --quiet -p build/check "$1"
    fi' "$(($(date +%s) + tidy_seconds))"
}

"$root/scripts/setup.sh" --no-torch --checks
cd "$root"
check "arrows between folders" python3 scripts/check_layers.py
check "coroutines' ownership" absent '^([^/]|/[^/])*\b(detached|shared_from_this)\b' \
  'every coroutine is awaited or started by a TaskGroup (design: ownership)' "${folders[@]/%//*.[ch]pp}"
check "file lengths" lengths
check "that no registry is named" absent '(pypi|pythonhosted|debian|ubuntu|npmjs)[.](org|com)' \
  'packages are named, the machine decides where they come from' .
check "shell scripts" scripts_lint
check "man pages" man_pages
# Precompiled headers would hide what a header lacks, and clang-tidy cannot read a compiler behind ccache.
check "headers" build build/check release -DCPPRUN_WITH_TORCH=OFF -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
  -DCCACHE_PROGRAM=OFF -- check_headers
if [ "$tidy_seconds" -gt 0 ]; then
  check "with clang-tidy" clang_tidy
fi
if [ ${#failed[@]} -gt 0 ]; then
  printf 'check.sh: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
say "All checks passed"
