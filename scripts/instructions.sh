#!/usr/bin/env bash
# Instructions of one 8-byte send, its receipt and one look in vain, in user space
# (callgrind does not see the kernel), after a warm-up; and the lines of code of 64 bytes
# that they touch (lackey). Both are exact: the program brings its own clock. Compares with
# the golden file; GOLDEN=write renews it.
set -euo pipefail
release=${1:-target/release}
golden=$(cd "$(dirname "$0")/.." && pwd)/docs/instructions.txt
program=$release/examples/instructions
# Who has sent 512 packets to one peer gets a socket connected to it.
count=1000 warm_up=1500
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for link in shm udp crowd; do
    valgrind --tool=callgrind --toggle-collect='*instructions::measured*' \
        --callgrind-out-file="$work/$link" "$program" $link $count $warm_up >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    # Among many peers the same code runs.
    [ $link != crowd ] || continue
    valgrind --tool=lackey --trace-mem=yes --log-fd=2 "$program" $link 20 100 2>&1 |
        awk '/^measured from/ { from = substr($3, 3); to = substr($5, 3) }
             $1 == "I" && from { sub(/^0+/, "", $2)
                                 split($2, at, ",")
                                 if (at[1] == from) on = 1
                                 if (at[1] == to) on = from = 0
                                 if (on) print $2 }' >"$work/$link.code"
done

python3 - "$work" $count >"$work/result" <<'PY'
import re, subprocess, sys
work, count = sys.argv[1], int(sys.argv[2])
ROOMS = [  # first match wins
    ("payload copy", r"memcpy|memmove"),
    ("cipher", r"aes|gcm|ghash|/ring-0|/aegis-|crc32|crates/seal/|portolan_seal"),
    ("wire", r"crates/wire/|portolan_wire"),
    ("proto", r"crates/proto/|portolan_proto"),
    ("link and ring", r"crates/(link|ring|sys)/|portolan_(link|ring|sys)"),
    ("engine", r"crates/(engine|runtime)/src/|portolan_(engine|runtime)"),
    ("the measuring loop", r"instructions"),
]
def room_of(name):
    return next((room for room, pattern in ROOMS if re.search(pattern, name)), None)
def read(link):
    text = subprocess.run(["callgrind_annotate", "--threshold=100", "--auto=no", "--show-percs=no",
                           f"{work}/{link}"], capture_output=True, text=True, check=True).stdout
    rooms, total = {}, 0
    for line in text.splitlines():
        m = re.match(r"\s*([\d,]+)\s+(\S+?):(.*?)(?: \[.*)?$", line)
        if not m:
            continue
        n = int(m.group(1).replace(",", ""))
        # The file: inlined parts stand where they were written. Those of the standard library
        # belong to who asked for them.
        room = room_of(m.group(2)) or room_of(m.group(3)) or "other"
        rooms[room] = rooms.get(room, 0) + n
        total += n
    return rooms, total
def lines(link):
    touched = set()
    with open(f"{work}/{link}.code", encoding="ascii") as code:
        for step in code:
            at, size = step.split(",")
            at = int(at, 16)
            touched.update(range(at >> 6, (at + int(size) - 1 >> 6) + 1))
    return len(touched)
for link in ("shm", "udp", "crowd"):
    rooms, total = read(link)
    touched = f", {lines(link)} lines of code" if link != "crowd" else ""
    print(f"{link}: {round(total / count)} instructions{touched}")
    for room, _ in ROOMS + [("other", "")]:
        n = round(rooms.get(room, 0) / count)
        if n:
            print(f"  {room}: {n}")
PY
echo "compiled by $(rustc --version | cut -d' ' -f1,2), and the cipher by $(${CC:-cc} --version | head -1)" >>"$work/result"
cat "$work/result"
if [ "${GOLDEN:-}" = write ]; then
    cp "$work/result" "$golden"
    echo "wrote $golden"
    exit
fi
# 3 % are allowed, and 5 % to the cipher, which a compiler of C made.
python3 - "$golden" "$work/result" <<'PY'
import re, sys
def totals(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    counts, link = {}, None
    for m in re.finditer(r"^(\w+): (\d+) instructions(?:, (\d+) lines)?|^  cipher: (\d+)", text, re.M):
        if m[4]:
            counts[link, "instructions"] -= int(m[4])
            counts[link, "instructions of the cipher"] = int(m[4])
            continue
        link = m[1]
        counts[link, "instructions"] = int(m[2])
        if m[3]:
            counts[link, "lines of code"] = int(m[3])
    return counts
def allowed(unit):
    return 0.05 if unit.endswith("cipher") else 0.03
old, new = totals(sys.argv[1]), totals(sys.argv[2])
bad = [f"{link}: {old.get((link, unit))} {unit} in the golden file, {n} now"
       for (link, unit), n in new.items()
       if (link, unit) not in old or abs(n - old[link, unit]) > allowed(unit) * old[link, unit]]
bad += [f"{link}: no {unit} now" for link, unit in old if (link, unit) not in new]
if bad or not new:
    sys.exit("the cost of a message changed (GOLDEN=write make instructions renews the file):\n"
             + "\n".join(bad))
print("as the golden file says")
PY
