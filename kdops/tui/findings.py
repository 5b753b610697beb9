"""What `kdops diagnose` found out about a host, or how to make it look. Pure."""

from __future__ import annotations

from rich.text import Text

from kdops.text import printable
from kdops.tui.themes import Colours


def findings_text(host: str, colours: Colours) -> Text:
    """Return the words of an empty panel."""
    text = Text("nothing diagnosed yet: ", style=colours.dim)
    text.append(f"a, then diagnose, or `kdops diagnose {printable(host)}`", style=colours.text)
    return text
