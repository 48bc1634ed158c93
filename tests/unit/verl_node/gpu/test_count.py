"""Counts of GPUs by Ray and torch, with fakes of both."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ENTRYPOINTS

RAY = """
class Manager:
    @staticmethod
    def get_current_process_visible_accelerator_ids(): return {masked}
    @staticmethod
    def get_current_node_num_accelerators(): return 8
def get_accelerator_manager_for_resource(name):
    assert name == "GPU"
    return Manager
"""
TORCH = """
import os
class cuda:
    @staticmethod
    def device_count(): return len(os.environ.get("HIP_VISIBLE_DEVICES", "0,1,2,3").split(","))
"""


def count(folder: Path, who: str, masked: str = "None") -> subprocess.CompletedProcess[str]:
    (folder / "ray/_private").mkdir(parents=True)
    (folder / "ray-2.58.0.dist-info").mkdir()
    (folder / "ray-2.58.0.dist-info/METADATA").write_text("Name: ray\nVersion: 2.58.0\n")
    (folder / "ray/__init__.py").touch()
    (folder / "ray/_private/__init__.py").touch()
    (folder / "ray/_private/accelerators.py").write_text(RAY.format(masked=masked))
    (folder / "torch.py").write_text(TORCH)
    argv = [sys.executable, "-m", "verl_node.gpu.count", who, "rocm", "2"]
    return subprocess.run(
        argv, env={"PYTHONPATH": f"{folder}:{ENTRYPOINTS}"}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("masked", "printed"), [("None", "8\n"), ("['0', '1']", "2\n")])
def test_ray_counts_the_devices_of_its_mask(masked: str, printed: str, tmp_path: Path) -> None:
    assert count(tmp_path, "ray", masked).stdout == printed


def test_torch_counts_what_it_sees(tmp_path: Path) -> None:
    assert count(tmp_path, "torch").stdout == "4\n"
