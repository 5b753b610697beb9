"""Does the drafter belong to the target? What both config.json say, by the rules of SGLang 0.5.23's DFLASH.

Sources: speculative/dflash_utils.py (target layers, layer types, sliding window), models/dflash.py (hidden
states and embedding of the target are the drafter's input). A key that a file does not hold is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdops.loose import mapping, positive

_LAYER_TYPES = ("full_attention", "sliding_attention")


def mismatches(target: Mapping[str, Any], draft: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each way in which the drafter cannot draft for the target."""
    target, own = _text(target), mapping(draft.get("dflash_config"))
    layers = positive(target.get("num_hidden_layers"))
    for key, what in (("vocab_size", "vocabulary"), ("hidden_size", "hidden size")):
        wanted, has = positive(target.get(key)), positive(draft.get(key))
        if wanted and has and wanted != has:
            yield f"its {what} is {has}, the target's is {wanted}"
    trained = positive(draft.get("num_target_layers"))
    if trained and layers and trained != layers:
        yield f"it was trained for a target of {trained} layers, this one has {layers}"
    ids = own.get("target_layer_ids", draft.get("target_layer_ids"))
    if ids is not None and (not isinstance(ids, list) or not ids):
        yield f"target_layer_ids is {ids!r}, no list of layers"
    elif isinstance(ids, list) and layers:
        outside = [i for i in ids if not isinstance(i, int) or not 0 <= i < layers]
        if outside:
            names = ", ".join(map(repr, outside))
            yield f"target_layer_ids names {names}; the target has layers 0 to {layers - 1}"
    mask, vocabulary = own.get("mask_token_id", draft.get("mask_token_id")), positive(draft.get("vocab_size"))
    if isinstance(mask, int) and vocabulary and not 0 <= mask < vocabulary:
        yield f"mask_token_id {mask} is outside its vocabulary of {vocabulary}"
    yield from _layer_types(draft)


def _layer_types(draft: Mapping[str, Any]) -> Iterator[str]:
    types, layers = draft.get("layer_types"), positive(draft.get("num_hidden_layers"))
    if types is None:
        return
    if not isinstance(types, list):
        yield f"layer_types is {types!r}, no list"
        return
    if layers and len(types) < layers:
        yield f"layer_types has {len(types)} entries for {layers} layers"
    if other := sorted({str(kind) for kind in types} - set(_LAYER_TYPES)):
        yield f"layer_types holds {', '.join(other)}; SGLang's DFLASH knows {' and '.join(_LAYER_TYPES)}"
    if "sliding_attention" in types and not positive(draft.get("sliding_window")):
        yield "layer_types has sliding_attention, but sliding_window is not set"


def remarks(draft: Mapping[str, Any]) -> Iterator[str]:
    """Yield what starts, but drafts badly: acceptance falls with context and nobody sees why."""
    window, types = positive(draft.get("sliding_window")), draft.get("layer_types")
    if window and draft.get("use_sliding_window") is not False and not types:
        yield (
            f"sliding_window is {window} and layer_types is missing: SGLang goes by layer_types and runs "
            "every layer with full attention, unlike in training"
        )
    rope = mapping(draft.get("rope_scaling")) or mapping(draft.get("rope_parameters"))
    factor, trained = rope.get("factor"), positive(rope.get("original_max_position_embeddings"))
    positions = positive(draft.get("max_position_embeddings"))
    if isinstance(factor, int | float) and trained and positions and positions > trained * factor * 1.001:
        reach = f"{int(trained * factor)} ({trained} × {factor:g})"
        yield f"max_position_embeddings is {positions}, but its rope scaling reaches {reach}"


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, Mapping) else config
