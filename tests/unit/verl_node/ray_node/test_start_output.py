"""The cause of a failed `ray start` quotes the relevant lines of its output."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path

from verl_node.errors import ClusterLost, RayNotStarted
from verl_node.ray_node.process import Ray
from verl_node.supervision.child import Process

# Ray 2.60, after SIGKILL of its GCS: the end of that process's log, then its own words.
SAID = """\
[2026-11-21 10:53:22,058 I 17 17] (gcs_server) gcs_server.cc:1326: resource_load_pull_io_context Event stats:
Global stats: 4 total (1 active)
Queueing time: mean = 0.46ms, max = 1.78ms, min = 0.03ms, total = 1.85ms
[2026-11-21 10:53:36,964 I 17 17] (gcs_server) gcs_job_manager.cc:156: Marking job as finished. job_id=01000000
2026-11-21 10:53:38,522\tERR scripts.py:128 -- ----- END gcs_server.out tail (exit code(s)=-9 (signal 9)) -----
2026-11-21 10:53:38,523\tERR scripts.py:1315 -- Remaining processes will be killed.
    ^^^^^^^^^^^^^^^
"""


def test_the_cause_quotes_the_process_that_died_and_not_its_routine_log() -> None:
    async def scenario() -> str:
        process = await Process.start(["printf", "%s", SAID], os.environ, on_line=print)
        await process.ended()
        ray = Ray(process, "n1")
        ray.formed()
        try:
            await ray.watch()
        except ClusterLost as lost:
            return lost.cause
        return ""

    cause = asyncio.run(scenario())

    assert "END gcs_server.out tail (exit code(s)=-9 (signal 9))" in cause
    assert "Remaining processes will be killed." in cause
    assert not any(word in cause for word in ("Event stats", "mean =", "Marking job", "^^^", "\t"))


def test_a_gcs_that_ended_while_ray_start_waits_for_it_is_reported_at_once(tmp_path: Path) -> None:
    """As with a low limit of processes: `ray start` queries that GCS for two minutes and waits for no child."""
    gcs = str(shutil.copy("/bin/true", tmp_path / "gcs_server"))

    async def scenario() -> str:
        waits = f"import subprocess, time; child = subprocess.Popen([{gcs!r}]); time.sleep(60)"
        process = await Process.start([sys.executable, "-c", waits], os.environ, on_line=print)
        try:
            await Ray(process, "n1").watch()
        except RayNotStarted as failed:
            return failed.cause
        finally:
            process.kill()
            await process.ended()
        return ""

    began = time.monotonic()
    cause = asyncio.run(scenario())

    assert "gcs_server ended" in cause
    assert time.monotonic() - began < 10
