"""Keeps the import of vLLM 0.6.3 off the GPU: `python3 /steps/vllm_import.py [FOLDER]`, of its sources or installed.

On ROCm vLLM 0.6.3 moves a tensor to the GPU while it is imported. So its import fails in a build, and in verl's main
task, which has no GPU: main_ppo of verl 0.4 imports vLLM there. vLLM 0.6.4 creates that tensor on the CPU; both move it
before they use it.

Needs Python 3.8.
"""

from __future__ import annotations

import py_compile
import sys
from importlib.util import find_spec
from pathlib import Path

FILE = "vllm/model_executor/layers/quantization/utils/w8a8_utils.py"
ON_GPU, ON_CPU = "torch.ones(1).cuda()", "torch.ones(1)"


def main(arguments: list[str]) -> None:
    """Change the line below the folder, by default that of the installed vLLM; exit if it is not there."""
    if arguments:
        folder = Path(arguments[0])
    else:
        spec = find_spec("vllm")
        if spec is None or spec.origin is None:
            sys.exit("vllm_import: this base has no vLLM: leave vllm_import.py out of its `repairs`")
        folder = Path(spec.origin).parent.parent
    path = folder / FILE
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if text.count(ON_GPU) != 1:
        sys.exit(f"vllm_import: {path} does not have {ON_GPU!r} once: it is not of vLLM 0.6.3")
    path.write_text(text.replace(ON_GPU, ON_CPU), encoding="utf-8")
    if not arguments:
        py_compile.compile(str(path), doraise=True)


if __name__ == "__main__":
    main(sys.argv[1:])
