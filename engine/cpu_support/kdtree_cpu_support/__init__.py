"""What stock SGLang 0.5.23 lacks to run speculative decoding on a CPU: for tests and demos, never for a GPU
host.
"""
