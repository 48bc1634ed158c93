"""launch.sh accepts every launch in the docs."""

from __future__ import annotations

import pytest

from tests.support.documented import Command, commands
from tests.support.shell.rig import CHECKOUT, Rig

LAUNCHES = list(
    {(command.launch, *command.environment.items()): command for command in commands() if command.launch}.values()
)


@pytest.mark.parametrize("command", LAUNCHES, ids=lambda command: " ".join(command.launch))
def test_every_documented_launch_passes_a_dry_run(rig: Rig, command: Command) -> None:
    settings = {"SLURM_JOB_ID": "<unset>", "VERLJOB_HOME": str(CHECKOUT), "VERLJOB_PLATFORM": "cuda"}
    assert command.launch

    done = rig.launch(*command.launch, script=None, **{**settings, **command.environment, "VERLJOB_DRY_RUN": "1"})

    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nsrun --nodes=2 --ntasks=2 " in done.stdout
