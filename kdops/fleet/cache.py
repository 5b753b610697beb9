"""Inventory reads kept by content hash: Ansible alone costs 0.4 s a command."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import tempfile
from pathlib import Path

from kdops import __version__, paths
from kdops.errors import UsageError
from kdops.fleet.raw import RawHost, RawInventory

_ENV_LOOKUP = re.compile(r"""\b(?:lookup|query|q)\(\s*['"](?:ansible\.builtin\.)?env['"]\s*,([^)]*)\)""")
_NAME = re.compile(r"""['"]([A-Za-z_][A-Za-z0-9_]*)['"]""")
_DYNAMIC = re.compile(r"\b(?:lookup|query|q)\(|\bnow\(|\brandom\b|\bshuffle\b|\$ANSIBLE_VAULT|!vault")


def read(inventory: Path) -> RawInventory:
    """Read `inventory` through the cache. What depends on more than files and environment is never cached."""
    key = _key(inventory)
    path = paths.cache() / "inventory" / f"{key}.json"
    if key and (found := _load(path)):
        return found
    result = _with_ansible(inventory)
    if key:
        _store(path, result)
    return result


def _with_ansible(inventory: Path) -> RawInventory:
    """Raises UsageError also when Ansible cannot even be imported: it reads its own settings then."""
    from ansible.errors import AnsibleError

    try:
        # Ansible gives the streams it meets an error handler of its own, which loses characters.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            from kdops.fleet import inventory as ansible_inventory
    except AnsibleError as error:
        raise UsageError(
            "Ansible does not start here",
            cause=" ".join(str(error).split()),
            remedy="set ANSIBLE_HOME to a folder you may write, or correct ansible.cfg",
        ) from None
    return ansible_inventory.read(inventory)


def _key(inventory: Path) -> str | None:
    """Return a digest of everything the result depends on, or None if that cannot be known (scripts, vaults,
    lookups).
    """
    digest = hashlib.sha256(f"{__version__} {inventory.absolute()}".encode())
    names = {name for name in os.environ if name.startswith("ANSIBLE_")}
    root = inventory if inventory.is_dir() else inventory.parent
    folders = [root] if inventory.is_dir() else [root / "group_vars", root / "host_vars"]
    files = [inventory] if inventory.is_file() else []
    files += sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    files += [Path("ansible.cfg"), Path.home() / ".ansible.cfg", Path("/etc/ansible/ansible.cfg")]
    for path in files:
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if os.access(path, os.X_OK) and content.startswith(b"#!"):
            return None
        text = content.decode(errors="replace")
        for arguments in _ENV_LOOKUP.findall(text):
            names.update(_NAME.findall(arguments))
        if _DYNAMIC.search(_ENV_LOOKUP.sub("", text)):
            return None
        digest.update(f"\0{path.absolute()}\0{hashlib.sha256(content).hexdigest()}".encode())
    for name in sorted(names):
        digest.update(f"\0{name}={os.environ.get(name)!r}".encode())
    return digest.hexdigest()[:32]


def _load(path: Path) -> RawInventory | None:
    try:
        document = json.loads(path.read_text())
        hosts = tuple(
            RawHost(
                host["name"],
                tuple(host["groups"]),
                host["variables"],
                {name: (source, line) for name, (source, line) in host["origins"].items()},
            )
            for host in document["hosts"]
        )
        return RawInventory(hosts, tuple(document["warnings"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _store(path: Path, result: RawInventory) -> None:
    """Write the entry, readable by its owner alone; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(dataclasses.asdict(result), file)
        Path(file.name).replace(path)
    except OSError:
        return
