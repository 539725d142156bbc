#!/usr/bin/env bash
# Does what documents say as a reader would, by copying and pasting: runs the
# blocks of code of each DOCUMENT (README.md and docs/tutorial.md by default) in
# order, in a fresh clone of this checkout in a temporary directory.
#   readme.sh [DOCUMENT...]
#
# The language of a block says what is done with it:
#   sh      bash runs it, in the folder in which the block before it ended
#   text    is compared with what the sh blocks since the last such one print: each job,
#           and whatever else prints lines of ranks ("[0] ..."), must print those of the
#           block, no more and no less; other lines must be printed by some command
#   others  are written to the file that the line of text before them names at its
#           end: `FILE`:
#   none    is no code
#
# Fails at the first block that fails, or whose output is another one than stated.
# Needs root for labs, and what `make build` leaves in CARGO_TARGET_DIR (or target).
set -euo pipefail
cd "$(dirname "$0")/.."

# Lines of sh blocks that are left out: they run all tests, this one among them, or
# are tests of their own.
left_out=("make demo" "make check" "make test")

checkout=$PWD
target=$(realpath "${CARGO_TARGET_DIR:-target}")
unset CARGO_TARGET_DIR
[ $# -gt 0 ] || set -- README.md docs/tutorial.md
[ -x "$target/release/portolan" ] || { echo "readme.sh: run 'make build' first" >&2; exit 1; }
mapfile -t labs < <(grep -ohE 'portolan lab up [A-Za-z0-9-]+' "$@" | sed 's/.* //' | sort -u)
work=$(mktemp -d)

# Crates of other people that programs of documents are built with stay here; our
# own have another path each time.
packages=$target/documents
cleanup() {
    local lab
    for lab in "${labs[@]}"; do "$target/release/portolan" lab down "$lab" >/dev/null 2>&1 || true; done
    find "$packages" -depth -name '*portolan*' -exec rm -rf {} + 2>/dev/null || true
    rm -rf "$work"
    # What `make build` has written in the clone names it.
    make -s -C "$checkout/crates/library" TARGET="$target" "$target/release/pkgconfig/bsp.pc" || true
}

# A reader who is root needs no sudo, and installs under /usr/local; here it is a
# folder, which the compiler and the loader must be told.
mkdir -p "$work/bin" "$packages"
printf '#!/bin/sh\nexec "$@"\n' >"$work/bin/sudo"
chmod +x "$work/bin/sudo"
export PREFIX=$work/prefix
export PATH=$work/bin:$PREFIX/bin:$PATH
export PKG_CONFIG_PATH=$PREFIX/lib/pkgconfig LD_LIBRARY_PATH=$PREFIX/lib

# Two runs on one machine would have labs of the same names.
exec 9</run
flock 9
taken=$("$target/release/portolan" lab list | awk '{ print $1 }' | grep -Fx "$(printf '%s\n' "${labs[@]}")" || true)
trap 'rm -rf "$work"' EXIT
[ -z "$taken" ] || { echo "readme.sh: lab $taken is up: take it down first" >&2; exit 1; }
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# With the times of the checkout's files and folders, and its target: so nothing is
# compiled that was compiled there.
clone=$work/portolan
mkdir "$clone"
git ls-files -z | tar --null --files-from=- --create | tar --extract --directory "$clone"
(cd "$clone" && find . -type d -exec touch -r "$checkout/{}" {} \;)
ln -s "$target" "$clone/target"

# `blocks DOCUMENT FOLDER` puts each block into a file of the folder, which its
# line in the document names, and lists them: line, language, file.
blocks() {
    mkdir "$2"
    awk -v folder="$2" '
        /^```/ && !inside { inside = 1; line = NR; language = substr($0, 4); text = ""; next }
        /^```/ {
            inside = 0
            if (language == "") next
            if (language != "sh" && language != "text" && file == "") {
                print FILENAME ":" line ": the line before this block names no file" > "/dev/stderr"
                exit 1
            }
            printf "%s", text > (folder "/" line)
            print line, language, file
            file = ""
            next
        }
        inside { text = text $0 "\n"; next }
        NF { file = match($0, /`[^`]+`:$/) ? substr($0, RSTART + 1, RLENGTH - 3) : "" }
        END { if (inside) { print FILENAME ": the last block does not end" > "/dev/stderr"; exit 1 } }
    ' "$1"
}

# `leave_out FILE` removes the lines that are not to be run, and says which.
leave_out() {
    local line words
    while IFS= read -r line; do
        words=$(sed 's/ *#.*//' <<<"$line")
        case "|$(IFS='|'; echo "${left_out[*]}")|" in
        *"|$words|"*) echo "left out: $words" >&2 ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$1"
}

# `compare STATED PRINTED` says in what they differ. Before what a command prints
# stands its text behind a record separator. Lines of different ranks have no order.
compare() {
    awk '
        function check(line) {
            if (!lines && command !~ /portolan run /) return
            ran++
            for (line in stated) if (printed[line] != stated[line]) differs("not printed by", line)
            for (line in printed) if (!(line in stated)) differs("not stated, but printed by", line)
            split("", printed)
            lines = 0
        }
        function differs(how, line) { bad = 1; print how " " command ": " line }
        NR == FNR { if (/^\[[0-9]+\] /) stated[$0]++; else others[$0]; next }
        /^\036/ { check(); command = substr($0, 2); next }
        /^\[[0-9]+\] / { printed[$0]++; lines++; next }
        { delete others[$0] }
        END {
            check()
            command = "any command"
            if (!ran) for (line in stated) differs("not printed by", line)
            for (line in others) differs("not printed by", line)
            exit bad
        }' "$1" "$2"
}

fails() {
    printf '\n*** %s: %s\n' "$1" "$2" >&2
    sed 's/^\x1e/$ /; s/^/    /' "$3" >&2
    exit 1
}

perform() {
    local document=$1 here=$clone list=$work/list folder said=$work/said line language file place
    folder=$work/$(basename "$document")
    blocks "$document" "$folder" >"$list"
    [ -s "$list" ] || { echo "*** $document has no code" >&2; exit 1; }
    : >"$said"
    while read -r line language file; do
        place=$document:$line
        case $language in
        sh)
            leave_out "$folder/$line" >"$work/block"
            printf '%s: ' "$place"
            grep -m 1 -v '^ *#' "$work/block" || echo
            {
                echo "trap 'printf \"\\036%s\\n\" \"\$BASH_COMMAND\"' DEBUG"
                cat "$work/block"
                printf 'pwd >%q\n' "$work/here"
            } >"$work/script"
            (cd "$here" && bash -euo pipefail "$work/script") </dev/null 9<&- >>"$said" 2>&1 ||
                fails "$place" "this block failed" "$said"
            here=$(<"$work/here")
            ;;
        text)
            compare "$folder/$line" "$said" >"$work/differs" ||
                fails "$place" "the output is another one" "$work/differs"
            : >"$said"
            ;;
        *)
            mkdir -p "$here/$(dirname "$file")"
            cp "$folder/$line" "$here/$file"
            if [ "$(basename "$file")" = Cargo.toml ]; then
                ln -s "$packages" "$(dirname "$here/$file")/target"
                cp "$checkout/Cargo.lock" "$(dirname "$here/$file")"
            fi
            ;;
        esac
    done <"$list"
}

for document in "$@"; do perform "$document"; done
echo "every block ran, and printed what is stated"
