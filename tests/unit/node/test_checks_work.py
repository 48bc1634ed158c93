"""The deep tier's judgement; what the probe itself does was run on two H200s (docs/checks.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl_node.checks import work
from verl_node.settings import Settings

CUDA = Settings.from_env({"VERLJOB_PLATFORM": "cuda"})


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The interpreter that runs the probe: a script that the test writes."""
    path = tmp_path / "python3"
    monkeypatch.setattr(work.sys, "executable", str(path))
    return path


def says(python: Path, script: str) -> None:
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def test_gpus_that_compute_alike_pass_with_their_figures(python: Path) -> None:
    says(python, """echo 'a warning of torch'; echo '{"tflops": [684.2, 690.0], "right": [true, true]}'""")

    found = work.gpus_compute_alike(CUDA, 2)

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

    found = work.gpus_compute_alike(CUDA, 2)

    assert (found.severity, told in found.seen) == ("fail", True)


def test_a_sum_that_is_wrong_or_never_comes_fails(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(python, """echo '{"gbps": 478.0, "right": true}'""")
    assert work.gpus_sum_together(CUDA, 2).severity == "ok"
    says(python, """echo '{"gbps": 478.0, "right": false}'""")
    assert work.gpus_sum_together(CUDA, 2).severity == "fail"
    monkeypatch.setattr(work, "LIMIT_S", 5.2)
    says(python, "exec sleep 60")
    assert "longer than 0 s" in work.gpus_sum_together(CUDA, 2).seen
    assert work.gpus_sum_together(CUDA, 1).severity == "ok"
