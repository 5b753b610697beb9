"""A made-up but realistic measurement through the real analysis: 4 legs an arm, five sets, eight B300."""

from __future__ import annotations

import random
from typing import Any

from kdops.bench.leg import Leg, analyse
from kdops.bench.orders import draw
from kdops.bench.results import RunResult
from kdops.bench.verdict import REFERENCE_LEG, build

SETS = {"repetitive": 6.1, "prose": 2.7, "code": 3.6, "reasoning": 2.9, "long-context": 3.1}
CONTEXTS = (64, 1024, 4096, 16384, 65536)
SEED = 5
_SMI = "{i}, {clock}, 2032, {power}, 1100.00, {heat}, {busy}, 241330, 0x0000000000000004"


def _sample(
    key: str, tokens: int, length: float, step: float, source: random.Random, prompt: int = 60
) -> Any:
    commits = []
    while sum(commits) < tokens - 1:
        commits.append(
            min(1 + min(7, max(0, round(source.gauss(length - 1, 1.4)))), tokens - 1 - sum(commits))
        )
    speculates = length > 1
    gaps = [step * source.lognormvariate(0, 0.06) * (1.8 if source.random() < 0.02 else 1) for _ in commits]
    counts = [1]
    for commit in commits:
        counts.append(counts[-1] + commit)
    meta: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": tokens, "cached_tokens": 0}
    if speculates:
        histogram = [commits.count(i + 1) for i in range(8)]
        meta |= {"spec_verify_ct": len(commits), "spec_correct_drafts_histogram": histogram}
        meta |= {"spec_num_correct_drafts": sum(commits) - len(commits)}
    return {
        "key": key,
        "stage": key.split("/")[0],
        "asked": tokens,
        "ttft": 0.12 + prompt * 2e-6,
        "seconds": 0.12 + sum(gaps),
        "decode_seconds": sum(gaps),
        "first_tokens": 1,
        "counts": counts,
        "gaps": gaps,
        "meta": meta,
        "output_ids": [hash(key) % 1000] * tokens,
    }


def leg(name: str, position: int, gain: float, base: float, slope: float, source: random.Random) -> Leg:
    """gain: on AL; base, slope: step time in seconds, and for each token of context."""
    noise = source.lognormvariate(0, 0.012)
    al = {s: (1 + (length - 1) * gain if gain else 1.0) for s, length in SETS.items()}
    contexts = {s: 32_000 if s == "long-context" else 200 for s in SETS}
    samples = [
        _sample(f"{s}/{i}", 128, al[s], (base + slope * contexts[s]) * noise, source, contexts[s])
        for s in SETS
        for i in range(4)
    ]
    samples.append(_sample("long/0", 1536, al["prose"] * 0.97, (base + slope * 900) * noise, source))
    samples += [
        _sample(f"context/{n}", 32, al["prose"], (base + slope * n) * noise, source, n) for n in CONTEXTS
    ]
    for level in (4, 16):
        stage = f"concurrent-{level}"
        slower = base * (1 + level / 24) * noise
        samples += [_sample(f"{stage}/{i}", 64, al["code"], slower, source) for i in range(2 * level)]
    for made in samples:
        made["output_ids"] = [len(made["key"])] * made["asked"]
    smi = [
        _SMI.format(i=i, clock=1830 + 15 * (second % 3), power=612.4 + second, heat=58 + i, busy=88)
        for second in range(30)
        for i in range(8)
    ]
    counter = "sglang:num_requests_total {}\n"
    stages = [
        {"name": n, "requests": 1, "seconds": s, "before": counter.format(0), "after": counter.format(1)}
        for n, s in (("prose", 9.0), ("concurrent-4", 4.1), ("concurrent-16", 9.7))
    ]
    seen = {"client": {"wall_seconds": 90.0, "cpu_seconds": 1.4}, "stages": stages, "gpus": smi}
    return analyse(name, position, speculates=bool(gain), samples=samples, evidence=seen)


def result(candidates: tuple[str, ...] = ("ddtree",)) -> RunResult:
    """Return the run: the candidates accept more, and their steps are a little longer."""
    source = random.Random(SEED)
    names = ("linear", *candidates)
    order = draw(len(names), 4, SEED)
    gains = [(1.0, 0.0224, 2.4e-7), (1.34, 0.0241, 2.5e-7), (1.1, 0.0228, 2.4e-7)]
    legs = {i: leg(names[arm], i, *gains[arm][:1], *gains[arm][1:], source) for i, arm in enumerate(order)}
    legs[REFERENCE_LEG] = leg("autoregressive", REFERENCE_LEG, 0.0, 0.0205, 2.3e-7, source)
    floor = {"base": 0.0092, "per_token": 8.8e-9, "gpu": "NVIDIA B300 SXM6 AC"}
    plan = {
        "arms": [
            {"name": n, "profile": n.split("[")[0], "overrides": {"engine_tree_budget": "16"} if i else {}}
            | {"release": f"{n.split('[')[0]}-{i}f03a9c21b", "speculates": True, "dtype": "bfloat16"}
            | {"floor": floor}
            for i, n in enumerate(names)
        ],
        "reference": True,
        "order": list(order),
        "seed": SEED,
        "quick": False,
        "smallest_p": 0.043,
        "sets": list(SETS),
        "workload": "7d5c1c0ea52b" * 5,
    }
    return build("20260103-101500-4e1a", "b300-1", "2026-01-03T10:15:00+00:00", plan, legs, 0.011)
