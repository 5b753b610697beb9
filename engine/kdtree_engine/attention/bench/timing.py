"""CUDA-graph timing and the two ceilings of a card."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch


def graph_ms(calls: Sequence[Callable[[], None]], budget_ms: float = 40.0) -> float:
    """Median milliseconds of one call, from replays of one graph that makes `calls` in turn.

    `calls` should touch different buffers, several times the L2 in all, so that none finds its
    data in the cache. The first replay is dropped.
    """
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return event_ms(graph.replay, budget_ms) / len(calls)


def event_ms(run: Callable[[], object], budget_ms: float = 40.0, most: int = 200) -> float:
    """Median milliseconds of `run` by device events, after one warm-up, over 3 to `most` runs."""
    samples: list[float] = []
    run()
    while len(samples) < 3 or (sum(samples) < budget_ms and len(samples) < most):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        samples.append(start.elapsed_time(end))
    return statistics.median(samples)


def copy_bandwidth() -> float:
    """Bytes a second of a large device-to-device copy, read plus written."""
    source = torch.empty(1 << 32, dtype=torch.uint8, device="cuda").random_()
    target = torch.empty_like(source)
    moved = 2 * (1 << 32)
    return moved / event_ms(lambda: target.copy_(source), 60) * 1e3


def matrix_rate() -> float:
    """bf16 operations a second of an 8192-cube product on random data, after a second of them."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / event_ms(lambda: a @ b, 1000, most=2000) * 1e3
