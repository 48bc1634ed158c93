"""`invoke build`: unchanged images, causes of cache misses, and the steps that a bump of one pin runs again.

No package is installed: the base's shell does nothing and exits with 0, so that each real, rendered step takes no time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker import DockerClient
from packaging.utils import canonicalize_name

from images.builds import build_all, fetch
from images.builds.build import BuildRequest, build, show_plan
from images.builds.site import Site
from images.catalog import compatibility
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.contents import diff
from images.contents.table import space
from images.context import verl_source
from images.context.inputs import LABEL
from images.engine import base_image
from images.engine.client import choose
from images.engine.daemon import architecture
from images.errors import Incompatible, NotBuilt
from images.host.process import run
from images.pins import locks
from images.report import report, store
from images.report.progress import Progress

CATALOG = Catalog.read()
CPU = CATALOG.variants["cpu"]
TAG = "verljob-test-builds:cpu"


@pytest.fixture(scope="session")
def idle_base(daemon: DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Debian whose /bin/sh does nothing."""
    folder, engine = tmp_path_factory.mktemp("idle"), choose()
    (folder / "Dockerfile").write_text(f'FROM {base_image.ensure()}\nRUN ["cp", "/bin/true", "/bin/sh"]\n')
    run(engine.build_argv(["--tag", "verljob-test-builds:idle", str(folder)]), engine.environment)
    yield "verljob-test-builds:idle"
    for tag in {tag for image in daemon.images.list("verljob-test-builds") for tag in image.tags}:
        daemon.images.remove(tag, force=True)


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "fetch_torch", lambda *_: [])


class RecordedProgress(Progress):
    """Keeps the output and the results of builds."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.results: list[str] = []

    def line(self, name: str, line: str, log: object) -> None:
        self.lines.append(line)

    def end(self, name: str, result: str) -> None:
        self.results.append(result)


def last_report() -> dict[str, Any]:
    found = store.read(TAG)
    assert found
    return found


def built(
    variant: Variant, idle_base: str, lock: Path | None = None
) -> tuple[list[report.StepReport], RecordedProgress]:
    progress = RecordedProgress()
    build(BuildRequest(variant, [TAG], idle_base, lock), Site.read(), progress=progress)
    return [report.StepReport(**step) for step in last_report()["steps"]], progress


def bumped(pin: str, folder: Path) -> tuple[Variant, Path]:
    """verl.cpu with a new version of the pin in each test run, since the engine's cache outlives one."""
    new, lines = time.time_ns(), locks.path(CPU).read_text()
    (folder / "lock.txt").write_text(
        re.sub(rf"^{canonicalize_name(pin)}==\S+", f"{canonicalize_name(pin)}==99.{new}", lines, flags=re.MULTILINE)
    )
    if pin == "python":
        return replace(CPU, python=f"3.12.{new}"), folder / "lock.txt"
    return replace(CPU, installs={**CPU.installs, pin: f"99.{new}"}), folder / "lock.txt"


def test_an_unchanged_image_is_found_without_a_build(idle_base: str) -> None:
    built(CPU, idle_base)
    _, progress = built(CPU, idle_base)

    assert progress.lines == []
    assert progress.results[0].startswith("unchanged, sha256:")


def test_a_plan_is_shown_without_a_build(daemon: DockerClient, idle_base: str) -> None:
    tag = "verljob-test-builds:planned"
    request = BuildRequest(CPU, [tag], idle_base)
    plan = show_plan(request, Site.read())
    assert daemon.api.images(name=tag) == []
    assert f"base     {idle_base} (sha256:" in plan

    built(CPU, idle_base)
    unchanged = f"result   unchanged, {daemon.images.get(TAG).id}"
    assert show_plan(request, Site.read()).endswith(unchanged)


def test_a_plan_does_not_fetch_a_base() -> None:
    plan = show_plan(BuildRequest(CPU, [TAG], "registry.example.com/none:1"), Site.read())

    assert plan.endswith("base     registry.example.com/none:1, to be fetched")


def test_an_unchanged_image_gets_missing_tags(daemon: DockerClient, idle_base: str) -> None:
    built(CPU, idle_base)
    tags = [TAG, "verljob-test-builds:second"]
    image_id = build(BuildRequest(CPU, tags, idle_base), Site.read(), progress=RecordedProgress())

    assert {daemon.images.get(name).id for name in tags} == {image_id}


def test_a_child_of_an_image_is_not_mistaken_for_it(daemon: DockerClient, idle_base: str, tmp_path: Path) -> None:
    built(CPU, idle_base)
    engine = choose()
    (tmp_path / "Dockerfile").write_text(f"FROM {TAG}\nENV MINE=1\n")
    run(engine.build_argv(["--tag", TAG, str(tmp_path)]), engine.environment)
    built(CPU, idle_base)

    assert "MINE=1" not in daemon.images.get(TAG).attrs["Config"]["Env"]


def test_a_reproducible_build_is_reported_and_found_again(daemon: DockerClient, idle_base: str) -> None:
    first, second = RecordedProgress(), RecordedProgress()
    request = BuildRequest(CPU, [TAG], idle_base, reproducible=True)
    ids = {build(request, Site.read(), progress=each) for each in (first, second)}

    assert len(ids) == 1
    assert (second.lines, second.results) == ([], [f"unchanged, {ids.pop()}"])
    last = last_report()
    assert last["engine"].startswith("buildah ")
    assert [step["text"].split()[0] for step in last["steps"]] == ["FROM", *["RUN"] * 6, "COPY"]
    assert last["steps"][-1]["size"] > 100_000
    assert LABEL not in daemon.images.get(TAG).labels


@pytest.mark.parametrize("pin", list(CPU.pins))
def test_a_bump_of_a_pin_runs_only_the_steps_that_name_it_and_those_below(
    pin: str, idle_base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "check_variant", lambda _: None)  # no such version exists
    before, _ = built(CPU, idle_base)
    variant, lock = bumped(pin, tmp_path)
    after, _ = built(variant, idle_base, lock)

    named = [place for place, (old, new) in enumerate(zip(before, after)) if old.text != new.text]
    ran = [place for place, step in enumerate(after) if not step.cached and not step.text.startswith("FROM ")]
    copied = len(after) - 1  # the toolkit's image.json names every pin
    assert ran == list(range(named[0] if named else copied, len(after)))
    assert [step.cached for step in after[1 : ran[0]]] == [True] * (ran[0] - 1)


def test_an_edit_is_reported_with_file_size_and_change(
    idle_base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.write_text("ray==1\n")
    built(CPU, idle_base, lock)
    lock.write_text(f"ray=={time.time_ns()}\n")
    steps, progress = built(CPU, idle_base, lock)

    packages = next(place for place, step in enumerate(steps, 1) if "source=lock.txt" in step.text)
    later = [
        "lock.txt" if "source=lock.txt" in step.text else f"follows step {packages}" for step in steps[packages - 1 :]
    ]
    assert [step.cause for step in steps] == [""] * (packages - 1) + later
    assert "since the last build" in progress.results[0]
    text = (store.REPORTS / f"{store.stem(TAG)}.txt").read_text()
    assert "ran: lock.txt" in text
    assert "/opt/verljob/python" in text
    assert (store.REPORTS / f"{store.stem(TAG)}.html").read_text().startswith("<!doctype html>")


def test_a_one_line_edit_of_a_checkout_runs_only_the_last_step_and_changes_one_layer(
    daemon: DockerClient, idle_base: str, tmp_path: Path
) -> None:
    (tmp_path / "verl/version").mkdir(parents=True)
    (tmp_path / "verl/version/version").write_text("0.9.1\n")
    (tmp_path / "verl/__init__.py").write_text(f"x = {time.time_ns()}\n")
    variant, source = verl_source.from_flags(CPU, str(tmp_path), False, lambda _: {})
    layers = []
    for line in ("", "y = 2\n"):
        with (tmp_path / "verl/__init__.py").open("a") as file:
            file.write(line)
        request = BuildRequest(variant, [TAG], idle_base, verl=source)
        image = build(request, Site.read(), progress=RecordedProgress())
        layers.append(daemon.images.get(image).attrs["RootFS"]["Layers"])

    ran = [step for step in last_report()["steps"] if not step["cached"] and not step["text"].startswith("FROM ")]
    assert [(step["text"], step["cause"]) for step in ran] == [("COPY verl/ /opt/verl/", "verl/verl/__init__.py")]
    assert layers[0][:-1] == layers[1][:-1]
    assert layers[0][-1] != layers[1][-1]


def test_several_builds_continue_if_one_fails_and_share_downloads(
    idle_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []

    def fetch_base(variant: Variant, *_: object) -> str:
        fetched.append(variant.name)
        if variant.platform == "rocm":
            raise NotBuilt(variant.base)
        return idle_base

    monkeypatch.setattr(build_all, "fetch_base", fetch_base)
    monkeypatch.setattr(build_all, "fetch_torch", lambda *_: [])
    monkeypatch.setattr(fetch, "local_base", lambda *_: (idle_base, base_image.find(idle_base)))
    monkeypatch.setattr(Catalog, "names", lambda _, variant: [f"verljob-test-builds:{variant.name}"])
    chosen = [CATALOG.variants[name] for name in ("cpu", "rocm6.2", "cpu-vllm", "cu130")]

    outcomes = build_all.build_all(chosen, Site.read(), CATALOG, progress="quiet")

    assert [bool(each.error) for each in outcomes] == [False, True, False, False]
    assert len(fetched) == 3, "one base for both variants of the platform cpu"


def test_a_variant_of_another_architecture_is_refused_and_left_out_of_all() -> None:
    other = next(variant for variant in CATALOG.variants.values() if variant.architecture != architecture())

    with pytest.raises(Incompatible, match=f"is for {other.machine}, the engine of this host is {architecture()}"):
        build(BuildRequest(other, [TAG]), Site.read())
    assert other not in build_all.buildable(CATALOG.of_platform(other.platform))
    assert CPU in build_all.buildable(CATALOG.of_platform("cpu"))


def test_a_step_shared_by_two_simultaneous_builds_runs_once(
    daemon: DockerClient, idle_base: str, tmp_path: Path
) -> None:
    tags = ["verljob-test-builds:twin-a", "verljob-test-builds:twin-b"]
    shared = f"FROM {base_image.ensure()}\nRUN sleep 1 && echo {time.time_ns()} && date +%N > /stamp\n"
    for tag in tags:
        folder = tmp_path / tag[-1]
        folder.mkdir()
        (folder / "Dockerfile").write_text(f"{shared}LABEL own={tag}\n")
    engine = choose()

    with ThreadPoolExecutor(2) as pool:
        argvs = [engine.build_argv(["--tag", tag, str(tmp_path / tag[-1])]) for tag in tags]
        list(pool.map(lambda argv: run(argv, engine.environment), argvs))

    assert len({daemon.containers.run(tag, ["cat", "/stamp"], remove=True) for tag in tags}) == 1


def test_two_images_differ_in_the_changed_files(
    idle_base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "check_variant", lambda _: None)
    built(CPU, idle_base)
    other, (variant, lock) = "verljob-test-builds:other", bumped("ray", tmp_path)
    build(BuildRequest(variant, [other], idle_base, lock), Site.read(), progress=RecordedProgress())

    found = diff.compare(TAG, other)

    assert found.packages == []
    assert [change.what for change in found.files] == ["/opt/verljob/image.json"]


def test_the_disk_use_of_a_missing_image_is_an_error(daemon: DockerClient) -> None:
    with pytest.raises(NotBuilt, match="no-such-image:1 is not on this machine"):
        space("no-such-image:1")
