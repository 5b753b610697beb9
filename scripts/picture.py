"""Run kdops commands in a terminal of 110 columns and draw what they print as an SVG (for the README).

usage: picture.py OUT.svg 'kdops status lab' 'kdops rollback lab' …
"""

from __future__ import annotations

import io
import os
import pty
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_COLUMNS = 110
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def output_of(command: str) -> str:
    """Return everything `command` prints to its terminal, a redrawn line in its last state."""
    chunks: list[bytes] = []

    def read(descriptor: int) -> bytes:
        data = os.read(descriptor, 65536)
        chunks.append(data)
        return data

    os.environ.update(COLUMNS=str(_COLUMNS), TERM="xterm-256color")
    code = os.waitstatus_to_exitcode(pty.spawn(["sh", "-c", f"stty cols {_COLUMNS}; exec {command}"], read))
    if code:
        sys.exit(f"{command}: exit {code}")
    text = b"".join(chunks).decode(errors="replace").replace("\r\n", "\n")
    return "\n".join(line.rsplit("\r", 1)[-1] for line in text.splitlines())


def main() -> None:
    """Run, draw, write."""
    out, *commands = sys.argv[1:]
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in commands:
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text.from_ansi(output_of(command)), soft_wrap=True)
        console.print()
    svg = console.export_svg(title="kdops", font_aspect_ratio=0.6)
    while "@font-face" in svg:  # no fonts from elsewhere
        start = svg.index("@font-face")
        end = svg.index("}", start) + 1
        svg = svg[:start] + svg[end:]
    Path(out).write_text(svg.replace("Fira Code, monospace", _FONT))


if __name__ == "__main__":
    main()
