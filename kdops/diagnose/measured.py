"""A measurement's report.json (docs/measuring.md) as evidence; what is missing or odd in it is left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kdops.diagnose.evidence import Arm, GpuUse, Measurement, Stretch
from kdops.fleet.profiles import BUILT_IN
from kdops.fleet.settings import LINEAR, PLAIN, TREE
from kdops.loose import items, mapping, number


@dataclass(frozen=True)
class Measured:
    """What a report holds. floor: seconds for each token of context, of its first arm that knows one."""

    measurement: Measurement
    stretches: tuple[Stretch, ...]
    gpus: tuple[GpuUse, ...]
    floor: float | None


def from_document(
    document: Mapping[str, Any], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> Measured:
    """Return the evidence. settings: arm → the settings it ran with, where they are known."""
    run, known = str(document.get("run") or ""), settings or {}
    plan = {str(one.get("name")): one for one in _dicts(mapping(document.get("plan")).get("arms"))}
    arms, stretches, floor = [], [], None
    for raw in _dicts(document.get("arms")):
        name = str(raw.get("name") or "")
        told = {**mapping(plan.get(name, {}).get("overrides")), **known.get(name, {})}
        found = list(_stretches(run, name, raw))
        stretches += found
        arm = _arm(name, str(plan.get(name, {}).get("profile") or name), raw, told, found)
        arms += [arm] if arm else []
        floor = floor or _number(mapping(raw.get("floor")).get("per_token"))
    doubts = tuple(
        (str(one.get("title")), f"{one.get('where') or run}: {one.get('evidence')}")
        for one in _dicts(document.get("findings"))
    )
    return Measured(
        Measurement(run, tuple(arms), doubts), tuple(stretches), tuple(_gpus(run, document)), floor
    )


def _stretches(run: str, name: str, raw: Mapping[str, Any]) -> Iterator[Stretch]:
    for text, rate in mapping(raw.get("per_set")).items():
        rate = mapping(rate)
        speed = _number(rate.get("tokens_per_second"))
        if speed:
            cells = _histogram(rate.get("histogram"))
            yield Stretch(run, 0.0, speed, _al(rate), None, str(text), name, histogram=cells)
    speculates = any(_al(mapping(rate)) is not None for rate in mapping(raw.get("per_set")).values())
    for point in _dicts(raw.get("context")):
        speed, context = _number(point.get("tokens_per_second")), _number(point.get("prompt_tokens"))
        if speed and context:
            al = _al(point) if speculates else None
            yield Stretch(
                run, context, speed, al, None, "context", name, histogram=_histogram(point.get("histogram"))
            )


class _Sums(NamedTuple):
    """Over requests: verify steps, accepted drafts, seconds of decoding, prompt tokens, cached ones."""

    steps: float = 0
    accepted: float = 0
    seconds: float = 0
    prompt: float = 0
    cached: float = 0

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*(a + b for a, b in zip(self, other, strict=True)))


def prefix_hits(samples: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[Stretch, ...]:
    """Return, for every arm and stage that had some, requests after a prefix hit and without one.

    samples: (arm, sample) as the load client wrote them.
    """
    sums: dict[tuple[str, str, bool], _Sums] = {}
    for arm, sample in samples:
        meta, seconds = mapping(sample.get("meta")), _number(sample.get("decode_seconds"))
        steps, accepted = _whole(meta.get("spec_verify_ct")), _whole(meta.get("spec_num_correct_drafts"))
        prompt, cached = _whole(meta.get("prompt_tokens")), _whole(meta.get("cached_tokens"))
        if not steps or accepted is None or not prompt or cached is None or not seconds:
            continue
        key = (arm, str(sample.get("stage")), cached > 0.5 * prompt)
        sums[key] = sums.get(key, _Sums()).plus(_Sums(steps, accepted, seconds, prompt, cached))
    found = []
    for (arm, stage, hit), total in sums.items():
        if (arm, stage, not hit) in sums:
            al = 1 + total.accepted / total.steps
            speed = al * total.steps / total.seconds
            share = total.cached / total.prompt if hit else 0.0
            found.append(
                Stretch("samples", 1000.0, speed, al, None, f"{stage}, prefix", arm, int(1000 * share))
            )
    return tuple(found)


def _arm(
    name: str,
    profile: str,
    raw: Mapping[str, Any],
    told: Mapping[str, Any],
    stretches: Sequence[Stretch],
) -> Arm | None:
    """Return the arm's means over its prompt sets (geometric for speed, as the verdict's)."""
    sets = [s for s in stretches if s.text not in ("context", "long")]
    if not sets:
        return None
    speed = math.exp(sum(math.log(s.tokens_per_second) for s in sets) / len(sets))
    lengths = [s.acceptance_length for s in sets if s.acceptance_length is not None]
    al = math.exp(sum(math.log(length) for length in lengths) / len(lengths)) if lengths else None
    usual = {"algorithm": LINEAR if al else PLAIN, **BUILT_IN.get(profile, {})}
    get = {**usual, **{key.removeprefix("engine_"): v for key, v in told.items() if v is not None}}.get
    algorithm = str(get("algorithm"))
    graphs = get("cuda_graph_decode")
    return Arm(
        name=name,
        algorithm=algorithm,
        speed=speed,
        al=al,
        step_time=(al or 1.0) / speed,
        rows=_whole(get("tree_budget") if algorithm == TREE else get("block_size")),
        topk=_whole(get("topk_cap")),
        graphs=None if graphs is None and get("device") != "cpu" else graphs not in (None, "disabled"),
        lossless=str(raw.get("lossless") or "not checked"),
        lossless_why=str(raw.get("lossless_why") or ""),
    )


def _gpus(run: str, document: Mapping[str, Any]) -> Iterator[GpuUse]:
    for place, leg in enumerate(items(document.get("leg_gpus"))):
        if not (leg := mapping(leg)):
            continue
        yield GpuUse(
            source=f"run {run}, leg {place + 1}",
            busy=_number(leg.get("busy")),
            clock=_number(leg.get("sm_clock")),
            max_clock=_number(leg.get("max_clock")),
            power=_number(leg.get("power")),
            temperature=_number(leg.get("temperature")),
            reasons=tuple(map(str, items(leg.get("reasons")))),
        )


def _al(rate: Mapping[str, Any]) -> float | None:
    value = _number(rate.get("acceptance_length"))
    return value if value is not None and value >= 1 else None


def _histogram(value: Any) -> tuple[int, ...]:
    cells = [_whole(cell) for cell in items(value)]
    return tuple(cell for cell in cells if cell is not None) if None not in cells else ()


def _number(value: Any) -> float | None:
    found = None if isinstance(value, bool | str) else number(value)
    return found if found is not None and found >= 0 else None


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value[:9])
    found = _number(value)
    return int(found) if found is not None and found == int(found) else None


def _dicts(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in items(value) if isinstance(one, dict)]
