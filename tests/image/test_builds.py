"""What `invoke build` knows and tells: unchanged images, causes of misses, and what one pin's bump runs again.

No package is installed: the base's shell does nothing and ends well, so that each real, rendered step takes no time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from docker import DockerClient
from packaging.utils import canonicalize_name

from images.builds import build, build_all, fetch
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
    monkeypatch.setattr(fetch, "torch_of", lambda *_: [])


class Heard(Progress):
    """Keeps what a build says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.verdicts: list[str] = []

    def line(self, name: str, line: str, log: object) -> None:
        self.lines.append(line)

    def end(self, name: str, verdict: str) -> None:
        self.verdicts.append(verdict)


def built(variant: Variant, idle_base: str, lines: Path | None = None) -> tuple[list[report.StepReport], Heard]:
    heard = Heard()
    build.build(variant, Site.here(), [TAG], from_base=idle_base, lock=lines, progress=heard)
    told = store.read(TAG)
    assert told
    return [report.StepReport(**step) for step in told["steps"]], heard


def bumped(pin: str, folder: Path) -> tuple[Variant, Path]:
    """verl.cpu with a version of the pin that no build had before, since the engine's cache outlives a test run."""
    new, lines = time.time_ns(), locks.path(CPU).read_text()
    (folder / "lock.txt").write_text(
        re.sub(rf"^{canonicalize_name(pin)}==\S+", f"{canonicalize_name(pin)}==99.{new}", lines, flags=re.MULTILINE)
    )
    if pin == "python":
        return replace(CPU, python=f"3.12.{new}"), folder / "lock.txt"
    return replace(CPU, installs={**CPU.installs, pin: f"99.{new}"}), folder / "lock.txt"


def test_what_is_unchanged_is_known_without_the_engines_building(idle_base: str) -> None:
    built(CPU, idle_base)
    _, heard = built(CPU, idle_base)

    assert heard.lines == []
    assert heard.verdicts[0].startswith("unchanged, sha256:")


def test_a_plan_tells_what_a_build_would_do_and_builds_nothing(daemon: DockerClient, idle_base: str) -> None:
    before = {image.id for image in daemon.images.list()}
    plan = build.show_plan(CPU, Site.here(), [TAG], from_base=idle_base)
    assert {image.id for image in daemon.images.list()} == before
    assert f"base     {idle_base} (sha256:" in plan

    built(CPU, idle_base)
    unchanged = f"result   unchanged, {daemon.images.get(TAG).id}"
    assert build.show_plan(CPU, Site.here(), [TAG], from_base=idle_base).endswith(unchanged)


def test_a_plan_does_not_fetch_a_base() -> None:
    plan = build.show_plan(CPU, Site.here(), [TAG], from_base="registry.example.com/none:1")

    assert plan.endswith("base     registry.example.com/none:1, to be fetched")


def test_an_unchanged_image_gets_the_names_that_it_lacks(daemon: DockerClient, idle_base: str) -> None:
    built(CPU, idle_base)
    named = [TAG, "verljob-test-builds:second"]
    image_id = build.build(CPU, Site.here(), named, from_base=idle_base, progress=Heard())

    assert {daemon.images.get(name).id for name in named} == {image_id}


def test_what_is_built_on_an_image_is_not_taken_for_it(daemon: DockerClient, idle_base: str, tmp_path: Path) -> None:
    built(CPU, idle_base)
    engine = choose()
    (tmp_path / "Dockerfile").write_text(f"FROM {TAG}\nENV MINE=1\n")
    run(engine.build_argv(["--tag", TAG, str(tmp_path)]), engine.environment)
    built(CPU, idle_base)

    assert "MINE=1" not in daemon.images.get(TAG).attrs["Config"]["Env"]


def test_a_build_of_the_same_bytes_is_told_of_and_known_again(daemon: DockerClient, idle_base: str) -> None:
    first, second = Heard(), Heard()
    ids = {
        build.build(CPU, Site.here(), [TAG], from_base=idle_base, reproducible=True, progress=each)
        for each in (first, second)
    }

    assert len(ids) == 1
    assert (second.lines, second.verdicts) == ([], [f"unchanged, {ids.pop()}"])
    told = store.read(TAG)
    assert told
    assert told["engine"].startswith("buildah ")
    assert [step["text"].split()[0] for step in told["steps"]] == ["FROM", *["RUN"] * 6, "COPY"]
    assert told["steps"][-1]["size"] > 100_000
    assert LABEL not in daemon.images.get(TAG).labels


@pytest.mark.parametrize("pin", list(CPU.pins))
def test_a_pins_bump_runs_only_the_steps_that_name_it_and_what_follows(
    pin: str, idle_base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "check_variant", lambda _: None)  # there is no such version of anything
    before, _ = built(CPU, idle_base)
    variant, lines = bumped(pin, tmp_path)
    after, _ = built(variant, idle_base, lines)

    named = [place for place, (old, new) in enumerate(zip(before, after)) if old.text != new.text]
    ran = [place for place, step in enumerate(after) if not step.cached and not step.text.startswith("FROM ")]
    copied = len(after) - 1  # the toolkit's image.json names every pin
    assert ran == list(range(named[0] if named else copied, len(after)))
    assert [step.cached for step in after[1 : ran[0]]] == [True] * (ran[0] - 1)


def test_an_edit_is_told_with_its_file_size_and_change(
    idle_base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = tmp_path / "lock"
    lines.write_text("ray==1\n")
    built(CPU, idle_base, lines)
    lines.write_text(f"ray=={time.time_ns()}\n")
    steps, heard = built(CPU, idle_base, lines)

    packages = next(place for place, step in enumerate(steps, 1) if "source=lock.txt" in step.text)
    later = [
        "lock.txt" if "source=lock.txt" in step.text else f"follows step {packages}" for step in steps[packages - 1 :]
    ]
    assert [step.cause for step in steps] == [""] * (packages - 1) + later
    assert "since the last build" in heard.verdicts[0]
    text = (store.REPORTS / f"{store.stem(TAG)}.txt").read_text()
    assert "ran: lock.txt" in text
    assert "/opt/verljob/python" in text
    assert (store.REPORTS / f"{store.stem(TAG)}.html").read_text().startswith("<!doctype html>")


def test_a_one_line_edit_of_a_checkout_runs_the_last_step_alone_and_changes_one_layer(
    daemon: DockerClient, idle_base: str, tmp_path: Path
) -> None:
    (tmp_path / "verl/version").mkdir(parents=True)
    (tmp_path / "verl/version/version").write_text("0.9.1\n")
    (tmp_path / "verl/__init__.py").write_text(f"x = {time.time_ns()}\n")
    variant, of = verl_source.chosen(CPU, str(tmp_path), False, lambda _: {})
    heard, layers = Heard(), []
    for line in ("", "y = 2\n"):
        with (tmp_path / "verl/__init__.py").open("a") as file:
            file.write(line)
        image = build.build(variant, Site.here(), [TAG], from_base=idle_base, verl=of, progress=heard)
        layers.append(daemon.images.get(image).attrs["RootFS"]["Layers"])

    told = store.read(TAG)
    assert told
    ran = [step for step in told["steps"] if not step["cached"] and not step["text"].startswith("FROM ")]
    assert [(step["text"], step["cause"]) for step in ran] == [("COPY verl/ /opt/verl/", "verl/verl/__init__.py")]
    assert layers[0][:-1] == layers[1][:-1]
    assert layers[0][-1] != layers[1][-1]


def test_several_builds_go_on_where_one_fails_and_share_what_is_the_same(
    idle_base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def base_of(variant: Variant, *_: object) -> str:
        asked.append(variant.name)
        if variant.platform == "rocm":
            raise NotBuilt(variant.base)
        return idle_base

    monkeypatch.setattr(build_all, "base_of", base_of)
    monkeypatch.setattr(build_all, "torch_of", lambda *_: [])
    monkeypatch.setattr(fetch, "at_hand", lambda *_: (idle_base, base_image.find(idle_base)))
    monkeypatch.setattr(Catalog, "names", lambda _, variant: [f"verljob-test-builds:{variant.name}"])
    chosen = [CATALOG.variants[name] for name in ("cpu", "rocm6.2", "cpu-vllm", "cu130")]

    outcomes = build_all.build_all(chosen, Site.here(), CATALOG, progress="quiet")

    assert [bool(each.error) for each in outcomes] == [False, True, False, False]
    assert len(asked) == 3, "one base for both of the platform cpu"


def test_a_cell_of_another_processor_is_refused_and_left_out_of_all() -> None:
    other = next(variant for variant in CATALOG.variants.values() if variant.architecture != architecture())

    with pytest.raises(Incompatible, match=f"is for {other.machine}, the engine of this host is {architecture()}"):
        build.build(other, Site.here(), [TAG])
    assert other not in build_all.buildable(CATALOG.of_platform(other.platform))
    assert CPU in build_all.buildable(CATALOG.of_platform("cpu"))


def test_a_step_that_two_builds_share_is_run_once_when_they_go_on_at_the_same_time(
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


def test_two_images_differ_in_what_was_changed(idle_base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "check_variant", lambda _: None)
    built(CPU, idle_base)
    other, (variant, lines) = "verljob-test-builds:other", bumped("ray", tmp_path)
    build.build(variant, Site.here(), [other], from_base=idle_base, lock=lines, progress=Heard())

    found = diff.between(TAG, other)

    assert found.packages == []
    assert [change.what for change in found.files] == ["/opt/verljob/image.json"]


def test_an_image_that_is_not_here_has_no_space_to_tell_of(daemon: DockerClient) -> None:
    with pytest.raises(NotBuilt, match="no-such-image:1 is not on this machine"):
        space("no-such-image:1")
