"""The HTTP side of SGLang: generate, metrics; its log lines as typed events."""

from kdops.serving.acceptance import Acceptance, acceptance
from kdops.serving.client import Generation, generate

__all__ = ["Acceptance", "Generation", "acceptance", "generate"]
