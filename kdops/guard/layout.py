"""Where things live on a host. Playbooks and templates write the same paths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath

_TRIAL = "50-kdops-trial.conf"


@dataclass(frozen=True)
class Layout:
    """Every path the guard reads or writes, below `root` (tests use a temporary folder)."""

    root: Path = Path("/")

    @property
    def venvs(self) -> Path:
        return self.root / "opt/kdops/venvs"

    @property
    def releases(self) -> Path:
        return self.root / "opt/kdops/releases"

    @property
    def current(self) -> Path:
        return self.root / "opt/kdops/current"

    @property
    def guard(self) -> Path:
        return self.root / "opt/kdops/guard/kdops_guard.pyz"

    @property
    def partial(self) -> Path:
        """What is still arriving; nothing here is ever served."""
        return self.releases / ".partial"

    @property
    def units(self) -> Path:
        return self.root / "etc/systemd/system"

    @property
    def state(self) -> Path:
        return self.root / "var/lib/kdops"

    @property
    def transaction(self) -> Path:
        return self.state / "txn.json"

    @property
    def mutex(self) -> Path:
        """Held (flock) while one guard command changes the host."""
        return self.state / "lock"

    @property
    def audit(self) -> Path:
        return self.state / "audit.ndjson"

    @property
    def set_aside(self) -> Path:
        """Hand-made edits found on the unit during the open transaction."""
        return self.state / "set-aside"

    @property
    def kept_edits(self) -> Path:
        """The last hand-made edits that a committed release replaced: kept for people, read by nothing."""
        return self.state / "replaced-drop-ins"

    @property
    def lease(self) -> Path:
        """On a tmpfs: a reboot ends every lease, and a full disk cannot stop its renewal."""
        return self.root / "run/kdops/lease.json"

    @property
    def checks(self) -> Path:
        """What checks remember until the next boot. Not below run/kdops: the engine's user reads it."""
        return self.root / "run/kdops-check"

    def trial(self, unit: str) -> Path:
        return self.root / "run/systemd/system" / f"{unit}.d" / _TRIAL

    def dropins(self, unit: str) -> Path:
        return self.units / f"{unit}.d"

    def api_key(self, service: str) -> Path:
        return self.root / "etc/kdops/credentials" / f"{service}.api_key"

    def new_key(self, service: str) -> Path:
        """Where the key of a deploy arrives."""
        return self.root / "etc/kdops/credentials/new" / f"{service}.api_key"

    def old_key(self, service: str) -> Path:
        """The key from before the switch, until the deploy has ended."""
        return self.root / "etc/kdops/credentials/old" / f"{service}.api_key"


ON_HOST = Layout()
"""The layout of every real host."""


def by_hand(drop_in: PurePath) -> bool:
    """Say whether a person made this drop-in. One for every service (service.d, systemd.unit(5)) is the
    distribution's.
    """
    return drop_in.name != _TRIAL and drop_in.parent.name != "service.d"
