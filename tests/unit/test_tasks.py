"""Tasks: their flags, old names, help texts and error messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from invoke import Context, Exit

import tasks
from images.builds import site_settings
from images.export.export import FORMATS
from slurm.testbed import MAX_NODES
from tasks import OLD_NAMES, namespace
from tests.support.paths import CHECKOUT


def flags(name: str) -> set[str]:
    task = namespace[name]
    return {flag for argument in task.get_arguments() for flag in argument.names if len(flag) > 1}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("image.list", {"space"}),
        ("image.site", {"site"}),
        ("image.bundle", {"variant", "output", "base", "site"}),
        ("render", {"platform", "variant", "stdout"}),
        ("push", {"platform", "registry", "variant", "rollout", "gpus", "image", "tag", "force", "attest", "key"}),
        ("image.export", {"format", "platform", "variant", "rollout", "gpus", "image", "output"}),
        ("image.prune", {"yes"}),
        ("image.sbom", {"image", "output"}),
        ("image.verify", {"image", "key"}),
        ("image.release", {"version", "registry", "key", "variants", "output", "site"}),
        ("image.lock", {"variant"}),
        ("image.diff", {"output"}),
        ("image.pins", {"check", "update"}),
    ],
)
def test_task_has_the_documented_flags(task: str, expected: set[str]) -> None:
    assert flags(task) == expected


def test_build_has_a_flag_for_every_site_setting() -> None:
    chosen = {"platform", "variant", "rollout", "gpus", "tag", "base", "reproducible", "site", "bundle"}
    chosen |= {"all", "jobs", "force", "anyway", "dry_run", "progress", "verl", "editable"}

    assert {flag.replace("-", "_") for flag in flags("build")} == chosen | set(site_settings.FLAGS)


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, str, str]]:
    """The calls of the demo: image, base and runtime; nothing is built, exported or started."""
    calls: list[tuple[object, str, str]] = []

    def run(image: object, base: str, folder: Path, *, runtime: str, print_line: object) -> int:
        calls.append((image, base, runtime))
        return 0

    monkeypatch.setattr(tasks, "build", lambda *_: "")
    monkeypatch.setattr(tasks, "testbed_base", lambda debian: debian)
    monkeypatch.setattr(tasks.export, "export", lambda image, formats, _: iter([tmp_path / f"{image}.{formats[0]}"]))
    monkeypatch.setattr(tasks.rehearsal, "run", run)
    monkeypatch.setenv("VERLJOB_TESTBED_DEBIAN", "")
    monkeypatch.delenv("VERLJOB_TESTBED_DEBIAN")
    return calls


@pytest.mark.parametrize("runtime", ["docker", "podman", "apptainer", "enroot"])
def test_the_demo_brings_the_image_as_its_runtime_takes_it(
    rehearsed: list[tuple[object, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("VERLJOB_SOURCES", str(tmp_path))
    of_engines = ("verl.cpu:0.9.1-cpu", "bookworm", runtime)
    of_files = (tmp_path / "verl.cpu:0.9.1-cpu.squashfs", "trixie", runtime)

    with pytest.raises(Exit) as ended:
        namespace["demo"](Context(), runtime=runtime)

    assert ended.value.code == 0
    assert rehearsed == [of_files if runtime in tasks.FILE_RUNTIMES else of_engines]


def test_a_demo_with_enroot_needs_its_sources(
    rehearsed: list[tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VERLJOB_SOURCES", raising=False)

    with pytest.raises(Exit, match=r"enroot\.tar\.xz"):
        namespace["demo"](Context(), runtime="enroot")

    assert rehearsed == []


def test_a_demo_with_an_unknown_runtime_names_those_that_it_has(rehearsed: list[tuple[object, str, str]]) -> None:
    with pytest.raises(Exit, match="docker, podman, apptainer, enroot"):
        namespace["demo"](Context(), runtime="rkt")

    assert rehearsed == []


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, ...]]:
    """The calls of `stage`, which bring and export nothing."""
    calls: list[tuple[object, ...]] = []

    def export(image: str, formats: list[str], folder: Path) -> list[Path]:
        calls.append(("image", image, formats, folder))
        return [folder / "image"]

    monkeypatch.setattr(tasks.staging, "bring", lambda recipe, _, image, *__: calls.append((recipe.name, image)))
    monkeypatch.setattr(tasks.export, "export", export)
    for name in ("VERLJOB_IMAGE", "VERLJOB_RUNTIME", "VERLJOB_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VERLJOB_DATA", str(tmp_path))
    return calls


@pytest.mark.parametrize(("runtime", "kind"), [("podman", "docker-archive"), ("apptainer", "squashfs")])
def test_stage_brings_inputs_and_the_image_for_the_runtime(
    staged: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runtime: str, kind: str
) -> None:
    monkeypatch.setenv("VERLJOB_RUNTIME", runtime)

    namespace["stage"](Context(), "demo_cpu", image="verl.cpu:x")

    assert staged == [("demo_cpu.yaml", "verl.cpu:x"), ("image", "verl.cpu:x", [kind], tmp_path / "images")]


@pytest.mark.parametrize(("image", "no_image"), [("verl.cpu:x", True), ("/shared/verl.tar", False)])
def test_stage_leaves_the_image_where_the_nodes_reach_it(
    staged: list[tuple[object, ...]], image: str, no_image: bool
) -> None:
    namespace["stage"](Context(), "demo_cpu", image=image, no_image=no_image)

    assert staged == [("demo_cpu.yaml", image)]


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("image.export", f"comma-separated: {', '.join(FORMATS)}"),
        ("testbed.up", f"compute nodes, 1 to {MAX_NODES}"),
    ],
)
def test_help_names_the_formats_and_the_number_of_nodes(task: str, text: str) -> None:
    argv = [sys.executable, "-m", "invoke", "--help", task]
    output = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout

    assert text in " ".join(output.split())


@pytest.mark.parametrize(("named", "advised"), [({"platform": "rocm"}, True), ({"variant": "rocm6.2"}, False)])
def test_a_build_of_the_rocm_default_begins_with_the_variant_to_take_today(
    named: dict[str, str], advised: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tasks, "show_plan", lambda *_: "the plan")

    tasks.build_image.body(None, dry_run=True, **named)

    first = capsys.readouterr().out.splitlines()[0]
    assert ("MI300 or MI350 take --variant rocm7.14" in first) is advised
    assert first == "the plan" or advised


def test_unknown_suite_fails_and_the_known_ones_are_named() -> None:
    argv = [sys.executable, "-m", "invoke", "test", "--only", "lint,imgae"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "unknown suite imgae; known are lint, unit, shell, image, cluster" in done.stderr


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_old_name_has_the_flags_of_the_task(old: str, new: str) -> None:
    assert flags(old) == flags(new)
    assert namespace[old].__doc__ == f"The old name of {new}."


def test_new_name_is_printed_to_standard_error() -> None:
    argv = [sys.executable, "-m", "invoke", "site"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=True)

    assert done.stderr == "`invoke site` is called `invoke image.site` now.\n"
    assert "image.site" not in done.stdout


def test_error_of_a_task_is_one_message_and_exit_code_1() -> None:
    argv = [sys.executable, "-m", "invoke", "render", "--platform", "none"]
    done = subprocess.run(argv, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith("UnknownVariant: ")
