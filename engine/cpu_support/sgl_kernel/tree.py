"""Building and verifying a draft tree, as sgl_kernel's EAGLE operators do."""

from __future__ import annotations

from torch import Tensor, arange

_QUERY_ONLY = 1  # tree_mask_mode: rows x rows instead of rows x (prefix + rows)


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    seq_lens: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    rows: int,
    mode: int,
) -> None:
    """Fill mask, positions and first-child/next-sibling links of every request's tree, in place.

    selected_index [R, rows - 1]; retrieve_* [R, rows]; positions flat [R * rows]; tree_mask flat, full
    (mode 0: each row over prefix and rows) or query-only (mode 1). Same contract as
    build_tree_kernel_efficient.
    """
    flat_positions = positions.view(-1)
    requests = seq_lens.numel()
    parents = parent_list.view(requests, -1) if parent_list.numel() else parent_list
    offset = 0
    for b in range(requests):
        prefix = int(seq_lens[b])
        selected = selected_index[b].tolist()
        parent = [-1] * rows
        retrieve_index[b] = arange(rows) + b * rows
        for i in range(rows - 1, 0, -1):
            group = selected[i - 1] // topk
            above = 0
            if group > 0:
                wanted = int(parents[b][group])
                above = selected.index(wanted) + 1 if wanted in selected else -1
            parent[i] = above
            if above < 0:
                continue
            first_child = int(retrieve_next_token[b, above])
            retrieve_next_token[b, above] = i
            if first_child != -1:
                retrieve_next_sibling[b, i] = first_child
        query_only = int(mode) == _QUERY_ONLY
        width = rows if query_only else prefix + rows
        base = b * rows * rows if query_only else offset
        mask = tree_mask[base : base + rows * width].view(rows, width)
        for i in range(rows):
            mask[i, width - rows :] = False
            node, level = i, 0
            while node > 0:
                mask[i, width - rows + node] = True
                node = parent[node]
                level += 1
            mask[i, width - rows] = True
            flat_positions[b * rows + i] = prefix + level
        offset += rows * (prefix + rows)


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's greedy choice; write accepted rows, their number and the tokens.

    candidates, retrive_* [R, rows]; accept_index [R, depth + 1]; predicts and target_predict flat [R * rows].
    (The spelling "retrive" is sgl_kernel's.)
    """
    requests = candidates.shape[0]
    choice = target_predict.reshape(-1)
    tokens = predicts.view(-1)
    for b in range(requests):
        last = int(retrive_index[b, 0])
        accept_index[b, 0] = last
        accepted = node = 0
        for _ in range(1, accept_index.shape[1]):
            node = int(retrive_next_token[b, node])
            while node != -1:
                wanted = int(choice[last])
                if int(candidates[b, node]) == wanted:
                    tokens[last] = wanted
                    accepted += 1
                    last = int(retrive_index[b, node])
                    accept_index[b, accepted] = last
                    break
                node = int(retrive_next_sibling[b, node])
            if node == -1:
                break
        accept_token_num[b] = accepted
        tokens[last] = int(choice[last])
