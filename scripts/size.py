#!/usr/bin/env python3
"""Lines of each crate without its tests: all, and those that are code (`make size`)."""
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
# A module of tests, within a file or in one of its own.
INSIDE = re.compile(r"^([ \t]*)#\[cfg\(test\)\]\n(?:\s*#\[.*\]\n)*\s*(?:pub(?:\(.*?\))? )?mod (\w+)( \{|;)\n", re.M)


def without_tests(path, skipped):
    """The text of a file without its test modules; adds the files of those to `skipped`."""
    text = path.read_text().rstrip("\n") + "\n"
    while found := INSIDE.search(text):
        indent, name, kind = found.groups()
        end = found.end()
        if kind == ";":
            folder = path.parent if path.name in ("lib.rs", "main.rs", "mod.rs") else path.with_suffix("")
            skipped.update({folder / f"{name}.rs", folder / name})
        else:
            end = text.index(f"\n{indent}}}\n", end - 1) + len(indent) + 3
        text = text[: found.start()] + text[end:]
    return text


def is_code(line):
    line = line.strip()
    return bool(line) and not line.startswith(("//", "/*", "*", "#!"))


def main():
    rows = []
    for crate in sorted((TOP / "crates").iterdir()):
        skipped, texts = set(), {}
        for path in sorted(crate.rglob("*")):
            if path.suffix in (".rs", ".c", ".h") and not {"tests", "examples"} & set(path.relative_to(crate).parts):
                texts[path] = without_tests(path, skipped)
        kept = [t for p, t in texts.items() if not skipped & {p, *p.parents}]
        lines = [line for text in kept for line in text.splitlines()]
        rows.append((crate.name, len(lines), sum(map(is_code, lines))))
    rows.append(("all", sum(r[1] for r in rows), sum(r[2] for r in rows)))
    print(f"{'crate':12} {'lines':>8} {'code':>8}")
    for name, lines, code in rows:
        print(f"{name:12} {lines:8,} {code:8,}")


if __name__ == "__main__":
    sys.exit(main())
