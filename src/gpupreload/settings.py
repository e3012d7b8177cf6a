"""What a step is set to: as a name, as code to paste, to be changed, and to be compared."""

from __future__ import annotations

import enum
import functools
import hashlib
import inspect
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpupreload.catalog import kind_of

_LONGEST_NAME = 64
_A_NUMBER_IS_A_SQUARE = ("CenterCrop", "FiveCrop", "RandomCrop", "RandomResizedCrop", "TenCrop")


def name_of(transform: Callable[..., Any]) -> str:
    """Return a short name for a table: a torchvision step with its settings, a function's name.

    >>> from torchvision.transforms import v2
    >>> name_of(v2.Resize(112)), name_of(v2.RandomHorizontalFlip()), name_of(abs)
    ('Resize(112)', 'RandomHorizontalFlip(p=0.5)', 'abs')
    """
    name = _call(transform, "") if kind_of(transform) else _name_of_callable(transform)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def code_of(transform: Callable[..., Any]) -> str:
    """Return Python that makes a torchvision step again, with the names `v2`, `T` and `torch`.

    `T` stands for `torchvision.transforms`. What cannot be written down stands as a name:
    `your_lambda`, `your_Sharpen`; a tensor among the settings stands as `...`.

    >>> from torchvision import transforms
    >>> code_of(transforms.RandomCrop(32, padding=4))
    'T.RandomCrop(32, padding=4)'
    """
    if kind_of(transform):
        return _call(transform, "v2." if ".v2" in type(transform).__module__ else "T.")
    name = getattr(transform, "__name__", "")
    if name.isidentifier():
        return str(name)
    return "your_lambda" if name == "<lambda>" else f"your_{type(transform).__name__}"


def compose_code(codes: Sequence[str], indent: str = "") -> str:
    """Return Python that composes steps, given as code, one a line; `None` where there are none.

    It is v1's `Compose` where v1's steps stand in it and none of v2's.

    >>> print(compose_code(["v2.Resize(112)", "v2.CenterCrop(112)"]))
    v2.Compose([
        v2.Resize(112),
        v2.CenterCrop(112),
    ])
    """
    if not codes:
        return "None"
    modules = {code.split(".")[0] for code in codes}
    compose = "T.Compose" if "T" in modules and "v2" not in modules else "v2.Compose"
    lines = "".join(f"{indent}    {code},\n" for code in codes)
    return f"{compose}([\n{lines}{indent}])"


def imports_of(code: str) -> list[str]:
    """Return the import statements that code of `code_of` needs.

    >>> imports_of("T.Compose([T.ToTensor(), v2.ToDtype(torch.float32)])")[1:]
    ['from torchvision import transforms as T', 'from torchvision.transforms import v2']
    """
    imports = {
        "torch.": "import torch",
        "gp.": "import gpupreload as gp",
        "T.": "from torchvision import transforms as T",
        "v2.": "from torchvision.transforms import v2",
    }
    return [line for name, line in imports.items() if _mentions(code, name)]


def _mentions(code: str, name: str) -> bool:
    return code.startswith(name) or any(f"{mark}{name}" in code for mark in " (=[")


def remade(transform: Any, **changes: Any) -> Any:
    """Make one of torchvision's steps again, with some of its constructor's arguments changed.

    >>> from torchvision.transforms import v2
    >>> code_of(remade(v2.RandomErasing(p=0.2, scale=(0.1, 0.3)), p=0.9))
    'v2.RandomErasing(p=0.9, scale=(0.1, 0.3))'
    """
    kept = {parameter.name: value for parameter, value in _arguments(transform)}
    return type(transform)(**{**kept, **changes})


def _call(transform: Callable[..., Any], prefix: str) -> str:
    if isinstance(transform, nn.Sequential):
        held = ", ".join(_literal(step, prefix) for step in transform)
        return f"{'torch.nn.' if prefix else ''}Sequential({held})"
    arguments = _arguments(transform)
    n_required = sum(parameter.default is parameter.empty for parameter, _ in arguments)
    texts = [
        _literal(value, prefix)
        if parameter.default is parameter.empty and n_required == 1
        else f"{parameter.name}={_literal(value, prefix)}"
        for parameter, value in arguments
    ]
    return f"{prefix}{type(transform).__name__}({', '.join(texts)})"


def _arguments(transform: Any) -> list[tuple[inspect.Parameter, Any]]:
    """The constructor's arguments, read back from attributes; defaults left out, except p."""
    parameters = inspect.signature(type(transform)).parameters.values()
    found = [
        (parameter, _as_given(transform, parameter.name, getattr(transform, parameter.name)))
        for parameter in parameters
        if parameter.kind is not parameter.VAR_POSITIONAL and hasattr(transform, parameter.name)
    ]
    return [
        (parameter, value)
        for parameter, value in found
        if value is not None and (parameter.name == "p" or not _same(value, parameter.default))
    ]


def _as_given(transform: Any, name: str, value: Any) -> Any:
    """Undo what torchvision does to some values: [112] was 112, and so was a crop's (112, 112)."""
    if name == "value" and value is None and type(transform).__name__ == "RandomErasing":
        return "random"
    if name not in ("size", "value") or not isinstance(value, list | tuple):
        return value
    is_square = type(transform).__name__ in _A_NUMBER_IS_A_SQUARE and len(set(value)) == 1
    return value[0] if len(value) == 1 or is_square else tuple(value)


def _same(value: Any, default: Any) -> bool:
    return bool(_plain(value) == _plain(default))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    return None if isinstance(value, Tensor) else value


def _literal(value: Any, prefix: str) -> str:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, enum.Enum):
        return f"{prefix}{type(value).__name__}.{value.name}" if prefix else value.name
    if isinstance(value, list | nn.ModuleList):
        return f"[{', '.join(_literal(item, prefix) for item in value)}]"
    if isinstance(value, tuple):
        comma = "," if len(value) == 1 else ""
        return f"({', '.join(_literal(item, prefix) for item in value)}{comma})"
    if isinstance(value, Mapping):
        pairs = (f"{_literal(k, prefix)}: {_literal(v, prefix)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, Tensor):
        return "..."
    if callable(value):
        return code_of(value) if prefix else name_of(value)
    return repr(value)


def _name_of_callable(transform: Callable[..., Any]) -> str:
    if isinstance(transform, functools.partial):
        return f"partial({name_of(transform.func)})"
    name = getattr(transform, "__name__", None)
    if isinstance(name, str):
        return name
    text = repr(transform)
    tells_nothing = " at 0x" in text or "\n" in text or len(text) > _LONGEST_NAME
    return f"{type(transform).__name__}()" if tells_nothing else text


@dataclass(frozen=True, eq=False)
class ByIdentity:
    """An object that can be told from others only by being itself; it is kept alive."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def fingerprint(transform: Callable[..., Any]) -> Hashable:
    """Return a value that is equal for two steps which do the same.

    A torchvision step is its class and its settings, whatever it holds included. Any other callable
    is itself alone (`ByIdentity`): two functions with the same text may not do the same.

    >>> from torchvision.transforms import v2
    >>> fingerprint(v2.Resize(112)) == fingerprint(v2.Resize([112]))
    True
    >>> fingerprint(abs) == fingerprint(round)
    False
    """
    if not kind_of(transform):
        return ByIdentity(transform)
    settings = {k: v for k, v in vars(transform).items() if k[0] != "_" and k != "training"}
    held = getattr(transform, "_modules", {})
    cls = type(transform)
    return f"{cls.__module__}.{cls.__qualname__}", _frozen({**settings, **held})


def is_portable(value: Hashable) -> bool:
    """Whether a fingerprint means the same in another process, as the key of a file must."""
    if isinstance(value, tuple | frozenset):
        return all(is_portable(item) for item in value)
    return not isinstance(value, ByIdentity)


def _frozen(value: Any) -> Hashable:
    """Turn a setting into something to compare and hash by; lists and tuples count as equal."""
    if isinstance(value, bool):
        return "bool", value  # or else True == 1
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    if isinstance(value, enum.Enum):
        return type(value).__qualname__, value.name
    if isinstance(value, torch.dtype):
        return str(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, list | tuple | nn.ModuleList):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, Mapping):
        return frozenset((_frozen(k), _frozen(v)) for k, v in value.items())
    if isinstance(value, Tensor | np.ndarray | np.generic):
        tensor = torch.as_tensor(value).detach().cpu().contiguous()
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        return str(tensor.dtype), tuple(tensor.shape), hashlib.sha256(raw).hexdigest()
    return fingerprint(value) if callable(value) else ByIdentity(value)
