"""`python3 -m verl_node.inputs.reachability`: whether a server answers this node, in a few seconds.

It reads a line of JSON with the server's `url`, which may have a password and is in no command line. Proxies of the
environment are used. It is a process of its own because a name server that does not answer cannot be interrupted.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping

from verl_node.supervision.child import Process
from verl_node.supervision.waiting import Deadline, within

# Seconds for an answer. A job without its inputs has to end within 10 s, of which its container takes two.
ANSWER_TIMEOUT_S = 7.0


def unreachable(url: str) -> str:
    """Return why the server of ``url`` cannot be used, or nothing; any answer to HEAD counts, also an error."""
    import urllib.error  # late: it would cost the supervisor a megabyte
    import urllib.request

    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - an address of the site's settings
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S):  # noqa: S310
            return ""
    except urllib.error.HTTPError:
        return ""  # it answers
    except (OSError, ValueError) as error:
        return f"{url} does not answer ({getattr(error, 'reason', error)})"


async def check(url: str, env: Mapping[str, str]) -> str:
    """Return what `unreachable` does, from a process that is killed after ANSWER_TIMEOUT_S; nothing if that fails."""
    argv = ["python3", "-m", "verl_node.inputs.reachability"]
    process = await Process.start(argv, env, on_line=lambda _: None, waits=True)
    process.send_order(url=url)
    try:
        code = await within(Deadline(ANSWER_TIMEOUT_S), process.ended())
    except asyncio.TimeoutError:
        process.kill()
        await process.ended()
        return f"{url} does not answer within {ANSWER_TIMEOUT_S:.0f} s"
    return "" if code else next(reversed(process.last_lines), "")


if __name__ == "__main__":
    print(unreachable(json.loads(sys.stdin.readline())["url"]))  # noqa: T201
