"""Checks of folders, caches, clocks, debuggers and allocators, each with a planted fault."""

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


def run(check: Check, **environ: Any) -> Result:
    return check(Settings.from_env({name: str(value) for name, value in environ.items()}), 8)


def test_run_directory_local_to_the_head_is_a_warning(tmp_path: Path) -> None:
    worker = {**SLURM, "SLURM_NODEID": "1", "VERLJOB_RUN_DIR": tmp_path}

    assert run(folders.run_directory_is_shared, **worker).severity == "warn"
    (tmp_path / "overrides").touch()
    assert run(folders.run_directory_is_shared, **worker).severity == "ok"


@pytest.mark.parametrize(
    ("blocks_files_and_free", "message"),
    [
        ((10**9, 10**6, 10**6), ""),
        ((1000, 10**6, 10**6), "0.0 GiB left"),
        ((10**9, 10**6, 12), "12 inodes left of 1000000"),
        ((10**9, 0, 0), ""),  # btrfs does not count inodes
    ],
)
def test_low_space_and_inodes_are_reported(
    blocks_files_and_free: tuple[int, int, int], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = namedtuple("sizes", "f_frsize f_bavail f_files f_favail")
    monkeypatch.setattr(os, "statvfs", lambda _: sizes(4096, *blocks_files_and_free))

    environ = {"VERLJOB_RUN_DIR": tmp_path / "new", "HOME": tmp_path}
    found = run(folders.folders_have_room, **environ)
    assert (found.severity, message in found.seen) == ("fail" if message else "ok", True)
    assert run(cache.cache_has_room, **environ).severity == ("warn" if message else "ok")
    assert run(cache.cache_has_room, **environ, VERLJOB_MODEL="/models/mine").severity == "ok"


def test_cache_variables_must_agree(tmp_path: Path) -> None:
    right = {"HF_HOME": tmp_path, "TRANSFORMERS_CACHE": tmp_path / "hub"}
    assert run(cache.cache_is_one_place, **right).severity == "ok"
    guides = run(cache.cache_is_one_place, HF_HOME=tmp_path, TRANSFORMERS_CACHE=tmp_path)
    assert (guides.severity, str(tmp_path / "hub") in guides.fix) == ("warn", True)
    assert run(cache.cache_is_one_place, **right, HF_HUB_CACHE="/elsewhere").severity == "warn"


@pytest.mark.parametrize("folder", [".", "hub", "hub/.locks", "hub/models--Qwen--Qwen2-7B-Instruct"])
def test_cache_folder_of_another_account_is_a_missing_permission(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != tmp_path / folder and access(path, mode)
    )  # root has all permissions

    found = run(cache.cache_is_writable, HF_HOME=tmp_path, VERLJOB_MODEL="Qwen/Qwen2-7B-Instruct")

    assert found.severity == "permission"
    assert f"chown -R {os.getuid()} {tmp_path / folder}" in found.fix
    assert run(cache.cache_is_writable, HF_HOME=tmp_path / "nothing" / "yet").severity == "ok"


def test_file_system_without_locks_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(cache.cache_has_locks, HF_HOME=tmp_path / "new").severity == "ok"

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    found = run(cache.cache_has_locks, HF_HOME=tmp_path)
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
def test_cache_lost_with_the_container_is_a_warning(
    home: str, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTINFO)
    monkeypatch.setattr(cache, "MOUNTS", tmp_path / "mountinfo")

    assert run(cache.cache_is_kept, **SLURM, HF_HOME=home).severity == severity


def test_gated_model_needs_a_token_unless_it_is_cached(tmp_path: Path) -> None:
    assert run(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL=LLAMA).severity == "warn"
    assert run(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL="Qwen/Qwen2-7B").severity == "ok"
    assert run(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL=LLAMA, **TOKEN).severity == "ok"
    (tmp_path / "hub" / "models--meta-llama--Llama-3.1-8B-Instruct").mkdir(parents=True)
    assert run(cache.gated_model_has_a_token, HF_HOME=tmp_path, VERLJOB_MODEL=LLAMA).severity == "ok"


def test_clock_before_the_image_and_missing_certificates_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(clock.clock_is_after_the_image).severity == "ok"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 400 * 86400)
    assert "certificate" in run(clock.clock_is_after_the_image).fix

    assert run(clock.certificates_are_here, SSL_CERT_FILE="/nowhere/ca.pem").severity == "fail"
    assert run(clock.certificates_are_here).severity == "ok"


def test_only_one_debugger_may_be_on_and_its_requirements_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"RAY_DEBUG": "legacy", "RAY_DEBUG_POST_MORTEM": "1"}
    assert run(debug.one_debugger_is_on, **both).severity == "fail"
    assert run(debug.one_debugger_is_on, RAY_DEBUG="legacy").severity == "ok"

    new = {"RAY_DEBUG_POST_MORTEM": "1"}
    monkeypatch.setattr(debug, "find_spec", lambda _: object())
    monkeypatch.setattr(debug, "installed", lambda _: "2.39.0")
    assert "2.39.0" in run(debug.debugger_has_what_it_needs, **new).seen
    monkeypatch.setattr(debug, "installed", lambda _: "2.60.0")
    assert run(debug.debugger_has_what_it_needs, **new).severity == "ok"
    monkeypatch.setattr(debug, "find_spec", lambda _: None)
    assert "debugpy" in run(debug.debugger_has_what_it_needs, **new).seen
    assert run(debug.debugger_has_what_it_needs).severity == "ok"

    assert "debugpy" in run(debug.debugger_has_what_it_needs, VERLJOB_DEBUG="1").seen
    assert run(debug.debugger_has_what_it_needs, VERLJOB_DEBUG="legacy", **new).severity == "ok"
    assert run(debug.one_debugger_is_on, VERLJOB_DEBUG="1", **both).severity == "ok"


@pytest.mark.parametrize(
    ("name", "version", "severity"),
    [
        ("PYTORCH_CUDA_ALLOC_CONF", "0.8.5.post1", "fail"),
        ("PYTORCH_CUDA_ALLOC_CONF", "0.20.0+cu130", "fail"),
        ("PYTORCH_CUDA_ALLOC_CONF", "0.20.1", "ok"),
        ("PYTORCH_CUDA_ALLOC_CONF", "0.22.1rc1.dev3+g18d87a87d", "ok"),
        ("PYTORCH_CUDA_ALLOC_CONF", "", "ok"),
        ("PYTORCH_ALLOC_CONF", "0.8.5", "ok"),
        ("PYTORCH_HIP_ALLOC_CONF", "0.8.5", "ok"),
    ],
)
def test_expandable_segments_fail_for_a_vllm_that_asserts_that_they_are_off(
    name: str, version: str, severity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "installed", lambda _: version)

    assert run(vllm.allocator_settings_fit, **{name: "backend:native,expandable_segments:True"}).severity == severity
    assert run(vllm.allocator_settings_fit, **{name: "expandable_segments:False"}).severity == "ok"


@pytest.mark.parametrize(("scope", "severity"), [("1", "ok"), ("2", "warn"), ("3", "warn"), (None, "ok")])
def test_kernel_without_ptrace_is_a_warning(
    scope: str | None, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRACING", tmp_path / "ptrace_scope")
    if scope:
        (tmp_path / "ptrace_scope").write_text(f"{scope}\n")

    assert run(limits.processes_can_be_traced).severity == severity


@pytest.mark.parametrize(("limit", "severity"), [("max", "ok"), ("4294967296", "warn"), ("8589934592", "ok")])
def test_cgroup_tighter_than_the_job_is_a_warning(
    limit: str, severity: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(limits, "MEMORY_MAX", (tmp_path / "memory.max", tmp_path / "nothing"))

    assert run(limits.cgroup_holds_the_memory, VERLJOB_MEMORY_BYTES=8 << 30).severity == severity


def test_default_memory_of_a_partition_is_too_small_for_eight_gpus() -> None:
    little = {"VERLJOB_PLATFORM": "cuda", "VERLJOB_MEMORY_BYTES": 4 << 30}
    assert run(limits.memory_suffices, **little).severity == "warn"
    assert run(limits.memory_suffices, **{**little, "VERLJOB_MEMORY_BYTES": 200 << 30}).severity == "ok"
    assert run(limits.memory_suffices, **{**little, "VERLJOB_PLATFORM": "cpu"}).severity == "ok"
