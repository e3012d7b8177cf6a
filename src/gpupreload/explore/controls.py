"""Controls of ipywidgets that a keyboard and a screen reader reach: each has a name of its own.

ipywidgets' sliders have no name that a screen reader would tell. So each slider goes with a box for
the same number, which has one and takes the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        high: the largest.
        step: from one number to the next; an int where only whole numbers are expected.
        changed: called after each change.
        live: whether a slider that is being dragged reports on its way.
        slider_width: in CSS pixels.
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
        slider_width: int = 150,
    ) -> None:
        is_whole = isinstance(step, int)
        slider = widgets.IntSlider if is_whole else widgets.FloatSlider
        bounds = {"min": low, "max": high, "step": step, "value": value}
        self._box = _box(name, 118, is_whole, bounds)
        layout = _slider_layout(slider_width)
        self._slider = slider(readout=False, continuous_update=live, layout=layout, **bounds)
        self._box.observe(self._from_box, "value")
        self._slider.observe(self._from_slider, "value")
        self._changed = changed
        self.widget = widgets.HBox([self._box, self._slider], layout=_row_layout())

    def _from_slider(self, change: Any) -> None:
        if not is_echo(self._slider.value, self._box.value, self._slider.step):
            self._box.value = _rounded(self._slider.value)

    def _from_box(self, change: Any) -> None:
        self._slider.value = self._box.value
        self._changed()

    @property
    def value(self) -> float:
        """The number."""
        return _rounded(self._box.value)

    @value.setter
    def value(self, value: float) -> None:
        self._box.value = value

    def enable(self, on: bool) -> None:
        """Let it be changed, or not."""
        self._box.disabled = self._slider.disabled = not on


class RangeControl:
    """A slider with two handles, and two boxes with names, for a pair of numbers."""

    def __init__(self, knob: Knob, changed: Callable[[], None], *, live: bool = True) -> None:
        slider = widgets.IntRangeSlider if knob.is_whole else widgets.FloatRangeSlider
        bounds = {"min": knob.low, "max": knob.high, "step": knob.step}
        self._boxes = [
            _box(f"{knob.name} {end}", width, knob.is_whole, {**bounds, "value": value})
            for end, width, value in zip(("from", "to"), (118, 100), knob.value, strict=True)
        ]
        layout = _slider_layout(86)
        self._slider = slider(
            value=knob.value, readout=False, continuous_update=live, layout=layout, **bounds
        )
        self._changed, self._is_syncing = changed, False
        self._slider.observe(self._from_slider, "value")
        for box in self._boxes:
            box.observe(self._from_box, "value")
        self.widget = widgets.HBox([*self._boxes, self._slider], layout=_row_layout())

    def _from_slider(self, change: Any) -> None:
        pairs = zip(self._slider.value, self.value, strict=True)
        if not all(is_echo(new, old, self._slider.step) for new, old in pairs):
            self.value = self._slider.value

    def _from_box(self, change: Any) -> None:
        if self._is_syncing:
            return
        low, high = (box.value for box in self._boxes)
        is_low = change["owner"] is self._boxes[0]
        self.value = (low, max(low, high)) if is_low else (min(low, high), high)

    @property
    def value(self) -> tuple[float, float]:
        """The pair."""
        low, high = (_rounded(box.value) for box in self._boxes)
        return low, high

    @value.setter
    def value(self, value: tuple[float, float]) -> None:
        self._is_syncing = True
        for box, number in zip(self._boxes, value, strict=True):
            box.value = _rounded(number)
        self._slider.value = self.value
        self._is_syncing = False
        self._changed()

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
            style={"description_width": NAME_WIDTH},
            layout=widgets.Layout(width="350px"),
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
            style={"description_width": "40px"},
            layout=widgets.Layout(width="auto", max_width="900px"),
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


def is_echo(new: float, old: float, step: float) -> bool:
    """Whether a slider reports nothing but the number that it was given.

    A slider in the browser moves what it is given to its next step, and reports that as a change.

    >>> is_echo(0.5, 0.52, 0.05), is_echo(0.55, 0.5, 0.05)
    (True, False)
    """
    return abs(new - old) <= step / 2 + 1e-9


def _rounded(value: float) -> float:
    """Without the rounding errors of a slider's steps."""
    return value if isinstance(value, int) else round(value, 4)


def _box(name: str, name_width: int, is_whole: bool, bounds: Mapping[str, Any]) -> Any:
    name_width = max(name_width, 7 * len(name) + 4)
    return (widgets.BoundedIntText if is_whole else widgets.BoundedFloatText)(
        description=name,
        tooltip=f"{bounds['min']:g} to {bounds['max']:g}",
        style={"description_width": f"{name_width}px"},
        layout=widgets.Layout(width=f"{name_width + 74}px", flex="0 0 auto"),
        **{**bounds, "value": _rounded(bounds["value"])},
    )


def _slider_layout(width: int) -> Any:
    return widgets.Layout(width=f"{width}px", flex=f"0 1 {width}px", min_width="60px")


def _row_layout() -> Any:
    return widgets.Layout(flex_flow="row wrap", overflow="visible")
