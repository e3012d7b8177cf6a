"""torchvision's random steps for whole batches: parameters drawn for each sample, then applied."""
