#!/usr/bin/env bash
# Installs what was built into a copy of this system, builds and runs programs in
# C, C++, Fortran and Rust against it as a user would, removes it and looks for what is
# left:
#
#   scripts/test-install.sh make|deb TARGET
#
# `make`: by make install, into /usr/local and into a folder of its own. `deb`: as
# Debian packages. TARGET is cargo's folder, in which a release build is.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
# shellcheck source=scripts/fresh-root.sh
source scripts/fresh-root.sh
way=${1:?make or deb}
target=$(realpath "${2:?cargo\'s target folder}")
export CARGO_TARGET_DIR=$target
fresh_root "$@"
start=$SECONDS
# Settings of whoever runs this are none of the programs' business.
unset LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH MANPATH MAKEFLAGS MAKELEVEL
export PORTOLAN_TUNED=

step() { printf '%3s s  %s\n' $((SECONDS - start)) "$*"; }

fail() {
    echo "*** $*" >&2
    exit 1
}

# `says TEXT COMMAND...` runs a command in the copy, which must end well and print
# that.
says() {
    local wanted=$1 said
    shift
    said=$(within "$@" 2>&1) || fail "$*: $said"
    [[ $said == *"$wanted"* ]] || fail "$*: no '$wanted' in: $said"
}

# A shell in the copy, in the folder of programs.
user() { within sh -euc "cd $room/programs && $1"; }

# Where nothing is left, but for what ldconfig, dpkg and systemd keep of anything
# that was ever installed.
nothing_is_left() {
    local left
    left=$(changed | grep -vE '^(/etc/ld.so.cache|/var/cache/ldconfig(/aux-cache)?)$' | grep -vE "${1:-^$}" || true)
    [ -z "$left" ] || fail "left behind: $left"
}

# Writes the programs of a user who has read the manual.
write_programs() {
    rm -rf "$room/programs"
    mkdir "$room/programs" "$room/programs/cmake"
    # The program that portolan(7) shows.
    man -l "$1" | sed -n '/#include <stdio.h>/,/Build it and/p' | sed '$d' >"$room/programs/hello.c"
    cat >"$room/programs/hello.cpp" <<'CPP'
#include <iostream>
#include <portolan.h>
#include <stdexcept>

int main()
{
    portolan_endpoint *endpoint = nullptr;
    char why[512];
    if (portolan_open(&endpoint, nullptr, why, sizeof why) < 0)
        throw std::runtime_error(why);
    const int64_t size = portolan_size(endpoint);
    if (portolan_barrier(endpoint, nullptr) < 0)
        throw std::runtime_error("barrier");
    std::cout << "one of " << size << ", version " << portolan_version() << std::endl;
    return portolan_close(endpoint) < 0;
}
CPP
    cat >"$room/programs/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.18)
project(hello C CXX)
find_package(portolan 0.1 REQUIRED)
find_package(atoll REQUIRED)
find_package(bsp REQUIRED)
add_executable(hello-shared ../hello.cpp)
target_link_libraries(hello-shared portolan::portolan)
add_executable(hello-static ../hello.c)
target_link_libraries(hello-static portolan::portolan-static)
add_executable(hello-atoll ../atoll.c)
target_link_libraries(hello-atoll atoll::atoll)
add_executable(hello-bsp ../bsp.c)
target_link_libraries(hello-bsp bsp::bsp)
CMAKE
    cat >"$room/programs/bsp.c" <<'C'
#include <bsp.h>
#include <stdio.h>

int main(void)
{
    bsp_begin(bsp_nprocs());
    bsp_sync();
    printf("bsp %d of %d\n", bsp_pid(), bsp_nprocs());
    bsp_end();
    return 0;
}
C
    cat >"$room/programs/bsp.f90" <<'FORTRAN'
program main
  use bsp
  implicit none

  call bsp_begin(bsp_nprocs())
  call bsp_sync()
  print '(a, i0, a, i0)', 'fortran ', bsp_pid(), ' of ', bsp_nprocs()
  call bsp_end()
end program
FORTRAN
    cat >"$room/programs/atoll.c" <<'C'
#include <atoll.h>
#include <stdio.h>

int main(void)
{
    const atoll_id self = atoll_init();

    if (self < 0)
        return 1;
    printf("atoll %d of %d\n", (int)self, (int)atoll_size(self));
    return atoll_finish(self, ATOLL_WAIT) < 0;
}
C
}

# Programs in C and C++, by pkg-config, CMake and the examples' own Makefile.
try_c() {
    local examples=$1
    # shellcheck disable=SC2016
    user 'cc -Wall -Werror hello.c $(pkg-config --cflags --libs portolan) -o hello-c
          g++ -Wall -Werror hello.cpp $(pkg-config --cflags --libs portolan) -o hello-cpp
          cc -Wall -Werror atoll.c $(pkg-config --cflags --libs atoll) -o hello-atoll
          cc -Wall -Werror bsp.c $(pkg-config --cflags --libs bsp) -o hello-bsp' || fail "C and C++ by pkg-config"
    # shellcheck disable=SC2016
    user 'gfortran "$(pkg-config --variable=includedir bsp)/bsp.f90" bsp.f90 $(pkg-config --libs bsp) -o hello-fortran' || fail "Fortran by pkg-config"
    says "heard 4 bytes from 0" portolan run -n 2 -- "$room/programs/hello-c"
    says "one of 3, version $version" portolan run -n 3 -- "$room/programs/hello-cpp"
    says "atoll 1 of 2" portolan run -n 2 -- "$room/programs/hello-atoll"
    says "bsp 2 of 3" portolan run -n 3 -- "$room/programs/hello-bsp"
    says "fortran 2 of 3" portolan run -n 3 -- "$room/programs/hello-fortran"
    # Where nothing says where bsp.pc and the library are.
    user 'bspcc -Wall -Werror bsp.c -o wrapped-bsp && bspcxx -Wall -Werror -x c++ bsp.c -o wrapped-bsp-cxx' || fail "bspcc, bspcxx"
    says "bsp 1 of 2" bsprun -n 2 "$room/programs/wrapped-bsp"
    says "bsp 1 of 2" bsprun --transport udp -npes 2 "$room/programs/wrapped-bsp-cxx"
    user 'cmake -S cmake -B built >log 2>&1 && cmake --build built >>log 2>&1 || { cat log; exit 1; }' || fail "CMake"
    says "one of 2" portolan run -n 2 -- "$room/programs/built/hello-shared"
    says "heard 4 bytes from 1" portolan run -n 2 -- "$room/programs/built/hello-static"
    says "atoll 0 of 2" portolan run -n 2 -- "$room/programs/built/hello-atoll"
    says "bsp 1 of 2" portolan run -n 2 -- "$room/programs/built/hello-bsp"
    user "cp -r $examples/c c && make -C c >log 2>&1 && cmake -S c -B c/built >log 2>&1 && cmake --build c/built >log 2>&1 || { cat log; exit 1; }" ||
        fail "the examples in C"
    local name
    for name in examples/c/*.c; do
        name=$(basename "$name" .c)
        run_example "$name" "$room/programs/c/c-$name"
        run_example "$name" "$room/programs/c/built/$name"
    done
    user "cp -r $examples/bsp bsp && make -C bsp >log 2>&1 || { cat log; exit 1; }" || fail "the programs over BSPlib"
    for name in examples/bsp/*.c; do
        name=$(basename "$name" .c)
        # All but what measures check their results.
        local word=': right'
        [ "$name" != probe ] || word=whole_us
        says "$word" timeout 60 portolan run -n 2 -- "$room/programs/bsp/bsp-$name"
    done
}

# Two examples in Rust, of the native interface and of BSPlib, which need the crates of the
# installation. `cargo metadata` below names those of the others.
try_rust() {
    local name
    user "cp -r $1/rust rust"
    user "cd rust && CARGO_TARGET_DIR=$target/installed CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 \
          cargo build --offline --quiet --bin ring --bin bsp-sum >../log 2>&1 || { cat ../log; exit 1; }" ||
        fail "the examples in Rust"
    for name in ring bsp-sum; do
        run_example "$name" "$target/installed/debug/$name"
    done
}

# `run_example NAME PROGRAM` runs an example as a small job.
run_example() {
    local words=()
    case $1 in
    ring) words=(20) ;;
    matmul) words=(--size 64) ;;
    # It needs no launcher.
    kv)
        says "seven" timeout 60 sh -euc "rm -f '$room/kv'; $2 serve '$room/kv' & until [ -s '$room/kv' ]; do sleep 0.1; done
            $2 put '$room/kv' key seven; $2 get '$room/kv' key; kill \$!; wait \$!"
        return
        ;;
    esac
    says "" timeout 60 portolan run -n 2 -- "$2" "${words[@]}"
}

# Man pages are found and complain of nothing.
try_pages() {
    says "portolan_send" man portolan_send
    says "start" man portolan-run
    says "life" man 7 portolan
    says "host port" man atoll_init
    says "superstep" man bsp_sync
    says "pkg-config" man bspcxx
    says "processes" man bsprun
}

try_make() {
    local said old=$room/old
    step "make install refuses what is not there, or older than its sources"
    install() { within env -C "$PWD" make --no-print-directory "$@" 2>&1; }
    said=$(install install RELEASE=/nowhere) && fail "installed from nowhere"
    [[ $said == *"there is no /nowhere/portolan: run 'make build' first"* ]] || fail "$said"
    mkdir "$old"
    cp "$target/release/portolan" "$target/release/portolan.d" "$old"
    touch -d 2001-01-01 "$old/portolan"
    said=$(install install "RELEASE=$old") && fail "installed what is old"
    [[ $said == *"$old/portolan is older than "*": run 'make build' first"* ]] || fail "$said"
    rm -r "$old"
    nothing_is_left

    step "make install, into /usr/local"
    said=$(install install) || fail "$said"
    write_programs "$_root/usr/local/share/man/man7/portolan.7"
    step "programs in C and C++"
    try_c /usr/local/share/doc/portolan/examples
    try_pages
    step "programs in Rust"
    try_rust /usr/local/share/doc/portolan/examples
    step "again, and make uninstall"
    said=$(install install) || fail "$said"
    said=$(install uninstall) || fail "$said"
    nothing_is_left

    step "make install, where nobody looks by himself, and by what it says to set"
    said=$(install install PREFIX=/opt/of/portolan) || fail "$said"
    said=$(grep '^  export ' <<<"$said")
    [ "$(wc -l <<<"$said")" -eq 5 ] || fail "$said"
    # What is unset here would end such a shell.
    user "set +u; $said
          cc hello.c \$(pkg-config --cflags --libs portolan) -o hello-there
          cmake -S cmake -B there >log 2>&1 && cmake --build there >>log 2>&1 || { cat log; exit 1; }
          env -u PKG_CONFIG_PATH -u LD_LIBRARY_PATH sh -c 'bspcc bsp.c -o bsp-there && bsprun -n 2 ./bsp-there'
          portolan run -n 2 -- ./hello-there && portolan run -n 2 there/hello-static
          man -w portolan_send && portolan --version" >"$room/log" 2>&1 || fail "$(cat "$room/log")"
    said=$(install uninstall PREFIX=/opt/of/portolan) || fail "$said"
    nothing_is_left
}

# The crates are what `make install` installs, which has been built from: see
# try_make. Here cargo finds all that the examples name.
try_crates() {
    local crates=/usr/share/portolan/rust/crates crate
    for crate in "$_root$crates"/*; do
        diff -r "$crate/src" "crates/${crate##*/}/src" || fail "$crate is another"
    done
    user "cp -r /usr/share/doc/libportolan-dev/examples/rust rust
          cd rust && cargo metadata --offline --format-version 1 >../metadata" || fail "the crates of the packages"
    grep -q "\"manifest_path\":\"$crates/portolan/Cargo.toml\"" "$room/programs/metadata" || fail "another crate"
}

try_deb() {
    local lint
    step "the packages are built"
    scripts/deb.sh build "$target" >"$room/log" 2>&1 || fail "$(cat "$room/log")"
    scripts/deb.sh lint "$target" >"$room/lint" 2>&1 &
    lint=$!
    cp "$target"/deb/*.deb "$room"
    step "installed"
    within sh -c "dpkg -i $room/*.deb" >"$room/log" 2>&1 || fail "$(cat "$room/log")"
    [ "$(within portolan --version)" = "portolan $version" ] || fail "another version"
    write_programs <(zcat "$_root/usr/share/man/man7/portolan.7.gz")
    step "programs in C and C++"
    try_c /usr/share/doc/libportolan-dev/examples
    try_pages
    step "crates in Rust"
    try_crates
    step "removed"
    within dpkg --purge portolan libportolan-dev libportolan0 >"$room/log" 2>&1 || fail "$(cat "$room/log")"
    # Debian keeps what it knows of users and packages.
    nothing_is_left '^/(var/lib/(dpkg|systemd)|var/cache/(man|debconf)|var/log|etc/(passwd|group|shadow|gshadow|subuid|subgid|\.pwd\.lock)|run)'
    step "lintian"
    wait "$lint" || fail "lintian: $(cat "$room/lint")"
    cat "$room/lint"
}

version=$(scripts/version.sh)
"try_$way"
step "nothing is left"
