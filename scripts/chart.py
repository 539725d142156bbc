#!/usr/bin/env python3
"""Draws docs/latency.svg from the JSON of benches: two panels, each with a scale
of its own.

usage: scripts/chart.py OUT.svg --within BENCH.json... --between BENCH.json...

    portolan bench latency --link shm --size 8 --vs ucx --json shm.json
    portolan bench pushpull --link shm --size 8 --vs openmpi,mpich --json matched.json
    portolan bench latency --lab L --link udp --size 8 --vs udp,tcp,ucx --json udp.json
    portolan bench latency --lab L --link xdp --size 8 --vs raw-xdp,udp,tcp --json xdp.json
    scripts/chart.py docs/latency.svg --within shm.json matched.json --between udp.json xdp.json

A bar is the median one-way latency of 8 bytes. Of a system that several files
have, the first counts.
"""

import json
import sys

WIDTH, BAR, GAP, LEFT, RIGHT, HEAD = 720, 20, 8, 250, 90, 34
PANELS = {
    "--within": "Within a host",
    "--between": "Between two hosts",
}
# By bench and system, or by system alone.
NAMES = {
    ("pushpull", "portolan-shm"): "Portolan, tag-matched",
    "portolan-shm": "Portolan, shared memory",
    "portolan-udp": "Portolan, UDP, encrypted",
    "portolan-xdp": "Portolan, AF_XDP, encrypted",
    "kernel-udp": "kernel UDP, polled, not encrypted",
    "kernel-tcp": "kernel TCP, polled, not encrypted",
    "openmpi": "Open MPI, tag-matched",
    "mpich": "MPICH, tag-matched",
    "ucx": "UCX",
}


def bars(files):
    """Label, whether it is ours, and microseconds, the fastest first."""
    seen = {}
    for name in files:
        with open(name, encoding="utf-8") as f:
            found = json.load(f)
        for row in found["rows"]:
            system = row["system"]
            label = NAMES.get((found["bench"], system)) or NAMES.get(system)
            plain = row["metric"] == "latency_us" and row.get("size") == 8 and not row.get("loss")
            if label and plain:
                seen.setdefault(label, (label, system.startswith("portolan"), row["p50"]))
    return sorted(seen.values(), key=lambda bar: bar[2])


def panel(title, bars, top):
    """The lines of one panel, and where the next one begins."""
    scale = (WIDTH - LEFT - RIGHT) / max(us for _, _, us in bars)
    svg = [f'<text x="8" y="{top + 20}" font-weight="bold">{title}: 8 bytes, one way, us (less is better)</text>']
    for i, (label, own, us) in enumerate(bars):
        y = top + HEAD + i * (BAR + GAP)
        width = max(1.0, us * scale)
        svg.append(f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{label}</text>')
        svg.append(f'<rect class="{"own" if own else "peer"}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}"/>')
        svg.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 15}">{us:.{2 if us < 1 else 1}f}</text>')
    return svg, top + HEAD + len(bars) * (BAR + GAP) + GAP


def main():
    files, panel_of = {}, None
    for word in sys.argv[2:]:
        if word in PANELS:
            panel_of = files.setdefault(word, [])
        elif panel_of is None:
            sys.exit(__doc__)
        else:
            panel_of.append(word)
    if set(files) != set(PANELS):
        sys.exit(__doc__)
    top, svg = 0, []
    for option, title in PANELS.items():
        found = bars(files[option])
        if not found:
            sys.exit("no latency of 8 bytes in " + " ".join(files[option]))
        lines, top = panel(title, found, top)
        svg += lines
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" role="img" '
        'aria-label="one-way latency of 8 bytes within a host and between two hosts, by system">',
        "<style>text{font:14px sans-serif;fill:#333}.own{fill:#0b7285}.peer{fill:#adb5bd}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.own{fill:#3bc9db}.peer{fill:#5c636a}}</style>",
    ]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(head + svg + ["</svg>"]) + "\n")


if __name__ == "__main__":
    main()
