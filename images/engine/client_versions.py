"""What docker clients said of themselves, known again while nothing that decides it has changed.

To ask one twice (its version, its buildx plugin) takes as long as an unchanged image does. Only a program is known
again, since a script may call another client each time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from images.host.paths import CLIENT_VERSIONS

ELF = b"\x7fELF"
# docker/cli cli-plugins/manager/manager_unix.go; the user's own folder is the configuration's.
PLUGINS = [f"/usr/{place}/docker/cli-plugins" for place in ("local/lib", "local/libexec", "lib", "libexec")]


def known(client: str, environment: Mapping[str, str], kept: Path = CLIENT_VERSIONS) -> dict[str, Any]:
    """What was kept of this client; nothing where it, its plugins or its configuration may be others by now."""
    found, identity = _read(kept).get(client), _identity(client, environment)
    return dict(found["said"]) if found and identity and found["identity"] == identity else {}


def keep(client: str, environment: Mapping[str, str], said: Mapping[str, Any], kept: Path = CLIENT_VERSIONS) -> None:
    """Remember what a client said."""
    if identity := _identity(client, environment):
        told = {**_read(kept), client: {"identity": identity, "said": said}}
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = kept.with_name(f"{kept.name}.{os.getpid()}")
        new.write_text(json.dumps(told), encoding="utf-8")
        new.replace(kept)


def _read(kept: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(json.loads(kept.read_text(encoding="utf-8")))
    except (OSError, ValueError):  # none yet, or cut off
        return {}


def _identity(client: str, environment: Mapping[str, str]) -> list[list[int]]:
    """Of the program, its configuration and every place of a plugin; nothing where these are not all that decide."""
    own = Path(environment.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        with open(client, "rb") as file:
            if file.read(len(ELF)) != ELF:
                return []
        if (own / "config.json").exists() and "cliPluginsExtraDirs" in (own / "config.json").read_text(
            encoding="utf-8"
        ):
            return []
    except OSError:
        return []
    plugins = [f"{folder}/docker-buildx" for folder in (f"{own}/cli-plugins", *PLUGINS)]
    return [_state(path) for path in (client, str(own / "config.json"), *plugins)]


def _state(path: str) -> list[int]:
    try:
        state = os.stat(path)
    except OSError:
        return []
    return [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
