#!/usr/bin/env bash
# Words of the source.
#
# 1. Names that were our own and have the field's words now (docs/glossary.md has those
#    that stay): none may name a type, function, field, module, option or column again.
# 2. Comments that begin without a subject, and words that are ours alone. Each crate's
#    counts stand in scripts/words-counts and may only fall; `words.sh --count` writes
#    them there, if none has grown.
#
# Prints each place of the first kind and each count that has grown, and fails.
set -uo pipefail
cd "$(dirname "$0")/.."
words='KeptWords|KeptMore|fix_life|Casualty|Shown|Beds|Nap|Glance|Toward|Deed|Crowd|Stood|unstand|Census|census|Looks
|shelf|more_shelf|shelve|shelve_paths|take_down|excuse|bury|Disorder|disorder|nudge|nudge_at|arm_nudge|late_ack|glance|diary
|toward|deed|stood|astray|Joint|Turns|Vigil|vigil|Ward|ward|Wards|wards|mourning|mourned|Door|KIND_WELCOME|Welcome'
words=$(tr -d '\n' <<<"$words")
# Modules whose names are ordinary words elsewhere.
modules='room|rest|nap|glance|news|shown|standing|looks|turns|joint|talk|ask|door|signs|peek|ward|vigil|diary'
benches='how|pour|course|patience|reach|mpis'
code=0
# Comments and strings aside: ordinary English remains free.
places=$(git grep -nwE "$words" -- 'crates/*.rs' 'crates/*.h' 'fuzz/*.rs' 'examples/*' |
    grep -vE '^[^:]+:[0-9]+:\s*(//|\*)' | sed -E 's#"([^"\\]|\\.)*"##g; s#//.*##' | grep -wE "$words")
[ -z "$places" ] || { echo "$places"; code=1; }
named=$(git ls-files 'crates/*.rs' | grep -E "/($modules)\.rs$|/link/src/(.*/)?ways\.rs$|/bench/src/(.*/)?($benches)\.rs$")
[ -z "$named" ] || { echo "$named"; code=1; }
[ $code -eq 0 ] || echo "words of our own name something: CONTRIBUTING.md, *Words*, has what to say" >&2

# Prints for each crate how many comments begin with "Of", "The same" or "As there"; how many
# with "It", "They" or "Who"; and how often the other words stand in its source.
counts() {
    printf '%-12s%8s%8s%8s%8s%8s%8s\n' crate Of It gives nobody so_many whoever
    git ls-files -z 'crates/*/src/*.rs' | xargs -0 awk '
        function words(re,   text, n) {
            for (text = tolower($0); match(text, "(^|[^a-z_])" re "([^a-z_]|$)"); text = substr(text, RSTART + RLENGTH - 1)) n++
            return n
        }
        FNR == 1 { before = 0; split(FILENAME, path, "/"); crate = path[2]; crates[crate] }
        { comment = /^[ \t]*\/\/[\/!]?( |$)/ }
        comment && !before {
            text = $0
            sub(/^[ \t]*\/\/[\/!]? /, "", text)
            counted[crate, 1] += text ~ /^(Of|The same|As there)[ ,]/
            counted[crate, 2] += text ~ /^(It|They|Who) /
        }
        { before = comment }
        /gives|[Nn]obody|[Ss]o many|[Ww]hoever/ {
            counted[crate, 3] += words("gives")
            counted[crate, 4] += words("nobody")
            counted[crate, 5] += words("so many")
            counted[crate, 6] += words("whoever")
        }
        END {
            for (crate in crates) {
                printf "%-12s", crate
                for (i = 1; i <= 6; i++) printf "%8d", counted[crate, i]
                print ""
            }
        }' | sort
}
now=$(counts)
# Which file is read does not follow from line numbers: an empty one would pass for the other.
grown=$(awk 'is_base { for (i = 2; i <= NF; i++) base[$1, i] = $i; next }
    FNR == 1 { for (i = 2; i <= NF; i++) what[i] = $i; next }
    { for (i = 2; i <= NF; i++) if ($i > base[$1, i] + 0) print "crates/" $1 ": " what[i] " " $i ", at most " base[$1, i] + 0 }' \
    is_base=1 scripts/words-counts is_base=0 - <<<"$now")
if [ -n "$grown" ]; then
    echo "$grown"
    echo "say it in standard English: CONTRIBUTING.md, *Words*" >&2
    code=1
fi
if [ "${1:-}" = --count ]; then
    echo "$now"
    [ -n "$grown" ] || echo "$now" >scripts/words-counts
fi
exit $code
