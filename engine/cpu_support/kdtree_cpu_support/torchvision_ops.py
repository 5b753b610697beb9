"""Make torchvision's ordinary wheel importable next to a CPU build of torch. Loaded in every process by a
.pth file.

torchvision registers fake implementations of two operators that its C++ library, which needs CUDA, would
declare. Declaring their schemas just before torchvision is imported is enough; SGLang imports it and calls
neither.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


class _DeclareBeforeImport(MetaPathFinder):
    """Finds nothing itself: asked first, it declares the operators once and lets the usual finders go on."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision" and "torch" in sys.modules:
            sys.meta_path.remove(self)
            import torch.library

            for name in ("nms", "qnms"):
                torch.library.define(f"torchvision::{name}", _SCHEMA)
        return None


sys.meta_path.insert(0, _DeclareBeforeImport())
