#!/usr/bin/env bash
# From a fresh clone to a training run: sets up, builds what users run, and trains a small convolutional network
# on real handwritten digits with two workers.
#
#   scripts/quickstart.sh [cpprun-train options, e.g. --set epochs=2]
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

case ${1-} in
  -h | --help) show_help ;;
esac

"$root/scripts/setup.sh"
build build/release release -- programs
job=(build/release/bin/cpprun --standalone --nproc_per_node=2 cpprun-train --config conf/trainer/digits.json "$@")
say "Running: ${job[*]}"
exec "${job[@]}"
