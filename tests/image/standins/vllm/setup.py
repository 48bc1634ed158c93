"""A stub of vLLM's source: a version as vLLM's own setup.py makes it, and no kernels."""

import os
import sys
from pathlib import Path

# vLLM's build needs torch of the base, and the catalog's variables.
import torch
from setuptools import setup

assert os.environ["VLLM_TARGET_DEVICE"] == "rocm"
assert torch.__version__.startswith("2.5.0")
setup(
    name="vllm",
    version=os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"] + "+rocm621",
    description=f"built by {sys.executable} for {os.environ['PYTORCH_ROCM_ARCH']}",
    packages=["vllm"],
    install_requires=Path("requires.txt").read_text().splitlines(),  # of the commit: images/pins/bases/
)
