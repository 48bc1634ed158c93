"""Push: returned digests, retries, logins that are not retried, order of uploads and tags."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.catalog.catalog import Catalog
from images.engine.client import Engine
from images.errors import PushFailed, TagTaken
from images.registry import push
from images.registry.client import DOCKER_MANIFEST
from tests.support.images.fake_registry import FakeRegistry, running

REFERENCE = "r:5000/verl.cpu:latest"

DIGEST = "sha256:" + "ab" * 32
# The last line of a push by docker 20.10.
OUTPUT = f"latest: digest: {DIGEST} size: 1994"
DENIED = "unauthorized: authentication required"
REFUSED = "Get http://r:5000/v2/: dial tcp 127.0.0.1:5000: connect: connection refused"


def docker(tmp_path: Path, answers: list[tuple[int, str]]) -> Engine:
    """A docker client that gives these answers, one for each call."""
    for number, (code, text) in enumerate(answers):
        (tmp_path / f"{number}").write_text(text + "\n")
        (tmp_path / f"{number}.code").write_text(str(code))
    script = tmp_path / "docker"
    script.write_text(
        "#!/bin/sh\n"
        f"cd {tmp_path}; n=$(cat calls 2>/dev/null || echo 0); echo $((n + 1)) > calls\n"
        'echo "$*" >> argv; [ "$(cat $n.code)" = 0 ] && cat $n || { cat $n >&2; exit 1; }\n'
    )
    script.chmod(0o755)
    return Engine(str(script), "20.10.24", buildx=False)


def calls(tmp_path: Path) -> int:
    return int((tmp_path / "calls").read_text())


def test_push_returns_the_digest(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(0, OUTPUT)])

    assert push.push_references(engine, [REFERENCE]) == {REFERENCE: DIGEST}
    assert (tmp_path / "argv").read_text().split() == ["push", REFERENCE]


def test_failed_push_is_retried(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(1, REFUSED), (1, REFUSED), (0, OUTPUT)])

    assert push.push_references(engine, [REFERENCE], pause_s=0.001) == {REFERENCE: DIGEST}
    assert calls(tmp_path) == 3


def test_last_failure_carries_dockers_output(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(1, REFUSED)] * push.ATTEMPTS)

    with pytest.raises(PushFailed, match=r"(?s)is the registry up.*connection refused"):
        push.push_references(engine, [REFERENCE], pause_s=0.001)
    assert calls(tmp_path) == push.ATTEMPTS


def test_refused_login_is_not_retried(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(1, DENIED)])

    with pytest.raises(PushFailed, match="docker login` first"):
        push.push_references(engine, [REFERENCE])
    assert calls(tmp_path) == 1


def test_push_without_a_digest_fails(tmp_path: Path) -> None:
    engine = docker(tmp_path, [(0, "The push refers to repository [r:5000/verl.cpu]")])

    with pytest.raises(PushFailed, match="printed no digest"):
        push.push_references(engine, [REFERENCE])


@pytest.fixture
def registries() -> Iterator[list[FakeRegistry]]:
    with running() as first, running() as second:
        yield [first, second]


@pytest.fixture
def make_push(
    engine_settings: None, monkeypatch: pytest.MonkeyPatch, registries: list[FakeRegistry]
) -> Callable[..., push.Push]:
    """Make a push to both registries of an image whose ID repeats one digit; uploads of the engine are immediate."""
    by_host = {each.host: each for each in registries}
    names: list[str] = []

    def upload(_: Engine, references: list[str]) -> dict[str, str]:
        def keep(reference: str) -> str:
            host, tag = reference.partition("/")[0], reference.rpartition(":")[2]
            config = {"digest": f"sha256:{tag.rpartition('-')[2][0] * 64}"}
            content = json.dumps({"schemaVersion": 2, "config": config}).encode()
            return by_host[host].keep(tag, content, DOCKER_MANIFEST)

        return {reference: keep(reference) for reference in references}

    images = SimpleNamespace(remove=lambda name, noprune: names.remove(name))
    monkeypatch.setattr(push, "daemon", lambda: SimpleNamespace(images=images))
    monkeypatch.setattr(push, "choose", lambda: None)
    monkeypatch.setattr(push, "push_references", upload)

    def make(digit: str, *tags: str, force: bool = False) -> push.Push:
        image = SimpleNamespace(id=f"sha256:{digit * 64}", tag=names.append)
        hosts = [f"{each.host}/team/verl.cpu" for each in registries]
        return push.Push(image, "0.9.1-cpu", hosts, tags, force)  # type: ignore[arg-type]

    return make


def digit_of(manifests: dict[str, tuple[str, bytes]], tag: str) -> str:
    """Digit of the image with a tag."""
    return str(json.loads(manifests[tag][1])["config"]["digest"][7])


def test_all_registries_have_the_image_before_any_tag_moves(
    make_push: Callable[..., push.Push], registries: list[FakeRegistry]
) -> None:
    pushed = make_push("1", "latest", "0.9.1-cpu")
    uploaded = pushed.upload()

    assert ["latest" in each.manifests for each in registries] == [False, False]
    assert list(uploaded) == [f"{each.host}/team/verl.cpu:0.9.1-cpu-111111111111" for each in registries]

    tagged = pushed.tag(uploaded)
    assert list(tagged) == [
        f"{each.host}/team/verl.cpu:{tag}" for tag in ("0.9.1-cpu", "latest") for each in registries
    ]
    assert {digit_of(each.manifests, tag) for each in registries for tag in ("0.9.1-cpu", "latest")} == {"1"}


def test_second_push_sends_nothing(make_push: Callable[..., push.Push], registries: list[FakeRegistry]) -> None:
    for _ in range(2):
        for each in registries:
            each.requests.clear()
        pushed = make_push("1", "latest")
        pushed.tag(pushed.upload())

    assert {each.split()[0] for registry in registries for each in registry.requests} == {"GET"}


def test_release_tag_does_not_move_and_nothing_is_sent(
    make_push: Callable[..., push.Push], registries: list[FakeRegistry]
) -> None:
    first = make_push("1", "0.9.1-cpu", "latest")
    first.tag(first.upload())

    with pytest.raises(TagTaken, match=r"verl.cpu:0.9.1-cpu is already another image.*--tag NAME.*--force"):
        make_push("2", "0.9.1-cpu", "latest").upload()
    assert "0.9.1-cpu-222222222222" not in registries[0].manifests

    forced = make_push("2", "0.9.1-cpu", "latest", force=True)
    forced.tag(forced.upload())
    assert [digit_of(each.manifests, "0.9.1-cpu") for each in registries] == ["2", "2"]


def test_tag_replaced_during_the_push_fails(
    make_push: Callable[..., push.Push], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "push_references", lambda _, references: dict.fromkeys(references, DIGEST))

    with pytest.raises(PushFailed, match="does anyone else push there"):
        make_push("1", "latest").upload()


def test_each_repository_gets_a_file_with_the_digest(
    make_push: Callable[..., push.Push], registries: list[FakeRegistry], tmp_path: Path
) -> None:
    pushed = make_push("1", "latest")
    uploaded = pushed.upload()

    paths = pushed.write_digest_files(uploaded, tmp_path)

    names = [path.read_text() for path in paths]
    assert names == [f"{reference.rpartition(':')[0]}@{digest}\n" for reference, digest in uploaded.items()]
    assert sorted(tmp_path.rglob("*.digest")) == sorted(paths)


def test_registries_and_tags_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog = Catalog.read()
    monkeypatch.setattr(push, "local", lambda reference: reference)

    usual = push.Push.from_flags(catalog.find("cpu"), catalog, "a.example/x/, b.example")
    other = push.Push.from_flags(catalog.find("cpu"), catalog, "a.example", image="mine:1", tags="dev,team")

    assert usual.repositories == ["a.example/x/verl.cpu", "b.example/verl.cpu"]
    assert usual.tags == ["0.9.1-cpu", "latest"]
    assert str(other.image) == "mine:1"
    assert other.tags == ["dev", "team"]
