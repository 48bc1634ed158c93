from __future__ import annotations

import os
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
from verl_node import checks, masks, platforms
from verl_node.checks import devices, limits, memory, places
from verl_node.checks.answer import Result
from verl_node.errors import CheckFailed, PermissionMissing
from verl_node.settings import Settings


def settings(**environ: str) -> Settings:
    return Settings.from_env(environ)


def run(*results: Result) -> list[str]:
    said: list[str] = []
    answers = []
    for number, result in enumerate(results):

        def check(_: Settings, __: int, result: Result = result) -> Result:
            return result

        check.__name__ = f"check{number}"
        answers.append(check)
    checks.run(settings(), 0, say=said.append, checks=answers)
    return said


def test_a_warning_is_said_and_every_failure_is_told_at_once() -> None:
    (warning,) = run(Result("ok"), Result("warn", "Little room.", "Give more."))
    assert "check1: Little room. Give more." in warning

    with pytest.raises(CheckFailed, match=r"check0: A\. .*check1: B\.") as caught:
        run(Result("fail", "A.", "Fix A."), Result("permission", "B.", "Fix B."))
    assert caught.value.fix == "Fix A. Fix B."


def test_permissions_alone_are_77() -> None:
    with pytest.raises(PermissionMissing):
        run(Result("permission", "B.", "Fix B."), Result("ok"))


def test_a_folder_that_cannot_be_made_or_written_is_a_permission(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    assert places.run_directory_is_writable(settings(VERLJOB_RUN_DIR=str(tmp_path / "new" / "run")), 0).severity == "ok"
    blocked = places.run_directory_is_writable(settings(VERLJOB_RUN_DIR=str(tmp_path / "file" / "run")), 0)
    assert (blocked.severity, f"uid {os.getuid()}" in blocked.seen) == ("permission", True)


@pytest.mark.parametrize(
    ("platform", "gib", "severity"),
    [("cpu", 0.0625, "warn"), ("cpu", 2, "ok"), ("cuda", 0.0625, "fail"), ("rocm", 16, "warn")],
)
def test_shared_memory_is_measured_against_its_platform(
    platform: str, gib: float, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = namedtuple("sizes", "f_frsize f_blocks")
    monkeypatch.setattr(os, "statvfs", lambda _: sizes(4096, int(gib * platforms.GIB / 4096)))

    assert memory.shared_memory_is_large(settings(VERLJOB_PLATFORM=platform), 8).severity == severity


@pytest.mark.parametrize(
    ("platform", "hard", "severity"), [("cpu", 4096, "ok"), ("cuda", 4096, "fail"), ("cuda", 1 << 20, "ok")]
)
def test_open_files_are_measured_against_the_hard_limit(
    platform: str, hard: int, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (1024, hard))
    monkeypatch.setattr(limits.resource, "setrlimit", lambda _, both: raised.append(both))

    assert limits.open_files_suffice(settings(VERLJOB_PLATFORM=platform), 8).severity == severity
    assert raised == [(hard, hard)]


def test_missing_gpu_devices_fail_and_the_platform_cpu_has_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("kfd", "renderD128", "renderD129"):
        (tmp_path / name).touch()
    rocm = replace(platforms.of("rocm"), control=(str(tmp_path / "kfd"),), devices=str(tmp_path / "renderD*"))
    monkeypatch.setitem(platforms.PLATFORMS, "rocm", rocm)

    assert devices.gpus_are_visible(settings(VERLJOB_PLATFORM="cpu"), 8).severity == "ok"
    assert devices.gpus_are_visible(settings(VERLJOB_PLATFORM="rocm"), 2).severity == "ok"
    seen = devices.gpus_are_visible(settings(VERLJOB_PLATFORM="rocm"), 8)
    assert (seen.severity, "2 GPU devices are visible, 8 are the job's" in seen.seen) == ("fail", True)
    (tmp_path / "kfd").unlink()
    assert "kfd is missing" in devices.gpus_are_visible(settings(VERLJOB_PLATFORM="rocm"), 2).seen


def test_devices_that_a_cgroup_closes_are_the_neighbours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"nvidia{number}").touch()
    cuda = replace(platforms.of("cuda"), control=(), devices=str(tmp_path / "nvidia*"))
    monkeypatch.setitem(platforms.PLATFORMS, "cuda", cuda)
    monkeypatch.setattr(os, "access", lambda path, _: path[-1] in "13")

    assert masks.visible_devices("cuda") == 2
    assert devices.gpus_are_visible(settings(VERLJOB_PLATFORM="cuda"), 2).severity == "ok"
    closed = devices.gpus_are_visible(settings(VERLJOB_PLATFORM="cuda"), 3)
    assert (closed.severity, "nvidia2 may not be opened" in closed.seen) == ("permission", True)
    monkeypatch.setattr(os, "access", lambda path, _: False)
    assert masks.visible_devices("cuda") == 4


@pytest.mark.parametrize(("told", "severity"), [("max", "ok"), ("2048", "warn"), ("65536", "ok"), (None, "ok")])
def test_the_pids_limit_of_the_container_is_looked_at(
    told: str | None, severity: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if told is not None:
        (tmp_path / "pids.max").write_text(f"{told}\n")
    monkeypatch.setattr(limits, "PIDS_MAX", (tmp_path / "pids.max",))
    monkeypatch.setattr(limits.resource, "getrlimit", lambda _: (limits.resource.RLIM_INFINITY,) * 2)

    found = limits.processes_suffice(settings(), 8)

    assert (found.severity, "--pids-limit=4096" in found.fix) == (severity, severity == "warn")
