"""`python3 -m verl_node.training.rollout_import NAME MODE [LIBRARY…]`: imports a training's rollout.

verl itself with its plugins, libraries of the user, the engine, verl's class of that rollout and, for server mode, its
server. Answers in one line of JSON: {"rollout": "imported"}, {"rollout": "missing", "module", "wanted_by", "said"} or
{"rollout": "unknown", "said"}, since only a module that cannot be imported is known to end a training. It takes no GPU
memory, stands back behind every other process, and is the first that the kernel kills for want of memory.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt_llm"}
ROLLOUTS = "verl.workers.rollout"
# Where verl 0.4 and 0.5 look for a rollout's class; from 0.6 on get_rollout_class knows.
CLASSES = {"vllm": f"{ROLLOUTS}.vllm_rollout", "sglang": f"{ROLLOUTS}.sglang_rollout", "hf": ROLLOUTS}
SERVERS = {
    "vllm": f"{ROLLOUTS}.vllm_rollout.vllm_async_server",
    "sglang": f"{ROLLOUTS}.sglang_rollout.async_sglang_server",
    "trtllm": f"{ROLLOUTS}.trtllm_rollout.trtllm_async_server",
}
_NICEST = 19


def main() -> int:
    """Import, and say how it went; 0 unless the process itself fails."""
    name, mode, *external = sys.argv[1:]
    _stand_back()
    try:
        load(name, mode, external)
        told = {"rollout": "imported"}
    except ImportError as error:
        told = _unknown(error) if _asked_by_us(error) else _missing(error)
    except Exception as error:  # whatever a library raises: the training will tell whether it matters
        told = _unknown(error)
    print(f"\n{json.dumps(told)}", flush=True)  # noqa: T201  # after whatever the libraries left without a line's end
    os._exit(0)  # what was imported may have threads that nobody joins


def load(name: str, mode: str, external: list[str]) -> None:
    """Import it. Raises ImportError, and whatever else a library raises."""
    importlib.import_module("verl")  # with what VERL_USE_EXTERNAL_MODULES names, as in a worker
    for library in external:
        importlib.import_module(library)
    if name in ENGINES:
        importlib.import_module(ENGINES[name])
    find = getattr(importlib.import_module(f"{ROLLOUTS}.base"), "get_rollout_class", None)
    if find is not None:
        find(name, mode)
    elif name in CLASSES:
        importlib.import_module(CLASSES[name])
    if mode == "async" and name in SERVERS:
        importlib.import_module(SERVERS[name])


def _asked_by_us(error: ImportError) -> bool:
    """Whether it is a module of verl's that we name and this release of verl does not have."""
    ours = (f"{ROLLOUTS}.base", *CLASSES.values(), *SERVERS.values())
    return isinstance(error, ModuleNotFoundError) and any(
        f"{module}.".startswith(f"{error.name}.") for module in ours if error.name != "verl"
    )


def _missing(error: ImportError) -> dict[str, str]:
    names = [each.name for each in _chain(error) if isinstance(each, ImportError) and each.name]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in (__file__, importlib.__file__)
    ]
    return {
        "rollout": "missing",
        "module": names[-1] if names else "",
        "wanted_by": f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
        "said": str(error),
    }


def _unknown(error: BaseException) -> dict[str, str]:
    return {"rollout": "unknown", "said": f"{type(error).__name__}: {error}"}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from: a library's own words follow the import that failed."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _stand_back() -> None:
    os.nice(_NICEST)
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: no such policy on this system
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(main())
