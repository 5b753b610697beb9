"""The target's graphs for every verify width, each with the attention state it was captured with.

SGLang's adaptive EAGLE (eagle_worker_v2.py, build_adaptive_runtime_state) swaps backend and graph runner
between batches in the same way; its controller knows that algorithm only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from kdtree_engine.sglang.compat import runtime as sgl


class PlainGraphs(sgl.DecodeCudaGraphRunner):  # type: ignore[misc]
    """Graphs of plain decoding under a speculative algorithm, which SGLang captures as a verify pass only."""

    @property
    def capture_forward_mode(self) -> Any:
        return sgl.ForwardMode.DECODE

    @capture_forward_mode.setter
    def capture_forward_mode(self, _: Any) -> None:
        """The base class asks for a verify pass."""

    @property
    def capture_hidden_mode(self) -> Any:
        return sgl.CaptureHiddenMode.FULL

    @capture_hidden_mode.setter
    def capture_hidden_mode(self, _: Any) -> None:
        """The base class would leave out what the draft KV is made from."""

    def get_spec_info(self, num_tokens: int) -> None:
        return None


class WidthStates:
    """What the target runs with at each width; the widest is SGLang's own."""

    def __init__(self, model_runner: Any, widths: Sequence[int]) -> None:
        """Captures the graphs of every narrower width, if SGLang captured the widest."""
        self._runner = model_runner
        self._states: dict[int, tuple[Any, Any]] = {}
        if model_runner.decode_cuda_graph_runner is None:
            return
        for rows in reversed(widths[:-1]):
            self._states[rows] = self._capture(rows)

    @contextlib.contextmanager
    def of(self, rows: int) -> Iterator[None]:
        """Run the target at this width inside."""
        runner = self._runner
        own = runner.attn_backend, runner.decode_cuda_graph_runner
        runner.attn_backend, runner.decode_cuda_graph_runner = self._states.get(rows, own)
        try:
            yield
        finally:
            runner.attn_backend, runner.decode_cuda_graph_runner = own

    def _capture(self, rows: int) -> tuple[Any, Any]:
        runner = self._runner
        workspace = runner.init_new_workspace
        with sgl.get_spec().override(speculative_num_draft_tokens=rows):
            backend = runner._get_attention_backend(init_new_workspace=True)
            runner.init_new_workspace = workspace
            kind = PlainGraphs if rows == 1 else sgl.DecodeCudaGraphRunner
            graphs = kind(
                runner,
                attn_backend=backend,
                speculative_num_steps=max(rows - 1, 1),
                speculative_num_draft_tokens=rows,
            )
        return backend, graphs
