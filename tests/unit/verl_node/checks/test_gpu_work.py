"""Evaluation of the deep checks; the benchmark itself was run on four H200s (docs/benchmarks.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_node.checks import child
from verl_node.checks.node import gpu_work, gpus
from verl_node.settings.settings import Settings

from tests.support.paths import RECORDED

CUDA = Settings.from_env({"VERLJOB_PLATFORM": "cuda"})
SMI = RECORDED / "nvidia_smi"
TOPOLOGY, OF_FOUR = ((SMI / f"nvidia-smi-topo-{of}h200.txt").read_text() for of in ("", "4-"))


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter of the benchmark, replaced by a script of the test."""
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
    gpus._query.cache_clear()


def write_script(python: Path, script: str) -> None:
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_equal_gpus_pass_with_their_figures(python: Path) -> None:
    write_script(python, """echo 'a warning of torch'; echo '{"tflops": [684.2, 690.0], "right": [true, true]}'""")

    found = gpu_work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, "684.2, 690.0" in found.seen) == ("ok", True)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("""echo '{"tflops": [684.2, 210.0], "right": [true, true]}'""", "210.0"),
        ("""echo '{"tflops": [684.2, 690.0], "right": [true, false]}'""", "GPU 1 computed a wrong"),
        ("echo 'RuntimeError: CUDA error: uncorrectable ECC error encountered' >&2; exit 1", "uncorrectable ECC"),
    ],
)
def test_slow_wrong_or_broken_gpu_fails(script: str, message: str, python: Path) -> None:
    write_script(python, script)

    found = gpu_work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, message in found.seen) == ("fail", True)


def test_wrong_or_missing_sum_fails(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_script(python, """echo '{"gbps": 478.0, "right": true}'""")
    assert gpu_work.gpus_sum_together(CUDA, 2).severity == "ok"
    write_script(python, """echo '{"gbps": 478.0, "right": false}'""")
    assert gpu_work.gpus_sum_together(CUDA, 2).severity == "fail"
    monkeypatch.setattr(gpu_work, "LIMIT_S", 5.2)
    write_script(python, "exec sleep 60")
    assert "longer than 0 s" in gpu_work.gpus_sum_together(CUDA, 2).seen
    assert gpu_work.gpus_sum_together(CUDA, 1).severity == "idle"


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(("tflops", "severity"), [(884.5, "ok"), (400.0, "fail")])
def test_node_with_only_slow_gpus_fails_by_the_models_peak(tflops: float, severity: str, python: Path) -> None:
    write_script(python, f"""echo '{{"tflops": [{tflops}, {tflops}], "right": [true, true]}}'""")

    found = gpu_work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, "at most 989" in found.seen) == (severity, True)


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(("gbps", "severity"), [(298.7, "ok"), (42.0, "fail")])
def test_sum_without_nvlink_fails(gbps: float, severity: str, python: Path) -> None:
    write_script(python, f"""echo '{{"gbps": {gbps}, "right": true}}'""")

    found = gpu_work.gpus_sum_together(CUDA, 2)

    assert (found.severity, "NVLink has 450" in found.seen) == (severity, True)


def test_link_bandwidth_is_that_of_the_slowest_pair() -> None:
    assert gpu_work.nvlink_gbps(TOPOLOGY, "NVIDIA H200") == 450
    assert gpu_work.nvlink_gbps(OF_FOUR, "NVIDIA H200") == 450
    assert gpu_work.nvlink_gbps(OF_FOUR.replace("NV18", "SYS", 1), "NVIDIA H200") is None
    assert gpu_work.nvlink_gbps(TOPOLOGY, "NVIDIA B200") == 900
    assert gpu_work.nvlink_gbps(TOPOLOGY.replace("NV18", "NODE"), "NVIDIA H200") is None
    assert gpu_work.nvlink_gbps("\tGPU0\nGPU0\t X \n", "NVIDIA H200") is None
    assert gpu_work.peak_tflops("NVIDIA H100 PCIe") == 756
    assert gpu_work.peak_tflops("NVIDIA T4") is None


ROCM = Settings.from_env({"VERLJOB_PLATFORM": "rocm"})
IMPORTED = ["verl", "verl.workers.engine_workers", "verl.workers.rollout.vllm_rollout"]


def answer(python: Path, **fields: object) -> None:
    """The child writes this answer to its last argument."""
    found = {"imported": IMPORTED, "failed": {}, "sleep_mode": None, "vllm_mode": "", **fields}
    write_script(python, f"for file; do :; done; printf '%s' '{json.dumps(found)}' > \"$file\"")


@pytest.mark.parametrize(
    ("fields", "severity", "message"),
    [
        ({}, "ok", "Imported: verl, verl.workers.engine_workers, verl.workers.rollout.vllm_rollout."),
        ({"sleep_mode": True, "vllm_mode": "spmd"}, "ok", "; sleep_mode is True; vllm_mode is spmd."),
        ({"failed": {"verl": "import verl.workers.fsdp_workers: ImportError: flash_attn"}}, "fail", "flash_attn"),
        ({"failed": {"vllm": "vLLM has no sleep mode"}, "sleep_mode": False}, "fail", "no sleep mode"),
        ({"failed": {"sglang": "import sglang: OSError"}}, "warn", "import sglang: OSError"),
    ],
)
def test_imports_of_a_training_are_reported(
    fields: dict[str, object], severity: str, message: str, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_work, "find_spec", lambda _: True)
    answer(python, **fields)

    found = gpu_work.training_can_be_imported(ROCM, 8)

    assert (found.severity, message in found.seen) == (severity, True)


def test_imports_that_end_their_process_fail(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_work, "find_spec", lambda _: True)
    write_script(python, "echo 'terminate called' >&2; exit 134")
    assert gpu_work.training_can_be_imported(ROCM, 8).seen == "It exited with 134: terminate called"

    monkeypatch.setattr(gpu_work, "find_spec", lambda _: None)
    assert gpu_work.training_can_be_imported(ROCM, 8).severity == "idle"


@pytest.mark.parametrize(
    ("settings", "counts", "fix"),
    [
        (ROCM, {"ray": 0, "torch": 2, "amdsmi": None}, "the Python package amdsmi, which this image does not have"),
        (ROCM, {"ray": 2, "torch": 0, "amdsmi": True}, "set rtld_global to False"),
        (ROCM, {"ray": 1, "torch": 2, "amdsmi": True}, "Compare HIP_VISIBLE_DEVICES"),
        (CUDA, {"ray": 0, "torch": 2, "amdsmi": None}, "Compare HIP_VISIBLE_DEVICES"),
    ],
)
def test_different_numbers_of_gpus_fail_with_their_fix(
    settings: Settings, counts: dict[str, int | None], fix: str, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "job_gpus", lambda *_: [object(), object()])
    monkeypatch.setattr(gpu_work, "find_spec", lambda _: counts["amdsmi"])
    write_script(python, f'case "$3" in ray) echo {counts["ray"]} ;; torch) echo {counts["torch"]} ;; esac')

    found = gpu_work.gpus_are_counted_alike(settings, 2)

    assert (found.severity, fix in found.fix) == ("fail", True)
    assert found.seen == f"The driver lists 2 GPUs, Ray counts {counts['ray']}, torch sees {counts['torch']}."


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        (
            "echo 'ImportError: no amdsmi' >&2; exit 1",
            "torch could not count the GPUs. It exited with 1: ImportError: no",
        ),
        ("exec sleep 60", "torch could not count the GPUs. It took longer than 1 s."),
    ],
)
def test_count_that_fails_is_reported_with_its_command(
    script: str, seen: str, python: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "job_gpus", lambda *_: [object(), object()])
    monkeypatch.setattr(gpu_work, "LIMIT_S", 7.0)
    write_script(python, f'case "$3" in ray) echo 2 ;; torch) {script} ;; esac')

    found = gpu_work.gpus_are_counted_alike(CUDA, 2)

    assert (found.severity, found.seen.startswith(seen)) == ("fail", True)
    assert "python3 -m verl_node.gpu.count torch cuda 2" in found.fix


def test_equal_numbers_of_gpus_pass(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "job_gpus", lambda *_: [object(), object()])
    write_script(python, "echo a warning; echo 2")

    assert gpu_work.gpus_are_counted_alike(CUDA, 2).severity == "ok"
    assert gpu_work.gpus_are_counted_alike(CUDA, 0).severity == "idle"
