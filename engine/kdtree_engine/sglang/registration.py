"""Registers the algorithm and its flags with SGLang."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from kdtree_engine.options import (
    AUTO,
    DEFAULT_TOPK_CAP,
    MAX_REQUESTS,
    Options,
    RefusedError,
    Request,
    Surroundings,
    check_device,
    settle,
)
from kdtree_engine.pair import Drafter, check_pair
from kdtree_engine.sglang import compat
from kdtree_engine.sglang.redaction import redact

ALGORITHM = "DDTREE"
# Rides on SGLang's ServerArgs like its own `_launch_command`: pickled to every spawned process.
_ATTRIBUTE = "_ddtree_options"


def settled_options(server_args: Any) -> Options | None:
    """The settled options of this server; None when it does not run DDTREE."""
    return getattr(server_args, _ATTRIBUTE, None)


def options_of(server_args: Any) -> Options:
    """The settled options of this server.

    Raises RefusedError when it was not started through the command line.
    """
    options = settled_options(server_args)
    if not isinstance(options, Options):
        raise RefusedError(
            "DDTREE is set up by SGLang's command line: start with kdtree_engine.serve or sglang serve"
        )
    return options


def add_cli_args(original: Any, parser: argparse.ArgumentParser) -> None:
    """Around ServerArgs.add_cli_args: the plugin's flags, which a --config file may carry too."""
    original(parser)
    group = parser.add_argument_group("DDTREE (kdtree-engine)")
    group.add_argument(
        "--ddtree-budget",
        type=_budget,
        help="verify rows per request, root included, or auto; default 2 blocks",
    )
    group.add_argument(
        "--ddtree-topk-cap", type=int, help=f"candidates per draft position; default {DEFAULT_TOPK_CAP}"
    )
    group.add_argument(
        "--ddtree-keep-spine",
        action="store_true",
        help="take the whole top-1 chain first, then the best of the rest",
    )


def from_cli_args(original: Any, cls: type, args: argparse.Namespace) -> Any:
    """Around ServerArgs.from_cli_args: settle the options before anything loads. Raises RefusedError."""
    server_args = original(cls, args)
    if (args.speculative_algorithm or "").upper() == ALGORITHM:
        request = Request(args.ddtree_budget, args.ddtree_topk_cap, args.ddtree_keep_spine)
        drafter = compat.drafter_facts(args) if args.speculative_draft_model_path else None
        setattr(server_args, _ATTRIBUTE, settle(request, _surroundings(args, drafter)))
        if drafter is not None:
            check_pair(compat.target_facts(args), drafter, args.speculative_draft_window_size)
    return server_args


def resolved_dict(result: dict[str, Any], server_args: Any) -> dict[str, Any]:
    """After ServerArgs.resolved_dict, source of SGLang's log line and /server_info: ours in, secrets out."""
    options = settled_options(server_args)
    own = {f"ddtree_{name}": value for name, value in asdict(options).items()} if options else {}
    if own.get("ddtree_auto"):
        own["ddtree_budget"] = AUTO
    return redact(result) | own


def _budget(text: str) -> int | str:
    """A number, or a word that `settle` judges."""
    return int(text) if text.lstrip("+-").isdigit() else text


def _surroundings(args: argparse.Namespace, drafter: Drafter | None) -> Surroundings:
    block, vocabulary = (drafter.block_size, drafter.vocabulary) if drafter else (None, None)
    return Surroundings(
        drafter=args.speculative_draft_model_path,
        drafter_block_size=block,
        asked_block_size=args.speculative_dflash_block_size,
        draft_window=args.speculative_draft_window_size,
        pp_size=args.pp_size,
        vocabulary=vocabulary,
    )


def register_algorithm() -> None:
    """Add DDTREE to SGLang's algorithms (SpeculativeAlgorithm.register)."""
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    from sglang.srt.speculative.spec_registry import CustomSpecAlgo

    class DDTreeAlgorithm(CustomSpecAlgo):  # type: ignore[misc]
        """A member of the DFLASH family as far as scheduler, memory pools and prefill are concerned."""

        takes_tree_mask = True

        def is_dflash(self) -> bool:
            return True

        def is_dflash_family(self) -> bool:
            return True

        def supports_target_verify_for_draft(self) -> bool:
            return True

        def supports_prefill_shared_read_done(self) -> bool:
            return True

        # The scheduler calls these three; CustomSpecAlgo of 0.5.23 does not have them.
        def carries_draft_hidden_states(self) -> bool:
            return False

        def need_topk(self) -> bool:
            return False

        def create_future_map(self, *args: Any, **kwargs: Any) -> Any:
            return SpeculativeAlgorithm.create_future_map(self, *args, **kwargs)

        def get_num_tokens_per_req_for_target_verify(
            self, num_draft_tokens: int, is_draft_worker: bool
        ) -> int:
            return self.block_size if is_draft_worker else num_draft_tokens

        def handle_server_args(self, server_args: Any) -> None:
            options = options_of(server_args)
            if server_args.max_running_requests is None:
                server_args.max_running_requests = MAX_REQUESTS
            check_device(
                device=server_args.device,
                attention_backends=compat.attention_backends(server_args),
                attention_groups=server_args.attn_dp_size,
                deterministic=server_args.enable_deterministic_inference,
                graphs=compat.decode_graph_backend(server_args),
            )
            server_args.speculative_num_draft_tokens = options.budget
            server_args.speculative_num_steps = options.depths
            server_args.speculative_eagle_topk = 1  # KV is sized for one window of `budget` rows per step
            if server_args.speculative_draft_attention_backend is None:
                server_args.speculative_draft_attention_backend = server_args.attention_backend
            if server_args.device == "cpu":
                server_args.disable_overlap_schedule = True  # SGLang has no overlap for speculation on CPU

        def create_worker(self, server_args: Any) -> Any:
            # Called in every scheduler process before the draft runner, which asks for its width above.
            self.block_size = options_of(server_args).block_size
            return super().create_worker(server_args)

    def worker_class(server_args: Any) -> type:
        from kdtree_engine.sglang.worker import DDTreeWorker

        return DDTreeWorker

    SpeculativeAlgorithm.register(ALGORITHM, supports_overlap=True, spec_class=DDTreeAlgorithm)(worker_class)
