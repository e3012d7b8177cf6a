"""Batched kernels on [N, C, H, W]: pure functions with an explicit parameter for every sample."""
