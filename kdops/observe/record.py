"""What a finished measurement or deploy puts on a host's record (`kdops diagnose` compares with it)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kdops.errors import KdopsError
from kdops.store import Mark, Store

if TYPE_CHECKING:
    from kdops.bench.results import RunResult
    from kdops.deploy.bundle import Bundle
    from kdops.fleet import Host


def measured(result: RunResult, store: Store, say: Callable[[str], None]) -> None:
    """Record AL and step time of every arm, unless a check turned the verdict off. say: gets a warning."""
    from kdops.deploy.engine import engine_digest
    from kdops.diagnose.history import of_arm
    from kdops.diagnose.measured import from_document
    from kdops.report.document import document

    def marks() -> Iterable[Mark]:
        releases = {arm.name: arm.release for arm in result.arms}
        basis, engine = str(result.plan.get("workload", "")), engine_digest()[:12]
        for arm in from_document(document(result)).measurement.arms:
            yield from of_arm(arm, result.created, result.host, engine, releases[arm.name], basis)

    if result.valid:
        _record(marks, lambda: store, say)


def deployed(
    host: Host, bundle: Bundle, outcome: Mapping[str, Any] | None, say: Callable[[str], None]
) -> None:
    """Record how long the committed release took to start. say: gets a warning."""
    from kdops.diagnose.evidence import START

    seconds = ((outcome or {}).get("seconds") or {}).get("starting")
    if not outcome or outcome.get("result") != "committed" or not seconds or bundle.files is None:
        return
    manifest = bundle.files.manifest
    mark = Mark(
        at=str(outcome.get("at") or datetime.now(UTC).isoformat(timespec="seconds")),
        host=host.name,
        profile=str(manifest["profile"]),
        engine=str(manifest["engine_digest"])[:12],
        release=bundle.release,
        quantity=START,
        basis="",
        value=float(seconds),
    )
    _record(lambda: [mark], Store, say)


def _record(
    marks: Callable[[], Iterable[Mark]], store: Callable[[], Store], say: Callable[[str], None]
) -> None:
    # What was measured or deployed stands; a record that cannot be written is worth a word, not a failure.
    try:
        store().add_marks(marks())
    except KdopsError as error:
        say(f"warning: {error.title}: {error.cause}")
