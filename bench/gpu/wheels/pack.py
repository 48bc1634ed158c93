"""Packs vLLM, verl and their needs for a machine with GPUs that reaches no network, in pieces of at most 56 MiB.

    python3 bench/gpu/wheels/pack.py LOCK OUT [--python python3.12]

LOCK is the lock of cu130-wheels (images/pins/locks/verl0.9.1-py3.12-torch2.11.0-x86_64-4ea378.txt). PYTHON has the
version of the machine's Python, and pip. THERE must be on the machine, torch and its CUDA libraries in the lock's
versions. Writes OUT/part00 and so on; unpack.sh makes the environment of them there. Kernels of other cards than
Hopper's, and packages that neither verl's FSDP nor vLLM's dense models import, are left out: the environment is for
bench/gpu/training.py, without flash-attn.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

PIECE_BYTES = 56 << 20
# Packages of the machine; those that are compiled against numpy stay together. nvidia-* and cuda-* belong to torch.
THERE = """
absl-py accelerate cuda-bindings cuda-core cuda-pathfinder cuda-toolkit grpcio hf-xet llvmlite markdown ml-dtypes
mpmath networkx ninja numba numpy pandas peft pillow pyarrow pybind11 setuptools sympy tensorboard
tensorboard-data-server torch torchaudio torchvision triton uvloop werkzeug
"""
# Kernels for other cards and for quantised models, image codecs, loggers and debuggers.
UNUSED = """
agent-detector anthropic cryptography cuda-python cuda-tile debugpy detect-installer fastsafetensors flashinfer-cubin
flashinfer-python humming-kernels opencv-python-headless py-spy pycountry quack-kernels tilelang tokenspeed-mla
tokenspeed-triton virtualenv wandb z3-solver
"""
LEFT_OUT = (
    "mistral_common/data",
    "ray/dashboard/client",
    "ray/jars",
    "ray/rllib",
    "vllm/third_party/deep_gemm",
    "vllm/third_party/fmha_sm100",
    "vllm/vllm-rs",
    "vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so",  # of the cards before Hopper
    "xgrammar/lib/libxgrammar.a",
)
WITH_SYMBOLS = ("xgrammar",)


def carried(lock: str) -> list[str]:
    """Return the lines of a lock for the packages to pack."""
    lines = [line for line in lock.splitlines() if re.match(r"[A-Za-z0-9]", line)]
    return [line for line in lines if not is_left(normalized(line.partition("==")[0]))]


def is_left(name: str) -> bool:
    """Whether a package is on the machine, or not needed."""
    return name in f"{THERE} {UNUSED}".split() or (name.startswith("nvidia-") and name != "nvidia-ml-py")


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def install(python: str, lines: list[str], site: Path) -> None:
    """Install the packages into ``site``, and remove parts that are not needed."""
    requirements = site.with_name("requirements.txt")
    requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
    flags = ["--quiet", "--no-deps", "--no-compile", "--no-cache-dir", "--require-hashes", "--target", str(site)]
    subprocess.run([python, "-m", "pip", "install", *flags, "--requirement", str(requirements)], check=True)
    for name in (*LEFT_OUT, "bin"):
        if (site / name).is_dir():
            shutil.rmtree(site / name)
        else:
            (site / name).unlink()
    for package in WITH_SYMBOLS:
        for library in (site / package).rglob("*.so"):
            subprocess.run(["strip", "--strip-debug", str(library)], check=True)


def pack(site: Path, out: Path) -> list[Path]:
    """Compress ``site`` in blocks that unpack in parallel; return the pieces."""
    tar = 'tar -C "$1" --sort=name --owner=0 --group=0 --exclude=__pycache__ -c .'
    shell = f'{tar} | xz -T0 -7 | split -b {PIECE_BYTES} -d - "$2/part"'
    subprocess.run(["bash", "-eo", "pipefail", "-c", shell, "-", str(site), str(out)], check=True)
    return sorted(out.glob("part*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lock", type=Path)
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("--python", default=sys.executable, help="Python of the machine's version, with pip")
    given = parser.parse_args()
    given.out.mkdir(parents=True)
    site = given.out / "site"
    install(given.python, carried(given.lock.read_text(encoding="utf-8")), site)
    pieces = pack(site, given.out)
    size = sum(piece.stat().st_size for piece in pieces) / (1 << 20)
    print(f"{len(pieces)} pieces, {size:.0f} MiB: {given.out}/part*")


if __name__ == "__main__":
    main()
