#!/usr/bin/env bash
# Instructions of one 8-byte send and its receipt, in user space (callgrind
# does not see the kernel), after a warm-up. The middle one of five runs counts: how
# often a socket is looked at in vain depends on the kernel's timing. Compares with the
# golden file; GOLDEN=write renews it.
set -euo pipefail
release=${1:-target/release}
golden=$(cd "$(dirname "$0")/.." && pwd)/docs/instructions.txt
program=$release/examples/instructions
count=4000 turns=5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for link in shm udp crowd; do
    for turn in $(seq $turns); do
        valgrind --tool=callgrind --toggle-collect='*instructions::measured*' \
            --callgrind-out-file="$work/$link.$turn" "$program" "$link" $count >"$work/log" 2>&1 ||
            { cat "$work/log" >&2; exit 1; }
    done
done

python3 - "$work" $count $turns >"$work/result" <<'PY'
import re, subprocess, sys
work, count, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ROOMS = [  # first match wins
    ("payload copy", r"memcpy|memmove"),
    ("cipher", r"aes|gcm|ghash|_ring_core|/ring-0|crc32|portolan_seal"),
    ("wire", r"portolan_wire"),
    ("proto", r"portolan_proto"),
    ("link and ring", r"portolan_link|portolan_ring|portolan_sys"),
    ("engine", r"portolan_runtime|portolan_engine"),
    ("the measuring loop", r"instructions::main|instructions::"),
]
def read(link, turn):
    text = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", "--show-percs=no",
                           f"{work}/{link}.{turn}"], capture_output=True, text=True, check=True).stdout
    rooms, total = {}, 0
    for line in text.splitlines():
        m = re.match(r"\s*([\d,]+)\s+(.*)", line)
        if not m or "PROGRAM TOTALS" in line:
            continue
        n = int(m.group(1).replace(",", ""))
        # The function, not the file: inlined parts count where they run.
        name = m.group(2).split(":", 1)[1] if ":" in m.group(2) else m.group(2)
        room = next((r for r, p in ROOMS if re.search(p, name)), "other")
        rooms[room] = rooms.get(room, 0) + n
        total += n
    return rooms, total
for link in ("shm", "udp", "crowd"):
    runs = [read(link, turn) for turn in range(1, turns + 1)]
    rooms, total = sorted(runs, key=lambda run: run[1])[turns // 2]
    print(f"{link}: {round(total / count)} instructions")
    for room, _ in ROOMS + [("other", "")]:
        n = round(rooms.get(room, 0) / count)
        if n:
            print(f"  {room}: {n}")
PY
cat "$work/result"
if [ "${GOLDEN:-}" = write ]; then
    cp "$work/result" "$golden"
    echo "wrote $golden"
    exit
fi
# 3 % are allowed.
python3 - "$golden" "$work/result" <<'PY'
import re, sys
def totals(path):
    with open(path, encoding="utf-8") as f:
        return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+): (\d+) instructions", f.read(), re.M)}
old, new = totals(sys.argv[1]), totals(sys.argv[2])
bad = [f"{k}: {old.get(k)} in the golden file, {n} now" for k, n in new.items()
       if k not in old or abs(n - old[k]) > 0.03 * old[k]]
if bad:
    sys.exit("instructions changed (GOLDEN=write make instructions renews the file):\n" + "\n".join(bad))
print("as the golden file says")
PY
