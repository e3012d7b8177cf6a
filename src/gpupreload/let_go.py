"""After an error, memory is given back although the error's traceback is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

_OURS = f"{__name__.partition('.')[0]}."


@contextlib.contextmanager
def letting_go() -> Iterator[None]:
    """Forget the local variables of our own functions that an error, or an interrupt, ended.

    A notebook keeps the last error with its traceback, and the traceback keeps what every function
    in it had at hand: a store that was half filled would stay. The functions of the caller keep
    theirs, to be looked at in a debugger.
    """
    try:
        yield
    except BaseException as error:
        _forget(error)
        raise


def _forget(error: BaseException) -> None:
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        pending += [cause.__cause__, cause.__context__]
        for frame_holder in _links(cause.__traceback__):
            if frame_holder.tb_frame.f_globals.get("__name__", "").startswith(_OURS):
                with contextlib.suppress(RuntimeError):  # it is running still
                    frame_holder.tb_frame.clear()


def _links(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
