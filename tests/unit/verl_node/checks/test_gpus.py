"""Checks of GPUs.

Recorded: `nvidia-smi --query-gpu=…` of a machine with two H200s, driver 580.159.04; its --query-remapped-rows printed
`0, 0, No, No` for both. AMD's cards are trees of /sys. The names of their files are the kernel documentation's
(gpu/amdgpu/driver-misc, gpu/amdgpu/ras); the values of an MI300X come from such nodes: gfx_target_version 90402
(ROCm/rocm-cli#343), device 0x74a1 (rocminfo in ROCm/legacy-rocm-build#4414), card1, card9 … with 8 render nodes each
(ROCm/legacy-rocm-build#4411, ROCm/rocDecode#38), seven of them of amdgpu_xcp.0 and so on, without the card's files
(ROCm/k8s-device-plugin#157). Each half of an MI250 is a card (rocminfo in ROCm/aiter#179).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from verl_node.checks import runner
from verl_node.checks.node import gpus
from verl_node.checks.result import Result
from verl_node.gpu import platforms, status, visible_devices
from verl_node.settings.settings import Settings

from tests.support.paths import RECORDED

H200 = (RECORDED / "nvidia_smi" / "nvidia-smi-h200.csv").read_text()
SOUND = "GPU-d4e0b26e-0ed4-0e46-4c53-f162bfbca063, No, No\nGPU-a3d40f9a-13bb-7c55-3a00-09414b4c54e4, No, No\n"
CHECKS = (
    gpus.driver_answers,
    gpus.memory_is_free,
    gpus.memory_is_sound,
    gpus.clocks_are_not_held_down,
    gpus.driver_fits_the_image,
    gpus.architecture_fits_the_image,
)
Smi = Callable[..., None]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gpus._query.cache_clear()
    yield
    gpus._query.cache_clear()


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """Writes an nvidia-smi that prints these states and remapped rows."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    def write(states: str = H200, rows: str = SOUND, script: str = "") -> None:
        (tmp_path / "states").write_text(states)
        (tmp_path / "rows").write_text(rows)
        body = script or f'case "$1" in *remapped*) cat {tmp_path}/rows ;; *) cat {tmp_path}/states ;; esac'
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    return write


def run(name: str, count: int = 2, **environ: str) -> Result:
    settings = Settings.from_env({"VERLJOB_PLATFORM": "cuda", **environ})
    return next(check for check in CHECKS if check.name == f"gpus.{name}")(settings, count)


def test_two_healthy_h200s_pass(smi: Smi) -> None:
    smi()

    settings = Settings.from_env({"VERLJOB_PLATFORM": "cuda"})
    assert {check.name: check(settings, 2).severity for check in CHECKS} == {check.name: "ok" for check in CHECKS}
    facts = runner.gather_facts(settings, 2)
    assert (facts["driver"], facts["models"]) == ("580.159.04", ["NVIDIA H200"])
    assert facts["gpu_total"] == facts["gpu_free"] == 143771 << 20


@pytest.mark.parametrize(
    ("check", "healthy", "faulty", "message"),
    [
        ("memory_is_free", "143771, 0,", "143771, 81920,", "80.0 of 140 GiB"),
        ("memory_is_sound", "0, 0, Not Active", "0, 3, Not Active", "3 uncorrected errors"),
        ("clocks_are_not_held_down", "Not Active, Not Active\n", "Not Active, Active\n", "hw_power_brake_slowdown"),
    ],
)
def test_faulty_gpu_is_named(check: str, healthy: str, faulty: str, message: str, smi: Smi) -> None:
    first, _, second = H200.partition("\n")
    assert healthy in second or healthy in second + "\n"
    smi(f"{first}\n{second.replace(healthy, faulty)}")

    found = run(check)

    assert found.severity in ("warn", "fail")
    assert message in found.seen
    assert "GPU-a3d40f9a" in found.seen
    assert "GPU-d4e0b26e" not in found.seen


def test_pending_row_remaps_are_reported(smi: Smi) -> None:
    smi(rows=SOUND.replace("063, No, No", "063, Yes, No"))
    assert "waits to be replaced by a reset" in run("memory_is_sound").seen
    smi(rows="")  # an A10 has no remapped rows
    assert run("memory_is_sound").severity == "ok"


def test_only_gpus_in_the_jobs_mask_are_checked(smi: Smi) -> None:
    smi(H200.replace("143771, 0,", "143771, 81920,", 1))

    assert run("memory_is_free", 1, CUDA_VISIBLE_DEVICES="1").severity == "ok"
    assert run("memory_is_free", 1, CUDA_VISIBLE_DEVICES="0").severity == "fail"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error'; exit 15", "Unknown Error"),
        ("sleep 60", "did not answer within 0 s"),
        (f"echo '{H200.splitlines()[0]}'", "lists 1 GPUs"),
    ],
)
def test_driver_that_lost_a_gpu_is_a_single_failure(
    script: str, message: str, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "TIMEOUT_S", 0.3)
    smi(script=script)

    assert message in run("driver_answers").seen
    assert run("clocks_are_not_held_down").severity in ("ok", "idle")  # of the remaining GPU, or of none


@pytest.mark.parametrize(
    ("torch", "driver", "severity"),
    [
        ("2.11.0+cu130", "580.65.06", "ok"),
        ("2.11.0+cu130", "570.86.10", "fail"),
        ("2.8.0+cu128", "535.183.01", "ok"),
        ("2.8.0+cu128", "470.57.02", "fail"),
        ("2.11.0", "470.57.02", "ok"),  # its CUDA is unknown
    ],
)
def test_driver_must_support_the_cuda_of_torch(
    torch: str, driver: str, severity: str, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "installed", lambda _: torch)
    smi(H200.replace("580.159.04", driver))

    assert run("driver_fits_the_image").severity == severity


@pytest.mark.parametrize(
    ("built", "capability", "severity"),
    [
        ("7.0 7.5 8.0 8.9 9.0 10.0+PTX", "9.0", "ok"),
        ("8.0 8.6", "9.0", "fail"),
        ("8.0+PTX", "9.0", "ok"),
        ("8.0", "8.6", "ok"),
        ("9.0a", "9.0", "ok"),
        ("", "9.0", "ok"),
        ("", "7.0", "fail"),  # CUDA 13 does not support Volta
    ],
)
def test_image_must_be_compiled_for_the_gpus(
    built: str, capability: str, severity: str, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "installed", lambda _: "2.11.0+cu130")
    smi(H200.replace(" 9.0,", f" {capability},"))

    assert run("architecture_fits_the_image", TORCH_CUDA_ARCH_LIST=built).severity == severity


class Amd:
    """Two MI300X below a folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        for cpu in (0, 1):
            self.node(cpu, "cpu_cores_count 96", "simd_count 0", "gfx_target_version 0", "drm_render_minor 0")
        for number in (128, 136):
            self.card(number, (number - 128) // 8 + 2, "gfx_target_version 90402", "AMD Instinct MI300X OAM")
            for partition in range(1, 8):
                xcp = root / f"drm/card{number - 127 + partition}/device/drm/renderD{number + partition}"
                xcp.mkdir(parents=True)
                (root / f"dev/renderD{number + partition}").touch()
        rocm = replace(platforms.find("rocm"), devices=str(root / "dev/renderD*"), use_files=(str(root), str(root)))
        monkeypatch.setitem(platforms.PLATFORMS, "rocm", rocm)
        monkeypatch.setattr(platforms, "DRM", str(root / "drm/card[0-9]*/device"))
        monkeypatch.setattr(platforms, "KFD_NODES", root / "kfd")

    def card(self, number: int, node: int, version: str, name: str) -> None:
        (self.root / f"drm/card{number - 127}/device/drm/renderD{number}").mkdir(parents=True)
        (self.root / f"dev/renderD{number}").parent.mkdir(exist_ok=True)
        (self.root / f"dev/renderD{number}").touch()
        for file, text in {
            "mem_info_vram_total": "206141652992",
            "mem_info_vram_used": "297652224",
            "gpu_busy_percent": "0",
            "product_name": name,
            "ras/umc_err_count": "ue: 0\nce: 2",
            "hwmon/hwmon7/temp2_input": "43000",
            "hwmon/hwmon7/temp2_crit": "100000",
        }.items():
            self.write(number, file, text)
        self.node(
            node, "cpu_cores_count 0", "simd_count 1216", version, "device_id 29857", f"drm_render_minor {number}"
        )

    def node(self, number: int, *lines: str) -> None:
        (self.root / f"kfd/{number}").mkdir(parents=True)
        (self.root / f"kfd/{number}/properties").write_text("".join(f"{line}\n" for line in lines))

    def write(self, number: int, name: str, text: str) -> None:
        file = self.root / f"drm/card{number - 127}/device" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


@pytest.fixture
def amd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Amd:
    return Amd(tmp_path, monkeypatch)


def test_two_healthy_mi300x_pass(amd: Amd) -> None:
    settings = Settings.from_env({"VERLJOB_PLATFORM": "rocm", "PYTORCH_ROCM_ARCH": "gfx90a;gfx942"})

    assert {check.name: check(settings, 2).severity for check in CHECKS} == {check.name: "ok" for check in CHECKS}
    assert runner.gather_facts(settings, 2)["models"] == ["AMD Instinct MI300X OAM"]


@pytest.mark.parametrize(
    ("check", "file", "text", "message"),
    [
        ("memory_is_free", "mem_info_vram_used", "177386942464", "renderD136 165.2 of 192 GiB"),
        ("memory_is_sound", "ras/umc_err_count", "ue: 1\nce: 9", "renderD136 1 uncorrected errors"),
        ("clocks_are_not_held_down", "hwmon/hwmon7/temp2_input", "101000", "renderD136 over its critical"),
    ],
)
def test_faulty_amd_gpu_is_named_by_its_render_node(check: str, file: str, text: str, message: str, amd: Amd) -> None:
    amd.write(136, file, text)

    assert message in run(check, VERLJOB_PLATFORM="rocm").seen


def test_image_without_code_for_the_amd_gpu_fails(amd: Amd) -> None:
    found = run("architecture_fits_the_image", VERLJOB_PLATFORM="rocm", PYTORCH_ROCM_ARCH="gfx90a;gfx1100")
    assert (found.severity, "gfx942" in found.seen) == ("fail", True)


def test_cards_of_other_jobs_do_not_count(amd: Amd) -> None:
    amd.write(136, "mem_info_vram_used", "177386942464")
    (amd.root / "dev/renderD136").unlink()

    assert run("memory_is_free", 1, VERLJOB_PLATFORM="rocm").severity == "ok"
    assert "lists 1 GPUs" in run("driver_answers", VERLJOB_PLATFORM="rocm").seen


def test_unused_partitions_of_an_mi300x_do_not_count(amd: Amd) -> None:
    assert visible_devices.visible_devices("rocm") == len(status.read_status("rocm", 1.0)) == 2

    amd.node(4, "gfx_target_version 90402", "drm_render_minor 129")  # now it is partitioned
    assert visible_devices.visible_devices("rocm") == len(status.read_status("rocm", 1.0)) == 3


def test_amd_gpus_are_sorted_as_masks_number_them(amd: Amd) -> None:
    for node, number in enumerate((152, 144), start=10):  # card25 and card17: card9 is before both
        amd.card(number, node, "gfx_target_version 90402", "AMD Instinct MI300X OAM")

    mask = {"VERLJOB_PLATFORM": "rocm", "ROCR_VISIBLE_DEVICES": "1,2"}
    assert [gpu.name for gpu in gpus.job_gpus(Settings.from_env(mask), 2)] == ["renderD136", "renderD152"]


def test_each_half_of_an_mi250_counts_as_a_gpu(amd: Amd) -> None:
    for node, number in enumerate((160, 161), start=14):
        amd.card(number, node, "gfx_target_version 90010", "AMD Instinct MI250X / MI250")

    found = status.read_status("rocm", 1.0)
    assert [gpu.architecture for gpu in found] == ["gfx942", "gfx942", "gfx90a", "gfx90a"]


def test_without_kfd_every_render_node_counts(amd: Amd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "KFD_NODES", amd.root / "nothing")

    assert visible_devices.visible_devices("rocm") == 16


def test_platform_cpu_queries_no_driver(smi: Smi) -> None:
    smi(script="exit 1")

    assert {run(check.name[5:], VERLJOB_PLATFORM="cpu").severity for check in CHECKS} == {"idle"}
