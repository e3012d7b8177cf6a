"""The widget behind `gpupreload.explore_plan`: a thin layer over `planning`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as widgets

from gpupreload.explore import markup, still
from gpupreload.explore.controls import ChoiceControl, CodeBox, NumberControl, close_all
from gpupreload.explore.planning import Need, code_of_data, some_photos, strip
from gpupreload.planned import Plan
from gpupreload.source import Source
from gpupreload.table import counted

_SMALLEST, _LARGEST = 16, 512  # pixels


class PlanExplorer:
    """A widget that shows what a preload would take of a device's memory, for a size to choose.

    As the last value of a cell it is shown. `gpupreload.explore_plan` makes it.

    Args:
        source: the data.
        data: as the caller gave it.
        plan: of it, at the first size.
        options: further arguments of `preload`, by name.

    Attributes:
        widget: the whole of it, to be put into other widgets.
        need: what is shown, as numbers.
    """

    def __init__(self, source: Source, data: Any, plan: Plan, options: Mapping[str, Any]) -> None:
        self._plan, self._data, self._options = plan, code_of_data(data), options
        self._photos, self._names = some_photos(source)
        self._headings = [(name, 1 / len(self._names)) for name in self._names]
        size = plan.shape[1]
        changed = self._changed
        self.size = NumberControl("image size", size, _SMALLEST, _LARGEST, 8, changed)
        self.kept = ChoiceControl(
            "dtype",
            [
                ("uint8: as preload keeps them", "uint8"),
                ("float32: as_tensor_dataset()", "float32"),
            ],
            "uint8",
            changed,
        )
        self.margin = NumberControl("margin in %", 10, 0, 90, 1, changed)
        self._status, self._bar, self._strip = (widgets.HTML() for _ in range(3))
        self._code = CodeBox("code")
        controls = widgets.VBox([self.size.widget, self.kept.widget, self.margin.widget])
        classes = widgets.HTML(_classes(plan))
        shown = [self._status, self._bar, self._strip, classes, self._code.widget]
        self.widget = widgets.VBox([controls, *shown])
        self._changed()

    @property
    def need(self) -> Need:
        """What would be taken, as it is set."""
        size, margin = int(self.size.value), self.margin.value / 100
        return Need(self._plan, size, self.kept.value, margin)

    @property
    def code(self) -> str:
        """The call of `preload`, as Python."""
        return self._code.code

    def _changed(self) -> None:
        need = self.need
        self._status.value = markup.status(need.verdict)
        alt = "; ".join(segment.name for segment in need.segments)
        self._bar.value = markup.stacked_bar(need.segments, alt, need.margin_mark)
        self._pixels = strip(self._photos, need.size)
        alt = f"photos at {need.size}×{need.size} pixels: {', '.join(self._names)}"
        self._strip.value = markup.picture(self._pixels, alt, self._headings)
        self._code.code = need.code(self._data, self._options)

    def close(self) -> None:
        """Take the widget away."""
        close_all(self.widget)

    def __repr__(self) -> str:
        return f"PlanExplorer of {counted(self._plan.n_images, 'image')}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The widget, and a picture and a line of text for where no widget can live."""
        bundle = dict(self.widget._repr_mimebundle_(**kwargs))
        need, pixels = self.need, still.sized(self._pixels)
        width = pixels.shape[1]
        parts = [
            still.sentence(need.verdict, width),
            still.stacked_bar(need.segments, need.margin_mark, width),
            still.headings(self._headings, width),
            pixels,
        ]
        return bundle | still.as_stored(parts) | {"text/plain": repr(self)}


def _classes(plan: Plan) -> str:
    if not plan.class_counts:
        return "The classes are not known before loading."
    return markup.histogram(plan.class_counts)
