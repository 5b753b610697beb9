"""Memory of GPU and host. Texts: SGLang 0.5.23 (pool_configurator.py, kv_cache_configurator.py,
runner_backend_utils), torch 2.9, Linux."""

from kdops.diagnose.failure_class import FailureClass, Phase

_OOM = (
    r"OutOfMemoryError",
    r"CUDA out of memory",
    r"CUDA error: out of memory",
    r"CUBLAS_STATUS_ALLOC_FAILED",
    r"CUDA driver error: out of memory",
)

CLASSES = (
    FailureClass(
        "pool-too-small",
        "no memory is left for the KV pool",
        "weights take the share that engine_memory_fraction allows, so nothing is left for the KV pool: this "
        "is the failure where the fraction must go up, not down",
        "raise engine_memory_fraction, or make the model smaller on each GPU (more GPUs, quantised weights)",
        (
            r"Not enough memory\. Please try to increase --mem-fraction-static",
            r"Loaded weights leave no GPU memory for the KV cache",
            r"Memory pool size is too small",
            r"Not enough GPU memory for hybrid \(mamba/linear-attention\) state cache",
        ),
    ),
    FailureClass(
        "oom-loading",
        "GPU memory ran out while loading",
        "weights or the KV pool did not fit into the GPU memory that was free at the start",
        "see what else holds the GPUs (nvidia-smi, kdops check); spread the model over more GPUs, or use "
        "smaller weights",
        _OOM,
        phases=frozenset({Phase.LOADING}),
    ),
    FailureClass(
        "oom-graph-capture",
        "GPU memory ran out while CUDA graphs were captured",
        "graphs and activations need memory outside the share that engine_memory_fraction gives to weights "
        "and KV pool",
        "lower engine_memory_fraction (by 0.05), or lower engine_max_running_requests",
        (r"Capture cuda graph failed: .*out of memory", *_OOM),
        phases=frozenset({Phase.GRAPHS}),
    ),
    FailureClass(
        "oom-serving",
        "GPU memory ran out while serving",
        "activations of a request did not fit beside weights and KV pool: this is the failure where "
        "engine_memory_fraction must go down, not up",
        "lower engine_memory_fraction (by 0.05), or lower engine_chunked_prefill",
        _OOM,
        phases=frozenset({Phase.SERVING}),
    ),
    FailureClass(
        "oom",
        "GPU memory ran out, the lines do not show when",
        "the journal begins after the start, so it is open whether the pool was too small (raise "
        "engine_memory_fraction) or activations did not fit (lower it)",
        "look at the whole start: kdops logs HOST -n 2000, or kdops diagnose with a longer journal",
        _OOM,
        phases=frozenset({Phase.UNKNOWN}),
    ),
    FailureClass(
        "kv-pool-exhausted",
        "the KV pool had no room for a running batch",
        "requests that run together need more tokens than the KV pool holds, and retraction freed too few",
        "lower engine_max_running_requests or engine_context_length, or raise engine_memory_fraction",
        (
            r"Out of memory\. Try to lower your batch size",
            r"(?:Prefill|Decode) out of memory\. Try to lower your batch size",
        ),
    ),
    FailureClass(
        "gpus-occupied",
        "other processes hold GPU memory",
        "the GPUs do not have the same amount of memory free, so something else runs on some of them",
        "name the holders with kdops check, stop them; after a crash wait for the old workers to end",
        (
            r"The memory capacity is unbalanced",
            r"all CUDA-capable devices are busy or unavailable",
            r"CUDA-capable device\(s\) is/are busy or unavailable",
        ),
    ),
    FailureClass(
        "host-memory",
        "the host's memory ran out",
        "the kernel or the unit's limit killed a process of the engine because RAM was used up",
        "free host memory or add swap; loading several ranks at once needs about the checkpoint's size",
        (
            r"killed by the OOM killer",
            r"Out of memory: Killed process",
            r"Memory cgroup out of memory",
            r"Failed with result 'oom-kill'",
            r"oom-kill:constraint=",
            r"\[Errno 12\] Cannot allocate memory",
            r"DefaultCPUAllocator: can't allocate memory",
        ),
    ),
    FailureClass(
        "shared-memory-full",
        "/dev/shm is too small",
        "ranks and NCCL exchange data through /dev/shm, and it is full",
        "remove what old runs left in /dev/shm, or mount it larger (mount -o remount,size=32G /dev/shm)",
        (
            r"Error while creating shared memory segment /dev/shm",
            r"No space left on device: '/dev/shm",
            r"[Ii]nsufficient shared memory",
            r"unable to (?:open|write to|mmap) .*shared memory",
        ),
    ),
)
