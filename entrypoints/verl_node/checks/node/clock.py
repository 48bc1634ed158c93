"""The clock and the certificates of a node, which TLS needs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from verl_node.checks.check import check
from verl_node.checks.result import OK, Result
from verl_node.settings.settings import Settings

_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_DAY_S = 86400.0


@check("hf-cache", threshold=1.0)
def clock_is_after_the_image(settings: Settings, gpus: int, days: float) -> Result:
    """The clock is not before the date of the image: certificates would not be valid yet."""
    written = Path(__file__).stat().st_mtime
    behind_s = written - time.time()
    if behind_s < days * _DAY_S:
        return OK
    return Result(
        "fail",
        f"The clock shows {_format(time.time())}, and the image's files are from {_format(written)}.",
        "Correct the node's clock (chronyc tracking); until then no certificate of the hub or of wandb is valid.",
        "a correct clock",
    )


@check("hf-cache")
def certificates_are_here(settings: Settings, gpus: int) -> Result:
    """The files named by SSL_CERT_FILE, REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE can be read."""
    for name in _CERTIFICATES:
        path = settings.environ.get(name, "")
        if path and not os.access(path, os.R_OK):
            return Result(
                "fail",
                f"{name}={path} cannot be read, so downloads by TLS fail.",
                f"Mount it (VERLJOB_MOUNTS={Path(path).parent}:ro), or unset {name}.",
                "a readable certificate bundle",
            )
    return OK


def _format(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment))
