"""Without a GPU the kernels run under Triton's interpreter, which must be chosen before they are imported."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    collect_ignore = ["test_on_gpu.py"]
