"""Checks of folders, caches, clocks, debuggers and allocators, each with its fault put in."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from verl_node.checks.check import Check
from verl_node.checks.node import cache, clock, debug, folders, limits, vllm
from verl_node.checks.result import Result
from verl_node.settings.settings import Settings

SLURM = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NNODES": "2"}
TOKEN = {"HF_TOKEN": "hf_one"}
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def asked(check: Check, **environ: Any) -> Result:
    return check(Settings.from_env({name: str(value) for name, value in environ.items()}), 8)


def test_a_run_directory_that_only_the_head_sees_is_told(tmp_path: Path) -> None:
    worker = {**SLURM, "SLURM_NODEID": "1", "VERLJOB_RUN_DIR": tmp_path}

    assert asked(folders.run_directory_is_shared, **worker).severity == "warn"
    (tmp_path / "overrides").touch()
    assert asked(folders.run_directory_is_shared, **worker).severity == "ok"


@pytest.mark.parametrize(
    ("blocks_files_and_free", "told"),
    [
        ((10**9, 10**6, 10**6), ""),
        ((1000, 10**6, 10**6), "0.0 GiB left"),
        ((10**9, 10**6, 12), "12 inodes left of 1000000"),
        ((10**9, 0, 0), ""),  # btrfs counts none
    ],
)
def test_room_and_inodes_are_counted(
    blocks_files_and_free: tuple[int, int, int], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = namedtuple("sizes", "f_frsize f_bavail f_files f_favail")
    monkeypatch.setattr(os, "statvfs", lambda _: sizes(4096, *blocks_files_and_free))

    here = {"VERLJOB_RUN_DIR": tmp_path / "new", "HOME": tmp_path}
    found = asked(folders.folders_have_room, **here)
    assert (found.severity, told in found.seen) == ("fail" if told else "ok", True)
    assert asked(cache.cache_has_room, **here).severity == ("warn" if told else "ok")
    assert asked(cache.cache_has_room, **here, VERLJOB_MODEL="/models/mine").severity == "ok"


def test_the_cache_is_one_place(tmp_path: Path) -> None:
    right = {"HF_HOME": tmp_path, "TRANSFORMERS_CACHE": tmp_path / "hub"}
    assert asked(cache.cache_is_one_place, **right).severity == "ok"
    guides = asked(cache.cache_is_one_place, HF_HOME=tmp_path, TRANSFORMERS_CACHE=tmp_path)
    assert (guides.severity, str(tmp_path / "hub") in guides.fix) == ("warn", True)
    assert asked(cache.cache_is_one_place, **right, HF_HUB_CACHE="/elsewhere").severity == "warn"


@pytest.mark.parametrize("folder", [".", "hub", "hub/.locks", "hub/models--Qwen--Qwen2-7B-Instruct"])
def test_a_folder_of_the_cache_that_belongs_to_another_is_77(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    really = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != tmp_path / folder and really(path, mode)
    )  # root may do everything

    found = asked(cache.cache_is_writable, HF_HOME=tmp_path, VERLJOB_MODEL="Qwen/Qwen2-7B-Instruct")

    assert found.severity == "permission"
    assert f"chown -R {os.getuid()} {tmp_path / folder}" in found.fix
    assert asked(cache.cache_is_writable, HF_HOME=tmp_path / "nothing" / "yet").severity == "ok"


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(cache.cache_has_locks, HF_HOME=tmp_path / "new").severity == "ok"

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    found = asked(cache.cache_has_locks, HF_HOME=tmp_path)
    assert (found.severity, "Function not implemented" in found.seen) == ("fail", True)


MOUNTINFO = """\
595 519 0:59 / / rw,relatime master:1 - overlay overlay rw,lowerdir=/l,upperdir=/u,workdir=/w
597 595 0:61 / /dev/shm rw,nosuid - tmpfs shm rw,size=8388608k
602 595 0:44 /home/me /home/me rw,relatime - nfs4 server:/home rw,vers=4.2
603 595 8:1 /local /local/a\\040b rw,relatime - ext4 /dev/sda1 rw
"""


@pytest.mark.parametrize(
    ("home", "severity"),
    [
        ("/home/me/.cache/huggingface", "ok"),
        ("/root/.cache/huggingface", "warn"),
        ("/dev/shm/hf", "warn"),  # noqa: S108
        ("/local/a b/hf", "ok"),
        ("/home/meanwhile/hf", "warn"),
    ],
)
def test_a_cache_that_goes_with_the_container_is_told(
    home: str, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    monkeypatch.setattr(cache, "MOUNTS", tmp_path / "mountinfo")

    assert asked(cache.cache_is_kept, **SLURM, HF_HOME=home).severity == severity


def test_a_gated_model_wants_a_token_unless_it_is_there(tmp_path: Path) -> None:
    assert asked(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL=LLAMA).severity == "warn"
    assert asked(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL="Qwen/Qwen2-7B").severity == "ok"
    assert asked(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL=LLAMA, **TOKEN).severity == "ok"
    (tmp_path / "hub" / "models--meta-llama--Llama-3.1-8B-Instruct").mkdir(parents=True)
    assert asked(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL=LLAMA).severity == "ok"


def test_a_clock_before_the_image_and_a_missing_bundle_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(clock.clock_is_after_the_image).severity == "ok"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 400 * 86400)
    assert "certificate" in asked(clock.clock_is_after_the_image).fix

    assert asked(clock.certificates_are_here, SSL_CERT_FILE="/nowhere/ca.pem").severity == "fail"
    assert asked(clock.certificates_are_here).severity == "ok"


def test_of_rays_debuggers_one_is_on_and_has_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "1"}
    assert asked(debug.one_debugger_is_on, **both).severity == "fail"
    assert asked(debug.one_debugger_is_on, RAY_DEBUG="legacy").severity == "ok"

    new = {"RAY_DEBUG_POST_MORTEM": "1"}
    monkeypatch.setattr(debug, "find_spec", lambda _: object())
    monkeypatch.setattr(debug, "installed", lambda _: "2.39.0")
    assert "2.39.0" in asked(debug.debugger_has_what_it_needs, **new).seen
    monkeypatch.setattr(debug, "installed", lambda _: "2.60.0")
    assert asked(debug.debugger_has_what_it_needs, **new).severity == "ok"
    monkeypatch.setattr(debug, "find_spec", lambda _: None)
    assert "debugpy" in asked(debug.debugger_has_what_it_needs, **new).seen
    assert asked(debug.debugger_has_what_it_needs).severity == "ok"

    assert "debugpy" in asked(debug.debugger_has_what_it_needs, VERLJOB_DEBUG="1").seen
    assert asked(debug.debugger_has_what_it_needs, VERLJOB_DEBUG="legacy", **new).severity == "ok"
    assert asked(debug.one_debugger_is_on, VERLJOB_DEBUG="1", **both).severity == "ok"


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_expandable_segments_and_vllms_sleep_mode_exclude_each_other(name: str) -> None:
    assert asked(vllm.allocator_settings_fit, **{name: "backend:native,expandable_segments: True"}).severity == "fail"
    assert asked(vllm.allocator_settings_fit, **{name: "expandable_segments:False"}).severity == "ok"


@pytest.mark.parametrize(("scope", "severity"), [("1", "ok"), ("2", "warn"), ("3", "warn"), (None, "ok")])
def test_a_kernel_that_forbids_tracing_is_told(
    scope: str | None, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRACING", tmp_path / "ptrace_scope")
    if scope:
        (tmp_path / "ptrace_scope").write_text(f"{scope}\n")

    assert asked(limits.processes_can_be_traced).severity == severity


@pytest.mark.parametrize(("told", "severity"), [("max", "ok"), ("4294967296", "warn"), ("8589934592", "ok")])
def test_a_cgroup_that_is_tighter_than_the_job_is_told(
    told: str, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(f"{told}\n")
    monkeypatch.setattr(limits, "MEMORY_MAX", (tmp_path / "memory.max", tmp_path / "nothing"))

    assert asked(limits.cgroup_holds_the_memory, VERLJOB_MEMORY_BYTES=8 << 30).severity == severity


def test_a_partitions_default_memory_is_too_little_for_eight_gpus() -> None:
    little = {"VERLJOB_PLATFORM": "cuda", "VERLJOB_MEMORY_BYTES": 4 << 30}
    assert asked(limits.memory_suffices, **little).severity == "warn"
    assert asked(limits.memory_suffices, **{**little, "VERLJOB_MEMORY_BYTES": 200 << 30}).severity == "ok"
    assert asked(limits.memory_suffices, **{**little, "VERLJOB_PLATFORM": "cpu"}).severity == "ok"
