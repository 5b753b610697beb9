"""What a tree gains over its chain, and what it costs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from kdops.diagnose.evidence import Arm, Evidence
from kdops.diagnose.finding import Confidence, Finding, Severity

_MARGIN = 0.02
_DIFFERS = 0.10
_SLOWER = 1.05


def unlike_arms(e: Evidence) -> tuple[Finding, ...]:
    """CUDA graphs in one arm and not in the other."""
    arms = [arm for arm in _arms(e) if arm.graphs is not None]
    with_graphs, without = [a.name for a in arms if a.graphs], [a.name for a in arms if not a.graphs]
    if not with_graphs or not without:
        return ()
    return (
        Finding(
            "unlike-arms",
            "the arms differ in CUDA graphs",
            Severity.NOTE,
            Confidence.CERTAIN,
            "graphs take host work out of every step, so what they save looks like a property of the arm",
            "compare like with like: the same engine_cuda_graph_decode for all arms",
            f"kdops ab linear ddtree-chain --host {e.host} --quick --set engine_cuda_graph_decode=full",
            (f"with graphs: {', '.join(with_graphs)}; without: {', '.join(without)}",),
        ),
    )


def below_chain(e: Evidence) -> tuple[Finding, ...]:
    """A tree that accepts less than a chain of the same drafter."""
    for tree, chain in _pairs(e):
        if not tree.al or not chain.al or tree.al > (1 - _DIFFERS) * chain.al:
            continue
        return (
            Finding(
                "tree-below-chain",
                "the tree accepts less than a chain",
                Severity.WRONG,
                Confidence.PROBABLE,
                "a tree that holds the chain cannot accept less: the budget cut the chain of best candidates "
                "off, or the walk loses accepted nodes",
                "engine_keep_spine: true keeps the whole chain; if that changes nothing, report it: "
                f"kdops report {e.host}",
                f"kdops ab linear ddtree-chain ddtree --host {e.host} --quick",
                (f"AL {tree.al:.2f} ({tree.name}) against {chain.al:.2f} ({chain.name})",),
                ("the cost of verifying rows: it changes step time, not AL",),
            ),
        )
    return ()


def too_wide(e: Evidence) -> tuple[Finding, ...]:
    """A tree whose extra rows cost more than they gain."""
    for tree, other in _pairs(e):
        if not tree.al or not other.al or tree.al < (1 - _DIFFERS) * other.al:
            continue
        if tree.graphs is not other.graphs or tree.speed > (1 - _MARGIN) * other.speed:
            continue
        gain, cost = tree.al / other.al, tree.step_time / other.step_time
        rows = f", {tree.rows} rows against {other.rows}" if tree.rows and other.rows else ""
        return (
            Finding(
                "tree-too-wide",
                "the tree is too wide for its gain",
                Severity.SLOW,
                Confidence.PROBABLE,
                "each verified row takes time, and a sibling is right far less often than the next token of "
                "the chain",
                "a smaller engine_tree_budget, or the chain",
                f"kdops ab {other.name.partition('[')[0]} ddtree --host {e.host}"
                " --set ddtree:engine_tree_budget=8,16,32",
                (
                    f"{tree.name} against {other.name}: AL ×{gain:.2f}, step time ×{cost:.2f}, "
                    f"tokens/s ×{tree.speed / other.speed:.2f}{rows}",
                ),
                ("a bug in the walk: AL is not lower than the chain's",) if gain >= 1 else (),
            ),
        )
    return ()


def chain_against_linear(e: Evidence) -> tuple[Finding, ...]:
    """The control arm: a chain through the DDTree path must equal linear."""
    chains = [a for a in _arms(e) if a.algorithm == "DDTREE" and a.topk == 1]
    for chain, linear in itertools.product(chains, [a for a in _arms(e) if a.algorithm == "DFLASH"]):
        if not chain.al or not linear.al or chain.graphs is not linear.graphs:
            continue
        compared = f"AL {chain.al:.2f} against {linear.al:.2f}"
        times = f"step time {chain.step_time * 1e3:.1f} ms against {linear.step_time * 1e3:.1f} ms"
        if abs(chain.al / linear.al - 1) > _DIFFERS:
            return (
                Finding(
                    "chain-unlike-linear",
                    "the chain does not accept what linear accepts",
                    Severity.WRONG,
                    Confidence.PROBABLE,
                    "both verify the same drafts, so the DDTree path drafts, verifies or commits wrongly",
                    f"serve with linear, and report it: kdops report {e.host}",
                    f"kdops ab linear ddtree-chain --host {e.host}",
                    (compared, times),
                ),
            )
        if chain.step_time > _SLOWER * linear.step_time:
            return (
                Finding(
                    "chain-slower-than-linear",
                    "the DDTree path costs time before it branches",
                    Severity.SLOW,
                    Confidence.PROBABLE,
                    "the control arm does the work of linear and takes longer a step: that is host or kernel "
                    "work of the tree path itself, not of a wide tree",
                    "linear is the better arm here until that work is gone; CUDA graphs take most of it",
                    f"kdops ab linear ddtree-chain --host {e.host}",
                    (compared, times),
                    ("a tree that is too wide: this one has a single branch",),
                ),
            )
    return ()


def _arms(e: Evidence) -> tuple[Arm, ...]:
    return e.measurement.arms if e.measurement else ()


def _pairs(e: Evidence) -> Iterator[tuple[Arm, Arm]]:
    """Yield (wider, narrower): a branching tree against a chain or a smaller tree."""
    arms = [arm for arm in _arms(e) if arm.al is not None]
    for tree, other in itertools.permutations(arms, 2):
        chain = other.algorithm == "DFLASH" or other.topk == 1
        smaller = other.rows is not None and tree.rows is not None and other.rows < tree.rows
        if tree.algorithm == "DDTREE" and tree.topk != 1 and (chain or smaller):
            yield tree, other
