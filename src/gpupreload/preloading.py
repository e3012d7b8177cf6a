"""`preload`: from a folder and a transform to a resident dataset."""

from __future__ import annotations

import os
from typing import Any, Unpack

import torch

from gpupreload.arguments import Settings, check_decode
from gpupreload.dataset import SERVED_ALREADY, GPUPreloadDataset
from gpupreload.keywords import check_keywords
from gpupreload.placement import Placement
from gpupreload.resident import check_not_preloaded
from gpupreload.source import FolderOptions, Transform, open_source


def preload(
    data: str | os.PathLike[str] | Any,
    transform: Transform | None = None,
    *,
    device: str | torch.device | None = None,
    seed: int | None = None,
    workers: int | None = None,
    progress: bool = True,
    store_size: tuple[int, int] | None = None,
    cache: bool | str | os.PathLike[str] = False,
    cache_key: str | None = None,
    shard: bool | tuple[int, int] = False,
    placement: Placement = "auto",
    **folder: Unpack[FolderOptions],
) -> GPUPreloadDataset:
    """Decode every image once, run the deterministic part once, and keep the pixels on the device.

    The transform is divided by `split_transform`: nothing random runs now and is kept.

    Args:
        data: a folder of class folders, an `ImageFolder` (its transforms, loader and file filter
            are honoured), or any map-style dataset of (PIL image or uint8 tensor, int).
        transform: a torchvision transform, unchanged; None takes the dataset's own. Its settings
            are read now: after changing one, assign `dataset.transform` again.
        device: None means CUDA if there is one, else MPS, else the CPU.
        seed: of the random draws; None draws one number from torch's global generator.
        workers: number of decoding threads; None takes one for each CPU.
        progress: whether a bar is shown while loading.
        store_size: (height, width) in pixels to which every image is resized and centre-cropped
            once, before a random crop that photos of different sizes cannot go without.
        cache: True, or the path of a folder, keeps the pixels in a file there, from which the
            next preload of the same files with the same once-part reads them; see the README for
            what "the same" means. `report.cache` says what came of it.
        cache_key: a text that stands for steps and loaders of your own, without which nothing is
            kept where there are such; change it whenever they change.
        shard: True where each process of `torch.distributed` is to decode and hold only its share
            of the samples, or the pair (rank, world_size). Samples are dealt out by a fixed
            permutation, the same in every run. A `Loader` then shuffles within the shard; a sample
            looks as it would in one process.
        placement: where the images are kept; batches are the same everywhere. "device"; "mixed",
            as many there as fit and the others in the host's memory; "host"; "disk", in the
            cache's file, which is written if it is not there (in the user's cache where `cache`
            names no folder); or "auto", the first of these that has room and leaves a tenth of the
            memory free. Below an accelerator each batch is gathered while the one before is used.
            On the CPU, where all memory is one, "mixed" is half and half.
        **folder: for the path of a folder: `classes`, `extensions`, `allow_empty`, `on_unknown`;
            for that or an `ImageFolder`: `mode`, `exif_orientation`, `decode`, `on_error`; see
            `gpupreload.source.FolderOptions`.

    Returns:
        The dataset. Preloading the same files with the same once-part again, while it lives,
        shares its images and takes no time. Changed files are loaded anew, and so are those whose
        images in the store were written to, and any dataset that is not made of files, for its
        contents cannot be compared.

    Raises:
        DoesNotFitError: the device has not the memory; before any image is decoded.
        FolderError, UnreadableError, SizeError, DataError, TransformError, DeviceError: the data,
            the transform or the device cannot be used.
        TypeError: there is no such argument; the message says which may be meant.
    """
    check_keywords(preload, folder)
    check_not_preloaded(data, SERVED_ALREADY)
    settings = Settings.checked(device, seed, workers, progress, cache, cache_key, shard, placement)
    check_decode(folder.get("decode"), settings.device)
    source = open_source(data, **folder)
    return GPUPreloadDataset._preloaded(source, transform, store_size, settings)
