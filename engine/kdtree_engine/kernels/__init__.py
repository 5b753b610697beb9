"""Triton kernels of a step's bookkeeping: the drafter's best tokens, tree and walk. X.py launches the
programs of X_kernel.py; importing either needs Triton.
"""
