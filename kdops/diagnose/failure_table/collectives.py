"""Ranks that talk to each other. Texts: NCCL 2.27, torch 2.9 (ProcessGroupNCCL, gloo, TCPStore)."""

from kdops.diagnose.failure_class import FailureClass, Kind, environment

CLASSES = (
    FailureClass(
        "nccl-peer-access",
        "GPUs cannot reach each other directly",
        "peer-to-peer copies over PCIe are refused or hang (ACS, IOMMU or a virtual machine), although the "
        "topology tool says that they work",
        f"run the collective test of kdops check HOST; then {environment('NCCL_P2P_DISABLE: 1')}, "
        "slower, or turn ACS off in the firmware",
        (
            r"peer access is not supported between these two devices",
            r"[Pp]eer mapping resources exhausted",
            r"NCCL WARN .*P2P .*(?:fail|disabled)",
        ),
    ),
    FailureClass(
        "nccl-multicast",
        "NVLink multicast (NVLS) could not be set up",
        "NCCL tried NVLS, which this machine's fabric or virtualisation does not offer",
        environment("NCCL_NVLS_ENABLE: 0"),
        (
            r"NCCL WARN .*(?:NVLS|nvls|[Mm]ulticast).*(?:fail|Failed|error)",
            r"transport/nvls\.cc:\d+ NCCL WARN",
            r"Failed to bind NVLink SHARP",
        ),
    ),
    FailureClass(
        "nccl-network",
        "NCCL found no way between the ranks",
        "NCCL chose a network interface that does not work, or a socket was refused",
        f"name the interface: {environment('NCCL_SOCKET_IFNAME: lo')} on one host",
        (
            r"NCCL WARN Bootstrap : no socket interface found",
            r"NCCL WARN .*Call to connect .*failed",
            r"NCCL WARN socket.*Connection refused",
        ),
    ),
    FailureClass(
        "collective-hang",
        "a collective never finished",
        "one rank did not come to a collective operation: it died or hangs, or the link between two GPUs "
        "hangs (PCIe peer-to-peer)",
        "look for an earlier failure of another rank; if there is none, run the collective test: kdops check "
        f"HOST, then {environment('NCCL_P2P_DISABLE: 1')}",
        (
            r"Watchdog caught collective operation timeout",
            r"ran for \d+ milliseconds before timing out",
            r"ProcessGroupNCCL's watchdog got stuck",
        ),
        kind=Kind.CONSEQUENCE,
    ),
    FailureClass(
        "nccl-error",
        "NCCL failed",
        "NCCL reports a failed system or CUDA call and does not say which",
        f"{environment('NCCL_DEBUG: WARN')} and start again: its own warning names the call",
        (
            r"ncclUnhandledCudaError",
            r"ncclSystemError",
            r"ncclInternalError",
            r"NCCL error: unhandled",
            r"NCCL error in:",
        ),
        kind=Kind.CONSEQUENCE,
    ),
    FailureClass(
        "rank-vanished",
        "another rank was gone",
        "a rank lost its peer: the lines show who noticed, not why the peer went",
        "look at the journal before these lines for the first rank that failed: kdops logs HOST -n 2000",
        (
            r"ncclRemoteError",
            r"Connection closed by peer",
            r"recvBytes failed",
            r"sendBytes failed",
            r"DistStoreError",
            r"DistNetworkError",
            r"Timed out after \d+ ?ms waiting for",
        ),
        kind=Kind.CONSEQUENCE,
    ),
)
