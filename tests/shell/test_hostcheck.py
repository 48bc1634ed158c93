"""Host checks of node.sh, on test trees of /proc and /sys."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.shell.rig import Rig

LIBRARIES = "common/log common/verdict common/process node/container node/host_check"
# `nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory` of a machine with two H200s, driver 580.159.04, while a
# process of torch used 4 GiB of the second.
IN_USE = "GPU-a3d40f9a-13bb-7c55-3a00-09414b4c54e4, 584, 4706"
OURS = "CONTAINER_GPUS=(GPU-d4e0b26e-0ed4-0e46-4c53-f162bfbca063 GPU-a3d40f9a-13bb-7c55-3a00-09414b4c54e4)"
UPTIME = 2_000_000


class Host:
    """A host's /proc and /sys in a folder."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.root = rig.root / "host"
        self.write("proc/uptime", f"{UPTIME}.51 12345.00\n")
        self.tool("nvidia-smi", "exit 9")
        self.tool("dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def tool(self, name: str, script: str) -> None:
        path = self.rig.root / "bin" / name
        path.unlink(missing_ok=True)  # a link to the fake of all tests
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def nvidia(self, output: str) -> None:
        self.write("proc/driver/nvidia/version", "NVRM version: 580.159.04\n")
        self.tool("nvidia-smi", f"printf '%s\\n' '{output}'")

    def process(self, pid: int, name: str, cgroup: str = "0::/user.slice\n", environ: str = "") -> None:
        self.write(f"proc/{pid}/comm", f"{name}\n")
        self.write(f"proc/{pid}/cgroup", cgroup)
        self.write(f"proc/{pid}/environ", environ)

    def results(self, script: str = OURS) -> dict[str, list[str]]:
        """Run the checks; return the fields of each one's line."""
        file = self.rig.root / "checks"
        lines = ["host_check::start", script, f"IMAGE_ID=sha256:1 host_check::write_results {file}"]
        done = self.rig.source(LIBRARIES, "\n".join(lines), HOSTCHECK_ROOT=str(self.root))
        assert done.returncode == 0, done.stderr
        return {line.split("\t")[0]: line.split("\t")[1:] for line in file.read_text().splitlines()}


@pytest.fixture
def host(rig: Rig) -> Host:
    return Host(rig)


def test_an_idle_host_passes_all_checks(host: Host) -> None:
    host.nvidia("")

    found = host.results()

    assert {fields[0] for fields in found.values()} == {"ok"}
    assert set(found) == {
        f"host.{name}" for name in ("gpus_are_idle", "gpus_said_nothing", "no_stale_ray", "image_is_here")
    }


@pytest.mark.parametrize(
    ("slurmd", "silence", "severity"),
    [("300", "60", "ok"), ("60", "60", "warn"), ("89", "60", "warn"), ("90", "60", "ok")],
)
def test_doctor_warns_of_a_short_slurmd_timeout(host: Host, slurmd: str, silence: str, severity: str) -> None:
    # `scontrol show config` of Slurm 22.05
    host.tool("scontrol", f"printf 'SlurmdSyslogDebug       = (null)\\nSlurmdTimeout           = {slurmd} sec\\n'")

    found = host.results(f"{OURS}\nVERLJOB_DOCTOR=quick SLURM_NODEID=0 VERLJOB_SILENCE_S={silence}")

    assert found["host.slurm_waits_longer"][0] == severity
    assert severity == "ok" or f"after {slurmd} s" in found["host.slurm_waits_longer"][1]


@pytest.mark.parametrize(
    ("doctor", "node", "script", "severity"),
    [
        ("", "0", "60 sec", None),
        ("quick", "1", "60 sec", "ok"),
        ("quick", "0", "0 sec", "ok"),
        ("quick", "0", "; exit 1", "ok"),
    ],
)
def test_slurmd_timeout_is_read_only_by_doctor_on_the_first_node(
    host: Host, doctor: str, node: str, script: str, severity: str | None
) -> None:
    host.tool("scontrol", f"echo SlurmdTimeout           = {script}")

    found = host.results(f"{OURS}\nVERLJOB_DOCTOR={doctor} SLURM_NODEID={node} VERLJOB_SILENCE_S=60")

    assert found.get("host.slurm_waits_longer", [None])[0] == severity


def test_a_process_on_a_gpu_of_the_job_is_reported_with_account_and_job(host: Host) -> None:
    host.nvidia(IN_USE)
    host.process(584, "python3", "4:memory:/slurm/uid_1000/job_77/step_0\n")

    severity, seen, _, fix = host.results()["host.gpus_are_idle"]

    assert severity == "fail"
    assert "GPU-a3d40f9a-13bb-7c55-3a00-09414b4c54e4 4706 MiB by 584 (python3) of root, job 77" in seen
    assert "--exclude=n1" in fix


def test_other_gpus_and_a_drivers_own_memory_are_not_reported(host: Host) -> None:
    host.nvidia(IN_USE)
    assert host.results("CONTAINER_GPUS=(GPU-d4e0b26e-0ed4-0e46-4c53-f162bfbca063)")["host.gpus_are_idle"][0] == "ok"
    host.nvidia(IN_USE.replace("4706", "508"))
    assert host.results()["host.gpus_are_idle"][0] == "ok"


def test_processes_on_amd_gpus_are_read_from_the_driver(host: Host) -> None:
    """The kernel's format: kfd/proc/<pid>/vram_<gpu_id> in bytes, drm_render_minor of each node."""
    host.write("sys/class/kfd/kfd/topology/nodes/2/gpu_id", "28851\n")
    host.write("sys/class/kfd/kfd/topology/nodes/2/properties", "gfx_target_version 90402\ndrm_render_minor 136\n")
    host.write("sys/class/kfd/kfd/proc/1168514/vram_28851", "177386942464\n")
    host.process(1168514, "pt_main_thread")

    seen = host.results("CONTAINER_DEVICES=(/dev/kfd /dev/dri/renderD136)")["host.gpus_are_idle"]
    assert (seen[0], "/dev/dri/renderD136 169169 MiB by 1168514 (pt_main_thread)" in seen[1]) == ("fail", True)
    assert host.results("CONTAINER_DEVICES=(/dev/kfd /dev/dri/renderD128)")["host.gpus_are_idle"][0] == "ok"


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "warn"),
        ("NVRM: Xid (PCI:0000:5d:00): 13, pid=2171, name=python3, Graphics Exception", "ok"),  # the program's own
        ("amdgpu 0000:c1:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block", "warn"),
        ("nvidia-nvlink: Nvlink Core is being initialized, major device number 240", "ok"),
    ],
)
def test_a_kernel_message_about_a_gpu_that_needs_a_reset_is_reported(host: Host, line: str, severity: str) -> None:
    """The Xid lines are from NVIDIA's catalogue, the last line is from a machine with H200s."""
    host.nvidia("")
    (host.rig.root / "log").write_text(f"[{UPTIME - 60}.123456] {line}\n")
    host.tool("dmesg", f"cat {host.rig.root}/log")
    assert host.results()["host.gpus_said_nothing"][0] == severity

    (host.rig.root / "log").write_text(f"[   60.123456] {line}\n")  # weeks ago
    assert host.results()["host.gpus_said_nothing"][0] == "ok"


def test_ray_outside_of_a_running_job_is_stale(host: Host) -> None:
    host.rig.fake("jobs", "20\tRUNNING\n33\tRUNNING\n")
    host.process(401, "raylet", environ="HOME=/home/me\0")
    host.process(402, "gcs_server", environ="SLURM_JOB_ID=19\0")
    host.process(403, "raylet", environ="PATH=/bin\0SLURM_JOB_ID=33\0")
    host.process(404, "python3")

    severity, seen, _, fix = host.results()["host.no_stale_ray"]

    assert severity == "warn"
    assert "401 (raylet) of root, of no job" in seen
    assert "402 (gcs_server) of root, of the ended job 19" in seen
    assert "403" not in seen
    assert "kill" in fix


def test_a_hanging_driver_delays_the_launch_by_three_seconds_at_most(host: Host) -> None:
    host.nvidia("")
    host.tool("nvidia-smi", "trap '' TERM; sleep 60")
    began = time.monotonic()

    host.results()

    assert time.monotonic() - began < 4.5


def test_the_container_gets_the_results_of_the_host_checks(rig: Rig) -> None:
    rig.fake("container", rig.container("code=0", before='cp "$FOLDER/out/host-checks" "$FAKE/seen"'))

    assert rig.node().returncode == 0
    assert "host.image_is_here\tok\tsha256:1234" in rig.faked("seen")


def test_ray_of_another_account_is_not_reported(host: Host) -> None:
    host.process(405, "raylet")
    os.chown(host.root / "proc" / "405", 65534, 65534)

    assert host.results()["host.no_stale_ray"][0] == "ok"
