"""SGLang's own checks and the ends of its processes. Source: SGLang 0.5.23 (utils/watchdog.py,
managers/scheduler_components/invariant_checker.py, entrypoints/engine.py)."""

from kdops.diagnose.failure_class import FailureClass, Kind

CLASSES = (
    FailureClass(
        "pool-leak",
        "SGLang lost track of KV pages",
        "after the last request pages of the KV pool were still marked as used; known with trees and a page "
        "size above 1",
        "--set engine_page_size=1, and report it with kdops report HOST",
        (r"memory leak detected!",),
    ),
    FailureClass(
        "scheduler-stuck",
        "the scheduler made no progress",
        "SGLang's own watchdog ended a scheduler that did not come round in time: a kernel or a collective "
        "that hangs, or one forward longer than the limit",
        "look at the stacks above the line (kdops report HOST takes them); with several GPUs run the "
        "collective test: kdops check HOST",
        (r"[wW]atchdog timeout \((?:self\.)?watchdog_timeout=",),
        kind=Kind.CONSEQUENCE,
    ),
    FailureClass(
        "process-crashed",
        "a process of the engine crashed in native code",
        "a segmentation fault or bus error: a library or kernel, not a Python error",
        "the Python stack below the line names the call; compare with the last good release: "
        "kdops history HOST",
        (
            r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted|Floating)",
            r"status=11/SEGV",
            r"status=7/BUS",
            r"crashed with exit code -(?:11|7|6)\b",
        ),
        kind=Kind.CONSEQUENCE,
    ),
    FailureClass(
        "process-killed",
        "a process of the engine was killed",
        "something sent SIGKILL: mostly the kernel's OOM killer, else a person or a script",
        "journalctl -k on the host for OOM lines; otherwise ask who was on the host",
        (
            r"crashed with exit code -9\b",
            r"died during initialization \(exit code: -9\)",
            r"terminated with -9\b",
            r"code=killed, status=9/KILL",
        ),
        kind=Kind.END,
    ),
)
