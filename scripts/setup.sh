#!/usr/bin/env bash
# Installs what building and running cpprun needs on Debian or Ubuntu. Run it as often as you like: it installs
# only what is missing, finishes what an interrupted run left half-made, and needs no root where nothing is missing.
#
#   scripts/setup.sh [--tests] [--no-torch] [--checks] [--fuzz]
#
#   (nothing)    Debian packages, and in .venv the part of the LibTorch wheel that C++ workers need
#                (1.3 GB; the complete wheel, 5.4 GB, where there is an NVIDIA GPU)
#   --tests      the complete wheel everywhere: the tests also run Python scripts and torchrun; and Debian packages
#                by which tests make hosts and trace system calls
#   --no-torch   Debian packages only: the launcher half needs no LibTorch
#   --checks     also the linters that scripts/check.sh runs
#   --fuzz       also clang with libFuzzer, for scripts/fuzz.sh
#
# CPPRUN_VENV=DIR shares one virtual environment between clones (default: .venv in the clone).
set -euo pipefail
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

packages=(g++ cmake ninja-build ccache git libspdlog-dev nlohmann-json3-dev libcli11-dev libssl-dev libdw-dev
          libgtest-dev libgmock-dev etcd-server python3 python3-venv)
flavour=worker
for argument in "$@"; do
  case $argument in
    --no-torch) flavour=none ;;
    --tests) flavour=torch packages+=(iproute2 strace) ;;
    --checks) packages+=(clang-tidy mandoc shellcheck) ;;
    --fuzz) packages+=(clang libclang-rt-dev) ;;
    -h | --help) show_help ;;
    *) die "unknown option '$argument'; see scripts/setup.sh --help" ;;
  esac
done
if [ "$flavour" = worker ] && [ -e /dev/nvidiactl ]; then
  flavour=torch
fi

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
candidate() { apt-cache policy "$1" | awk '/Candidate:/ { print $2 }'; }

boost_installed() {
  local state version
  while read -r state version; do
    if [ "$state" = installed ] && dpkg --compare-versions "$version" ge 1.81; then return 0; fi
  done < <(dpkg-query -W -f='${db:Status-Status} ${Version}\n' 'libboost1.*-dev' 2>/dev/null)
  return 1
}

# The Boost package of this release: 1.81 by name, or the release's own where that is newer.
boost_package() {
  local version
  version=$(candidate libboost1.81-dev)
  if [ -n "$version" ] && [ "$version" != '(none)' ]; then echo libboost1.81-dev; return; fi
  version=$(candidate libboost-dev)
  if dpkg --compare-versions "${version:-0}" ge 1.81; then echo libboost-dev; return; fi
  die "this release offers Boost ${version:-not at all}, and cpprun needs 1.81 or newer:" \
      "use Debian 12, Ubuntu 24.04 or a later release"
}

install_packages() {
  local missing=() as_root=() package
  for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ] && boost_installed; then
    say "Debian packages: all there"
    return
  fi
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "installing Debian packages (${missing[*]} libboost1.81-dev) needs root:" \
      "run this script once as root, or install sudo"
    as_root=(sudo)
  fi
  say "Refreshing the list of Debian packages"
  "${as_root[@]}" apt-get update -q
  if ! boost_installed; then
    missing+=("$(boost_package)")
  fi
  say "Installing Debian packages: ${missing[*]}"
  # The tests start servers of etcd; the service that its package would start is not wanted. Run level 1 keeps
  # System V's init from starting it; systemd does not ask.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -q -y --no-install-recommends \
    -o DPkg::Lock::Timeout=300 "${missing[@]}"
  if [[ " ${missing[*]} " == *' etcd-server '* && -d /run/systemd/system ]]; then
    "${as_root[@]}" systemctl disable --quiet --now etcd.service
  fi
}

# Makes the virtual environment, or replaces one whose Python no longer runs.
make_venv() {
  if "$CPPRUN_VENV/bin/python" -m pip --version >/dev/null 2>&1; then return; fi
  if [ ! -e "$CPPRUN_VENV/pyvenv.cfg" ] && [ -n "$(ls -A "$CPPRUN_VENV" 2>/dev/null)" ]; then
    die "$CPPRUN_VENV is not empty and is no virtual environment; name another folder in CPPRUN_VENV"
  fi
  say "Making the virtual environment $CPPRUN_VENV"
  /usr/bin/python3 -m venv --clear "$CPPRUN_VENV"
}

require_disk() {
  local needed_gb=$1 folder=$CPPRUN_VENV free_gb
  until [ -d "$folder" ]; do folder=$(dirname -- "$folder"); done
  free_gb=$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1048576) }')
  [ "$free_gb" -ge "$needed_gb" ] || die "LibTorch needs $needed_gb GB of free disk and $folder has $free_gb GB:" \
    "make room, or name a folder on another disk in CPPRUN_VENV"
}

# What is there is looked at each time, file by file: an installation that was cut short, or ran out of disk, is
# finished by the next run.
install_torch() {
  local requirements=scripts/requirements-$flavour.txt needed
  cd "$root"
  make_venv
  needed=$("$CPPRUN_VENV/bin/python" scripts/venv_state.py "$requirements")
  if [ -z "$needed" ]; then
    say "LibTorch: all there ($CPPRUN_VENV)"
    return
  fi
  if [ "$flavour" = worker ]; then require_disk 3; else require_disk 10; fi
  say "Installing in $CPPRUN_VENV: ${needed//$'\n'/ }"
  "$CPPRUN_VENV/bin/python" scripts/venv_state.py --repair "$requirements" >/dev/null
  # shellcheck disable=SC2086  # one word a package
  "$CPPRUN_VENV/bin/python" -m pip install --disable-pip-version-check --no-deps $needed
  needed=$("$CPPRUN_VENV/bin/python" scripts/venv_state.py "$requirements")
  [ -z "$needed" ] || die "these packages are still incomplete in $CPPRUN_VENV: ${needed//$'\n'/ }"
}

command -v dpkg-query >/dev/null || die "this script knows Debian and Ubuntu only; elsewhere install" \
  "${packages[*]} and Boost 1.81 by your system's means, and scripts/requirements-worker.txt in $CPPRUN_VENV"
install_packages
if [ "$flavour" != none ]; then
  install_torch
fi
