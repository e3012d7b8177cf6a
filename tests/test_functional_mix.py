"""MixUp and CutMix with a weight for each row, against torchvision's with one for the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torchvision.transforms.v2 as v2
from torch import Tensor

from gpupreload.errors import ArgumentError
from gpupreload.functional import chunks, mix

N, K = 7, 4
PARTNER = torch.arange(N).roll(1)
LAM = torch.tensor([0.0, 1.0, 0.5, 0.123, 0.987, 0.3, 0.7], dtype=torch.float64)
BOXES = torch.tensor(
    [
        [0, 0, 18, 13],  # all
        [5, 5, 5, 9],  # nothing
        [3, 2, 17, 4],
        [0, 12, 1, 13],
        [17, 0, 18, 1],
        [2, 1, 9, 12],
        [4, 4, 4, 4],
    ]
)
LABELS = torch.tensor([0, 1, 2, 3, 3, 0, 2])


@pytest.fixture(params=["in chunks of 2", "in one piece"], autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways through a batch: the CPU's, and that of accelerators and compiled graphs."""
    torch.manual_seed(0)
    if request.param == "in one piece":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        monkeypatch.setattr(chunks, "_ELEMENTS_A_CHUNK", 2 * 3 * 13 * 18)


def batch(dtype: torch.dtype = torch.float32, channels: int = 3) -> Tensor:
    """Images of noise."""
    images = torch.randint(0, 256, (N, channels, 13, 18), dtype=torch.uint8)
    return images if dtype == torch.uint8 else (images / 255).to(dtype)


def torchvisions(step: Any, inputs: Tensor, **params: Any) -> Tensor:
    """What a torchvision step makes of a batch with the parameters given."""
    given = {"labels": LABELS, "batch_size": N, **params}
    result: Tensor = step.transform(inputs, given)
    return result


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_row_is_mixed_as_torchvision_mixes_it_with_its_weight(
    channels: int, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """Row i is row i of torchvision's MixUp of the batch with the weight i, bit for bit."""
    images = batch(dtype, channels).contiguous(memory_format=layout)
    kept = images.clone()
    found = mix.mixup(images, PARTNER, LAM)
    for i, lam in enumerate(LAM.tolist()):
        expected = torchvisions(v2.MixUp(num_classes=K), images, lam=lam)[i]
        # float16 is calculated in float32 and rounded once
        atol = 1e-3 if dtype == torch.float16 else 0
        torch.testing.assert_close(found[i], expected, rtol=0, atol=atol)
    assert found.is_contiguous(memory_format=layout)
    assert torch.equal(images, kept)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32], ids=str)
@pytest.mark.parametrize("channels", [1, 3])
def test_each_row_gets_its_box_as_torchvision_cuts_it(
    channels: int, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    """Row i is row i of torchvision's CutMix of the batch with the box i, bit for bit."""
    images = batch(dtype, channels).contiguous(memory_format=layout)
    kept = images.clone()
    found = mix.cutmix(images, PARTNER, BOXES)
    for i, box in enumerate(BOXES.tolist()):
        expected = torchvisions(v2.CutMix(num_classes=K), images, box=tuple(box))[i]
        assert torch.equal(found[i], expected)
    assert found.is_contiguous(memory_format=layout)
    assert torch.equal(images, kept)
    assert found.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()


@pytest.mark.parametrize("soft", [False, True])
def test_labels_are_mixed_as_torchvision_mixes_them(soft: bool) -> None:
    """Class numbers and probabilities alike, in float32."""
    labels = torch.rand(N, K) if soft else LABELS
    found = mix.soft_labels(labels, PARTNER, LAM, None if soft else K)
    assert found.dtype == torch.float32
    for i, lam in enumerate(LAM.tolist()):
        expected = v2.MixUp(num_classes=K)._mixup_label(labels, lam=lam)[i]
        assert torch.equal(found[i], expected)


def test_boxes_are_those_that_torchvision_cuts() -> None:
    """From the weights and centers that torchvision draws come its boxes and adjusted weights."""
    step, images = v2.CutMix(num_classes=K), batch()
    for seed in range(50):
        torch.manual_seed(seed)
        expected = step.make_params([images])
        torch.manual_seed(seed)
        lam, x, y = step._dist.sample(), torch.randint(18, (1,)), torch.randint(13, (1,))
        boxes = mix.cutmix_boxes(x, y, lam, height=13, width=18)
        assert boxes.tolist() == [list(expected["box"])]
        assert mix.cutmix_lam(boxes, height=13, width=18).item() == expected["lam_adjusted"]


def test_the_weight_of_a_label_is_what_its_box_leaves() -> None:
    """A box clamped at the border takes its own area, whatever was drawn."""
    found = mix.cutmix_lam(BOXES, height=13, width=18)
    taken = torch.zeros(N, 13, 18)
    for i, (x1, y1, x2, y2) in enumerate(BOXES.tolist()):
        taken[i, y1:y2, x1:x2] = 1
    assert torch.allclose(found, 1 - taken.mean((1, 2), dtype=torch.float64))


def test_any_partner_may_be_chosen() -> None:
    """A row may be its own partner, or that of several."""
    images, lam = batch(), torch.full((N,), 0.25)
    found = mix.mixup(images, torch.zeros(N, dtype=torch.int64), lam)
    assert torch.allclose(found, 0.25 * images + 0.75 * images[0])


@pytest.mark.parametrize("n", [0, 1])
def test_no_row_and_one_row_are_batches_too(n: int) -> None:
    """A batch of none gives none; a single row is mixed with itself."""
    images, partner = batch()[:n], torch.zeros(n, dtype=torch.int64)
    assert torch.allclose(mix.mixup(images, partner, LAM[:n]), images)
    assert torch.equal(mix.cutmix(images, partner, BOXES[:n]), images)
    assert mix.soft_labels(LABELS[:n], partner, LAM[:n], K).shape == (n, K)


def test_nothing_waits_for_the_device() -> None:
    """No kernel reads a value back from the device: they run on tensors that have none."""
    images, labels = batch().to("meta"), LABELS.to("meta")
    assert mix.mixup(images, PARTNER, LAM).shape == images.shape
    assert mix.cutmix(images, PARTNER, BOXES).shape == images.shape
    assert mix.soft_labels(labels, PARTNER, LAM, K).shape == (N, K)


def test_labels_that_are_no_class_are_not_a_number() -> None:
    """Where labels cannot be looked at, a wrong one is seen in the loss."""
    found = mix.one_hot(torch.tensor([0, 4, -1]), 4)
    assert found[0].tolist() == [1, 0, 0, 0]
    assert found[1:].isnan().all()


def refusal(*args: Any) -> str:
    """The message with which `soft_labels` refuses its arguments, on the CPU's way."""
    with pytest.raises(ArgumentError) as caught:
        mix.soft_labels(*args)
    return str(caught.value)


def test_images_of_bytes_are_converted_before_they_are_mixed() -> None:
    """MixUp is for floats, as torchvision's is."""
    with pytest.raises(ArgumentError) as caught:
        mix.mixup(batch(torch.uint8), PARTNER, LAM)
    assert str(caught.value) == (
        "images must be floats to be mixed, got a torch.uint8 tensor of shape (7, 3, 13, 18). "
        "Convert them before, with v2.ToDtype(torch.float32, scale=True)."
    )


def test_labels_and_the_number_of_classes_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels need a number of classes that is theirs, and are numbers below it."""
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
    assert refusal(LABELS, PARTNER, LAM) == (
        "labels is a torch.int64 tensor of shape (7,) and num_classes is None; expected labels [N] "
        "with num_classes, or probabilities [N, num_classes]."
    )
    assert refusal(torch.rand(N, 3), PARTNER, LAM, K) == (
        "labels is a torch.float32 tensor of shape (7, 3) and num_classes is 4; expected labels "
        "[N] with num_classes, or probabilities [N, num_classes]."
    )
    assert refusal(LABELS, PARTNER, LAM, 3) == (
        "labels run from 0 to 3; expected 0 to 2, for num_classes is 3. "
        "Correct the labels or num_classes."
    )
    assert refusal(LABELS.float(), PARTNER, LAM, K) == (
        "labels is a torch.float32 tensor of shape (7,); expected the numbers of classes as int64."
    )
