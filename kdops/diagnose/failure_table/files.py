"""Files, folders, libraries and ports. Texts: Linux errno, safetensors, Hugging Face, uvicorn, SGLang
0.5.23."""

from kdops.diagnose.failure_class import FailureClass, Kind

CLASSES = (
    FailureClass(
        "disk-full",
        "the disk is full",
        "a write failed because no space is left on that file system (or the user's quota is used up)",
        "df -h on the host; kdops prune HOST --delete frees old releases and environments",
        (r"\[Errno 28\]", r"No space left on device", r"\[Errno 122\]", r"Disk quota exceeded"),
    ),
    FailureClass(
        "cache-unwritable",
        "a folder is not writable for the service's user",
        "the engine's user may not write where kernels are cached or files are kept",
        "chown that folder to the service's user (engine_user), or remove it: systemd creates "
        "/var/cache/kdtree itself",
        (
            r"\[Errno 13\] Permission denied",
            r"PermissionError",
            r"\[Errno 30\] Read-only file system",
            r"status=239/CACHE_DIRECTORY",
            r"status=238/STATE_DIRECTORY",
            r"Failed to set up special execution directory",
        ),
    ),
    FailureClass(
        "model-missing",
        "the model is not there",
        "engine_model or engine_draft_model names a folder that has no model in it, or none at all",
        "check the path on the host; it must hold config.json and *.safetensors: kdops check HOST",
        (
            r"Cannot find any model weights with",
            r"does not appear to have a file named config\.json",
            r"is not a local folder and is not a valid model identifier",
            r"HFValidationError",
            r"Can't load (?:tokenizer|config) for",
            r"No such file or directory: '[^']*(?:config\.json|\.safetensors|tokenizer[^']*)'",
            r"Unrecognized model in ",
        ),
    ),
    FailureClass(
        "model-damaged",
        "a model file is damaged",
        "a weight file is shorter than its header says, or is no such file (a Git LFS pointer, a "
        "cut download)",
        "copy the file again and compare its size with the original: kdops check HOST",
        (
            r"SafetensorError",
            r"MetadataIncompleteBuffer",
            r"[Ii]ncomplete metadata, file not fully covered",
            r"HeaderTooLarge|InvalidHeader",
            r"is not a valid JSON file",
            r"PytorchStreamReader failed",
        ),
    ),
    FailureClass(
        "hub-unreachable",
        "the model hub could not be reached",
        "the engine tried to download a model, and the host has no way there or no right to it",
        "put the model on the host and give engine_model as a path",
        (
            r"We couldn't connect to 'https?://",
            r"LocalEntryNotFoundError",
            r"OfflineModeIsEnabled",
            r"GatedRepoError|RepositoryNotFoundError",
            r"Cannot access gated repo",
        ),
    ),
    FailureClass(
        "weights-mismatch",
        "weights do not fit the model",
        "a tensor of the checkpoint has another shape or name than the configuration says: config.json and "
        "weights, or drafter and target, are not of one model",
        "check that engine_draft_model was trained for this target; copy config.json and weights again",
        (
            r"Attempted to load weight \(",
            r"size mismatch for .*: copying a param",
            r"Padding the loaded weight failed",
        ),
    ),
    FailureClass(
        "port-in-use",
        "a port is taken",
        "another process listens on the engine's port, or on one that the ranks use among themselves",
        "kdops check HOST names the process and its unit; stop it, or choose another engine_port",
        (
            r"\[Errno 98\]",
            r"[Aa]ddress already in use",
            r"EADDRINUSE",
            r"Port is already in use\.",
            r"port \d+ cannot be served: Address",
            r"port at \d+ is not available in",
        ),
    ),
    FailureClass(
        "too-many-files",
        "too many open files",
        "a process reached its limit of open files",
        "remove LimitNOFILE= from drop-ins of the unit (kdops plan HOST shows them), or raise it",
        (r"\[Errno 24\] Too many open files", r"Too many open files"),
    ),
    FailureClass(
        "library-missing",
        "a library or module is missing",
        "the environment is not complete, or a library of the system is too old for it",
        "let kdops build it again: remove that folder under /opt/kdops/venvs and deploy",
        (
            r"cannot open shared object file",
            r"undefined symbol: ",
            r"ModuleNotFoundError: No module named",
            r"version `GLIBC(?:XX)?_[0-9.]+' not found",
        ),
    ),
    FailureClass(
        "cpu-too-old",
        "the CPU lacks an instruction",
        "a library was built for a newer CPU than this host has",
        "use a host with AVX-512 for engine_device: cpu, or another build",
        (r"Illegal instruction", r"status=4/ILL"),
        kind=Kind.CONSEQUENCE,
    ),
)
