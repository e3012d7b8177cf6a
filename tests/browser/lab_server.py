"""A real JupyterLab on this machine that leaves the person's own settings and folders alone."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECONDS_TO_START = 90

# "none" puts every cell in the page; in the default mode only those in view are there
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab: its address, the token that opens it, the folder it shows."""

    url: str
    token: str
    folder: Path

    @property
    def status_url(self) -> str:
        """The address that answers when the server is ready, and gives a browser its cookie."""
        return f"{self.url}/api/status?token={self.token}"


@contextmanager
def running_lab(home: Path, folder: Path) -> Iterator[Lab]:
    """Start JupyterLab on `folder`, wait until it answers, and end it afterwards."""
    write_settings(home / "settings")
    lab = Lab(f"http://127.0.0.1:{free_port()}", secrets.token_hex(16), folder)
    log = home / "lab.log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command(lab), env=environment(home), stdout=output, stderr=subprocess.STDOUT
        )
    try:
        wait_until_ready(lab, server, log)
        yield lab
    finally:
        server.terminate()
        try:
            server.wait(timeout=20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def command(lab: Lab) -> list[str]:
    """The command line of the server."""
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": lab.url.rpartition(":")[2],
        "ServerApp.port_retries": "0",
        "ServerApp.root_dir": str(lab.folder),
        "ServerApp.allow_root": "True",
        "ServerApp.open_browser": "False",
        "IdentityProvider.token": lab.token,
    }
    named = [f"--{name}={value}" for name, value in options.items()]
    return [sys.executable, "-m", "jupyterlab", "--expose-app-in-browser", *named]


def environment(home: Path) -> dict[str, str]:
    """The variables that keep the server out of the person's own folders.

    The cache stays theirs: sample photos and the font list are made once, not in every run.
    """
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    folders = {
        "HOME": home,
        "XDG_CACHE_HOME": cache,
        "IPYTHONDIR": home / "ipython",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
    }
    own = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return own | {name: str(path) for name, path in folders.items()}


def write_settings(folder: Path) -> None:
    """Write the person's settings as JupyterLab keeps them, one file an extension."""
    for name, values in SETTINGS.items():
        file = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_ready(lab: Lab, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server answers; raise with the end of its log if it does not."""
    ends = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < ends and server.poll() is None:
        try:
            urllib.request.urlopen(lab.status_url, timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return
    raise RuntimeError(f"JupyterLab did not start. Its log ends:\n{log.read_text()[-3000:]}")
