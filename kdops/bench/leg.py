"""From the samples of one leg to its rates, and every reason not to trust them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kdops.bench import clocks
from kdops.bench.natural import FLATTERS, Useful, useful
from kdops.bench.rates import Rate
from kdops.bench.results import Finding, GpuUse, Together
from kdops.bench.workloads.suite import CONTEXT, LEVEL, OPEN_LOOP
from kdops.serving.acceptance import Acceptance, acceptance, whole
from kdops.serving.metrics import parse

_BUSY = 0.5
_LATE_S = 0.05
_Pair = tuple[Mapping[str, Any], Useful]


@dataclass(frozen=True)
class Measured:
    """Sums over requests of one stage that ran one at a time. tokens, seconds: after each first arrival.

    gaps: seconds between arrivals, of all requests. plain: steps of plain decoding beside the verify steps.
    """

    tokens: int
    seconds: float
    steps: int
    accepted: int
    histogram: tuple[int, ...]
    ttft: float
    prompt_tokens: int
    gaps: tuple[float, ...] = ()
    plain: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed between two points of each stream, so that prefill cancels."""
        return self.tokens / self.seconds

    @property
    def rate(self) -> Rate:
        """AL (1 without speculation: a step is a token) and tokens/s. Plain steps count as steps of one token
        here, so that AL over step time is tokens/s.
        """
        rounds = self.steps + self.plain
        return Rate(1 + self.accepted / rounds if rounds else 1.0, self.tokens_per_second)


@dataclass(frozen=True)
class Leg:
    """One start of one arm. outputs, margins: request → token ids, and the margin of each.

    context: prompt tokens → sums. gpus: None where nothing was sampled.
    """

    arm: str
    stages: Mapping[str, Measured]
    outputs: Mapping[str, tuple[int, ...]]
    context: Mapping[int, Measured]
    together: tuple[Together, ...]
    findings: tuple[Finding, ...]
    margins: Mapping[str, tuple[float, ...]]
    gpus: GpuUse | None


def analyse(
    arm: str,
    position: int,
    *,
    speculates: bool,
    samples: Sequence[Mapping[str, Any]],
    evidence: Mapping[str, Any],
) -> Leg:
    """Return the leg of `samples`. Whatever an engine may answer never raises: it becomes a finding."""
    where = f"{arm}, leg {position + 1}" if position >= 0 else f"{arm}, reference"
    findings = [*_client(evidence, where), *_foreign(evidence, where), *_journal(evidence, where)]
    findings += _told(evidence)
    good: dict[str, list[_Pair]] = {}
    for sample in samples:
        problems, accepted = _problems(sample, speculates)
        if problems:
            findings += [
                Finding("a request cannot be used", f"{sample.get('key')}: {p}", where) for p in problems
            ]
            continue
        stage = str(sample["stage"])
        whole_text = stage == CONTEXT or stage.startswith((LEVEL, OPEN_LOOP))
        ends = () if whole_text else evidence.get("end_tokens") or ()
        good.setdefault(stage, []).append((sample, useful(sample, accepted, ends)))
    outputs = {str(s["key"]): tuple(s["output_ids"]) for pairs in good.values() for s, _ in pairs}
    margins = {
        str(s["key"]): tuple(s["margins"]) for pairs in good.values() for s, _ in pairs if "margins" in s
    }
    together, late = _together(good, evidence, where)
    by_context: dict[int, list[_Pair]] = {}
    for pair in good.pop(CONTEXT, []):
        by_context.setdefault(int(pair[0]["meta"]["prompt_tokens"]), []).append(pair)
    findings += [*late, *_ends(good, where)]
    return Leg(
        arm=arm,
        stages={name: sums for name, pairs in good.items() if (sums := _sum(pairs))},
        outputs=outputs,
        context={tokens: sums for tokens, pairs in sorted(by_context.items()) if (sums := _sum(pairs))},
        together=together,
        findings=tuple(findings),
        margins=margins,
        gpus=clocks.summary(evidence.get("gpus") or ()),
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
    if found is None and (plain := whole(meta.get("spec_plain_steps"))):
        found = Acceptance(0, 0, (), plain=plain)
    if speculates and found is None:
        return ["the arm speculates, but meta_info counts no verify step"], None
    return list(found.problems) if found else [], found


def _sum(pairs: Sequence[_Pair]) -> Measured | None:
    """Add up what counts; None if nothing does."""
    pairs = [(sample, kept) for sample, kept in pairs if kept.tokens and kept.seconds]
    if not pairs:
        return None
    counted = [kept.acceptance for _, kept in pairs if kept.acceptance is not None]
    longest = max((len(one.histogram) for one in counted), default=0)
    cells = [[*one.histogram, *[0] * (longest - len(one.histogram))] for one in counted]
    samples = [sample for sample, _ in pairs]
    return Measured(
        tokens=sum(kept.tokens for _, kept in pairs),
        seconds=sum(kept.seconds for _, kept in pairs),
        steps=sum(one.steps for one in counted),
        accepted=sum(one.accepted for one in counted),
        histogram=tuple(map(sum, zip(*cells, strict=True))),
        ttft=sum(float(s["ttft"]) for s in samples) / len(samples),
        prompt_tokens=max(int(s["meta"]["prompt_tokens"]) for s in samples),
        gaps=tuple(gap for _, kept in pairs for gap in kept.gaps),
        plain=sum(one.plain for one in counted),
    )


def _ends(good: Mapping[str, Sequence[_Pair]], where: str) -> list[Finding]:
    """Say what came after a text's natural end: it repeats, and it is not counted."""
    kept = [one for pairs in good.values() for _, one in pairs]
    total = sum(one.tokens + one.past for one in kept)
    past = sum(one.past for one in kept)
    found = []
    if total and past / total > FLATTERS:
        said = f"{past / total:.0%} of the tokens came after the end of their text; they are not counted"
        found.append(Finding("texts ended before the fixed length", said, where, fatal=False))
    if merged := sum(not one.exact for one in kept if one.past):
        said = f"in {merged} of {len(kept)} requests several steps came at once, or plain ones among them"
        found.append(Finding("AL before the natural end is approximate", said, where, fatal=False))
    for stage, pairs in good.items():
        if not any(one.tokens and one.seconds for _, one in pairs):
            said = f"{stage}: every text ended by itself at once"
            found.append(Finding("a stage cannot be timed", said, where, fatal=False))
    return found


def _together(
    good: dict[str, list[_Pair]], evidence: Mapping[str, Any], where: str
) -> tuple[tuple[Together, ...], list[Finding]]:
    """Take the stages with several streams at once out of `good`, and what was wrong with them."""
    seconds = {stage["name"]: stage.get("seconds") for stage in evidence.get("stages") or []}
    found, findings = [], []
    for name in [name for name in good if name.startswith((LEVEL, OPEN_LOOP))]:
        samples = [sample for sample, _ in good.pop(name)]
        if not seconds.get(name):
            continue
        rates = [(s["meta"]["completion_tokens"] - s["first_tokens"]) / s["decode_seconds"] for s in samples]
        late = sorted(float(s["late"]) for s in samples if "late" in s)
        worst = late[int(0.95 * (len(late) - 1))] if late else None
        value = float(name.rpartition("-")[2])
        closed = name.startswith(LEVEL)
        found.append(
            Together(
                level=int(value) if closed else 0,
                rate=None if closed else value,
                tokens_per_second=sum(s["meta"]["completion_tokens"] for s in samples) / seconds[name],
                per_stream=sum(rates) / len(rates),
                ttft=sum(float(s["ttft"]) for s in samples) / len(samples),
                late=worst,
            )
        )
        if worst is not None and worst > _LATE_S:
            said = f"{name}: it started requests {worst * 1e3:.0f} ms late"
            findings.append(Finding("the load client could not keep up", said, where, fatal=False))
    return tuple(found), findings


def _told(evidence: Mapping[str, Any]) -> list[Finding]:
    """Return what a reader must know of how the leg was measured; the same in every leg."""
    found = []
    if trip := evidence.get("round_trip"):
        said = f"the client ran through an OpenSSH forward; an empty request took {trip * 1e3:.1f} ms"
        found.append(Finding("latencies hold the way to the host", said, fatal=False))
    if evidence.get("end_tokens", ()) is None:
        said = "the model's folder names no end token, so text after a natural end counts too"
        found.append(Finding("where texts end is not known", said, fatal=False))
    return found


def _journal(evidence: Mapping[str, Any], where: str) -> list[Finding]:
    lines = evidence.get("suppressed") or []
    return [Finding("the journal dropped lines of the engine", str(line), where) for line in lines]


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
