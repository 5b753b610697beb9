"""SGLang's own verify kernel and its graph buffers with our mask: what a captured graph replays, without
a GPU.

The metadata is built once, as at capture; then a replay refills SGLang's buffers for other lengths, the
captured head writes other trees, and the kernel runs on the captured metadata.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kdtree_engine import batched
from kdtree_engine.sglang.treemask import capture_with_mask, eager_mask, write_captured

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, KV_HEADS, DIM, NODES, ROWS, CONTEXT = 4, 2, 16, 9, 4, 64


class Translator:
    """KV slots of request r are r * CONTEXT onwards (SGLang's KVIndexTranslator.pack_read_stream)."""

    def pack_read_stream(
        self, _plan: Any, *, req_pool_indices: Any, seq_lens: Any, indptr: Any, out: Any
    ) -> None:
        for row, (request, length) in enumerate(zip(req_pool_indices, seq_lens, strict=True)):
            begin = int(indptr[row])
            out[begin : begin + int(length)] = int(request) * CONTEXT + torch.arange(
                int(length), device=out.device
            )


def backend() -> Any:
    """SGLang's TritonAttnBackend with what a target verify in a graph touches."""
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
    from sglang.srt.layers.attention.verify_mask import TreeMaskMode, VerifyMask, tree_mask_numel

    made = TritonAttnBackend.__new__(TritonAttnBackend)
    made.device = DEVICE
    made.dllm_attention = None
    made.use_sliding_window_kv_pool = False
    made.sliding_window_size = None
    made.window_kv_indptr = None
    made.target_verify_num_tokens_per_req = NODES
    made.kv_index_translator = Translator()
    made.qo_indptr = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    made.kv_indptr = torch.zeros(ROWS + 1, dtype=torch.int32, device=DEVICE)
    made.mask_indptr = torch.zeros(ROWS + 1, dtype=torch.int64, device=DEVICE)
    made.cuda_graph_kv_indices = torch.zeros(ROWS * CONTEXT, dtype=torch.int64, device=DEVICE)
    # As maybe_create_verify_mask makes it on a GPU; on a CPU its default is another layout.
    cells = tree_mask_numel(TreeMaskMode.FULL_MASK, ROWS, NODES, CONTEXT)
    mask = torch.zeros(cells, dtype=torch.uint8, device=DEVICE)
    made._verify_mask = VerifyMask(buffer=mask, mode=TreeMaskMode.FULL_MASK, max_bs=ROWS)
    return made


def forward_batch(lengths: list[int], info: Any) -> Any:
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    return SimpleNamespace(
        batch_size=len(lengths),
        req_pool_indices=torch.arange(len(lengths), device=DEVICE),
        seq_lens=torch.tensor(lengths, device=DEVICE),
        forward_mode=ForwardMode.TARGET_VERIFY,
        spec_info=info,
        encoder_lens=None,
        kv_loc_plan=None,
        out_cache_loc=None,
        seq_lens_sum=sum(lengths),
    )


def trees(count: int) -> batched.BatchedTree:
    logp = torch.log_softmax(torch.randn(count, 4, 8), -1).topk(3, -1)
    tree = batched.build(logp.values, logp.indices, torch.zeros(count, dtype=torch.long), NODES)
    return batched.BatchedTree(
        *(part.to(DEVICE) for part in (tree.tokens, tree.depth, tree.rank, tree.parent, tree.ancestors))
    )


def dense(q: Any, k: Any, v: Any, keys: Any, values: Any, lengths: list[int], ancestors: Any) -> torch.Tensor:
    """The same attention in float64: each row sees the prefix, its ancestors and itself."""
    rows = []
    for request, length in enumerate(lengths):
        mine, slots = (
            slice(request * NODES, (request + 1) * NODES),
            slice(request * CONTEXT, request * CONTEXT + length),
        )
        key = torch.cat([keys[slots], k[mine]]).repeat_interleave(HEADS // KV_HEADS, 1).double()
        value = torch.cat([values[slots], v[mine]]).repeat_interleave(HEADS // KV_HEADS, 1).double()
        score = torch.einsum("qhd,khd->hqk", q[mine].double(), key) * DIM**-0.5
        seen = torch.cat([torch.ones(NODES, length, dtype=torch.bool, device=DEVICE), ancestors[request]], 1)
        weight = score.masked_fill(~seen, -torch.inf).softmax(-1)
        rows.append(torch.einsum("hqk,khd->qhd", weight, value))
    return torch.cat(rows)


def check_kernel(metadata: Any, lengths: list[int], ancestors: torch.Tensor) -> None:
    """SGLang's verify kernel on this metadata attends along the trees, and not along chains."""
    from sglang.kernels.ops.attention.extend_attention import extend_attention_fwd

    q, k, v = (torch.randn(ROWS * NODES, count, DIM, device=DEVICE) for count in (HEADS, KV_HEADS, KV_HEADS))
    keys, values = (torch.randn(ROWS * CONTEXT, KV_HEADS, DIM, device=DEVICE) for _ in range(2))
    found = torch.full_like(q, torch.nan)
    extend_attention_fwd(
        q,
        k,
        v,
        found,
        keys,
        values,
        metadata.qo_indptr,
        metadata.kv_indptr,
        metadata.kv_indices,
        metadata.custom_mask,
        True,
        metadata.mask_indptr,
        metadata.max_extend_len,
        1.0,
        1.0,
        sm_scale=DIM**-0.5,
    )
    expected = dense(q, k, v, keys, values, lengths, ancestors)
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
    chain = torch.ones(ROWS, NODES, NODES, dtype=torch.bool, device=DEVICE).tril()
    assert not torch.allclose(found.double(), dense(q, k, v, keys, values, lengths, chain), atol=1e-2)


@pytest.mark.parametrize("over_prefix", [0, 1])
def test_a_replayed_graph_attends_along_the_trees(over_prefix: int) -> None:
    torch.manual_seed(5)
    attention = backend()
    attention._verify_mask.buffer.fill_(over_prefix)
    runner = SimpleNamespace(
        attn_backend=attention,
        model_runner=SimpleNamespace(
            spec_algorithm=SimpleNamespace(takes_tree_mask=True), is_draft_worker=False, device=DEVICE
        ),
    )
    info = capture_with_mask(
        SimpleNamespace(custom_mask=None, num_tokens_per_req=NODES, draft_token_num=NODES), runner, 0
    )
    static = trees(ROWS)
    captured = forward_batch([1] * ROWS, info)
    attention.init_forward_metadata_out_graph(captured, in_capture=True)
    metadata = attention.forward_metadata
    assert metadata.custom_mask is attention._verify_mask.buffer

    for lengths in ([7, 30, 1, 19], [40, 2, 33, 5]):
        captured.seq_lens.copy_(torch.tensor(lengths))
        attention.init_forward_metadata_out_graph(captured)
        static.ancestors.copy_(trees(ROWS).ancestors)
        attention.forward_metadata = metadata
        write_captured(runner, captured, static.ancestors)
        check_kernel(metadata, lengths, static.ancestors)


def test_a_step_without_a_graph_attends_along_the_trees() -> None:
    """The mask is sized by a bound on the lengths, which overlap scheduling does not know exactly."""
    torch.manual_seed(6)
    attention, lengths, tree = backend(), [7, 30, 1, 19], trees(ROWS)
    info = SimpleNamespace(custom_mask=torch.empty(0), num_tokens_per_req=NODES, draft_token_num=NODES)
    batch = forward_batch(lengths, info)
    attention.init_forward_metadata(batch)  # prepare_for_verify plans, before the mask is known
    info.custom_mask = eager_mask(batch.seq_lens, sum(lengths) + 40, tree.ancestors)
    attention.init_forward_metadata(batch)  # the eager runner plans again
    metadata = attention.forward_metadata
    assert metadata.custom_mask.data_ptr() == info.custom_mask.data_ptr()
    assert metadata.custom_mask.numel() < attention._verify_mask.buffer.numel()
    check_kernel(metadata, lengths, tree.ancestors)
