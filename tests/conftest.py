"""A test run that is asked to end still takes down what its fixtures started."""

from __future__ import annotations

import signal

# INT too: a shell starts background tasks deaf to it, and Python then leaves it so.
for asked_to_end in (signal.SIGINT, signal.SIGTERM):
    signal.signal(asked_to_end, signal.default_int_handler)
