"""Notebooks as tests: the options of `pytest --nbval` here, and what nbval 0.11 gets wrong.

This file stands at the root because pytest reads it whatever it is asked to run: a test, a
doctest or a notebook. Without `--nbval` it changes nothing.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from queue import Empty
from typing import Any

import nbval.plugin
import pytest
from nbval.kernel import RunningKernel

SANITIZE = Path(__file__).parent / "tests" / "notebooks" / "sanitize.cfg"
SECONDS_PER_CELL = 180
SECONDS_PER_OUTPUT = 60  # nbval's own 5 s are too few on a busy machine
OUTPUTS = ("stream", "display_data", "execute_result")


class Kernel(RunningKernel):
    """A kernel that behaves for nbval as it does for JupyterLab."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.message_captured_by: dict[str, str] = {}
        self.ipython_folder = tempfile.TemporaryDirectory(prefix="gpupreload-ipython-")
        with pytest.MonkeyPatch.context() as environment:
            # stored outputs are a CPU's, wherever they are checked
            environment.setenv("CUDA_VISIBLE_DEVICES", "")
            # pictures are inline, whatever backend the tests of this process asked for
            environment.delenv("MPLBACKEND", raising=False)
            # neither the person's start-up files nor their history take part
            environment.setenv("IPYTHONDIR", self.ipython_folder.name)
            super().__init__(*args, **kwargs)

    def execute_cell_input(self, cell_input: str, allow_stdin: bool | None = None) -> str:
        """Run a cell as a person would: only cells in the history are silenced by a last `;`."""
        return self.kc.execute(
            cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False
        )

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Wait in short turns, so that a kernel that dies is noticed before the timeout."""
        ends = time.monotonic() + (timeout or SECONDS_PER_CELL)
        while True:
            try:
                return super().await_reply(msg_id, timeout=1)
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("The kernel died while it ran this cell.") from None
                if time.monotonic() > ends:
                    raise

    def get_message(self, stream: str, timeout: float | None = None) -> dict[str, Any]:
        """Leave out what an `Output` widget catches: it is the widget's and not the cell's.

        Errors stay in: one that a widget has swallowed fails the cell.
        """
        while True:
            message = super().get_message(stream, timeout=timeout)
            content = message["content"]
            state = content.get("data", {}).get("state", {})
            if message["msg_type"].startswith("comm") and "msg_id" in state:
                self.message_captured_by[content["comm_id"]] = state["msg_id"]
            parent = message["parent_header"].get("msg_id")
            if message["msg_type"] in OUTPUTS and parent in self.message_captured_by.values():
                continue
            return message


def pytest_configure(config: pytest.Config) -> None:
    """Make `--nbval` mean the same in every run: this environment's Python, strictly compared."""
    if getattr(config.option, "nbval", False):
        nbval.plugin.RunningKernel = Kernel
        config.option.nbval_current_env = True
        config.option.nbval_sanitize_with = str(SANITIZE)
        config.option.nbval_cell_timeout = SECONDS_PER_CELL


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Leave stderr uncompared: warnings of other packages and text bars are no part of a lesson."""
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += ("stderr",)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a cell's output time to arrive."""
    if isinstance(item, nbval.plugin.IPyNbCell):
        item.output_timeout = SECONDS_PER_OUTPUT
