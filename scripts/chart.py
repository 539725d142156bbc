#!/usr/bin/env python3
"""Draws docs/latency.svg from the JSON of latency benches.

usage: scripts/chart.py OUT.svg BENCH.json...

One bar for each system: its median one-way latency in microseconds, with the
quartiles of its slices as a whisker where the bench gives them.
"""

import json
import sys

WIDTH, BAR, GAP, LEFT, RIGHT = 720, 22, 10, 210, 90
NAMES = {
    "portolan-shm": "Portolan, shared memory",
    "portolan-udp": "Portolan, UDP, encrypted",
    "kernel-udp": "kernel UDP, polled, bare",
    "kernel-tcp": "kernel TCP, polled",
    "shm-floor": "bare shared-memory ring",
    "ucx": "UCX, shared memory",
}


def rows(paths):
    seen = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            for row in json.load(f)["rows"]:
                if row["metric"] == "latency_us" and row.get("loss", 0) == 0:
                    seen.setdefault(row["system"], row)
    return sorted(seen.values(), key=lambda r: r["p50"])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, data = sys.argv[1], rows(sys.argv[2:])
    if not data:
        sys.exit("no latency rows in " + " ".join(sys.argv[2:]))
    scale = (WIDTH - LEFT - RIGHT) / max(r["p50"] for r in data)
    height = 60 + len(data) * (BAR + GAP)
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="one-way latency of an 8-byte message by system">',
        "<style>text{font:14px sans-serif;fill:#333}.own{fill:#0b7285}.peer{fill:#adb5bd}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.own{fill:#3bc9db}.peer{fill:#5c636a}}</style>",
        '<text x="8" y="24" font-weight="bold">8 bytes, one way, microseconds (median; lab; less is better)</text>',
    ]
    for i, r in enumerate(data):
        y = 44 + i * (BAR + GAP)
        width = max(1.0, r["p50"] * scale)
        own = "own" if r["system"].startswith("portolan") else "peer"
        label = NAMES.get(r["system"], r["system"])
        svg.append(f'<text x="{LEFT - 8}" y="{y + 16}" text-anchor="end">{label}</text>')
        svg.append(f'<rect class="{own}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>')
        svg.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 16}">{r["p50"]:.3g}</text>')
    svg.append("</svg>")
    with open(out, "w", encoding="utf-8") as f:
        f.write("\n".join(svg) + "\n")


if __name__ == "__main__":
    main()
