"""The API key during a deploy: it arrives beside the one in use, changes at the switch, may go back."""

from __future__ import annotations

import os

from kdops.guard.layout import Layout
from kdops.guard.store import fsync_folder


def at_hand(layout: Layout, service: str) -> bool:
    """Is there a key for the service, in use or just arrived?"""
    return layout.api_key(service).is_file() or layout.new_key(service).is_file()


def take(layout: Layout, service: str) -> None:
    """Put the key that arrived in place, if one did, and keep the one before; repeating it is harmless."""
    key, new, old = layout.api_key(service), layout.new_key(service), layout.old_key(service)
    if not new.is_file():
        return
    if key.is_file() and not old.exists():  # a trial's second leg: the first one kept what served before
        old.parent.mkdir(mode=0o700, exist_ok=True)
        os.link(key, old)
    new.replace(key)
    fsync_folder(key.parent)


def give_back(layout: Layout, service: str) -> None:
    """Put the key from before the switch back, if there was another."""
    if layout.old_key(service).is_file():
        layout.old_key(service).replace(layout.api_key(service))
        fsync_folder(layout.api_key(service).parent)


def forget(layout: Layout, service: str) -> None:
    """Delete what arrived without being used, and what no release will go back to."""
    layout.new_key(service).unlink(missing_ok=True)
    layout.old_key(service).unlink(missing_ok=True)


def drop(layout: Layout, service: str) -> None:
    """The release that serves from now on has no key: delete it."""
    layout.api_key(service).unlink(missing_ok=True)
