#!/usr/bin/env bash
# Instructions of one 8-byte send and its receipt, in user space (callgrind
# does not see the kernel): the difference between a long and a short run.
# Compares with the golden file; GOLDEN=write renews it.
set -euo pipefail
release=${1:-target/release}
golden=$(cd "$(dirname "$0")/.." && pwd)/docs/instructions.txt
program=$release/examples/instructions
short=2000 long=6000
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

run() { # link count
    valgrind --tool=callgrind --callgrind-out-file="$work/$1.$2" "$program" "$1" "$2" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
}

for link in shm udp crowd; do
    run $link $short
    run $link $long
done

python3 - "$work" $short $long >"$work/result" <<'PY'
import re, subprocess, sys
work, short, long = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ROOMS = [  # first match wins
    ("payload copy", r"memcpy|memmove"),
    ("cipher", r"aes|gcm|ghash|_ring_core|/ring-0|crc32|portolan_seal"),
    ("wire", r"portolan_wire"),
    ("proto", r"portolan_proto"),
    ("link and ring", r"portolan_link|portolan_ring|portolan_sys"),
    ("engine", r"portolan_engine|portolan_core"),
    ("the measuring loop", r"instructions::main|instructions::"),
]
def read(link, count):
    text = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", "--show-percs=no",
                           f"{work}/{link}.{count}"], capture_output=True, text=True, check=True).stdout
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
    (a, ta), (b, tb) = read(link, short), read(link, long)
    print(f"{link}: {round((tb - ta) / (long - short))} instructions")
    for room, _ in ROOMS + [("other", "")]:
        n = round((b.get(room, 0) - a.get(room, 0)) / (long - short))
        if n:
            print(f"  {room}: {n}")
PY
cat "$work/result"
if [ "${GOLDEN:-}" = write ]; then
    cp "$work/result" "$golden"
    echo "wrote $golden"
    exit
fi
# 3 % are allowed, over UDP 10: how often a socket is looked at in vain depends
# on the kernel's timing.
python3 - "$golden" "$work/result" <<'PY'
import re, sys
def totals(path):
    with open(path, encoding="utf-8") as f:
        return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+): (\d+) instructions", f.read(), re.M)}
old, new = totals(sys.argv[1]), totals(sys.argv[2])
bad = [f"{k}: {old.get(k)} in the golden file, {n} now" for k, n in new.items()
       if k not in old or abs(n - old[k]) > (0.03 if k == "shm" else 0.1) * old[k]]
if bad:
    sys.exit("instructions changed (GOLDEN=write make instructions renews the file):\n" + "\n".join(bad))
print("as the golden file says")
PY
