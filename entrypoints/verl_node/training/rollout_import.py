"""`python3 -m verl_node.training.rollout_import NAME MODE [LIBRARY…]`: imports a training's rollout.

It imports verl with its plugins, the user's libraries, the engine, verl's class of the rollout and, in server mode, its
server. It prints one line of JSON: {"rollout": "imported"}, {"rollout": "missing", "module", "imported_by", "error"} or
{"rollout": "unknown", "error"}: only a module that cannot be imported is sure to end a training. It uses no GPU memory,
has the lowest priority, and is the first process that the kernel kills when memory runs out.
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
# The modules of a rollout's class in verl 0.4 and 0.5; from 0.6 on get_rollout_class has them.
CLASSES = {"vllm": f"{ROLLOUTS}.vllm_rollout", "sglang": f"{ROLLOUTS}.sglang_rollout", "hf": ROLLOUTS}
SERVERS = {
    "vllm": f"{ROLLOUTS}.vllm_rollout.vllm_async_server",
    "sglang": f"{ROLLOUTS}.sglang_rollout.async_sglang_server",
    "trtllm": f"{ROLLOUTS}.trtllm_rollout.trtllm_async_server",
}
_NICEST = 19


def main() -> int:
    """Import the rollout and print the answer; return 0 unless the process itself fails."""
    name, mode, *external = sys.argv[1:]
    _lower_priority()
    try:
        load(name, mode, external)
        answer = {"rollout": "imported"}
    except ImportError as error:
        answer = _unknown(error) if _absent_in_release(error) else _missing(error)
    except Exception as error:  # any error of a library: it may not matter to the training
        answer = _unknown(error)
    print(f"\n{json.dumps(answer)}", flush=True)  # noqa: T201  # on a new line after the libraries' output
    os._exit(0)  # imported modules may have started threads that never end


def load(name: str, mode: str, external: list[str]) -> None:
    """Import the rollout. Raises ImportError, and any other error of a library."""
    importlib.import_module("verl")  # also imports VERL_USE_EXTERNAL_MODULES, as in a worker
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


def _absent_in_release(error: ImportError) -> bool:
    """Whether this release of verl does not have one of the modules that `load` imports."""
    ours = (f"{ROLLOUTS}.base", *CLASSES.values(), *SERVERS.values())
    return isinstance(error, ModuleNotFoundError) and any(
        f"{module}.".startswith(f"{error.name}.") for module in ours if error.name != "verl"
    )


def _missing(error: ImportError) -> dict[str, str]:
    names = [cause.name for cause in _chain(error) if isinstance(cause, ImportError) and cause.name]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<frozen") and frame.filename not in (__file__, importlib.__file__)
    ]
    return {
        "rollout": "missing",
        "module": names[-1] if names else "",
        "imported_by": f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "",
        "error": str(error),
    }


def _unknown(error: BaseException) -> dict[str, str]:
    return {"rollout": "unknown", "error": f"{type(error).__name__}: {error}"}


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the error and its causes: a library's own error often follows the failed import."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _lower_priority() -> None:
    os.nice(_NICEST)
    with contextlib.suppress(OSError, AttributeError):  # AttributeError: a system without this policy
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    sys.exit(main())
