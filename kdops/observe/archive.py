"""Evidence from an archive that `kdops report` wrote: no host, no inventory."""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from kdops.diagnose import counters, journal, measured, unit_text
from kdops.diagnose.evidence import Evidence, GpuUse, Journal, Settings
from kdops.errors import UsageError
from kdops.files import require_regular, rest
from kdops.host.archive import Member
from kdops.loose import document
from kdops.throttle import REASONS, Kind

_MOST = 16_000_000
_MOST_UNPACKED = 1 << 29
"""`kdops report` keeps ten files of 30 million characters at most."""
_NAMES = (
    Member.JOURNAL,
    Member.SETTINGS,
    Member.UNIT,
    Member.SERVER_INFO,
    Member.METRICS,
    Member.BENCH,
    Member.GPU,
)
_TARFILE_LETS_THROUGH = (ValueError, OverflowError, RecursionError)
"""For headers that somebody made up."""
_READ = (*_NAMES, Member.MANIFEST)
_TROUBLE = {one.label: one.words for one in REASONS if one.kind is Kind.TROUBLE}
_ACTIVE = re.compile(rf"^\s*({'|'.join(_TROUBLE)})\s*:\s*Active", re.M)


class _Unpacked(gzip.GzipFile):
    """An archive, of which _MOST_UNPACKED bytes are read at most: a small file may unpack to any size."""

    _left = _MOST_UNPACKED

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        self._left -= len(piece)
        if self._left < 0:
            raise OSError(f"it unpacks to more than {_MOST_UNPACKED >> 20} MiB")
        return piece


def from_report(path: Path) -> Evidence:
    """Read the archive. Raises UsageError for a file that is none of them, or is not whole."""
    texts: dict[str, str] = {}
    read: Journal | None = None
    found = set()
    try:
        require_regular(path)
        with _Unpacked(path) as whole, tarfile.open(fileobj=whole, mode="r|") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                found.add(name)
                file = archive.extractfile(member) if name in _READ and member.isfile() else None
                if file is None:
                    continue
                if name == Member.JOURNAL:
                    read = journal.read(rest(file.read))
                else:
                    texts[name] = file.read(_MOST).decode(errors="replace")
            for _ in rest(whole.read):  # to the checksum at its end
                pass
    except gzip.BadGzipFile as error:
        raise _refused(path, "it is no gzip archive, or a damaged one") from error
    except (OSError, EOFError, zlib.error, tarfile.TarError, *_TARFILE_LETS_THROUGH) as error:
        raise _refused(path, str(error) or type(error).__name__) from error
    if read is None and not texts:
        raise UsageError(
            f"{path} is no report", cause="none of its files is there", remedy="write one: kdops report HOST"
        )
    manifest = document(texts.get(Member.MANIFEST))
    promised = manifest.get("files")
    if isinstance(promised, dict) and (lost := sorted(set(promised) - found)):
        raise _refused(path, f"its manifest names {', '.join(lost)[:200]}, which it does not hold")
    told = manifest.get("host")
    return _evidence(told if isinstance(told, str) and told else "HOST", texts, read)


def _refused(path: Path, cause: str) -> UsageError:
    remedy = "name an archive written by kdops report; if it is one, it is damaged: copy it again"
    return UsageError(f"{path} cannot be read", cause=cause, remedy=remedy)


def _evidence(host: str, texts: Mapping[str, str], read: Journal | None) -> Evidence:
    there = {*texts, *([Member.JOURNAL] if read is not None else [])}
    absent: dict[str, str] = {name: "not in the archive" for name in _NAMES if name not in there}
    absent["inventory"] = "an archive alone: GPU and model facts are not in it"
    manifest = document(texts.get(Member.SETTINGS))
    settings = manifest.get("settings")
    info = document(texts.get(Member.SERVER_INFO)) or None
    bench = document(texts.get(Member.BENCH))
    inner = bench if "arms" in bench else bench.get("document")
    told = measured.from_document(inner) if isinstance(inner, dict) and inner else None
    if told is None and Member.BENCH not in absent:
        absent[Member.BENCH] = "no result in it"
    return Evidence(
        host=host,
        profile=str(manifest.get("profile") or ""),
        floor=told.floor if told else None,
        stretches=told.stretches if told else (),
        measurement=told.measurement if told else None,
        journal=read,
        counters=counters.parse(texts[Member.METRICS]) if Member.METRICS in texts else None,
        settings=Settings(settings, info) if isinstance(settings, dict) else None,
        gpus=(*(told.gpus if told else ()), *_gpus(texts.get(Member.GPU, ""))),
        unit=unit_text.unit(texts[Member.UNIT]) if Member.UNIT in texts else None,
        absent=absent,
    )


def _gpus(text: str) -> tuple[GpuUse, ...]:
    reasons = tuple(dict.fromkeys(_TROUBLE[name] for name in _ACTIVE.findall(text)))
    return (GpuUse("nvidia-smi", reasons=reasons),) if reasons else ()
