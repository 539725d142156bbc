# To be sourced. Runs test programs beside each other, in groups: the tests of one
# module of a crate's `tests/it`, or all tests of another program. Each group is a
# process, so that none sees what another one does to its process, and none is ended
# when another one hangs.
# shellcheck shell=bash

# `groups CARGO_OPTIONS...` prints the groups of the tests that these options choose,
# which are compiled: folder, crate, program and module.
groups() {
    local list folder crate program module
    list=$(mktemp)
    PORTOLAN_TEST_PROGRAMS=$list cargo --config "target.'cfg(unix)'.runner = '$PWD/scripts/program.sh'" \
        test --locked --quiet --tests "$@" >&2 || return
    while IFS=$'\t' read -r folder crate program; do
        case $program in
        */it-*)
            for module in $("$program" --list --format terse | sed -nE 's/::.*: test$//p' | sort -u); do
                printf '%s\t%s\t%s\t%s\n' "$folder" "$crate" "$program" "$module"
            done
            ;;
        *) printf '%s\t%s\t%s\t\n' "$folder" "$crate" "$program" ;;
        esac
    done <"$list"
    rm -f "$list"
}

# Sorts groups: the slow ones that scripts/slow-tests names come first, in its order.
slow_first() {
    awk -F'\t' 'FNR == NR { rank[$0] = FNR; next }
        { name = $2 " " ($4 ? $4 : "."); print (name in rank ? rank[name] : 1000) "\t" $0 }' scripts/slow-tests - |
        sort -s -n -k1,1 | cut -f2-
}

# `run_groups N` runs the groups of its input, N at a time. Fails if one does.
run_groups() {
    tr '\n' '\0' | xargs -0 -r -P "$1" -n 1 "$PWD/scripts/program.sh" --group
}
