"""The HTTP side of SGLang: generate, server_info, metrics; its log lines as typed events."""

from kdops.serving.acceptance import Acceptance, acceptance
from kdops.serving.client import Generation, SglangClient

__all__ = ["Acceptance", "Generation", "SglangClient", "acceptance"]
