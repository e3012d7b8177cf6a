"""The widget behind `gpupreload.explore`: a thin layer over `recipe` and `pictures`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
from torchvision.transforms import v2

from gpupreload.class_names import name_of_label
from gpupreload.dataset import GPUPreloadDataset
from gpupreload.errors import ArgumentError
from gpupreload.explore import markup, still
from gpupreload.explore.controls import (
    NAME_WIDTH,
    CodeBox,
    Control,
    NumberControl,
    close_all,
    control_of,
)
from gpupreload.explore.knobs import knobs_of
from gpupreload.explore.pictures import VIEWS, Look, Rendered, render
from gpupreload.explore.recipe import Recipe
from gpupreload.table import counted

HIGHEST_EPOCH = 99
# more pixels in one picture than this take longer than 50 ms to draw
_MOST_PIXELS_WHILE_DRAGGING = 16 * 128 * 128


@dataclass(frozen=True)
class StepControls:
    """The controls of one random step: whether it runs, and what it is set to."""

    position: int
    ticked: Any
    controls: Mapping[str, Control]
    at_first: Mapping[str, Any]

    @property
    def changes(self) -> dict[str, Any]:
        """The arguments that are set to another value than at first, by name."""
        values = {name: control.value for name, control in self.controls.items()}
        # an argument that is left alone stays as it was given, to the last digit
        return {name: value for name, value in values.items() if value != self.at_first[name]}


class Explorer:
    """A widget that shows what the augmentation of a dataset does, and lets it be changed.

    As the last value of a cell it is shown. `gpupreload.explore` makes it.

    Args:
        dataset: preloaded; neither it nor its transform is changed.
        look: what is looked at first.

    Attributes:
        widget: the whole of it, to be put into other widgets.
        view, label, photo, epoch, seed: the controls of what is looked at; each has a `value`.
        steps: the controls of each random step by its name: `ticked.value`, and `controls` by the
            names of its arguments, each with a `value`.
        recipe: the steps as they are set.
        error: what went wrong in drawing the picture, or "".
    """

    def __init__(self, dataset: GPUPreloadDataset, look: Look) -> None:
        self.error = self._says = ""
        self._dataset, self._n, self._is_quiet = dataset, look.n, True
        self._given = self.recipe = Recipe.of(dataset)
        self._rendered: Rendered | None = None
        height, width = dataset.view.store.form.shape[2:]
        quick = look.n * height * width <= _MOST_PIXELS_WHILE_DRAGGING
        self._live = quick and not dataset.each_batch.slow_steps
        self._make_look_controls(look)
        self.steps = dict(self._step_controls())
        self._picture, self._status, self._alert = (widgets.HTML() for _ in range(3))
        self._code = CodeBox("code")
        self.widget = self._laid_out()
        self._is_quiet = False
        self._changed()

    # --- what is set

    @property
    def look(self) -> Look:
        """What is looked at: view, photo, epoch and seed."""
        return Look(
            self.view.value,
            int(self.photo.value),
            int(self.epoch.value),
            _seed_of(self.seed.value),
            self._n,
        )

    @property
    def transform(self) -> v2.Compose:
        """The transform as it is set, to be passed to `gpupreload.preload` or an `ImageFolder`."""
        return self.recipe.transform

    @property
    def code(self) -> str:
        """The transform as it is set, as Python."""
        return self._code.code

    @property
    def says(self) -> str:
        """What is shown, in one sentence; what went wrong, where nothing can be shown."""
        return self.error or self._says

    # --- the controls

    def _make_look_controls(self, look: Look) -> None:
        dataset, changed = self._dataset, self._changed
        self.view = widgets.ToggleButtons(
            options=VIEWS,
            value=look.view,
            style={"button_width": "auto"},
        )
        self.view.observe(lambda change: changed(), "value")
        self.label = widgets.Dropdown(
            options=self._classes(),
            value=dataset.targets[look.index],
            description="class",
            style={"description_width": NAME_WIDTH},
            layout=widgets.Layout(width="350px"),
        )
        self.label.observe(self._show_class, "value")
        self.photo = NumberControl(
            "photo", look.index, 0, len(dataset) - 1, 1, self._show_photo, live=self._live
        )
        highest = max(HIGHEST_EPOCH, look.epoch)
        self.epoch = NumberControl(
            "epoch", look.epoch, 0, highest, 1, changed, live=self._live, slider_width=260
        )
        # a seed of 63 bits is too large for a browser's numbers
        self.seed = widgets.Text(
            description="seed",
            value=str(look.seed),
            continuous_update=False,
            style={"description_width": NAME_WIDTH},
            layout=widgets.Layout(width="350px"),
        )
        self.seed.observe(lambda change: changed(), "value")

    def _classes(self) -> list[tuple[str, int]]:
        """The name and number of each class, and of each label that is none, as after an edit."""
        names = self._dataset.classes
        numbers = sorted({*range(len(names)), *self._dataset.targets})
        return [(name_of_label(number, names), number) for number in numbers]

    def _step_controls(self) -> Iterator[tuple[str, StepControls]]:
        """Yield the controls of each random step, by its class's name and a number if need be."""
        taken: set[str] = set()
        for position, part in enumerate(self._given.parts):
            if not part.is_random:
                continue
            transform = part.given.transform
            name = kind = getattr(transform, "__name__", type(transform).__name__)
            while name in taken:
                name = f"{kind} {len(taken) + 1}"
            taken.add(name)
            ticked = widgets.Checkbox(description=name, value=True, indent=False)
            ticked.observe(lambda change: self._changed(), "value")
            controls = {
                knob.name: control_of(knob, self._changed, live=self._live)
                for knob in knobs_of(transform)
            }
            at_first = {name: control.value for name, control in controls.items()}
            yield name, StepControls(position, ticked, controls, at_first)

    def _laid_out(self) -> Any:
        """The view and the photo above; picture and steps, side by side where there is room; code.

        The picture's width does not depend on the view, so that nothing jumps when it is changed.
        """
        photo = widgets.VBox([self.label, self.photo.widget])
        draw = widgets.VBox([self.epoch.widget, self.seed])
        steps = [
            widgets.VBox([step.ticked, *(control.widget for control in step.controls.values())])
            for step in self.steps.values()
        ]
        nothing = [] if steps else [widgets.HTML("No step of this transform is random.")]
        left = widgets.VBox([self._alert, self._picture, self._status])
        left.layout = widgets.Layout(width="600px", max_width="100%", margin="0 16px 0 0")
        right = widgets.VBox([*steps, *nothing])
        right.layout = widgets.Layout(flex="1 1 440px", max_width="100%", min_width="0")
        wrap = widgets.Layout(flex_flow="row wrap")
        above = widgets.HBox([photo, draw], layout=wrap)
        shown = widgets.HBox([left, right], layout=wrap)
        return widgets.VBox([self.view, above, shown, self._code.widget])

    # --- what happens when they are used

    def _show_class(self, change: Any) -> None:
        """Go to the first photo of the class, if the one shown is of another."""
        if self._is_quiet:
            return
        wanted, targets = self.label.value, self._dataset.targets
        if targets[int(self.photo.value)] != wanted and wanted in targets:
            self.photo.value = targets.index(wanted)

    def _show_photo(self) -> None:
        label = self._dataset.targets[int(self.photo.value)]
        with self._quietly():
            known = {number for _, number in self.label.options}
            if label not in known:  # labels were edited meanwhile
                self.label.options = self._classes()
            self.label.value = label
        self._changed()

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        before, self._is_quiet = self._is_quiet, True
        try:
            yield
        finally:
            self._is_quiet = before

    def _changed(self) -> None:
        """Draw anew. An error is shown, for in a callback nobody would see it."""
        if self._is_quiet:
            return
        try:
            self._update()
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            self._status.value = ""
            if "opacity" not in self._picture.value[:20]:
                self._picture.value = markup.faded(self._picture.value)
        else:
            self.error = ""
        self._alert.value = markup.alert(self.error)

    def _update(self) -> None:
        recipe = self._given
        for step in self.steps.values():
            on = step.ticked.value
            for control in step.controls.values():
                control.enable(on)
            recipe = recipe.changed(step.position, on=on, changes=step.changes)
        self.recipe = recipe
        self._code.code = recipe.code
        look = self.look
        self._rendered = rendered = render(self._dataset, recipe, look)
        label = name_of_label(self._dataset.targets[look.index], self._dataset.classes)
        where = f"photo {look.index} ({label}), epoch {look.epoch}"
        alt = f"{rendered.left}; {rendered.right}; {where}"
        self._picture.value = markup.picture(rendered.pixels, alt, rendered.headings)
        self._says = f"{where}: {rendered.says}."
        self._status.value = markup.status(self._says)

    def close(self) -> None:
        """Take the widget away, and let the dataset go."""
        close_all(self.widget)

    # --- shown in a notebook

    def __repr__(self) -> str:
        photos = counted(len(self._dataset.targets), "photo")
        return f"Explorer of {photos}: {counted(len(self.steps), 'random step')}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The widget, and a picture and a line of text for where no widget can live."""
        bundle = dict(self.widget._repr_mimebundle_(**kwargs))
        bundle["text/plain"] = repr(self)
        if self._rendered is not None:
            pixels = still.sized(self._rendered.pixels)
            width = pixels.shape[1]
            headings = still.headings(self._rendered.headings, width)
            bundle |= still.as_stored([headings, pixels, still.sentence(self.says, width)])
        return bundle


def _seed_of(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"seed is {text!r}; expected a whole number, such as 0.") from None
