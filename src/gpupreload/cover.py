"""The step that `store_size` inserts: shrink or enlarge a picture until it just covers a size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchvision.transforms.v2 import functional as F


@dataclass(frozen=True)
class ResizeToCover:
    """Resize an image, its aspect kept, to the smallest size that covers `size`.

    One side comes out as asked for, the other as asked for or longer; a `CenterCrop(size)` after it
    cuts off what is over. For a square size it does what torchvision's `Resize` does with a single
    number; for others torchvision has no such step, because which side must fit depends on the
    image. The interpolation is torchvision's default, bilinear with antialias.

    Args:
        size: (height, width) to cover, in pixels.

    >>> from PIL import Image
    >>> ResizeToCover((100, 200))(Image.new("RGB", (400, 300))).size  # width 200, height 150
    (200, 150)
    """

    size: tuple[int, int]

    def __call__(self, image: Any) -> Any:
        """Resize a PIL image or a tensor [C, H, W], of any dtype that torchvision resizes."""
        height, width = F.get_size(image)
        new_height, new_width = self.size
        if new_height * width >= new_width * height:
            new_width = new_height * width // height
        else:
            new_height = new_width * height // width
        return F.resize(image, [new_height, new_width])
