"""Plans: every tile is covered, splits follow the machine, bad counts are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kdtree_engine.attention import CacheType, gqa, make_plan, mla
from kdtree_engine.attention.devices import B300, H200, RTX_PRO_6000
from kdtree_engine.attention.plan import choose_splits
from kdtree_engine.attention.shapes import AttentionShape
from kdtree_engine.attention.tiles import Tiles, portable_tiles

pytestmark = pytest.mark.unit


@given(
    tiles=st.integers(1, 5000),
    readers=st.integers(1, 64),
    blocks=st.integers(1, 32),
    programs=st.integers(1, 200),
)
def test_every_split_of_a_full_context_has_work(tiles, readers, blocks, programs):
    splits = choose_splits(tiles, readers, blocks, programs)
    each = -(-tiles // splits)
    assert 1 <= splits <= tiles and -(-tiles // each) == splits


def test_long_contexts_use_the_whole_card_and_short_ones_do_not():
    long, short = (make_plan(mla(8), H200, 1, 8, context) for context in (185_000, 1_400))
    assert 0.8 * 132 <= long.splits <= 132
    assert short.splits < 30 and short.overlap and long.overlap


def test_row_blocks_share_the_card():
    plan = make_plan(mla(8), H200, 1, 33, 185_000)
    assert plan.row_blocks == 5 and 100 <= plan.splits * plan.row_blocks <= 132
    assert not plan.overlap  # its merge fills the card by itself


def test_slow_tiles_take_a_full_round_of_programs():
    plan = make_plan(mla(8), H200, 1, 8, 185_024, Tiles(64, 64, 8, 2))
    assert plan.splits == 132


def test_only_programs_that_fill_a_multiprocessor_start_before_the_kernel_before_them_ends():
    assert make_plan(mla(8), H200, 1, 33, 185_000).early
    assert not make_plan(mla(8), H200, 8, 33, 185_000).early  # its merge fills the card
    assert not make_plan(gqa(16, 2, 128), H200, 1, 8, 185_000).early
    one_row = make_plan(mla(8), H200, 1, 1, 185_000, portable_tiles(mla(8), H200, 1))
    assert not one_row.early and one_row.splits > 132


def test_the_hopper_kernel_is_chosen_only_for_what_it_computes():
    assert make_plan(mla(8), H200, 1, 8, 1000).hopper
    assert not make_plan(mla(8, CacheType.FP8_E4M3), H200, 1, 8, 1000).hopper
    assert not make_plan(gqa(16, 2, 128), H200, 1, 8, 1000).hopper
    assert not make_plan(mla(8), B300, 1, 8, 1000).hopper
    assert not make_plan(mla(8), RTX_PRO_6000, 1, 8, 1000).hopper


@pytest.mark.parametrize("batch, rows, context", [(0, 8, 10), (1, 0, 10), (1, 257, 10), (1, 8, -1)])
def test_counts_out_of_range_are_refused(batch, rows, context):
    with pytest.raises(ValueError, match="need >= 1"):
        make_plan(mla(8), H200, batch, rows, context)


@pytest.mark.parametrize(
    "shape, message",
    [
        ((8, 3, 64, 0, 64, False), "do not divide"),
        ((8, 1, 96, 0, 96, False), "not a power of two"),
        ((8, 1, 64, 16, 64, False), "only with a shared latent"),
        ((8, 2, 64, 16, 64, True), "one KV head"),
    ],
)
def test_shapes_no_kernel_computes_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        AttentionShape(*shape)
