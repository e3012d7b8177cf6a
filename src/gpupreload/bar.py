"""The progress bar: text in a terminal, a widget in a notebook."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Advance = Callable[[int], None]


@contextmanager
def bar(n_images: int, n_bytes: int, title: str, shown: bool) -> Iterator[Advance]:
    """Show a progress bar of images, images/s and MiB; yield what moves it on by some images.

    Args:
        n_images: in all.
        n_bytes: in all; 0 shows none.
        title: before the bar.
        shown: whether anything is shown.
    """
    if not shown:  # not even tqdm's own thread
        yield lambda n_more: None
        return
    with _tqdm()(total=n_images, unit=" images", desc=title) as shown_bar:

        def advance(n_more: int) -> None:
            shown_bar.update(n_more)
            done = n_bytes * shown_bar.n // max(1, n_images)
            if n_bytes:
                shown_bar.set_postfix_str(f"{done / 2**20:.1f} MiB", refresh=False)

        yield advance


def _tqdm() -> Any:
    """Return tqdm's bar for where this runs: in a notebook a widget, or text without ipywidgets.

    Imported on call, for in a notebook this imports ipywidgets.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that ipywidgets is missing is no fault: text will do
        from tqdm.auto import tqdm
    return tqdm
