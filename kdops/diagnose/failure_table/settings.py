"""Settings that SGLang 0.5.23, the drafter or the launcher refuse. Sources: configs/model_config.py,
arg_groups/speculative_hook.py, models/registry.py, kdtree_engine/options.py."""

from kdops.diagnose.failure_class import FailureClass, Kind

CLASSES = (
    FailureClass(
        "unknown-flag",
        "the installed SGLang does not know a flag",
        "a flag was renamed or removed between releases, or engine_extra_args holds a misspelt one",
        "see `kdops check HOST` for the flag nearest to it; the installed parser decides",
        (r"unrecognized arguments: ", r"ambiguous option: ", r"error: argument --[\w-]+"),
    ),
    FailureClass(
        "context-above-positions",
        "the context is longer than the model's positions",
        "engine_context_length is above what the model (or the drafter) was built for; overriding that gives "
        "wrong output or an illegal memory access later",
        "lower engine_context_length to the derived length in the lines",
        (r"context_length \(\d+\) is greater than the derived context_length \(\d+\).* To allow overriding",),
    ),
    FailureClass(
        "architecture-unsupported",
        "SGLang does not know this model",
        "the architecture in config.json is not one of this SGLang's, or its code must be trusted first",
        "set engine_trust_remote_code: true if the model brings its code; else another SGLang is needed",
        (
            r"Model architectures .* are not supported for now",
            r"requires you to execute the configuration file",
            r"does not recognize this architecture",
        ),
    ),
    FailureClass(
        "parallel-split",
        "the model cannot be split over that many GPUs",
        "heads or sizes of target or drafter are not divisible by engine_tp",
        "choose an engine_tp that divides the heads of both models",
        (
            r"requires total_num_(?:kv_)?heads divisible by tp_size",
            r"must be divisible by (?:ep_size|moe_tp_size|tp_size)",
            r"requires tp_size divisible by total_num_kv_heads",
            r"is not divisible by \d+",
        ),
    ),
    FailureClass(
        "drafter-refused",
        "drafter and settings do not fit",
        "the drafter's config.json and the speculative settings exclude each other",
        "the line names the setting; engine_block_size must be the checkpoint's, engine_draft_window at "
        "least that",
        (
            r"DFLASH .*(?:requires|only supports|does not support|invalid|must be)",
            r"DDTREE .*(?:needs|runs with|simulates|takes a plain|has not been compared)",
            r"ddtree-(?:budget|topk-cap) is \d+",
            r"speculative-(?:dflash-block-size|draft-window-size) is \d+",
            r"the drafter .*(?:names no block_size|block size is)",
            r"the drafter(?:'s .* is \d+, but the target has| reads layer \d+ of| knows \d+ positions, but)",
            r"takes no tree mask on",
        ),
    ),
    FailureClass(
        "plugin-missing",
        "the DDTree plugin was not loaded",
        "SGLang started without kdtree-engine, or with another version than 0.5.23",
        "deploy again: a release carries its own kdtree-engine; PYTHONPATH in engine_environment hides it",
        (r"did not load the kdtree plugin whole", r"\(exit 65\)", r"invalid choice: 'DDTREE'"),
    ),
    FailureClass(
        "configuration-refused",
        "the launcher refused the configuration",
        "a setting cannot work; the line says which",
        "correct the setting in the line, then deploy again",
        (r"kdtree: .*\(exit 64\)",),
        kind=Kind.CONSEQUENCE,
    ),
)
