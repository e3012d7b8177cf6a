"""Train in several processes, one for each GPU, or on the CPU.

    torchrun --nproc-per-node=2 examples/ddp.py

Every process holds all images and trains on its share of each epoch's order. The first one decodes
them, and the others read what it has kept; with `--no-cache` all decode. With `--shard` each
decodes and holds only its share. With `--checkpoint FILE` it can be killed at any time, and goes on
from there when it is run again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torchvision.transforms.v2 as v2
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gpupreload as gp

SIDE = 64
TRANSFORM = v2.Compose(
    [
        *(v2.Resize((SIDE, SIDE)), v2.RandomCrop(SIDE, padding=6), v2.RandomHorizontalFlip()),
        *(v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)),
    ]
)
STEPS_BETWEEN_CHECKPOINTS = 10


def main() -> None:
    """Train, evaluate after each epoch, and keep checkpoints."""
    arguments = parsed()
    if "LOCAL_RANK" not in os.environ:
        sys.exit("Start it with torchrun: torchrun --nproc-per-node=2 examples/ddp.py")
    has_gpus = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if has_gpus else torch.device("cpu")
    dist.init_process_group("nccl" if has_gpus else "gloo")
    is_first = dist.get_rank() == 0

    train, val = datasets(arguments, device, local_rank)
    loader = gp.Loader(train, batch_size=32, shuffle=True)  # as many batches on every rank
    held_out = gp.Loader(val, batch_size=64)  # every sample on one rank
    model = DistributedDataParallel(network(len(train.classes)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    checkpoint = arguments.checkpoint
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint, map_location=device)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        if is_first:
            print(f"going on in epoch {loader.next_epoch}")

    while loader.next_epoch < arguments.epochs:
        for step, (images, labels) in enumerate(loader, 1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            is_due = step % STEPS_BETWEEN_CHECKPOINTS == 0 or step == len(loader)
            if checkpoint is not None and is_first and is_due:
                save(checkpoint, parts)
        n_right, n_seen = evaluated(model.module, held_out, device)
        if is_first:
            print(f"epoch {loader.epoch}: {n_right} of {n_seen} right, in {len(loader)} batches")
    dist.destroy_process_group()


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="class folders; the sample photos if left out")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--checkpoint", type=Path, help="a file to go on from")
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument("--cache", default=True, help="a folder for decoded images")
    cache.add_argument("--no-cache", dest="cache", action="store_false", help="all decode them")
    parser.add_argument("--shard", action="store_true", help="a share of the images each")
    return parser.parse_args()


def datasets(
    arguments: argparse.Namespace, device: torch.device, local_rank: int
) -> tuple[gp.GPUPreloadDataset, gp.GPUPreloadDataset]:
    """Load what is trained on, and what is evaluated, without augmentation."""
    photos = arguments.folder or sample_photos(local_rank)
    # the same seed in every process: their orders must fit together
    whole = gp.preload(
        photos,
        TRANSFORM,
        device=device,
        seed=0,
        cache=arguments.cache,
        shard=arguments.shard,
        progress=dist.get_rank() == 0,
    )
    if arguments.shard:  # a part of a shard cannot promise as many batches on every rank
        return whole, whole.with_transform(None)
    train, val = whole.split([0.8, 0.2])
    return train, val.with_transform(None)


def sample_photos(local_rank: int) -> Path:
    """Cut the sample photos in one process of a machine, while the others wait."""
    if local_rank == 0:
        gp.sample_photos("train")
    dist.barrier()
    return gp.sample_photos("train")


def network(n_classes: int) -> nn.Sequential:
    """A small convolutional network."""
    blocks = []
    for n_in, n_out in ((3, 16), (16, 32), (32, 64)):
        blocks += [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, n_classes))


def save(path: Path, parts: dict[str, object]) -> None:
    """Write a checkpoint that is whole, or is not there."""
    part = path.with_suffix(".part")
    torch.save({name: thing.state_dict() for name, thing in parts.items()}, part)
    part.replace(path)


@torch.no_grad()
def evaluated(model: nn.Module, loader: gp.Loader, device: torch.device) -> tuple[int, int]:
    """How many samples are classified right, and how many there are, over all processes."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=device)
    for images, labels in loader:
        counts += torch.stack(
            [(model(images).argmax(1) == labels).sum(), counts.new_tensor(len(labels))]
        )
    dist.all_reduce(counts)
    model.train()
    n_right, n_seen = counts.tolist()
    return n_right, n_seen


if __name__ == "__main__":
    main()
