#!/usr/bin/env bash
# Names that were our own and have the field's words now (docs/glossary.md has those
# that stay): none may name a type, function, field, module, option or column again.
# Prints each place where one does, and fails.
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
exit $code
