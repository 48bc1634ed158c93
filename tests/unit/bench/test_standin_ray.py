"""bench/launch/standin_ray.py replaces Ray for verl_node's driver, with the configured times and failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.node.supervised import free_ports
from tests.support.paths import CHECKOUT

TIMES = {"STANDIN_RAY_HEAD_S": "0.4", "STANDIN_RAY_GCS_S": "0.2", "STANDIN_RAY_JOIN_S": "0.3"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "ray.py").symlink_to(CHECKOUT / "bench" / "launch" / "standin_ray.py")
    path = f"{tmp_path}:{CHECKOUT / 'entrypoints'}"
    return {"PATH": os.environ["PATH"], "PYTHONPATH": path, "TMPDIR": str(tmp_path), **TIMES}


@contextmanager
def ray(environ: dict[str, str], *flags: str, host: str = "n1") -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "ray", "start", *flags, "--num-cpus=1", "--num-gpus", "2", "--block"]
    with subprocess.Popen(argv, env={**environ, "SLURMD_NODENAME": host}, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_the_driver_sees_the_cluster_after_the_configured_times(environ: dict[str, str]) -> None:
    gcs = f"127.0.0.2:{free_ports(1)}"
    began = time.monotonic()
    late = {**environ, "STANDIN_RAY_DELAY": "n2=1"}
    head = ["--head", "--node-ip-address=127.0.0.2", f"--port={gcs.split(':')[1]}"]
    with ray(environ, *head), ray(late, f"--address={gcs}", "--node-ip-address=127.0.0.3", host="n2"):
        order = json.dumps({"gcs": gcs, "nodes": ["127.0.0.2", "127.0.0.3"], "gpus": 2})
        argv = [sys.executable, "-m", "verl_node.ray_node.driver_main"]
        driver = subprocess.run(argv, env=environ, input=order, capture_output=True, text=True, check=True, timeout=20)
    whole, tasks = (json.loads(line) for line in driver.stdout.splitlines()[-2:])

    assert sorted(node["address"] for node in whole["nodes"]) == ["127.0.0.2", "127.0.0.3"]
    assert [task["masks"] for task in tasks["nodes"]] == [{"CUDA_VISIBLE_DEVICES": "0,1"}] * 2
    assert time.monotonic() - began > 1.3


def test_a_node_fails_if_configured(environ: dict[str, str]) -> None:
    with ray({**environ, "STANDIN_RAY_FAIL": "n2"}, "--address=127.0.0.2:1", host="n2") as process:
        assert process.wait(20) == 1
