"""Steps of other libraries, called in another way than torchvision's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import gpupreload as gp
from gpupreload.calling import by_name

FLOATS = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
OF_PIL = 'lambda image: aug(image=np.asarray(image))["image"]'
OF_TENSORS = (
    "lambda image: torch.from_numpy(aug(image=image.permute(1, 2, 0).cpu().numpy())"
    '["image"]).permute(2, 0, 1)'
)


class ByName:
    """A step that takes its image by name, and mirrors it."""

    def __call__(self, *, image: Any) -> dict[str, Any]:
        """Mirror an array [H, W, C]."""
        return {"image": np.ascontiguousarray(image[:, ::-1])}


class AnyName:
    """The same, as Albumentations writes it."""

    def __call__(self, *args: Any, force: bool = False, **data: Any) -> dict[str, Any]:
        """Mirror an array [H, W, C]."""
        if args:
            raise KeyError("You have to pass data to augmentations as named arguments")
        return ByName()(image=data["image"])


RAISED = {
    ByName: "TypeError: ByName.__call__() takes 1 positional argument but 2 were given",
    AnyName: "KeyError: 'You have to pass data to augmentations as named arguments'",
}


def said(aug: type, code: str, place: str = "") -> str:
    """What a message says of a step's error, and the code that it gives."""
    error, _, text = RAISED[aug].partition(": ")
    return (
        f"{aug.__name__}(){',' if place else ''} raised {error}{place}: {text}\n"
        f"It takes the image by name: put {code} in its place."
    )


@pytest.mark.parametrize("aug", RAISED)
@pytest.mark.parametrize("mark", [lambda fn: fn, gp.once, gp.live])
def test_a_step_that_takes_its_image_by_name(photo_folder: Path, aug: type, mark: Any) -> None:
    """Where a step takes an image only as image=, the message says how to call it."""
    with pytest.raises(gp.TransformError) as raised:
        gp.preload(photo_folder, [v2.Resize((9, 7)), mark(aug()), *FLOATS], device="cpu")
    text = str(raised.value)
    [file] = [path for path in photo_folder.glob("*/*") if f" on {path}: " in text]
    assert text == f"step 2, {said(aug, OF_PIL, f' on {file}')}"


@pytest.mark.parametrize("aug", RAISED)
def test_a_step_on_tensors_that_takes_its_image_by_name(photo_folder: Path, aug: type) -> None:
    """Where it is given a tensor, the message turns that into an array and back."""
    images = torch.rand(2, 3, 6, 5)
    with pytest.raises(gp.TransformError) as raised:
        gp.per_sample(aug())(images)
    assert str(raised.value) == said(aug, OF_TENSORS)
    ours = gp.GPUPreloadDataset(photo_folder, v2.Resize((9, 7)), aug(), device="cpu")
    with pytest.raises(gp.TransformError) as raised:
        ours[0]
    assert str(raised.value) == said(aug, OF_TENSORS)


def run(code: str) -> Any:
    """The step that a message gives."""
    return eval(code, {"aug": ByName(), "np": np, "torch": torch})


def test_the_call_for_images_works(photo_folder: Path) -> None:
    """What a message puts in the place of a step on PIL images does what the step does."""
    size, step = v2.Resize((9, 7)), run(OF_PIL)
    options: Any = {"device": "cpu", "progress": False}
    plain = gp.preload(photo_folder, [size], **options)
    turned = gp.preload(photo_folder, [size, step], **options)
    assert torch.equal(turned.images, plain.images.flip(3))
    live = gp.preload(photo_folder, [size, gp.live(step), *FLOATS], **options)
    assert torch.equal(live[3][0], FLOATS[1](plain.images[3].flip(2)))


def test_the_call_for_tensors_works() -> None:
    """What a message puts in the place of a step on tensors does what the step does."""
    batch = torch.rand(2, 3, 6, 5)
    assert torch.equal(gp.per_sample(run(OF_TENSORS))(batch), batch.flip(3))


@pytest.mark.parametrize(
    "step", [abs, lambda image: image, lambda *images: images, v2.Resize(4), 3]
)
def test_other_errors_are_left_as_they_are(step: Any) -> None:
    """Of a step that may take its image as it comes, nothing is said."""
    assert by_name(step, np.zeros((4, 4, 3)), TypeError("unsupported operand")) == ""


def test_a_step_on_batches_is_given_no_images_by_name() -> None:
    """How a library of single images could take a batch is not known."""
    assert by_name(ByName(), torch.zeros(2, 3, 4, 4), TypeError("takes 1 argument")) == ""
