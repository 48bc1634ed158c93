"""The deep tier's judgement; what the probe itself does was run on four H200s (docs/benchmarks.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl_node.checks import child
from verl_node.checks.node import gpu_work, peaks
from verl_node.checks.node import gpus as job_gpus
from verl_node.settings.settings import Settings

from tests.support.paths import RECORDED

CUDA = Settings.from_env({"VERLJOB_PLATFORM": "cuda"})
SMI = RECORDED / "nvidia_smi"
TOPOLOGY, OF_FOUR = ((SMI / f"nvidia-smi-topo-{of}h200.txt").read_text() for of in ("", "4-"))


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter that runs the probe: a script that the test writes."""
    path = tmp_path / "python3"
    monkeypatch.setattr(child.sys, "executable", str(path))
    return path


@pytest.fixture
def h200(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's tool on a node with two H200s."""
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(
        f'#!/bin/sh\ncase "$*" in topo*) cat {SMI}/nvidia-smi-topo-h200.txt ;; '
        f"*) cat {SMI}/nvidia-smi-h200.csv ;; esac\n"
    )
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    job_gpus._look.cache_clear()


def says(python: Path, script: str) -> None:
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_gpus_that_compute_alike_pass_with_their_figures(python: Path) -> None:
    says(python, """echo 'a warning of torch'; echo '{"tflops": [684.2, 690.0], "right": [true, true]}'""")

    found = gpu_work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, "684.2, 690.0" in found.seen) == ("ok", True)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("""echo '{"tflops": [684.2, 210.0], "right": [true, true]}'""", "210.0"),
        ("""echo '{"tflops": [684.2, 690.0], "right": [true, false]}'""", "GPU 1 computed a wrong"),
        ("echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1", "uncorrectable ECC"),
    ],
)
def test_a_gpu_that_is_slow_wrong_or_broken_fails(script: str, told: str, python: Path) -> None:
    says(python, script)

    found = gpu_work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, told in found.seen) == ("fail", True)


def test_a_sum_that_is_wrong_or_never_comes_fails(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(python, """echo '{"gbps": 478.0, "right": true}'""")
    assert gpu_work.gpus_sum_together(CUDA, 2).severity == "ok"
    says(python, """echo '{"gbps": 478.0, "right": false}'""")
    assert gpu_work.gpus_sum_together(CUDA, 2).severity == "fail"
    monkeypatch.setattr(gpu_work, "LIMIT_S", 5.2)
    says(python, "exec sleep 60")
    assert "longer than 0 s" in gpu_work.gpus_sum_together(CUDA, 2).seen
    assert gpu_work.gpus_sum_together(CUDA, 1).severity == "idle"


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(("tflops", "severity"), [(884.5, "ok"), (400.0, "fail")])
def test_a_node_whose_gpus_are_all_slow_is_found_by_what_such_a_gpu_can_do(
    tflops: float, severity: str, python: Path
) -> None:
    says(python, f"""echo '{{"tflops": [{tflops}, {tflops}], "right": [true, true]}}'""")

    found = gpu_work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, "at most 989" in found.seen) == (severity, True)


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(("gbps", "severity"), [(298.7, "ok"), (42.0, "fail")])
def test_a_sum_that_does_not_go_over_nvlink_is_found(gbps: float, severity: str, python: Path) -> None:
    says(python, f"""echo '{{"gbps": {gbps}, "right": true}}'""")

    found = gpu_work.gpus_sum_together(CUDA, 2)

    assert (found.severity, "NVLink has 450" in found.seen) == (severity, True)


def test_links_are_read_from_the_least_joined_pair() -> None:
    assert peaks.nvlink_gbps(TOPOLOGY, "NVIDIA H200") == 450
    assert peaks.nvlink_gbps(OF_FOUR, "NVIDIA H200") == 450
    assert peaks.nvlink_gbps(OF_FOUR.replace("NV18", "SYS", 1), "NVIDIA H200") is None
    assert peaks.nvlink_gbps(TOPOLOGY, "NVIDIA B200") == 900
    assert peaks.nvlink_gbps(TOPOLOGY.replace("NV18", "NODE"), "NVIDIA H200") is None
    assert peaks.nvlink_gbps("\tGPU0\nGPU0\t X \n", "NVIDIA H200") is None
    assert peaks.tflops("NVIDIA H100 PCIe") == 756
    assert peaks.tflops("NVIDIA T4") is None
