#!/usr/bin/env bash
# Sets up, builds and runs the whole test suite; ends with ctest's summary and its exit code.
#
#   scripts/test.sh [--no-torch | --asan] [--slow] [ctest options, e.g. -R store]
#
#   (nothing)    everything, in build/release
#   --no-torch   the launcher half only, without LibTorch, in build/launcher
#   --asan       the launcher half under address and undefined-behaviour sanitizers, in build/asan
#   --slow       also the tests labelled `slow`, which take minutes
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

folder=build/release preset=release setup=(--tests) definitions=() exclusion=(-LE '^slow$')
while [ $# -gt 0 ]; do
  case $1 in
    --no-torch) folder=build/launcher setup+=(--no-torch) definitions=(-DCPPRUN_WITH_TORCH=OFF) ;;
    --asan) folder=build/asan preset=asan setup+=(--no-torch) ;;
    --slow) exclusion=() ;;
    -h | --help) show_help ;;
    *) break ;;
  esac
  shift
done

"$root/scripts/setup.sh" "${setup[@]}"
build "$folder" "$preset" "${definitions[@]}" --
say "Testing $folder"
exec ctest --test-dir "$folder" --output-on-failure --no-tests=error -j "$(nproc)" "${exclusion[@]}" "$@"
