"""Called by `ray start` through RAY_START_HOOK: turns the Ray Client server off, which no flag can.

Two heads on one machine would share its port by SO_REUSEPORT, and nothing of verl uses it. Asked for with
VERLJOB_RAY_CLIENT=1, which leaves the hook out.
"""

from __future__ import annotations

from typing import Any


def no_client_server(ray_params: Any, head: bool) -> None:
    """Take the client server's port back out of the parameters (Ray: "0 or None" starts none)."""
    ray_params.ray_client_server_port = None
