#!/usr/bin/env bash
# Makes Debian packages of what `make build` has built, in TARGET/deb, or has
# lintian look at them. It needs debhelper, dpkg-dev and lintian, and neither
# root nor the network.
#
#   scripts/deb.sh build|lint TARGET
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath "${2:?cargo\'s target folder}")
out=$target/deb

if [ "$1" = lint ]; then
    # Man pages are left to crates/cli/tests/it/manual.rs: half of the time goes by
    # for them. What is no error is worth a look, and ends nothing.
    lintian --allow-root --fail-on error -X documentation/manual "$out"/*.deb
    exit
fi
build=$out/build
version=$(scripts/version.sh)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date +%s -r CHANGELOG.md)}
export PORTOLAN_TOP=$PWD PORTOLAN_TARGET=$target
log=$out/log

rm -rf "$out"
mkdir -p "$build"
cp -r etc/debian "$build/debian"
maintainer=$(sed -n 's/^Maintainer: //p' etc/debian/control)
# The packages are made from the tree itself: their version is its.
cat >"$build/debian/changelog" <<CHANGES
portolan ($version) unstable; urgency=medium

  * CHANGELOG.md of the package portolan says what is new.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
CHANGES

# dh notes no more of root's or a user's environment than this.
(cd "$build" && make -f debian/rules binary) >"$log" 2>&1 || {
    cat "$log" >&2
    exit 1
}
rm -rf "$build"
ls -l "$out"/*.deb
