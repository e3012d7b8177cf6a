"""The README's table of torchvision's transforms: how each runs, read from the library itself.

`python tools/transforms_table.py` writes it into README.md, between two comments; a test fails
where it is not as this would write it.
"""

from __future__ import annotations

from pathlib import Path

from torchvision import transforms as v1
from torchvision.transforms import v2

from gpupreload.catalog import DETERMINISTIC, OF_ITS_OWN_SIZE, RANDOM, REFUSED
from gpupreload.functional.levels import UNCHANGED_ON_TENSORS
from gpupreload.functional.pixelwise import PIXELWISE
from gpupreload.native.catalog import NATIVE
from gpupreload.native.mixing import MIXING
from gpupreload.stages import ON_BATCHES

README = Path(__file__).parents[1] / "README.md"
START, END = "<!-- transforms: start -->", "<!-- transforms: end -->"

NATIVE_FORM = "native, per sample"
WHOLE_BATCH = "on the whole batch"
BY_SAMPLE = "sample by sample: slow"
REFUSED_HERE = "refused"

_HOLDS = "if all that it holds is native or draws nothing; else sample by sample"
_REMARKS = {
    "Compose": "a chain: each step runs in its own way",
    "CutMix": "at the end, with labels, or as `gp.Loader(..., mix=...)`",
    "MixUp": "at the end, with labels, or as `gp.Loader(..., mix=...)`",
    "JPEG": "encodes and decodes each image by itself",
    "Lambda": "a function of one image; `gp.batched(fn)` runs on the batch",
    "RandomApply": _HOLDS,
    "RandomChoice": f"{_HOLDS}; between MixUp and CutMix too",
    "RandomOrder": f"{_HOLDS}, or where a step may change the size",
    "RandomResizedCrop": "sample by sample with `interpolation=LANCZOS`",
    "RandomRotation": "refused with `expand=True`: images would have sizes of their own",
}
_NO_OP = "does nothing to tensors"
_TO_TENSOR = "does nothing to tensors; in a preload, it makes floats of the kept pixels"


def names() -> list[str]:
    """The names of all public transform classes of v1 and v2, in order."""
    return sorted({*DETERMINISTIC, *RANDOM, *REFUSED, "Compose", "Lambda"}, key=str.lower)


def how(name: str) -> str:
    """How the classes of a name run in `gp.per_sample`, v1 and v2 alike."""
    classes = {getattr(module, name) for module in (v1, v2) if hasattr(module, name)}
    if name in OF_ITS_OWN_SIZE or (name in REFUSED and not classes & set(MIXING)):
        return REFUSED_HERE
    if classes & {*NATIVE, *MIXING}:
        return NATIVE_FORM
    return WHOLE_BATCH if classes & {*PIXELWISE, *ON_BATCHES} else BY_SAMPLE


def remark(name: str) -> str:
    """What else there is to say of a name: the reason of a refusal, or a condition."""
    if how(name) == REFUSED_HERE:
        return {**REFUSED, **OF_ITS_OWN_SIZE}[name]
    if name == "ToTensor":
        return _TO_TENSOR
    if any(cls.__name__ == name for cls in UNCHANGED_ON_TENSORS):
        return _NO_OP
    return _REMARKS.get(name, "")


def markdown() -> str:
    """The table, one row a class."""
    lines = ["| transform | in | in `gp.per_sample` | |", "|---|---|---|---|"]
    for name in names():
        where = ", ".join(label for label, m in (("v1", v1), ("v2", v2)) if hasattr(m, name))
        lines.append(f"| `{name}` | {where} | {how(name)} | {remark(name)} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The README's text with the table as it should be."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{markdown()}\n{END}{after}"


if __name__ == "__main__":
    README.write_text(written(README.read_text(encoding="utf-8")), encoding="utf-8")
