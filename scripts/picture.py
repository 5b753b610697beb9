"""Run commands and draw what they print as an SVG (for the README).

usage: picture.py OUT.svg 'kdops status lab' 'kdops rollback lab' …
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

_COLUMNS = 110
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"


def main() -> None:
    """Run, draw, write; a command that fails ends it."""
    out, *commands = sys.argv[1:]
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in commands:
        done = subprocess.run(
            command, shell=True, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        console.print(Text(f"$ {command}", style="bold"))
        console.print(Text(done.stdout))
    svg = console.export_svg(title="kdops", font_aspect_ratio=0.6)
    while "@font-face" in svg:  # no fonts from elsewhere
        start = svg.index("@font-face")
        svg = svg[:start] + svg[svg.index("}", start) + 1 :]
    Path(out).write_text(svg.replace("Fira Code, monospace", _FONT))


if __name__ == "__main__":
    main()
