"""Requires-Dist: conflicts as pip check sees them, and fetching from an index that this test serves."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.errors import ImageError
from images.pins import requirements, resolver
from images.pins.requirements import Distribution

METADATA = "Name: a\nVersion: 1\nRequires-Dist: b>=2\nRequires-Dist: c; extra == 'd'\n\nText\n"


def installed(**versions: str) -> dict[str, Distribution]:
    return {name: Distribution(name, version) for name, version in versions.items()}


@pytest.mark.parametrize(
    ("requirement", "line"),
    [
        ("b>=2", "a 1 has requirement b>=2, but you have b 1.5+cu130."),
        ("b>=1", ""),
        ("b==1.5", ""),
        ("c", "a 1 requires c, which is not installed."),
        ("b>=2; python_version < '3.10'", ""),
        ("b>=2; platform_machine == 'aarch64'", ""),
    ],
)
def test_conflict_of_a_requirement(requirement: str, line: str) -> None:
    packages = {"a": Distribution("a", "1", [requirement]), **installed(b="1.5+cu130")}

    assert requirements.conflicts(packages, "3.12") == [line] * bool(line)


def test_package_without_known_requirements_names_the_command() -> None:
    with pytest.raises(ImageError, match=r"no Requires-Dist of left-pad==1\.0: `invoke image.pins --update`"):
        requirements.distribution("left-pad", "1.0")


class Index:
    """Answers of a package index: METADATA beside a wheel or not, and ranges of the wheel unless it ignores them."""

    def __init__(self, wheel: bytes, beside: str = "", *, has_ranges: bool = True) -> None:
        self.wheel, self.beside, self.has_ranges, self.ranges = wheel, beside, has_ranges, list[str]()

    def get(self, url: str, headers: dict[str, str] | None = None, **_: object) -> Answer:
        if url.endswith(".metadata"):
            return Answer(200 if self.beside else 404, self.beside.encode())
        if not self.has_ranges:
            return Answer(200, self.wheel)
        start, stop = (headers or {})["Range"].removeprefix("bytes=").split("-")
        self.ranges.append(f"{start}-{stop}")
        return Answer(206, self.wheel[int(start) : int(stop) + 1])

    def head(self, url: str, timeout: int = 0) -> SimpleNamespace:
        return SimpleNamespace(ok=True, headers={"Content-Length": str(len(self.wheel))})


class Answer:
    """An answer of requests that is read as a stream."""

    def __init__(self, status_code: int, content: bytes) -> None:
        self.status_code, self.content = status_code, content

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def iter_content(self, size: int) -> Iterator[bytes]:
        return (self.content[start : start + size] for start in range(0, len(self.content), size))


@pytest.mark.parametrize("beside", [METADATA, ""])
def test_metadata_is_read_beside_the_wheel_else_by_ranges_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: str
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a-1.dist-info/METADATA", METADATA)
        archive.writestr("a/code.bin", bytes(5 << 20))
    index = Index(file.getvalue(), beside)
    monkeypatch.setattr(requirements, "_session", lambda: index)
    package = {"name": "a", "version": "1", "wheels": [{"url": "https://i.example/a-1-py3-none-any.whl"}]}
    monkeypatch.setattr(resolver, "packages", lambda *_, **__: [package])

    path = requirements.update([("3.12", "x86_64-manylinux_2_36", ["a==1"])], tmp_path / "requirements.json")

    assert json.loads(path.read_text()) == {"a==1": ["b>=2"]}
    assert len(index.ranges) == (0 if beside else 2)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (Index(b"PK" * 100, has_ranges=False), "answered 200, expected 206"),
        (Index(b"no zip file" * 100), "is no wheel with METADATA"),
        (Index(b"", "M" * (requirements.ANSWER_BYTES + 1)), "sends more than"),
    ],
)
def test_an_index_that_sends_something_else_is_named_and_not_read_whole(
    monkeypatch: pytest.MonkeyPatch, index: Index, message: str
) -> None:
    monkeypatch.setattr(requirements, "_session", lambda: index)

    with pytest.raises(ImageError, match=rf"a-1-py3-none-any\.whl.* {message}"):
        requirements._metadata("https://i.example/a-1-py3-none-any.whl")


def test_only_what_is_not_stored_is_fetched_and_the_rest_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "requirements.json"
    path.write_text(json.dumps({"a==1": ["b"], "old==1": []}))
    queried: list[str] = []

    def answer(target: tuple[str, str], pins: list[str], **_: object) -> list[dict[str, str]]:
        queried.extend(pins)
        return [{"name": "C.d", "version": "2"}]

    monkeypatch.setattr(resolver, "packages", answer)
    requirements.stored.cache_clear()

    requirements.update([("3.12", "x86_64-manylinux_2_36", ["a==1", "c-d==2"])], path)

    assert queried == ["c-d==2"]
    assert json.loads(path.read_text()) == {"a==1": ["b"], "c-d==2": None}
