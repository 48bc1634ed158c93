"""Variables for compiled code that the node keeps between jobs (slurm/lib/node/compile_cache.sh).

- torch.compile (Inductor) and Triton write into the folder of their variable. Without it Inductor's is in the job's
  /tmp, and Triton's in the home, which on a network file system may end with `Stale file handle`.
- vLLM keeps what it compiles, and what it found out about model classes in a process of its own. verl sets
  VLLM_DISABLE_COMPILE_CACHE=1 since files were damaged when engines wrote them at once
  (https://github.com/vllm-project/vllm/issues/31199); torch writes them by rename from 2.10 on
  (https://github.com/pytorch/pytorch/pull/162432), and from then on the cache is turned on. verl does not replace an
  exported value (verl/trainer/constants_ppo.py).
- Python writes bytecode beside a package, which the account of a job may often not do. If torch has none there, each of
  verl's processes compiles all modules that it imports; then they are kept in the folder.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from verl_node import versions

FOLDER = "VERLJOB_COMPILE_CACHE"
SUBFOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "VLLM_CACHE_ROOT": "vllm"}
BYTECODE, WITHOUT_BYTECODE = "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"
FIRST_TORCH_THAT_RENAMES = (2, 10)


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for all processes of the job, none without a folder. Exported values take precedence."""
    folder = environ.get(FOLDER)
    if not folder:
        return {}
    found = {name: str(Path(folder, subfolder)) for name, subfolder in SUBFOLDERS.items()}
    if torch_renames():
        found["VLLM_DISABLE_COMPILE_CACHE"] = "0"
    found = {name: value for name, value in found.items() if name not in environ}
    if BYTECODE not in environ and lacks_bytecode("torch"):
        found.update({BYTECODE: str(Path(folder, "bytecode")), WITHOUT_BYTECODE: ""})
    return found


def torch_renames() -> bool:
    """Whether torch writes compiled files by rename, so that no process reads half of one."""
    try:
        return versions.parse(metadata.version("torch")) >= FIRST_TORCH_THAT_RENAMES
    except (metadata.PackageNotFoundError, ValueError):
        return False


def lacks_bytecode(package: str) -> bool:
    """Whether an installed package has no bytecode of this Python beside it."""
    spec = importlib.util.find_spec(package)
    origin = spec.origin if spec else None
    return origin is not None and not Path(importlib.util.cache_from_source(origin)).exists()
