from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shell.machine import Machine
from tests.support.shell.rig import Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)
