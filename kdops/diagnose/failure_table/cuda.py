"""GPU, driver and kernels. Texts: CUDA 12 and 13, NVRM Xid messages, torch 2.9, Triton 3."""

from kdops.diagnose.failure_class import FailureClass, environment

CLASSES = (
    FailureClass(
        "kernel-too-large",
        "a kernel does not fit this GPU",
        "a kernel asks for more shared memory (or registers) a block than this GPU has; the usual victim is "
        "sm_120, with 101,376 B where data-centre GPUs have 232,448 B",
        "choose another backend for that kernel: engine_attention_backend: triton (and "
        "engine_draft_attention_backend), or engine_verify_attention: kdtree, which fits 101,376 B",
        (
            r"out of resource: (?:shared memory|threads|tensor memory|registers)",
            r"OutOfResources",
            r"uses too much shared data",
            r"too many resources requested for launch",
        ),
    ),
    FailureClass(
        "kernel-missing",
        "a kernel was not built for this GPU",
        "the installed wheels hold no code for this GPU's compute capability",
        "use the environment that kdops builds (engine_lock: cuda), or a backend that compiles itself: "
        "engine_attention_backend: triton",
        (
            r"no kernel image is available for execution on the device",
            r"with CUDA capability sm_\d+ is not compatible with the current PyTorch installation",
            r"cudaErrorNoKernelImageForDevice",
            r"provided PTX was compiled with an unsupported toolchain",
        ),
    ),
    FailureClass(
        "illegal-memory-access",
        "a kernel read or wrote outside its memory",
        "a bug that depends on settings (context above the model's positions, page size, memory fraction, "
        "backend): CUDA reports it at a later call, so the last line is not the place",
        "compare with the last good release (kdops diagnose names the settings that differ) and go back: "
        f"kdops rollback HOST; to find the place: {environment('CUDA_LAUNCH_BLOCKING: 1')}",
        (
            r"an illegal memory access was encountered",
            r"CUDA error: misaligned address",
            r"CUDA error: unspecified launch failure",
            r"CUDA_ERROR_ILLEGAL_ADDRESS",
            r"Xid \(PCI:[0-9a-fA-F:.]+\): (?:13|31),",
        ),
    ),
    FailureClass(
        "device-assert",
        "an assertion failed inside a kernel",
        "an index was out of range on the GPU: mostly a token id outside the vocabulary, or a position "
        "beyond the model's",
        "check that drafter and target share a vocabulary and that engine_context_length is within both: "
        "kdops check HOST",
        (r"device-side assert triggered", r"Assertion `.*` failed\."),
    ),
    FailureClass(
        "nan-logits",
        "the model computed NaN",
        "logits or probabilities were not numbers: a broken kernel, weights in the wrong type, or overflow",
        "try another attention backend and engine_dtype; compare kdops generate with the autoregressive "
        "profile",
        (
            r"Detected errors during sampling! NaN",
            r"probability tensor contains either `inf`, `nan` or element < 0",
            r"NaN happened",
        ),
    ),
    FailureClass(
        "gpu-lost",
        "a GPU failed",
        "the driver reports a GPU that fell off the bus, an uncorrectable memory error, or firmware that no "
        "longer answers",
        "read dmesg for the Xid number, reset or replace that GPU; no setting helps",
        (
            r"GPU has fallen off the bus",
            r"uncorrectable ECC error encountered",
            r"Uncorrectable ECC error",
            r"Xid \(PCI:[0-9a-fA-F:.]+\): (?:46|48|61|62|63|64|74|79|94|95|109|110|119|120|136|140|143|149),",
            r"Unable to determine the device handle for",
            r"GPU is lost",
        ),
    ),
    FailureClass(
        "driver-too-old",
        "driver and CUDA do not fit",
        "the installed NVIDIA driver is older than the CUDA in the environment needs",
        "update the driver on the host (kdops check shows both versions), or build the environment for its "
        "CUDA",
        (
            r"CUDA driver version is insufficient for CUDA runtime version",
            r"The NVIDIA driver on your system is too old",
            r"Error 803: system has unsupported display driver / cuda driver combination",
            r"Error 804: forward compatibility was attempted on non supported HW",
        ),
    ),
    FailureClass(
        "driver-mismatch",
        "the driver was updated under a running kernel module",
        "user-space driver files and the loaded kernel module have different versions",
        "reboot the host, or unload and load the nvidia modules",
        (r"Driver/library version mismatch", r"NVRM: API mismatch"),
    ),
    FailureClass(
        "fabric-not-ready",
        "the NVLink fabric is not up",
        "GPUs behind NVSwitch need a running nvidia-fabricmanager of the driver's own version",
        "systemctl status nvidia-fabricmanager on the host; install the version of the driver and start it",
        (r"Error 802: system not yet initialized", r"CUDA error: system not yet initialized"),
    ),
    FailureClass(
        "no-gpu",
        "the engine sees no GPU",
        "no driver is loaded, CUDA_VISIBLE_DEVICES hides the GPUs, or the unit's sandbox keeps "
        "/dev/nvidia* away",
        "nvidia-smi on the host; if that works, look at engine_environment and at drop-ins of the unit: "
        "kdops plan HOST, kdops check HOST",
        (
            r"No CUDA GPUs are available",
            r"Found no NVIDIA driver on your system",
            r"no CUDA-capable device is detected",
            r"CUDA error: invalid device ordinal",
            r"CUDA initialization: .*CUDA unknown error",
            r"Error 304: OS call failed or operation not supported on this OS",
        ),
    ),
    FailureClass(
        "compile-failed",
        "a kernel could not be compiled on the host",
        "Triton, FlashInfer or torch compile kernels at the first start and lack a compiler, nvcc or headers",
        "install gcc and python3-dev on the host, and the CUDA toolkit where nvcc is named",
        (
            r"Could not find nvcc",
            r"Failed to find C compiler",
            r"CUDA_HOME environment variable is not set",
            r"ninja: build stopped: subcommand failed",
            r"fatal error: Python\.h: No such file or directory",
            r"Ninja is required to load C\+\+ extensions",
            r"PTXASError",
            r"nvcc fatal",
        ),
    ),
)
