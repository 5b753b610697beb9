"""From the samples of one leg to its rates, and every reason not to trust them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdops.bench.rates import Rate
from kdops.bench.results import Finding
from kdops.serving.acceptance import Acceptance, acceptance, whole
from kdops.serving.metrics import parse

_BUSY = 0.5


@dataclass(frozen=True)
class Measured:
    """Sums over requests of one stage that ran one at a time. tokens, seconds: after each first arrival."""

    tokens: int
    seconds: float
    steps: int
    accepted: int
    histogram: tuple[int, ...]
    ttft: float
    prompt_tokens: int

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed between two points of each stream, so that prefill cancels."""
        return self.tokens / self.seconds

    @property
    def rate(self) -> Rate:
        """AL (1 without speculation: a step is a token) and tokens/s."""
        return Rate(1 + self.accepted / self.steps if self.steps else 1.0, self.tokens_per_second)


@dataclass(frozen=True)
class Leg:
    """One start of one arm. outputs: request → token ids. context: prompt tokens → sums."""

    arm: str
    stages: Mapping[str, Measured]
    outputs: Mapping[str, tuple[int, ...]]
    context: Mapping[int, Measured]
    concurrent_tokens_per_second: float | None
    findings: tuple[Finding, ...]


def analyse(
    arm: str,
    position: int,
    *,
    speculates: bool,
    samples: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any],
) -> Leg:
    """Return the leg of `samples`. Whatever an engine may answer never raises: it becomes a finding."""
    where = f"{arm}, leg {position + 1}"
    findings = [*_client(evidence, where), *_foreign(evidence, where)]
    good: dict[str, list[tuple[Mapping[str, Any], Acceptance | None]]] = {}
    for sample in samples:
        problems, accepted = _problems(sample, speculates)
        if problems:
            findings += [
                Finding("a request cannot be used", f"{sample.get('key')}: {p}", where) for p in problems
            ]
        else:
            good.setdefault(str(sample["stage"]), []).append((sample, accepted))
    concurrent = good.pop("concurrent", [])
    by_context: dict[int, list[tuple[Mapping[str, Any], Acceptance | None]]] = {}
    for pair in good.get("context", []):
        by_context.setdefault(int(pair[0]["meta"]["prompt_tokens"]), []).append(pair)
    return Leg(
        arm=arm,
        stages={name: _sum(pairs) for name, pairs in good.items()},
        outputs={str(s["key"]): tuple(s["output_ids"]) for pairs in good.values() for s, _ in pairs},
        context={tokens: _sum(pairs) for tokens, pairs in sorted(by_context.items())},
        concurrent_tokens_per_second=_together(concurrent),
        findings=tuple(findings),
    )


def _problems(sample: Mapping[str, Any], speculates: bool) -> tuple[list[str], Acceptance | None]:
    if error := sample.get("error"):
        return [str(error)], None
    meta = sample.get("meta") or {}
    completion, first = whole(meta.get("completion_tokens")), whole(sample.get("first_tokens"))
    if completion is None or first is None or whole(meta.get("prompt_tokens")) is None:
        return ["no usable meta_info: token counts are missing, null or no numbers"], None
    if completion != sample.get("asked"):
        return [f"{completion} tokens came, {sample.get('asked')} were asked for"], None
    if completion <= first or not sample.get("decode_seconds"):
        return ["it came in one piece: nothing can be timed"], None
    if len(sample.get("output_ids") or ()) != completion:
        return ["the last event does not hold all token ids (incremental-streaming-output?)"], None
    found = acceptance(meta, completion)
    if speculates and found is None:
        return ["the arm speculates, but meta_info counts no verify step"], None
    return list(found.problems) if found else [], found


def _sum(pairs: Sequence[tuple[Mapping[str, Any], Acceptance | None]]) -> Measured:
    counted = [accepted for _, accepted in pairs if accepted is not None]
    longest = max((len(one.histogram) for one in counted), default=0)
    cells = [[*one.histogram, *[0] * (longest - len(one.histogram))] for one in counted]
    samples = [sample for sample, _ in pairs]
    return Measured(
        tokens=sum(int(s["meta"]["completion_tokens"]) - int(s["first_tokens"]) for s in samples),
        seconds=sum(float(s["decode_seconds"]) for s in samples),
        steps=sum(one.steps for one in counted),
        accepted=sum(one.accepted for one in counted),
        histogram=tuple(map(sum, zip(*cells, strict=True))),
        ttft=sum(float(s["ttft"]) for s in samples) / len(samples),
        prompt_tokens=max(int(s["meta"]["prompt_tokens"]) for s in samples),
    )


def _together(pairs: Sequence[tuple[Mapping[str, Any], Acceptance | None]]) -> float | None:
    """Mean tokens/s of one stream while others run."""
    if not pairs:
        return None
    rates = [(s["meta"]["completion_tokens"] - s["first_tokens"]) / s["decode_seconds"] for s, _ in pairs]
    return float(sum(rates) / len(rates))


def _client(evidence: Mapping[str, Any], where: str) -> list[Finding]:
    cost = evidence.get("client") or {}
    wall, cpu = cost.get("wall_seconds"), cost.get("cpu_seconds")
    if not wall or cpu is None:
        return [Finding("the load client did not report its cost", "it may have been cut", where)]
    if cpu / wall > _BUSY:
        return [Finding("the load client could not keep up", f"it used {cpu / wall:.0%} of a core", where)]
    return []


def _foreign(evidence: Mapping[str, Any], where: str) -> list[Finding]:
    found = []
    for stage in evidence.get("stages") or []:
        before, after = parse(stage["before"]).requests, parse(stage["after"]).requests
        if before is None or after is None:
            found.append(
                Finding("foreign requests cannot be ruled out", "no request counter", where, fatal=False)
            )
        elif after - before != stage["requests"]:
            sent = f"{stage['name']}: {stage['requests']} requests were sent"
            said = f"{sent}, the engine counted {after - before}"
            found.append(Finding("foreign requests came in", said, where))
    return list(dict.fromkeys(found))
