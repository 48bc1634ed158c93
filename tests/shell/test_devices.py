"""slurm/lib/node/spec/devices.sh: devices are passed by physical identity."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.shell.rig import Rig

DEVICES = "common/log common/verdict common/env_table node/spec/devices"


SHOW = "trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence' EXIT\n"  # what `fail` leaves to node.sh


UUIDS = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"]


def platform(name: str) -> str:
    return f'env_table::read "$VERLJOB_HOME/slurm/platforms/{name}.env"\n'


def collected(rig: Rig, name: str, root: Path, **slurm: str) -> subprocess.CompletedProcess[str]:
    script = f'{SHOW}{platform(name)}TABLE[devices]="" TABLE[devices_optional]=""\ndevices::collect "{root}"\n'
    script += 'trap - EXIT\nprintf \'%s\\n\' "${CONTAINER_GPUS[@]}" "${CONTAINER_DEVICES[@]}"'
    return rig.source(DEVICES, script, VERLJOB_PLATFORM=name, **slurm)


@pytest.fixture
def nvidia(rig: Rig) -> Path:
    """The driver's files; the order of the PCI addresses is not that of the minor numbers."""
    for minor, (address, uuid) in enumerate(zip(["0000:c1:00.0", "0000:01:00.0", "0000:41:00.0"], UUIDS)):
        folder = rig.root / "proc" / "driver" / "nvidia" / "gpus" / address
        folder.mkdir(parents=True)
        fields = {
            "Model": "NVIDIA H200",
            "IRQ": "18",
            "GPU UUID": uuid,
            "Bus Location": address,
            "Device Minor": str(minor),
        }
        (folder / "information").write_text("".join(f"{key}: \t {value}\n" for key, value in fields.items()))
    return rig.root


@pytest.fixture
def amd(rig: Rig) -> Path:
    """Render nodes 128 (graphics of the board) and 129 to 131 (AMD)."""
    for minor, vendor in ((128, "0x1a03"), (129, "0x1002"), (130, "0x1002"), (131, "0x1002")):
        folder = rig.root / "sys" / "class" / "drm" / f"renderD{minor}" / "device"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n")
    return rig.root


def test_nvidia_gpus_are_passed_by_uuid(rig: Rig, nvidia: Path) -> None:
    done = collected(rig, "cuda", nvidia, SLURM_STEP_GPUS="0,2", SLURM_GPUS_ON_NODE="2")

    assert done.stdout.split() == [UUIDS[0], UUIDS[2]]


@pytest.mark.parametrize("ids", ["0,2", "129,131"], ids=["counted", "numbers of render nodes"])
def test_amd_gpus_are_passed_by_render_node(rig: Rig, amd: Path, ids: str) -> None:
    done = collected(rig, "rocm", amd, SLURM_STEP_GPUS=ids, SLURM_GPUS_ON_NODE="2")

    assert done.stdout.split() == ["/dev/dri/renderD129", "/dev/dri/renderD131"]


@pytest.mark.parametrize(("name", "gpu"), [("cuda", "5"), ("rocm", "5"), ("rocm", "128"), ("cpu", "0")])
def test_a_missing_gpu_exits_with_69(rig: Rig, nvidia: Path, amd: Path, name: str, gpu: str) -> None:
    done = collected(rig, name, rig.root, SLURM_JOB_GPUS=gpu)

    assert done.returncode == 69
    assert f"GPU {gpu} of the job is not on n1" in done.stdout
    assert "--exclude=n1" in done.stdout


@pytest.mark.parametrize("ids", ["", "NoDevFiles"])
def test_gpus_without_numbers_from_slurm_exit_with_69(rig: Rig, ids: str) -> None:
    done = collected(rig, "cuda", rig.root, SLURM_STEP_GPUS=ids, SLURM_GPUS_ON_NODE="8")

    assert done.returncode == 69
    assert "gres.conf needs File=" in done.stdout


def test_without_gpus_there_are_no_devices(rig: Rig) -> None:
    assert collected(rig, "cpu", rig.root).stdout.split() == []


def test_an_optional_device_is_left_out_with_a_warning(rig: Rig) -> None:
    table = "TABLE[devices_optional]='/dev/null /dev/no-fabric'"

    done = rig.source(DEVICES, f"{table}\ndevices::collect\nprintf '%s\\n' \"${{CONTAINER_DEVICES[@]}}\"")

    assert done.stdout == "/dev/null\n"
    assert "warning: no /dev/no-fabric on n1" in done.stderr


def test_a_missing_required_device_exits_with_69(rig: Rig) -> None:
    done = rig.source(DEVICES, f"{SHOW}TABLE[devices]=/dev/no-kfd\ndevices::collect", VERLJOB_PLATFORM="rocm")

    assert done.returncode == 69
    assert "/dev/no-kfd is not on n1" in done.stdout


def test_groups_are_those_of_the_account_and_the_devices(rig: Rig) -> None:
    tty = os.stat("/dev/tty").st_gid
    done = rig.source(DEVICES, "TABLE[devices]=/dev/tty\ndevices::collect\nprintf '%s\\n' \"${CONTAINER_GROUPS[@]}\"")

    assert set(map(int, done.stdout.split())) == {*os.getgroups(), tty} - {0, os.getgid()}
