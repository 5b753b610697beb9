"""What a lab can leave on this machine, found by looking at the kernel's own lists."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from kdops.lab.names import Lab


def leftovers(lab: Lab) -> list[str]:
    """Return a line for each mount, namespace, cgroup, loop device, process or folder that is this lab's."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [f"mount {line}" for line in mounts if _names(lab, line)]
    found += [f"namespace {path}" for path in Path("/run/netns").glob(f"{lab.prefix}*")]
    for parent, names, _ in os.walk("/sys/fs/cgroup"):
        found += [f"cgroup {parent}/{name}" for name in names if name.startswith(lab.prefix)]
    found += [f"nspawn {path}" for path in Path("/run/systemd/nspawn").glob(f"*/{lab.prefix}*")]
    loops = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=True)
    found += [f"loop {line}" for line in loops.stdout.splitlines() if str(lab.folder) in line]
    found += [f"process {line}" for line in _processes(lab)]
    found += [f"folder {path}" for path in [lab.folder] if path.exists()]
    return found + [f"build {path}" for path in (lab.cache / "lab").glob("root-*.tmp")]


def _names(lab: Lab, text: str) -> bool:
    return lab.prefix in text or f"{lab.folder}/" in text


def _processes(lab: Lab) -> Iterator[str]:
    """Processes that name the lab or one of its builds, or whose mount namespace holds its mounts."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        building = f"{lab.cache}/lab/root-" in command and ".tmp" in command
        if building or _names(lab, command) or _names(lab, mounts):
            yield f"{process.name} {command}"
