"""Every counted request of a run, typed: what exports of single requests are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kdops.bench.arms import REFERENCE
from kdops.bench.verdict import REFERENCE_LEG
from kdops.serving.acceptance import Acceptance, acceptance, whole
from kdops.store import Store, StoredRun


@dataclass(frozen=True)
class RequestRecord:
    """One request. leg: its number in the order, 0 for the reference. began: seconds since the epoch, None in
    runs that did not keep it. ttft, seconds (to the last token), decode_seconds (first to last).

    proposed: draft tokens proposed, None if the engine does not say.
    """

    arm: str
    leg: int
    key: str
    stage: str
    began: float | None
    ttft: float
    seconds: float
    decode_seconds: float
    prompt_tokens: int
    completion_tokens: int
    first_tokens: int
    acceptance: Acceptance | None
    proposed: int | None


def records(stored: StoredRun, store: Store) -> tuple[RequestRecord, ...]:
    """Return the usable requests of the finished legs, in the order they ran."""
    found = []
    plan = stored.plan
    for position, (_, samples) in sorted(store.legs(stored.id).items()):
        arm = REFERENCE if position == REFERENCE_LEG else plan["arms"][plan["order"][position]]["name"]
        found += [one for sample in samples if (one := _record(sample, arm, position + 1))]
    return tuple(found)


def _record(sample: Mapping[str, Any], arm: str, leg: int) -> RequestRecord | None:
    meta = sample.get("meta") or {}
    prompt, completion = whole(meta.get("prompt_tokens")), whole(meta.get("completion_tokens"))
    first = whole(sample.get("first_tokens"))
    if sample.get("error") or prompt is None or completion is None or first is None:
        return None
    counted = acceptance(meta, completion)
    return RequestRecord(
        arm=arm,
        leg=leg,
        key=str(sample["key"]),
        stage=str(sample["stage"]),
        began=sample.get("began"),
        ttft=float(sample["ttft"]),
        seconds=float(sample["seconds"]),
        decode_seconds=float(sample["decode_seconds"]),
        prompt_tokens=prompt,
        completion_tokens=completion,
        first_tokens=first,
        acceptance=counted if counted and not counted.problems else None,
        proposed=whole(meta.get("spec_num_proposed_drafts")),
    )
