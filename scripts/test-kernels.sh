#!/usr/bin/env bash
# Tests of links, engine, node service and jobs on other kernels, in virtual machines:
# Debian 12's own (6.1) and the newest that it offers beside it (6.12), on veth and
# between two virtio cards. By hand; an hour or so, for the machines are emulated.
#
#   scripts/test-kernels.sh [6.1] [6.12] [KERNEL.deb ...]
#   scripts/test-kernels.sh --list    # builds, and lists the tests; starts no machine
#
# Needs root and Debian's package archive; PORTOLAN_TEST_KERNELS (default
# ~/.cache/portolan-kernels) keeps what was downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."
list=
[ "${1:-}" != --list ] || list=1
[ $# -gt 0 ] || set -- 6.1 6.12
target=${CARGO_TARGET_DIR:-target}
cache=${PORTOLAN_TEST_KERNELS:-${XDG_CACHE_HOME:-$HOME/.cache}/portolan-kernels}
mkdir -p "$cache"

# The newest package of a series, downloaded; where the archive has none it says so.
# bookworm-backports and bookworm-security both carry 6.12 for Debian 12.
kernel() {
    local name
    name=$(apt-cache pkgnames "linux-image-$1." | grep -E "^linux-image-$1\.[0-9]+(-[0-9]+|\+deb12)-amd64\$" |
        sort -V | tail -1)
    [ -n "$name" ] || { echo "*** the package archive has no linux-image-$1.*-amd64: add bookworm-backports, or name a .deb ***" >&2; return 1; }
    (cd "$cache" && apt-get download -qq "$name" >&2)
    find "$cache" -maxdepth 1 -name "${name}_*.deb" | sort -V | tail -1
}

# The test programs: crate and name of the executable, which for the tests within a
# crate is the crate's or the command's own.
cargo build --locked -p portolan --examples
for tests in "portolan-sys --lib" "portolan-link --lib --test it" \
    "portolan-runtime --test it" \
    "portolan-hosts --lib" "portolan-cli --examples --test it"; do
    # shellcheck disable=SC2086
    cargo test --locked --no-run -p $tests 2>&1 | tee /dev/stderr |
        sed -nE "s|^ *Executable .*\((.*/deps/([a-z_]+)-[0-9a-f]+)\)\$|${tests%% *}/\2 \1|p"
done | while read -r name program; do echo "$name $(realpath "$program")"; done >"$target/test-kernels.programs"
# Before a machine starts: every test that it is to run exists.
scripts/test-kernels-guest.sh "$target" list
[ -z "$list" ] || exit 0

apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    qemu-system-x86 busybox-static cpio kmod openssh-server >/dev/null

failed=()
for which in "$@"; do
    case $which in *.deb) deb=$which ;; *) deb=$(kernel "$which") || { failed+=("$which: no package"); continue; } ;; esac
    out=$(mktemp -d)
    printf '\n=== %s\n' "$(basename "$deb")"
    scripts/vm.sh "$deb" "$out" scripts/test-kernels-guest.sh "$target" || failed+=("$which: see above")
    rm -rf "$out"
done
if [ ${#failed[@]} -gt 0 ]; then
    printf '*** FAILED on %s\n' "${failed[@]}" >&2
    exit 1
fi
echo "all passed on: $*"
