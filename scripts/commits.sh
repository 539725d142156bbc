#!/usr/bin/env bash
# The messages of the commits since the one that scripts/commits-since names, merges
# aside, have the form that CONTRIBUTING.md asks for: a subject `room: what changes`
# of at most 72 characters, an empty line, and a body. Prints each that has not, and fails.
set -uo pipefail
cd "$(dirname "$0")/.."
since=$(<scripts/commits-since)
if ! git cat-file -e "$since^{commit}" 2>/dev/null || ! git merge-base --is-ancestor "$since" HEAD 2>/dev/null; then
    echo "*** MESSAGES OF COMMITS WERE NOT LOOKED AT: there is no git here, or not the history since $since ***"
    exit 0
fi
git log --no-merges --format='%h%x00%B%x01' "$since"..HEAD | python3 -c '
import re, sys
bad = 0
for entry in filter(str.strip, sys.stdin.read().split("\x01")):
    commit, message = entry.strip("\n").split("\0", 1)
    subject, *rest = message.rstrip().split("\n")
    wrong = []
    if len(subject) > 72:
        wrong.append(f"its subject has {len(subject)} characters, not at most 72")
    if not re.match(r"[a-z0-9, -]+: [^ ].*[^.]$", subject):
        wrong.append("its subject is not `room: what changes`")
    if len(rest) < 2 or rest[0] or not rest[1]:
        wrong.append("it has no body behind an empty line")
    for what in wrong:
        print(f"{commit} {subject}: {what}")
    bad |= bool(wrong)
sys.exit(bad)' || { echo "messages of commits: CONTRIBUTING.md, *Commits*, has what to say" >&2; exit 1; }
