"""Pushing an image to a registry: its own tag first, ``latest`` only when that arrived."""

from __future__ import annotations

import re
import time

from images.build import names
from images.catalog import Catalog
from images.engine import Engine, choose, local
from images.errors import CommandFailed, PushFailed
from images.process import run
from images.spec import ImageSpec

ATTEMPTS = 3
PAUSE_S = 2.0  # doubled after each attempt


def push(spec: ImageSpec, registry: str, catalog: Catalog) -> dict[str, str]:
    """Push what `invoke build` made to ``registry`` (HOST[:PORT][/PATH]) and return reference → digest.

    ``docker login`` is the caller's. A refused login is not tried again.
    """
    engine = choose()
    pushed = {}
    for name in names(spec, catalog):
        reference = f"{registry.rstrip('/')}/{name}"
        local(name).tag(reference)
        pushed[reference] = push_reference(engine, reference)
    return pushed


def push_reference(engine: Engine, reference: str, pause_s: float = PAUSE_S) -> str:
    """Push one reference, as often as needed up to ATTEMPTS, and return the digest that the registry knows it by."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            said = run([engine.client, "push", reference])
        except CommandFailed as failure:
            final = re.search("denied|unauthorized|authentication|no basic auth", failure.said, re.IGNORECASE)
            if final or attempt == ATTEMPTS:
                fix = f"`{engine.client} login` first" if final else "is the registry there, and does it speak https?"
                raise PushFailed(
                    f"{reference} was not taken, attempt {attempt}; {fix}\n{failure.said[-600:]}"
                ) from failure
            time.sleep(pause_s * 2 ** (attempt - 1))
        else:
            return digest_in(said)
    raise AssertionError("the last attempt returned or raised")


def digest_in(said: str) -> str:
    """The digest in what `docker push` said."""
    found = re.search(r"digest: (sha256:[0-9a-f]{64})", said)
    if not found:
        raise PushFailed(f"docker push ended well but named no digest: {said[-300:]}")
    return found.group(1)
