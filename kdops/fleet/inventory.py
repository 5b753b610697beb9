"""Variables and their origins, from ansible-core itself: its inventory, its precedence, its templates.

ansible-core 2.19 tags every value it loads with its `Origin` (file, line). bool and None cannot carry a tag;
for those the key's own tag in the winning layer is used. Imports ansible, which takes 0.3 s: import this
module late.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible._internal._datatag._tags import Origin as Tag
from ansible.errors import AnsibleError
from ansible.inventory.helpers import sort_groups
from ansible.inventory.manager import InventoryManager
from ansible.module_utils._internal._datatag import AnsibleTagHelper
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.vars import host_group_vars
from ansible.template import Templar
from ansible.vars.manager import VariableManager

from kdops.errors import UsageError
from kdops.fleet import broken_yaml
from kdops.fleet.raw import RawHost, RawInventory

READ = (
    "engine_",
    "kdops_",
    "gpu",
    "ansible_become",
    "ansible_host",
    "ansible_user",
    "ansible_port",
    "ansible_private_key_file",
    "ansible_ssh_",
)
"""Prefixes of the variables kdops reads; templates in others are left alone (they may need a play)."""

_PLUGIN_KEYS = ("inventory_dir", "inventory_file")
"""Magic variables that the inventory manager stores among a host's own."""


_YAML = (".yml", ".yaml")
_Tags = dict[str, Tag | None]


class _RecordingLoader(DataLoader):  # type: ignore[misc]
    """Remembers which line of which file holds each top-level key, and which file could not be loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, _Tags] = {}
        self.failed: Path | None = None

    def load_from_file(self, file_name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            data = super().load_from_file(file_name, *args, **kwargs)
        except AnsibleError:
            self.failed = Path(file_name)
            raise
        if isinstance(data, dict):
            self.keys[str(Path(file_name).resolve())] = _tags(data)
        return data


def read(inventory: Path) -> RawInventory:
    """Read one inventory file or folder.

    Ansible remembers for the whole process which files exist; that is cleared, so that a second read sees
    changes. Raises UsageError with file and line when Ansible cannot read it or resolve a template.
    """
    words = io.StringIO()
    loader = _RecordingLoader()
    try:
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            host_group_vars.FOUND.clear()
            host_group_vars.NAK.clear()
            host_group_vars.CANONICAL_PATHS.clear()
            manager = InventoryManager(loader=loader, sources=[str(inventory.absolute())])
            variables = VariableManager(loader=loader, inventory=manager)
            hosts = tuple(_host(host, loader, manager, variables) for host in manager.get_hosts())
    except AnsibleError as error:
        _require_yaml(loader.failed, inventory)
        raise UsageError(
            f"inventory {inventory} cannot be read",
            cause=" ".join(str(error).split()),
            remedy="correct the place named above; `ansible-inventory --list -i <file>` shows the same",
        ) from None
    if inventory.suffix in _YAML:  # else Ansible tried YAML first, and then what the file is
        _require_yaml(loader.failed, inventory)
    warnings = _warnings(words.getvalue())
    if not hosts:
        raise UsageError(
            f"inventory {inventory} has no hosts",
            cause=warnings[0] if warnings else "Ansible read it and found none",
            remedy="write a YAML inventory: all: {hosts: {name: {ansible_host: address}}}",
            evidence=warnings[1:8],
        )
    return RawInventory(hosts, warnings)


def _require_yaml(failed: Path | None, inventory: Path) -> None:
    """Raise UsageError with line and reason if what Ansible could not load is no YAML."""
    if failed is None:
        return
    here = inventory.absolute().parent
    shown = inventory.parent / failed.relative_to(here) if failed.is_relative_to(here) else failed
    if found := broken_yaml.problem(failed, str(shown)):
        place, why = found
        raise UsageError(
            f"inventory {inventory} cannot be read", cause=f"{place}: {why}", remedy=f"correct {place}"
        )


def _host(
    host: Any, loader: _RecordingLoader, manager: InventoryManager, variables: VariableManager
) -> RawHost:
    merged = variables.get_vars(host=host, include_hostvars=False, stage="all")
    layers = list(_layers(host, loader, manager))
    written = {name for layer in layers for name in layer}.difference(_PLUGIN_KEYS)
    found = {str(key): value for key, value in merged.items() if str(key) in written}
    templar = Templar(loader=loader, variables=merged)
    origins: dict[str, tuple[str, int | None]] = {}
    for name, value in found.items():
        tag = Tag.get_tag(value) or next(layer[name] for layer in reversed(layers) if name in layer)
        origins.update(_origins(name, value, tag))
    plain = {}
    for name, value in found.items():
        try:
            plain[name] = _plain(templar.template(value) if name.startswith(READ) else value)
        except AnsibleError as error:
            source, line = origins.get(name, (str(host.name), None))
            raise UsageError(
                f"the template in {name} of host {host.name} cannot be resolved",
                cause=f"{source}:{line}: {' '.join(str(error).split())}",
                remedy="correct it there",
            ) from None
    groups = tuple(
        group.name for group in sort_groups(host.get_groups()) if group.name not in ("all", "ungrouped")
    )
    return RawHost(str(host.name), groups, plain, origins)


def _layers(host: Any, loader: _RecordingLoader, manager: InventoryManager) -> Iterator[_Tags]:
    """Yield key → tag of each place a variable of `host` may be written, weakest first (Ansible's
    precedence).
    """
    groups = sort_groups(host.get_groups())
    for group in groups:
        yield _tags(group.vars)
    for group in groups:
        yield from _files(loader, manager, "group_vars", group.name)
    yield _tags(host.vars)
    yield from _files(loader, manager, "host_vars", host.name)


def _files(loader: _RecordingLoader, manager: InventoryManager, folder: str, name: str) -> Iterator[_Tags]:
    for source in map(Path, manager._sources):
        base = (source if source.is_dir() else source.parent).resolve() / folder
        for path, tags in loader.keys.items():
            if Path(path).is_relative_to(base):
                top = Path(path).relative_to(base).parts[0]
                if top == name or (Path(path).parent == base and Path(top).stem == name):
                    yield tags


def _tags(mapping: Mapping[Any, Any]) -> _Tags:
    return {str(key): Tag.get_tag(key) for key in mapping}


def _origins(path: str, value: Any, tag: Tag | None) -> Iterator[tuple[str, tuple[str, int | None]]]:
    if tag is not None:
        yield path, (str(tag.path or tag.description), tag.line_num)
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _origins(f"{path}.{key}", inner, Tag.get_tag(inner) or Tag.get_tag(key) or tag)


def _plain(value: Any) -> Any:
    """Return `value` in JSON types, without Ansible's tags."""
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner) for inner in value]
    native = AnsibleTagHelper.as_native_type(value)
    return native if isinstance(native, str | int | float | bool | None) else str(native)


def _warnings(text: str) -> tuple[str, ...]:
    lines = (" ".join(block.split()) for block in text.replace("[WARNING]", "\n\n[WARNING]").split("\n\n"))
    return tuple(line.removeprefix("[WARNING]:").strip() for line in lines if line)
