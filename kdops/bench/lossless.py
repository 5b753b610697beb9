"""Do an arm's greedy tokens equal those of the autoregressive arm?

In fp32 they must. Otherwise rounding may flip a near tie, and the yardstick is the autoregressive arm
against itself at other batch compositions: a divergence counts if its margin (log probability of the best
token above the second, where the texts part) exceeds the largest at which that arm diverged from itself, or
if divergences are more frequent (Fisher's exact test, one-sided).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from kdops.bench.results import Lossless
from kdops.bench.workloads.suite import AGAIN

_ALPHA = 0.05
Outputs = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Reference:
    """The autoregressive start. outputs: request → token ids. margins: request → margin of each token.

    again: the same requests at other batch compositions.
    """

    outputs: Outputs
    margins: Mapping[str, tuple[float, ...]]
    again: Sequence[Outputs] = ()


def split_reference(
    outputs: Outputs, margins: Mapping[str, tuple[float, ...]], sets: Sequence[str]
) -> Reference:
    """Sort the outputs of the reference leg: requests of the sets, and the same at other compositions."""
    again: dict[str, dict[str, tuple[int, ...]]] = {}
    for key, ids in outputs.items():
        stage, _, rest = key.partition("/")
        if stage.startswith(AGAIN):
            again.setdefault(stage, {})[rest] = ids
    own = {key: ids for key, ids in outputs.items() if key.split("/")[0] in sets}
    return Reference(own, margins, tuple(again.values()))


def judge(legs: Sequence[Outputs], reference: Reference, *, exact: bool) -> tuple[Lossless, str]:
    """Compare an arm's legs with the reference. exact: both run in fp32. Returns the evidence in words."""
    keys = list(reference.outputs)
    if not keys or any(key not in outputs for outputs in legs for key in keys):
        return Lossless.UNDECIDED, "some requests have no tokens to compare"
    parted = [(key, at) for outputs in legs for key, at in _partings(outputs, reference.outputs)]
    if not parted:
        starts = "1 start" if len(legs) == 1 else f"{len(legs)} starts"
        return Lossless.IDENTICAL, f"{len(keys)} prompts, {starts}, every token id equal"
    key, at = parted[0]
    said = f"{len(parted)} of {len(keys) * len(legs)} outputs differ, the first in {key} at token {at + 1}"
    if exact:
        return Lossless.DIFFERENT, said
    return _against_itself(legs, reference, parted, said)


def _partings(outputs: Outputs, expected: Outputs) -> list[tuple[str, int]]:
    """Return (request, position) of the first token that differs, for each request that does."""
    found = []
    for key, ids in expected.items():
        other = outputs[key]
        if other != ids:
            pairs = enumerate(zip(other, ids, strict=False))
            found.append((key, next((i for i, (a, b) in pairs if a != b), min(len(other), len(ids)))))
    return found


def _against_itself(
    legs: Sequence[Outputs], reference: Reference, parted: Sequence[tuple[str, int]], said: str
) -> tuple[Lossless, str]:
    again = [outputs for outputs in reference.again if set(reference.outputs) <= set(outputs)]
    own = [_partings(outputs, reference.outputs) for outputs in again]
    margins = [_margin(reference, *one) for found in own for one in found]
    ours = [_margin(reference, *one) for one in parted]
    if not again or any(margin is None for margin in (*ours, *margins)):
        return Lossless.UNDECIDED, f"{said}; the engine gave no margins to judge them by"
    limit, largest = (
        max((m for m in margins if m is not None), default=0.0),
        max(m for m in ours if m is not None),
    )
    if largest > limit:
        told = f"a margin of {largest:.4f} was overturned; against itself the baseline overturns {limit:.4f}"
        return Lossless.DIFFERENT, f"{said}; {told}"
    # Starts repeat one another, so the worst one stands for all: more starts prove nothing more.
    prompts = len(reference.outputs)
    most = max(len(_partings(outputs, reference.outputs)) for outputs in legs)
    usual = max(map(len, own))
    table = [[most, prompts - most], [usual, prompts - usual]]
    p = float(stats.fisher_exact(table, alternative="greater").pvalue)
    if p < _ALPHA:
        told = f"{most} of {prompts} prompts differ, {usual} against itself (p = {p:.3f})"
        return Lossless.DIFFERENT, f"{said}; {told}"
    told = (
        f"{len(parted)} ties, margins up to {largest:.4f}; against itself the baseline overturns {limit:.4f}"
    )
    return Lossless.EQUIVALENT, told


def _margin(reference: Reference, key: str, at: int) -> float | None:
    known = reference.margins.get(key, ())
    return known[at] if at < len(known) else None
