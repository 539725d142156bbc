#!/usr/bin/env bash
# Prints Portolan's version: that of Cargo.toml's workspace, the one place where
# it stands. With `check`: whether what must repeat it (the C header's numbers)
# has the same.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml)
[ -n "$version" ] || {
    echo "Cargo.toml has no version in [workspace.package]" >&2
    exit 1
}
if [ "${1:-}" != check ]; then
    echo "$version"
    exit
fi
header=crates/portolan/include/portolan.h
number() { sed -n "s/^#define PORTOLAN_VERSION_$1 //p" "$header"; }
says=$(number MAJOR).$(number MINOR).$(number PATCH)
[ "$says" = "$version" ] || {
    echo "$header is of version $says, Cargo.toml of $version: give the header's three numbers that" >&2
    exit 1
}
