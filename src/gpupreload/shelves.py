"""Images kept on the device or below it, with one way to gather rows of them on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from gpupreload.ahead import Ahead
from gpupreload.cache_file import Contents, UnusableError, look, mapped
from gpupreload.errors import LoadingError
from gpupreload.placement import Rung


class Shelf(Protocol):
    """Images [N, C, H, W] on some rung, served on a device. To be read, never written to.

    Attributes:
        device: where rows of them are gathered.
        form: [N, C, H, W] on the device, of their dtype, in no memory: what the images would be
            there as far as shape, dtype and device go. It has no pixels.
    """

    device: torch.device
    form: Tensor

    @property
    def rung(self) -> Rung:
        """Where they are."""

    @property
    def images(self) -> Tensor:
        """The images themselves, in one tensor, wherever they are; a `LoadingError` for `mixed`."""

    @property
    def where(self) -> str:
        """Where they are, in words."""

    def bytes_on(self, device: torch.device) -> int:
        """How many bytes of that device's memory they take."""

    def take(self, rows: Tensor) -> Tensor:
        """Gather rows, int64 [K] on the CPU, into new memory [K, C, H, W] on the device."""

    def blocks(self, rows: Tensor, n_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Gather rows a block at a time, each ahead of its use where that takes time.

        Args:
            rows: int64 [K] on the CPU.
            n_rows: of a block; the last may have fewer.

        Yields:
            Images [M, C, H, W] on the device, and which of them the block's rows are, int64 on the
            device too. The images hold until the next block is asked for, and are not to be
            written to or served.
        """

    def empty(self) -> Shelf:
        """A shelf of no images, for one whose memory was given back."""


class OnDevice:
    """All images in one tensor on the device."""

    rung: Rung = "device"

    def __init__(self, images: Tensor) -> None:
        self.images = self.form = images
        self.device = images.device

    @property
    def where(self) -> str:
        """Where they are, in words."""
        return f"on {self.device}"

    def bytes_on(self, device: torch.device) -> int:
        """How many bytes of that device's memory they take."""
        return self.images.nbytes if device == self.device else 0

    def take(self, rows: Tensor) -> Tensor:
        """Gather rows into new memory."""
        return self.images.index_select(0, rows.to(self.device))

    def blocks(self, rows: Tensor, n_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all images with the rows of each block: there is nothing to be done ahead."""
        for block in _pieces(rows.to(self.device, non_blocking=True), n_rows):
            yield self.images, block

    def empty(self) -> OnDevice:
        """A shelf of no images."""
        return OnDevice(self.images.new_empty(0))


class Below:
    """Images in the host's memory, all of them or those that the device has no room for.

    Args:
        on_host: [M, C, H, W] on the CPU, also mapped from a file.
        device: where they are served.
        on_device: [K, C, H, W] on that device, the images that are there; None without any.
        is_on_device: bool [M + K] on the CPU, which images these are, in order; None without any.
        file: what `on_host` is mapped from; None where it is in memory.
    """

    def __init__(
        self,
        on_host: Tensor,
        device: torch.device,
        *,
        on_device: Tensor | None = None,
        is_on_device: Tensor | None = None,
        file: Contents | None = None,
    ) -> None:
        self._on_host, self.device, self._file = on_host, device, file
        self._on_device, self._is_on_device = on_device, is_on_device
        # where each image is on its side
        self._places: Tensor | None = None
        if is_on_device is not None:
            counts = is_on_device.cumsum(0), (~is_on_device).cumsum(0)
            self._places = torch.where(is_on_device, *counts) - 1
        n_images = len(on_host) + (0 if on_device is None else len(on_device))
        form = torch.empty((), dtype=on_host.dtype, device=device)
        self.form = form.expand(n_images, *on_host.shape[1:])
        self._ahead: list[Ahead] = []

    @property
    def rung(self) -> Rung:
        """Where they are."""
        if self._on_device is not None:
            return "mixed"
        return "host" if self._file is None else "disk"

    @property
    def images(self) -> Tensor:
        """The images in one tensor on the CPU; a `LoadingError` where there is no one tensor."""
        if self._on_device is None:
            return self._on_host
        raise LoadingError(
            f"these images are in no one tensor: placement='mixed' keeps {self.where}. Read them "
            "with dataset[i] or a Loader, or preload with placement='host' to have all of them "
            "in one."
        )

    @property
    def where(self) -> str:
        """Where they are, in words."""
        if self._on_device is not None:
            n_device, n_host = len(self._on_device), len(self._on_host)
            return f"{n_device:,} on {self.device} and {n_host:,} in the host's memory"
        if self._file is not None:
            return f"mapped from a file, for {self.device}"
        return f"in the host's memory, for {self.device}"

    def bytes_on(self, device: torch.device) -> int:
        """How many bytes of that device's memory they take; of a mapped file, none."""
        sides = [self._on_device] if self._file is not None else [self._on_device, self._on_host]
        return sum(side.nbytes for side in sides if side is not None and side.device == device)

    def sides(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
        """Say where rows are, int64 [K] on the CPU.

        Returns:
            The rows of the host's side; those of the device's side, or None; and, with the first
            put before the second, where each of the K then is.
        """
        if self._places is None or self._is_on_device is None:
            return rows, None, torch.arange(len(rows), device="cpu")
        places, is_on_device = self._places[rows], self._is_on_device[rows]
        order = is_on_device.to(torch.uint8).argsort(stable=True)
        at = torch.empty_like(order)
        at[order] = torch.arange(len(rows), device="cpu")
        return places[~is_on_device], places[is_on_device], at

    @property
    def on_host(self) -> Tensor:
        """The host's side, [M, C, H, W] on the CPU."""
        return self._on_host

    @property
    def on_device(self) -> Tensor | None:
        """The device's side, [K, C, H, W], or None."""
        return self._on_device

    def take(self, rows: Tensor) -> Tensor:
        """Gather rows into new memory on the device."""
        host_rows, device_rows, at = self.sides(rows)
        images = self._on_host.index_select(0, host_rows).to(self.device)
        if device_rows is None or self._on_device is None:
            return images
        there = self._on_device.index_select(0, device_rows.to(self.device))
        return torch.cat([images, there]).index_select(0, at.to(self.device))

    def blocks(self, rows: Tensor, n_rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Gather blocks in another thread, each while the one before is used."""
        ahead = self._ahead.pop() if self._ahead else Ahead(self.device)
        yield from ahead.blocks(self, _pieces(rows, n_rows))
        self._ahead = [ahead]

    def split(self, n_rows: int) -> Iterator[Tensor]:
        """All images in order, so many at a time, on the device."""
        for rows in torch.arange(len(self.form), device="cpu").split(n_rows):
            yield self.take(rows)

    @property
    def shape(self) -> torch.Size:
        """[N, C, H, W]."""
        return self.form.shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the pixels."""
        return self.form.dtype

    def empty(self) -> OnDevice:
        """A shelf of no images."""
        return OnDevice(torch.empty(0, dtype=self.dtype, device=self.device))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is not None:
            return _mapped_again, (self._file, self.device)
        return _rebuilt, (self._on_host, self.device, self._on_device, self._is_on_device)


def from_file(contents: Contents, device: torch.device) -> Below:
    """The images of a cache file, which stay there.

    Raises:
        OSError: the file cannot be opened.
    """
    return Below(mapped(contents), device, file=contents)


def _rebuilt(
    on_host: Tensor, device: torch.device, on_device: Tensor | None, is_on_device: Tensor | None
) -> Below:
    return Below(on_host, device, on_device=on_device, is_on_device=is_on_device)


def _mapped_again(contents: Contents, device: torch.device) -> Below:
    """Map the file in another process, where it is what it was."""
    try:
        if look(contents.path).checksums != contents.checksums:
            raise UnusableError
        return from_file(contents, device)
    except (UnusableError, OSError):
        raise LoadingError(
            f"the file {contents.path} that these images are mapped from is not there any "
            "more, so they cannot be read in another process: preload them again, with cache= a "
            "folder and data and steps that can be kept there."
        ) from None


def _pieces(rows: Tensor, n_rows: int) -> list[Tensor]:
    """Rows so many at a time; of none, no piece."""
    return list(rows.split(n_rows)) if len(rows) else []
