"""Controls of ipywidgets that a keyboard and a screen reader reach: each has a name of its own.

ipywidgets' sliders have no name that a screen reader would tell. So each slider goes with a box for
the same number, which has one and takes the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ipywidgets as widgets

from gpupreload.explore.knobs import Knob

NAME_WIDTH = "118px"
_CHARACTERS = 110  # in a line of a code box


class Control(Protocol):
    """Something to set one value with."""

    widget: Any

    @property
    def value(self) -> Any:
        """The value as it is set."""

    @value.setter
    def value(self, value: Any) -> None: ...

    def enable(self, on: bool) -> None:
        """Let it be changed, or not."""


class NumberControl:
    """A slider, and a box with a name, for one number.

    Args:
        name: shown before the box.
        value: at first.
        low: the least.
        high: the largest that the slider reaches.
        step: from one number to the next; an int where only whole numbers are expected.
        changed: called after each change.
        live: whether a slider that is being dragged reports on its way.
    """

    def __init__(
        self,
        name: str,
        value: float,
        low: float,
        high: float,
        step: float,
        changed: Callable[[], None],
        *,
        live: bool = True,
    ) -> None:
        whole = isinstance(step, int)
        slider, box = (
            (widgets.IntSlider, widgets.BoundedIntText)
            if whole
            else (widgets.FloatSlider, widgets.BoundedFloatText)
        )
        bounds = {"min": low, "max": high, "step": step, "value": value}
        self._box = box(description=name, style=_style(), layout=_box_layout("188px"), **bounds)
        self._slider = slider(
            readout=False, continuous_update=live, layout=_slider_layout(), **bounds
        )
        widgets.link((self._box, "value"), (self._slider, "value"))
        self._slider.observe(lambda change: changed(), "value")
        self.widget = widgets.HBox([self._box, self._slider], layout=_row_layout())

    @property
    def value(self) -> float:
        """The number, without the slider's rounding errors."""
        return _plain(self._slider.value)

    @value.setter
    def value(self, value: float) -> None:
        self._box.value = value

    def enable(self, on: bool) -> None:
        """Let it be changed, or not."""
        self._box.disabled = self._slider.disabled = not on


class RangeControl:
    """A slider with two handles, and two boxes with names, for a pair of numbers."""

    def __init__(self, knob: Knob, changed: Callable[[], None], *, live: bool = True) -> None:
        whole = knob.is_whole
        slider, box = (
            (widgets.IntRangeSlider, widgets.BoundedIntText)
            if whole
            else (widgets.FloatRangeSlider, widgets.BoundedFloatText)
        )
        bounds = {"min": knob.low, "max": knob.high, "step": knob.step}
        self._boxes = [
            box(
                description=f"{knob.name} {end}",
                value=value,
                style=_style() if end == "from" else {"description_width": "92px"},
                layout=_box_layout("188px" if end == "from" else "160px"),
                **bounds,
            )
            for end, value in zip(("from", "to"), knob.value, strict=True)
        ]
        self._slider = slider(
            value=knob.value,
            readout=False,
            continuous_update=live,
            layout=_slider_layout(),
            **bounds,
        )
        self._changed, self._is_syncing = changed, False
        self._slider.observe(self._from_slider, "value")
        for box_ in self._boxes:
            box_.observe(self._from_box, "value")
        self.widget = widgets.HBox([*self._boxes, self._slider], layout=_row_layout())

    def _from_slider(self, change: Any) -> None:
        self._is_syncing = True  # or else the first box, set alone, would set the slider again
        for box, value in zip(self._boxes, self._slider.value, strict=True):
            box.value = value
        self._is_syncing = False
        self._changed()

    def _from_box(self, change: Any) -> None:
        if self._is_syncing:
            return
        low, high = (box.value for box in self._boxes)
        is_low = change["owner"] is self._boxes[0]
        self._slider.value = (low, max(low, high)) if is_low else (min(low, high), high)

    @property
    def value(self) -> tuple[float, float]:
        """The pair, without the slider's rounding errors."""
        low, high = self._slider.value
        return _plain(low), _plain(high)

    @value.setter
    def value(self, value: tuple[float, float]) -> None:
        self._slider.value = value

    def enable(self, on: bool) -> None:
        """Let it be changed, or not."""
        for control in (*self._boxes, self._slider):
            control.disabled = not on


class ChoiceControl:
    """A list to choose from, with a name.

    Args:
        name: shown before the list.
        choices: (label, value) pairs.
        value: at first.
        changed: called after each change.
    """

    def __init__(
        self,
        name: str,
        choices: Sequence[tuple[str, Any]],
        value: Any,
        changed: Callable[[], None],
    ) -> None:
        self.widget = widgets.Dropdown(
            options=list(choices),
            value=value,
            description=name,
            style=_style(),
            layout=_box_layout("280px"),
        )
        self.widget.observe(lambda change: changed(), "value")

    @property
    def value(self) -> Any:
        """The choice."""
        return self.widget.value

    @value.setter
    def value(self, value: Any) -> None:
        self.widget.value = value

    def enable(self, on: bool) -> None:
        """Let it be changed, or not."""
        self.widget.disabled = not on


def control_of(knob: Knob, changed: Callable[[], None], *, live: bool = True) -> Control:
    """Make the control for one argument of a step."""
    if knob.kind == "choice":
        return ChoiceControl(knob.name, knob.choices, knob.value, changed)
    if knob.kind == "range":
        return RangeControl(knob, changed, live=live)
    return NumberControl(knob.name, knob.value, knob.low, knob.high, knob.step, changed, live=live)


class CodeBox:
    """Code to be selected and copied; what is typed into it is put back."""

    def __init__(self, name: str) -> None:
        self._code = ""
        self.widget = widgets.Textarea(
            description=name,
            style=_style("60px"),
            layout=widgets.Layout(width="100%", max_width="1000px"),
        )
        self.widget.observe(self._put_back, "value")

    @property
    def code(self) -> str:
        """The code."""
        return self._code

    @code.setter
    def code(self, code: str) -> None:
        self._code = code
        self.widget.rows = 1 + sum(1 + len(line) // _CHARACTERS for line in code.splitlines())
        self.widget.value = code

    def _put_back(self, change: Any) -> None:
        if self.widget.value != self._code:
            self.widget.value = self._code


def close_all(widget: Any) -> None:
    """Close a widget and all that it holds, which ipywidgets keeps alive until then."""
    for child in getattr(widget, "children", ()):
        close_all(child)
    widget.close()


def _plain(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)


def _style(name_width: str = NAME_WIDTH) -> dict[str, str]:
    return {"description_width": name_width}


def _box_layout(width: str) -> Any:
    return widgets.Layout(width=width, flex="0 0 auto")


def _slider_layout() -> Any:
    return widgets.Layout(width="150px", flex="0 1 150px", min_width="80px")


def _row_layout() -> Any:
    return widgets.Layout(flex_flow="row wrap", overflow="visible")
