"""The machine's own apt sources, from which the lab's root file system is built."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kdops.errors import KdopsError

_ONE_LINE = re.compile(r"^\s*deb\s+(?:\[[^\]]*\]\s+)?\S+\s+(?P<suite>\S+)\s+(?P<components>[^#]+)")


def offers(text: str, codename: str) -> bool:
    """Whether an apt source file, in one-line or deb822 form, names the release's main component.
    sources.list(5).
    """
    for line in text.splitlines():
        match = _ONE_LINE.match(line)
        if match and match["suite"] == codename and "main" in match["components"].split():
            return True
    return any(
        codename in fields.get("suites", "").split()
        and "main" in fields.get("components", "").split()
        and "deb" in fields.get("types", "").split()
        and fields.get("enabled", "yes").strip().lower() not in ("no", "false", "off", "0")
        for fields in _stanzas(text)
    )


def _stanzas(text: str) -> Iterable[dict[str, str]]:
    fields: dict[str, str] = {}
    key = ""
    for line in [*text.splitlines(), ""]:
        if not line.strip():
            yield fields
            fields, key = {}, ""
        elif line.startswith("#"):
            continue
        elif line[0].isspace() and key:
            fields[key] += " " + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            key = name.strip().lower()
            fields[key] = value.strip()


def codename(os_release: str) -> str:
    """Return VERSION_CODENAME of an os-release(5) file's text, "" if it has none."""
    match = re.search(r'^VERSION_CODENAME="?([a-z0-9-]+)"?$', os_release, re.MULTILINE)
    return match[1] if match else ""


def release_sources(etc: Path = Path("/etc")) -> tuple[str, tuple[Path, ...]]:
    """Return the machine's release and the apt source files that offer it.

    Raises KdopsError if there are none: the machine is no Debian or Ubuntu, or gets its packages some other
    way.
    """
    os_release = etc / "os-release"
    release = codename(os_release.read_text(errors="replace")) if os_release.is_file() else ""
    folder = etc / "apt"
    candidates = [folder / "sources.list", *sorted(folder.glob("sources.list.d/*"))]
    found = tuple(
        path
        for path in candidates
        if path.suffix in (".list", ".sources")
        and path.is_file()
        and release
        and offers(path.read_text(errors="replace"), release)
    )
    if not found:
        raise KdopsError(
            "this machine's apt sources name no Debian release",
            cause=f"no file in {folder} offers the component main of {release or 'a known release'!r}",
            remedy="add the release's main archive to /etc/apt/sources.list, then run the command again",
        )
    return release, found
