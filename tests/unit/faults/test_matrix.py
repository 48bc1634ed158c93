"""The matrix of faults is complete."""

from __future__ import annotations

import re

import pytest
from verl_node.settings.parsing import LEAST_PATIENCE_S
from verl_node.settings.settings import Settings

from slurm.errors import SlurmError
from tests.faults.chaos import select_kinds, select_outages
from tests.faults.drill import RUNNING
from tests.faults.kinds import DEFAULT, KINDS, SHORTEST, SILENCE, STALL
from tests.faults.outages import OUTAGES
from tests.pages.faults import PAGE, rows

FLOW = PAGE.parent / "flow.md"


def test_times_are_read_of_passes_only_and_once() -> None:
    passed = "gcs-killed                       docker   76/76     FAILED        3.3    10    0.5  pass"
    survived = "network-gone                     bare     n2     45 s, 3 more steps  18.0 s later  pass"

    assert rows(f"{passed}\n{survived}\n") == {("gcs-killed", "docker"): "3.3 + 0.5", ("network-gone", "bare"): "18.0"}
    assert rows(passed.replace("pass", "FAIL")) == {}
    with pytest.raises(ValueError, match="gcs-killed twice for docker"):
        rows(f"{passed}\n{passed}\n")


def test_a_job_in_state_signaling_has_not_ended() -> None:
    """Slurm shows this state for a moment: counted as the end, a job of 12 s took 4 s."""
    assert "SIGNALING" in RUNNING


def test_every_runtime_has_twenty_kinds_and_a_third_to_half_of_all_are_quick() -> None:
    for runtime in ("docker", "podman", "bare"):
        assert len(select_kinds("", runtime)) >= 20
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert len(KINDS) / 3 <= sum(kind.quick for kind in KINDS) <= len(KINDS) / 2


def test_every_exit_code_of_the_matrix_is_documented() -> None:
    codes = set(map(int, re.findall(r"\b(\d\d) \w", FLOW.read_text().partition("## Exit codes")[2])))

    assert {kind.code for kind in KINDS} - {137, 143} <= codes


def test_an_unknown_kind_is_an_error_that_lists_all() -> None:
    with pytest.raises(SlurmError, match="gcs-killed"):
        select_kinds("gcs-kiled", "docker")


def test_faults_detected_by_silence_have_their_patience_and_10_s_more() -> None:
    silent = {kind.name: kind for kind in KINDS if re.search("stopped|frozen|cut", kind.name)}
    del silent["engine-stopped"]  # the job ends by the training; launch.sh continues without that node

    between = {"worker-frozen", "head-frozen", "network-cut"}
    assert {name: kind.patience for name, kind in silent.items()} == {
        name: SILENCE if name in between else STALL for name in silent
    }
    assert {kind.due_s(SHORTEST) for kind in silent.values()} == {18}
    assert {kind.due_s(DEFAULT) for kind in silent.values()} == {30, 70}
    assert {kind.patience for kind in KINDS if kind.name not in silent} == {""}


def test_default_patience_is_that_of_a_job() -> None:
    settings = Settings.from_env({})

    assert (DEFAULT.silence_s, DEFAULT.stall_s) == (settings.silence_s, settings.stall_s)
    assert SHORTEST.silence_s == SHORTEST.stall_s == LEAST_PATIENCE_S


def test_every_outage_is_shorter_than_its_patience() -> None:
    for outage in OUTAGES:
        if outage.name.endswith("paused"):
            assert outage.lasts_s < DEFAULT.stall_s
        elif outage.name in ("network-gone", "machine-frozen"):
            assert outage.lasts_s < DEFAULT.silence_s


def test_outages_and_faults_are_selected_by_name() -> None:
    assert [outage.name for outage in select_outages("gcs-killed,network-gone", "bare")] == ["network-gone"]
    assert [kind.name for kind in select_kinds("gcs-killed,network-gone", "bare")] == ["gcs-killed"]
    assert len(select_outages("", "docker")) == len(OUTAGES)
    assert "clock-jumps" not in {outage.name for outage in select_outages("", "bare")}
