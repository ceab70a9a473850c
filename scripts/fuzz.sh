#!/usr/bin/env bash
# Builds the fuzz targets and runs as many as there are cores at a time, from the committed inputs on; fails if one has a finding, and keeps
# the input that led to it in build/fuzz. See tests/fuzz/README.md.
#
#   scripts/fuzz.sh [SECONDS]    how long each runs (default: 60)
#   scripts/fuzz.sh --merge      makes tests/fuzz/corpus the few inputs, of those there and those that earlier runs
#                                found, that together reach every branch that all of them reach
#
# Inputs found on the way stay in build/fuzz/found and are where the next run goes on from.
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

seconds=60 merge=no
case ${1-} in
  '') ;;
  --merge) merge=yes ;;
  -h | --help) show_help ;;
  *[!0-9]*) die "'$1' is no number of seconds; see scripts/fuzz.sh --help" ;;
  *) seconds=$1 ;;
esac

targets=(decoder session link tls)
"$root/scripts/setup.sh" --no-torch --fuzz
build build/fuzz fuzz --

options=(-max_len=1024 -rss_limit_mb=1024 -malloc_limit_mb=64 -timeout=20 -print_final_stats=1)
status=0 processes=()
for target in "${targets[@]}"; do
  found=build/fuzz/found/$target corpus=tests/fuzz/corpus/$target log=build/fuzz/$target.log
  mkdir -p "$found"
  if [ "$merge" = yes ]; then
    merged=$(mktemp -d "build/fuzz/merged-$target.XXXXXX")
    if build/fuzz/bin/fuzz_"$target" -set_cover_merge=1 -use_counters=0 -max_len=1024 "$merged" "$corpus" \
      "tests/fuzz/seeds/$target" "$found" >"$log" 2>&1; then
      find "$corpus" -type f -delete
      mv "$merged"/* "$corpus"
      say "$target: $(find "$corpus" -type f | wc -l) inputs"
    else
      status=1
      tail -n 60 "$log"
    fi
    rm -r "$merged"
    continue
  fi
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done # each has a core of its own
  say "Fuzzing the $target for $seconds s (log: $log)"
  build/fuzz/bin/fuzz_"$target" "${options[@]}" -max_total_time="$seconds" -artifact_prefix="build/fuzz/$target-" \
    "$found" "$corpus" "tests/fuzz/seeds/$target" >"$log" 2>&1 &
  processes+=($!)
done
for i in "${!processes[@]}"; do
  target=${targets[$i]} log=build/fuzz/${targets[$i]}.log
  if wait "${processes[$i]}"; then
    say "$target: no finding, $(awk '/stat::number_of_executed_units:/ { print $2 }' "$log") inputs tried," \
        "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)"
  else
    status=1
    tail -n 60 "$log"
    say "$target: FOUND something; build/fuzz/bin/fuzz_$target FILE repeats it"
  fi
done
exit "$status"
