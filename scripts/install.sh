#!/usr/bin/env bash
# Installs what `make build` has built, or removes what was installed:
#
#   scripts/install.sh install|uninstall
#
# The Makefile passes where to, in the environment: PREFIX and what is derived
# from it unless it is given (LIBDIR, UNITDIR, SYSUSERSDIR, DOCDIR, EXAMPLEDIR);
# DESTDIR, put before each of them, for who makes packages; RELEASE, cargo's
# folder of what was built; STRIP.
#
# What was installed stands in PREFIX/share/portolan/installed: `uninstall`
# removes just that, and folders only where `install` made them and they are
# empty.
set -euo pipefail
cd "$(dirname "$0")/.."
: "${PREFIX:?}" "${RELEASE:?}"
case $PREFIX in
/*) ;;
*)
    echo "PREFIX is $PREFIX: give a path that begins with /" >&2
    exit 2
    ;;
esac
PREFIX=${PREFIX%/}
root=${DESTDIR:-}
root=${root%/}
bindir=$PREFIX/bin
includedir=$PREFIX/include
datadir=$PREFIX/share
libdir=${LIBDIR:-$PREFIX/lib}
unitdir=${UNITDIR:-$PREFIX/lib/systemd/system}
sysusersdir=${SYSUSERSDIR:-$PREFIX/lib/sysusers.d}
docdir=${DOCDIR:-$datadir/doc/portolan}
exampledir=${EXAMPLEDIR:-$docdir/examples}
strip=${STRIP:-strip}
# All in one library.
interfaces=(portolan atoll bsp)
manifest=$datadir/portolan/installed
umask 022
export LC_ALL=C

# --- What may be installed ---------------------------------------------------

refuse() {
    echo "nothing was installed: $1: run 'make build' first" >&2
    exit 1
}

# `not_older FILE SOURCE...` refuses a file that is missing or older than what it
# was made of.
not_older() {
    local file=$1 source
    shift
    [ -e "$file" ] || refuse "there is no $file"
    for source in "$@"; do
        [ ! "$source" -nt "$file" ] || refuse "$file is older than $source"
    done
}

# `up_to_date FILE LIST` does so with the sources that cargo has put in LIST:
# "FILE: SOURCE SOURCE...", blanks in names behind a backslash. Those of this tree
# count, also where a copy of it was the last that cargo built in.
up_to_date() {
    local sources
    [ -e "$2" ] || refuse "there is no $2, so the build is not complete"
    mapfile -t sources < <(sed -n '1{ s/^[^:]*: *//; s/\\ /\x01/g; s/ /\n/g; s/\x01/ /g; p; }' "$2")
    not_older "$1" "${sources[@]/#*\/crates\//crates/}"
}

check_built() {
    local lib built
    [ -e "$RELEASE/portolan" ] || refuse "there is no $RELEASE/portolan"
    built=$("$RELEASE/portolan" --version)
    [ "$built" = "portolan $version" ] || refuse "$RELEASE/portolan is $built, and Cargo.toml has $version"
    up_to_date "$RELEASE/portolan" "$RELEASE/portolan.d"
    up_to_date "$RELEASE/libportolan_library.a" "$RELEASE/libportolan_library.d"
    for lib in libportolan.a libportolan.so libatoll.so libbsp.so; do
        not_older "$RELEASE/$lib" crates/library/Makefile
    done
    up_to_date "$RELEASE/libportolan_fi.a" "$RELEASE/libportolan_fi.d"
    not_older "$RELEASE/libportolan-fi.so" "$RELEASE/libportolan_fi.a" crates/ofi/Makefile crates/ofi/portolan-fi.map
    not_older "$RELEASE/libportolan.a" "$RELEASE/libportolan_library.a"
    not_older "$RELEASE/libportolan.so" "$RELEASE/libportolan.a" crates/library/portolan.map
}

# --- Putting files there, and noting them ------------------------------------

# `folder DIR` makes a folder, and notes those that were not there.
folder() {
    local path=$1 made=()
    while [ -n "$path" ] && [ ! -d "$root$path" ]; do
        made+=("$path")
        path=${path%/*}
    done
    [ ${#made[@]} -eq 0 ] || {
        install -d "$root$1"
        printf 'd %s\n' "${made[@]}" >>"$noted"
    }
}

# `put MODE SOURCE PATH` copies a file; standard input where SOURCE is -.
put() {
    folder "${3%/*}"
    if [ "$2" = - ]; then
        cat >"$work/text"
        install -m "$1" "$work/text" "$root$3"
    else
        install -m "$1" "$2" "$root$3"
    fi
    printf 'f %s\n' "$3" >>"$noted"
}

# `put_built MODE FILE PATH OPTIONS` copies what was built, without what only
# debuggers want.
put_built() {
    local mode=$1 file=$2 path=$3
    shift 3
    cp "$file" "$work/built"
    "$strip" -R .comment "$@" "$work/built"
    put "$mode" "$work/built" "$path"
}

# `link_to TARGET PATH` makes a symbolic link.
link_to() {
    folder "${2%/*}"
    ln -sfn "$1" "$root$2"
    printf 'f %s\n' "$2" >>"$noted"
}

# `filled FILE` prints a file with the paths and the version in the places that
# name them.
filled() {
    sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@LIBDIR@|$libdir|g" -e "s|@VERSION@|$version|g" \
        -e "s|@CRATES@|$datadir/portolan/rust/crates|g" "$1"
}

# --- The parts ---------------------------------------------------------------

install_command() {
    local page
    put_built 755 "$RELEASE/portolan" "$bindir/portolan"
    mkdir "$work/man"
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(date +%s -r CHANGELOG.md)} "$RELEASE/portolan" man "$work/man"
    for page in "$work"/man/*; do
        sed "s|/usr/local/|$PREFIX/|g" "$page" | put 644 - "$datadir/man/man${page##*.}/${page##*/}"
    done
    "$RELEASE/portolan" completions bash | put 644 - "$datadir/bash-completion/completions/portolan"
    "$RELEASE/portolan" completions zsh | put 644 - "$datadir/zsh/site-functions/_portolan"
    "$RELEASE/portolan" completions fish | put 644 - "$datadir/fish/vendor_completions.d/portolan.fish"
    sed "s|/usr/local/|$PREFIX/|g" etc/portolan-node.service | put 644 - "$unitdir/portolan-node.service"
    put 644 etc/portolan-node.sysusers "$sysusersdir/portolan-node.conf"
    put 644 etc/node.conf "$datadir/portolan/node.conf"
    put 644 etc/valgrind.supp "$datadir/portolan/valgrind.supp"
}

install_libraries() {
    local lib header command up
    up=$(realpath -m --relative-to="$libdir/cmake/any" "$PREFIX")
    put_built 644 "$RELEASE/libportolan.so" "$libdir/libportolan.so.$version" --strip-unneeded
    link_to "libportolan.so.$version" "$libdir/libportolan.so.0"
    link_to "libportolan.so.0" "$libdir/libportolan.so"
    # The compiler's own form of the code is of use to Rust's linker alone.
    put_built 644 "$RELEASE/libportolan.a" "$libdir/libportolan.a" --strip-debug -R .llvmbc -R .llvmcmd
    # In a folder of its own, which FI_PROVIDER_PATH names: libfabric loads all that is there.
    put_built 644 "$RELEASE/libportolan-fi.so" "$libdir/portolan/libportolan-fi.so" --strip-unneeded
    put 644 "$RELEASE/libatoll.so" "$libdir/libatoll.so"
    put 644 "$RELEASE/libbsp.so" "$libdir/libbsp.so"
    for lib in "${interfaces[@]}"; do
        filled "crates/$lib/$lib.pc.in" | put 644 - "$libdir/pkgconfig/$lib.pc"
        sed -e "s|@NAME@|$lib|g" -e "s|@UP@|$up|g" -e "s|@LIB@|${libdir#"$PREFIX"/}|g" -e "s|@VERSION@|$version|g" etc/cmake-config.in |
            put 644 - "$libdir/cmake/$lib/$lib-config.cmake"
        sed "s|@VERSION@|$version|g" etc/cmake-version.in | put 644 - "$libdir/cmake/$lib/$lib-config-version.cmake"
        for header in crates/"$lib"/include/*; do
            put 644 "$header" "$includedir/${header##*/}"
        done
    done
    for command in crates/bsp/bin/*; do
        put 755 "$command" "$bindir/${command##*/}"
    done
}

# The crates of this workspace that `portolan` and `bsp` are made of. Rust has no libraries
# in binary form that programs could be linked with later: a program names the
# folder of the crate.
crates() {
    local wanted=(portolan bsp) index=0 name
    while [ $index -lt ${#wanted[@]} ]; do
        name=${wanted[index]}
        index=$((index + 1))
        while IFS= read -r name; do
            [[ " ${wanted[*]} " == *" $name "* ]] || wanted+=("$name")
        done < <(sed -n '/^\[dependencies\]/,/^\[/ s/^portolan-\([a-z]*\)[ .].*/\1/p' "crates/$name/Cargo.toml")
    done
    printf '%s\n' "${wanted[@]}"
}

install_crates() {
    local to=$datadir/portolan/rust name file
    put 644 Cargo.toml "$to/Cargo.toml"
    for name in $(crates); do
        # Without what only tests and examples of the workspace need.
        awk '/^\[/ { drop = /^\[(dev-dependencies|\[example\]|\[test\])/ } !drop' "crates/$name/Cargo.toml" |
            put 644 - "$to/crates/$name/Cargo.toml"
        while IFS= read -r file; do
            put 644 "$file" "$to/$file"
        done < <(find "crates/$name/src" -type f | sort)
    done
}

# The examples in Rust are made a package of their own, with the same versions of
# what they need.
install_documents() {
    local file
    while IFS= read -r file; do
        put 644 "$file" "$docdir/$file"
    done < <(find README.md CHANGELOG.md CONTRIBUTING.md LICENSE-* docs -type f | sort)
    while IFS= read -r file; do
        case $file in
        examples/rust/*.rs) put 644 "$file" "$exampledir/rust/src/bin/${file#examples/rust/}" ;;
        examples/bsp/tables) put 755 "$file" "$exampledir/bsp/tables" ;;
        *) put 644 "$file" "$exampledir/${file#examples/}" ;;
        esac
    done < <(find examples -type f | sort)
    filled etc/examples-cargo.toml.in | put 644 - "$exampledir/rust/Cargo.toml"
    put 644 Cargo.lock "$exampledir/rust/Cargo.lock"
}

# --- Installing and removing -------------------------------------------------

# Removes files that an installation before had and this one has not, and notes
# the folders that the former made.
replace_older() {
    local kind path
    [ -e "$root$manifest" ] || return 0
    while read -r kind path; do
        if [ "$kind" = d ]; then
            echo "d $path" >>"$noted"
        elif ! grep -qxF "f $path" "$noted"; then
            rm -f "$root$path"
        fi
    done <"$root$manifest"
}

do_install() {
    local noted=$work/noted version
    version=$(scripts/version.sh)
    check_built
    : >"$noted"
    install_command
    install_libraries
    install_crates
    install_documents
    replace_older
    folder "${manifest%/*}"
    sort -u "$noted" | install -m 644 /dev/stdin "$root$manifest"
    echo "Portolan $version is installed under $root$PREFIX."
    [ -n "$root" ] || tell_loader
}

do_uninstall() {
    local kind path
    if [ ! -e "$root$manifest" ]; then
        echo "nothing is installed under $root$PREFIX: there is no $root$manifest"
        return
    fi
    while read -r kind path; do
        [ "$kind" = d ] || rm -f "$root$path"
    done <"$root$manifest"
    cp "$root$manifest" "$work/manifest"
    rm "$root$manifest"
    # The longest paths first: those within others.
    sed -n 's/^d //p' "$work/manifest" | sort -r | while IFS= read -r path; do
        [ ! -d "$root$path" ] || rmdir --ignore-fail-on-non-empty "$root$path"
    done
    echo "Portolan is removed from $root$PREFIX."
    [ -n "$root" ] || renew_cache quietly
}

# Whether the dynamic loader looks for libraries in libdir.
is_searched() {
    local folders
    folders=$(/sbin/ldconfig -NXv 2>/dev/null | sed -n 's|^\(/[^:]*[^:/]\)/*:.*|\1|p')
    grep -qxF "$libdir" <<<"$folders"
}

renew_cache() {
    is_searched || return 0
    if [ -w /etc/ld.so.cache ] || [ "$(id -u)" -eq 0 ]; then
        /sbin/ldconfig
    elif [ "${1:-}" != quietly ]; then
        echo "Programs find the libraries after: sudo ldconfig"
    fi
}

# Has the loader know the libraries, or says what to set.
tell_loader() {
    if is_searched; then
        renew_cache
        return
    fi
    cat <<SAY
This is no folder that the system looks into by itself. Set:
  export PATH=$bindir:\$PATH
  export LD_LIBRARY_PATH=$libdir:\$LD_LIBRARY_PATH
  export PKG_CONFIG_PATH=$libdir/pkgconfig:\$PKG_CONFIG_PATH
  export CMAKE_PREFIX_PATH=$PREFIX:\$CMAKE_PREFIX_PATH
  export MANPATH=$datadir/man:\$MANPATH
SAY
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case ${1:-} in
install) do_install ;;
uninstall) do_uninstall ;;
*)
    echo "usage: $0 install|uninstall" >&2
    exit 2
    ;;
esac
