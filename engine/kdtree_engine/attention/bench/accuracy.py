"""Relative error of a contender on a case short enough for a float64 reference on the CPU."""

from __future__ import annotations

from dataclasses import replace

import torch

from kdtree_engine.attention.bench.cases import Inputs
from kdtree_engine.attention.bench.contenders import Calls
from kdtree_engine.attention.reference import reference_attention

LONGEST = 6000


def relative_error(inputs: Inputs, calls: Calls) -> float | None:
    """||out - reference|| / ||reference|| of the first call, or None past `LONGEST` tokens in all."""
    case = inputs.case
    if case.batch * case.context > LONGEST:
        return None
    inputs.out.fill_(torch.nan)
    calls[0]()
    cache, tree = inputs.cache(0), inputs.tree
    host = replace(
        cache,
        keys=cache.keys.cpu(),
        values=None if cache.values is None else cache.values.cpu(),
        table=cache.table.cpu(),
        table_start=cache.table_start.cpu(),
        lengths=cache.lengths.cpu(),
    )
    own = replace(tree, keys=tree.keys.cpu(), values=None if tree.values is None else tree.values.cpu())
    expected, _ = reference_attention(
        inputs.query.cpu(),
        inputs.row_start.cpu(),
        host,
        own,
        inputs.mask.cpu().repeat(case.batch, 1),
        case.shape.value_dim,
        case.shape.key_dim**-0.5,
    )
    return float((inputs.out.cpu().double() - expected).norm() / expected.norm())
