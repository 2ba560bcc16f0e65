"""Real NCCL ranks on one GPU, recorded; see `__main__`."""
