"""str and hooks of a site on a node."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.shell.rig import Rig

MODULE = """module() {
    [[ $1 == load ]] && : "$UNSET_VARIABLE" && [[ $2 != */9* ]] || return 1
    export LOADEDMODULES=${LOADEDMODULES:+$LOADEDMODULES:}${2/%silent/}
    export LOADED_BY_MODULE=$2 PATH=$PATH
    false || :
}
"""


@pytest.fixture
def modules(rig: Rig) -> str:
    init = rig.root / "modules" / "init" / "bash"
    init.parent.mkdir(parents=True)
    init.write_text(MODULE)
    return str(init.parents[1])


def run(rig: Rig, modules: str, names: str) -> subprocess.CompletedProcess[str]:
    return rig.node(MODULESHOME=modules, VERLJOB_MODULES=names)


def hook(rig: Rig, script: str) -> Path:
    path = rig.root / "hook.sh"
    path.write_text(f"#!{rig.root}/bin/bash\n{script}\n")
    path.chmod(0o755)
    return path


def test_modules_are_loaded_before_the_runtime_is_used(rig: Rig, modules: str) -> None:
    done = run(rig, modules, "apptainer rccl/1.0")

    assert done.returncode == 0, done.stdout
    assert done.stdout.index("loaded the module rccl/1.0") < done.stdout.index("image")


@pytest.mark.parametrize("name", ["apptainer/9", "silent"])
def test_a_module_that_is_missing_exits_with_69_and_its_name(rig: Rig, modules: str, name: str) -> None:
    """Old versions of Environment str return 0 for it."""
    done = run(rig, modules, name)

    assert done.returncode == 69
    assert rig.verdict()["cause"] == f"the module {name} cannot be loaded on n1"
    assert "VERLJOB_MODULES=''" in rig.verdict()["fix"]
    assert not (rig.root / "fake" / "docker.argv").exists()  # before the engine is asked for anything


@pytest.mark.parametrize("name", ["-h", "$(id)", "a;b", "../evil*"])
def test_a_name_that_is_no_module_exits_with_64(rig: Rig, modules: str, name: str) -> None:
    assert run(rig, modules, name).returncode == 64


def test_a_node_without_modules_exits_with_69(rig: Rig) -> None:
    done = rig.node(VERLJOB_MODULES="apptainer", MODULESHOME="/nowhere")

    assert (done.returncode, "has no command `module`" in rig.verdict()["cause"]) == (69, True)


def test_hooks_run_before_and_after_the_container_without_the_token(rig: Rig) -> None:
    path = hook(rig, 'echo "$1 ${VERLJOB_TOKEN-none} $(< "$FAKE/order")" >> "$FAKE/hooks"')
    rig.fake("order", "before")
    rig.fake("container", 'echo after > "$FAKE/order"\n' + rig.container("code=0"))

    done = rig.node(VERLJOB_HOOK_BEFORE=str(path), VERLJOB_HOOK_AFTER=str(path))

    assert done.returncode == 0, done.stdout
    assert [line.split() for line in rig.faked("hooks").splitlines()] == [["none", "before"], ["none", "after"]]


def test_a_failing_hook_ends_the_node_before_the_container_and_only_warns_after_it(rig: Rig) -> None:
    path = hook(rig, "exit 7")

    done = rig.node(VERLJOB_HOOK_BEFORE=str(path))
    assert done.returncode == 69
    assert f"the site's program {path} failed on n1 (7;" in rig.verdict()["cause"]

    done = rig.node(VERLJOB_HOOK_AFTER=str(path))
    assert done.returncode == 0
    assert f"warning: the site's program {path} ended with 7 after the container" in done.stdout


@pytest.mark.parametrize("owner", [0, 65534])
def test_a_hook_that_another_account_can_change_is_not_run(rig: Rig, owner: int) -> None:
    path = hook(rig, 'touch "$FAKE/ran"')
    path.chmod(0o777 if owner == 0 else 0o755)
    os.chown(path, owner, owner)

    assert rig.node(VERLJOB_HOOK_BEFORE=str(path)).returncode == 77
    done = rig.node(VERLJOB_HOOK_AFTER=str(path))

    assert done.returncode == 0
    assert "was not run" in done.stdout
    assert not (rig.root / "fake" / "ran").exists()


@pytest.mark.parametrize("path", ["hook.sh", "/nowhere/hook.sh", "/etc"])
def test_a_hook_is_an_executable_file_by_its_absolute_path(rig: Rig, path: str) -> None:
    assert rig.node(VERLJOB_HOOK_BEFORE=path).returncode == 64
