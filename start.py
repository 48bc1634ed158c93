"""What `./run` starts: Invoke with tasks.py, less what costs time and is of no use here.

Invoke loads its own YAML for configuration files, of which there is none: it is run when one is. The Mock of its
MockContext, which is for tests, would bring asyncio and unittest: they come when one is made. While hundreds of modules
are loaded there is no garbage to look for; nor when the process ends, where Python looks through all of them
again, which takes as long as an unchanged image does.
"""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path

gc.disable()
atexit.register(gc.freeze)

from later import later, promised  # noqa: E402

with later("invoke.vendor.yaml"), promised("unittest.mock", "Mock"):
    from invoke.main import program


def main() -> None:
    gc.freeze()
    gc.enable()
    program.run(["invoke", "--search-root", str(Path(__file__).resolve().parent), *sys.argv[1:]])


if __name__ == "__main__":
    main()
