"""Prompt sets: our own, versioned and hashed, and files of the user's."""

from kdops.bench.workloads.prompts import PromptSet, built_in
from kdops.bench.workloads.sampling import Sampling
from kdops.bench.workloads.suite import Load, Request, Stage, Suite, count, make, reference
from kdops.bench.workloads.userfiles import read

__all__ = [
    "Load",
    "PromptSet",
    "Request",
    "Sampling",
    "Stage",
    "Suite",
    "built_in",
    "count",
    "make",
    "read",
    "reference",
]
