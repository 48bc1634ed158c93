from __future__ import annotations

import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from verl_node import checks
from verl_node.checks.check import QUICK_S, adjusted, replace_old_names
from verl_node.checks.node import folders, gpus, limits
from verl_node.checks.result import Outcome
from verl_node.errors import BadSettings, CheckFailed, PermissionMissing
from verl_node.gpu import platforms, visible_devices
from verl_node.settings.settings import Settings

WORKER = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2", "SLURM_NODEID": "1"}


def settings(**environ: str) -> Settings:
    return Settings.from_env(environ)


def log_of(*severities: str) -> list[str]:
    logged: list[str] = []
    outcomes = [
        Outcome(f"folders.check{number}", "n2", severity, f"Seen {number}.", "", f"Fix {number}.")
        for number, severity in enumerate(severities)
    ]
    checks.require_passed(outcomes, log=logged.append)
    return logged


def test_warnings_are_logged_and_all_failures_raised_together() -> None:
    (warning,) = log_of("ok", "warn")
    assert "check1: Seen 1. Fix 1." in warning

    with pytest.raises(CheckFailed, match=r"check0: Seen 0\. .*check2: Seen 2\.") as caught:
        log_of("fail", "warn", "permission")
    assert (caught.value.fix, caught.value.host, caught.value.stage) == ("Fix 0. Fix 2.", "n2", "checks")


def test_only_missing_permissions_exit_with_77() -> None:
    with pytest.raises(PermissionMissing):
        log_of("permission", "ok")


def test_profile_disables_checks_and_sets_severity_and_threshold() -> None:
    chosen = {
        found.name: found
        for found in adjusted(
            checks.BY_NAME,
            "limits.processes_suffice=99 cache.cache_has_room=off rdma.ports_are_up=fail folders.home_is_writable=warn",
        )
    }
    assert chosen.keys() == checks.BY_NAME.keys() - {"cache.cache_has_room"}
    assert chosen["limits.processes_suffice"].threshold == 99
    assert chosen["rdma.ports_are_up"].severity == "fail"
    home = chosen["folders.home_is_writable"]
    assert home(settings(HOME="/proc/nobody"), 0).severity == "warn"
    raised = replace(checks.BY_NAME["folders.run_directory_is_shared"], severity="fail")
    assert raised(settings(**WORKER, VERLJOB_RUN_DIR="/nowhere"), 0).severity == "fail"


def test_old_check_names_are_accepted_with_a_note() -> None:
    adjustments, notes = replace_old_names(
        "places.home_is_writable=warn work.gpus_compute_alike=off places.places_have_room=2 clock.x=1"
    )

    assert (
        adjustments
        == "folders.home_is_writable=warn gpu_work.gpus_compute_alike=off folders.folders_have_room=2 clock.x=1"
    )
    assert [note.split()[1] for note in notes] == [
        "places.home_is_writable",
        "work.gpus_compute_alike",
        "places.places_have_room",
    ]
    assert "folders.home_is_writable" in notes[0]


@pytest.mark.parametrize(
    ("adjustments", "message"),
    [
        ("folders.nothing=off", "There is no check 'folders.nothing'"),
        ("folders.home_is_writable=3", "has no threshold"),
        ("limits.memory_suffices=much", "off, warn, fail or a number"),
    ],
)
def test_profile_with_unknown_check_or_value_is_rejected(adjustments: str, message: str) -> None:
    with pytest.raises(BadSettings, match=message):
        adjusted(checks.BY_NAME, adjustments)


def test_every_check_has_a_description_a_topic_and_a_time_limit() -> None:
    topics = {"ray-gcs", "nccl", "vllm", "fsdp", "slurm-container", "debug-logs", "hf-cache", "image", "memory"}
    for found in checks.CHECKS:
        assert found.about.endswith("."), found.name
        assert found.limit_s <= (180 if found.deep else QUICK_S)
        assert found.topic in topics
    assert len(checks.BY_NAME) == len(checks.CHECKS)


def test_unwritable_folder_is_a_missing_permission(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert (
        folders.run_directory_is_writable(settings(VERLJOB_RUN_DIR=str(tmp_path / "new" / "run")), 0).severity == "ok"
    )
    blocked = folders.run_directory_is_writable(settings(VERLJOB_RUN_DIR=str(tmp_path / "file" / "run")), 0)
    assert (blocked.severity, f"uid {os.getuid()}" in blocked.seen) == ("permission", True)


@pytest.mark.parametrize(
    ("platform", "gib", "severity"),
    [("cpu", 0.0625, "warn"), ("cpu", 2, "ok"), ("cuda", 0.0625, "fail"), ("rocm", 16, "warn")],
)
def test_shared_memory_is_compared_with_the_platforms_minimum(
    platform: str, gib: float, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = namedtuple("sizes", "f_frsize f_blocks")
    monkeypatch.setattr(os, "statvfs", lambda _: sizes(4096, int(gib * platforms.GIB / 4096)))

    assert limits.shared_memory_is_large(settings(VERLJOB_PLATFORM=platform), 8).severity == severity


@pytest.mark.parametrize(
    ("platform", "hard", "severity"), [("cpu", 4096, "ok"), ("cuda", 4096, "fail"), ("cuda", 1 << 20, "ok")]
)
def test_open_files_check_uses_the_hard_limit(
    platform: str, hard: int, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1024, hard))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda _, both: raised.append(both))

    assert limits.open_files_suffice(settings(VERLJOB_PLATFORM=platform), 8).severity == severity
    limits.raise_open_files()
    assert raised == [(hard, hard)]


def test_missing_gpu_devices_fail_except_on_platform_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("kfd", "renderD128", "renderD129"):
        (tmp_path / name).touch()
    rocm = replace(platforms.find("rocm"), control=(str(tmp_path / "kfd"),), devices=str(tmp_path / "renderD*"))
    monkeypatch.setitem(platforms.PLATFORMS, "rocm", rocm)

    assert gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="cpu"), 8).severity == "idle"
    assert gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="rocm"), 2).severity == "ok"
    seen = gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="rocm"), 8)
    assert (seen.severity, "2 GPU devices are visible, 8 are the job's" in seen.seen) == ("fail", True)
    (tmp_path / "kfd").unlink()
    assert "kfd is missing" in gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="rocm"), 2).seen


def test_devices_closed_by_a_cgroup_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    cuda = replace(platforms.find("cuda"), control=(), devices=str(tmp_path / "nvidia*"))
    monkeypatch.setitem(platforms.PLATFORMS, "cuda", cuda)
    monkeypatch.setattr(os, "access", lambda path, _: path[-1] in "13")

    assert visible_devices.visible_devices("cuda") == 2
    assert gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="cuda"), 2).severity == "ok"
    closed = gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="cuda"), 3)
    assert (closed.severity, "nvidia2 may not be opened" in closed.seen) == ("permission", True)
    monkeypatch.setattr(os, "access", lambda path, _: False)
    assert visible_devices.visible_devices("cuda") == 4


def test_device_masked_by_the_container_runtime_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    (tmp_path / "nvidia1").symlink_to(os.devnull)  # a mount of it looks the same to stat
    cuda = replace(platforms.find("cuda"), control=(), devices=str(tmp_path / "nvidia*"))
    monkeypatch.setitem(platforms.PLATFORMS, "cuda", cuda)

    assert gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="cuda"), 1).severity == "ok"
    assert "1 GPU devices are visible" in gpus.gpus_are_visible(settings(VERLJOB_PLATFORM="cuda"), 2).seen


@pytest.mark.parametrize(("limit", "severity"), [("max", "ok"), ("2048", "warn"), ("65536", "ok"), (None, "ok")])
def test_pids_limit_of_the_container_is_checked(
    limit: str | None, severity: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if limit is not None:
        (tmp_path / "pids.max").write_text(f"{limit}\n")
    monkeypatch.setattr(limits, "PIDS_MAX", (tmp_path / "pids.max",))
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (limits.resource.RLIM_INFINITY,) * 2)

    found = limits.processes_suffice(settings(), 8)

    assert (found.severity, "--pids-limit=4096" in found.fix) == (severity, severity == "warn")
