"""Checks of the house style that no linter has: file sizes, tolerances, ASCII, paths of one machine.

Prints one line per finding and ends with code 1 if there is any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MOST_LINES = 300
REASON_WITHIN = 40
"""A longer file says why near its top, in a line that starts with `# long:`."""

LOOSEST_RELATIVE = 1e-2
"""Relative tolerances from here on are refused: they hide wrong signs and missing factors."""

TOLERANCE = re.compile(r"\b(?:rtol|rel|rel_tol)\s*=\s*([0-9][0-9_.]*(?:[eE][+-]?[0-9]+)?)")
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:(?:home|Users)/\w{2,}|root/\w+|work/(?:main|shared))")
"""An example may write /home/a/file: no one is called a."""
CODE = {".py", ".toml", ".sh", ".md", ".yaml", ".yml", ""}


def main() -> int:
    """Check every file of the project that git knows."""
    findings = [finding for path in tracked_files() for finding in check(path)]
    for finding in findings:
        print(finding)
    print(f"check_style: {len(findings)} findings")
    return 1 if findings else 0


def tracked_files() -> list[Path]:
    """Files under version control or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and path.suffix in CODE]


def check(path: Path) -> Iterator[str]:
    """Findings of one file, each as `path:line: what is wrong; what to do`."""
    name = path.relative_to(ROOT)
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if path.suffix == ".py":
        yield from _length(str(name), lines)
        yield from _not_ascii(str(name), lines)
    if name.parts[0] == "tests":
        yield from _tolerances(str(name), lines)
    for number, line in enumerate(lines, 1):
        if MACHINE_PATH.search(line):
            yield f"{name}:{number}: a path of one machine; use a relative path or a variable"


def _length(name: str, lines: list[str]) -> Iterator[str]:
    reason = any(line.startswith("# long: ") for line in lines[:REASON_WITHIN])
    if len(lines) > MOST_LINES and not reason:
        yield f"{name}: {len(lines)} lines, at most {MOST_LINES}; split it, or add a line `# long: why`"


def _not_ascii(name: str, lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            yield f"{name}:{number}: not ASCII; write an escape"


def _tolerances(name: str, lines: list[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        for value in TOLERANCE.findall(line):
            if float(value) >= LOOSEST_RELATIVE:
                yield f"{name}:{number}: relative tolerance {value}; the limit is below {LOOSEST_RELATIVE}"


if __name__ == "__main__":
    sys.exit(main())
