"""Old images and cache records: ours, without a current name; never those of others."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from images.builds import prune
from images.builds.prune import StaleItems
from images.report import record

CURRENT = {"verl.cpu:0.9.1-cpu", "verl.cpu:latest"}


def image(key: str, *tags: str, pulled: bool = False) -> Any:
    digests = ["r/verl.cpu@sha256:1"] if pulled else []
    return SimpleNamespace(id=f"sha256:{key}", tags=list(tags), attrs={"Size": 7, "RepoDigests": digests})


@pytest.mark.parametrize(
    ("tags", "old"),
    [
        ([], True),
        (["verl.cpu:0.9.0-cpu"], True),
        (["r.example/team/verl.cpu:0.9.0-cpu", "verl.rocm:0.4.1-gone"], True),
        (["verl.cpu:0.9.1-cpu-0123456789ab"], True),
        (["verl.cpu:0.9.1-cpu-gfx942-gfx950"], False),  # of `--gpus`
        (["verl.cpu:0.9.0-cpu-gfx942"], True),
        (["verl.cpu:latest"], False),
        (["r.example/team/verl.cpu:latest", "verl.cpu:0.9.0-cpu"], False),
        (["verl.cpu:mine"], False),
        (["somebody/else:0.9.0-cpu"], False),
        (["verl.cpu:0.9.0-cpu", "verl.cpu:mine"], False),
    ],
)
def test_an_image_is_old_if_it_has_no_current_or_chosen_name(tags: list[str], old: bool) -> None:
    assert bool(prune.old_images([image("1", *tags)], CURRENT, set())) is old


def test_an_image_that_a_container_uses_is_kept() -> None:
    assert prune.old_images([image("1")], CURRENT, {"sha256:1"}) == {}


def test_an_image_pulled_by_digest_is_kept_unless_this_checkout_built_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert prune.old_images([image("1", pulled=True)], CURRENT, set()) == {}

    monkeypatch.setattr(record, "read", lambda _: {"built": "by this checkout"})
    assert prune.old_images([image("1", pulled=True)], CURRENT, set()) == {"sha256:1": ("without a name", 7)}


def records(*each: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Records of a build cache by ID, parent and description."""
    return [
        {"ID": key, "Parent": parent, "Description": description, "Size": 5, "InUse": False, "Shared": False}
        for key, parent, description in each
    ]


@pytest.mark.parametrize("parents", [False, True])
def test_our_old_cache_records_and_those_built_on_them_are_old(parents: bool) -> None:
    ours = "mount / from exec /bin/sh -c python3 /steps/guard.py verify"
    found = records(
        ("1", "", f"{ours} --pins new"),
        ("2", "", f"{ours} --pins  old"),
        ("3", "2", "fileop target"),
        ("4", "3", "fileop target"),
        ("5", "", "mount / from exec /bin/sh -c make somebody else's"),
        ("6", "5", "fileop target"),
        ("7", "", "local source for context"),
        ("8", "1", "fileop target"),
    )
    if parents:  # as an engine answers since API 1.42
        found = [{**each, "Parent": None, "Parents": [each["Parent"]] if each["Parent"] else None} for each in found]

    assert prune.old_cache(found, {"python3 /steps/guard.py verify --pins new"}) == {"2": 5, "3": 5, "4": 5}


def test_a_record_in_use_or_part_of_an_image_is_kept() -> None:
    used, shared = records(("1", "", "cp /opt/verljob"), ("2", "", "cp /opt/verljob"))

    assert prune.old_cache([{**used, "InUse": True}, {**shared, "Shared": True}], set()) == {}


def test_the_table_has_names_sizes_and_the_next_command() -> None:
    old = StaleItems({"sha256:0123456789abcdef": ("verl.cpu:0.9.0-cpu", 1_750_000_000)}, {"a": 10**9, "b": 10**9})

    assert prune.table(old).splitlines()[:2] == [
        "  1.75 GB  verl.cpu:0.9.0-cpu  0123456789ab",
        "  2.00 GB  build cache, 2 records",
    ]
    assert "invoke image.prune --yes" in prune.table(old)
    assert prune.table(StaleItems()) == "No old images or cache records."


def test_a_record_is_removed_after_those_built_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = {"step": "", "next": "step", "last": "next", "other": ""}

    def prune_leaf(argv: Sequence[str], *_: object) -> None:
        key = argv[-1].removeprefix("id=")
        if key not in parents.values():
            parents.pop(key, None)

    monkeypatch.setattr(prune, "run", prune_leaf)
    monkeypatch.setattr(prune, "choose", lambda: SimpleNamespace(client="docker"))
    monkeypatch.setattr(
        prune, "daemon", lambda: SimpleNamespace(df=lambda: {"BuildCache": [{"ID": k} for k in parents]})
    )

    prune.remove_cache(["step", "next", "last"])

    assert list(parents) == ["other"]


def test_a_record_in_use_does_not_stop_the_removal_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "run", lambda *_: None)
    monkeypatch.setattr(prune, "choose", lambda: SimpleNamespace(client="docker"))
    monkeypatch.setattr(prune, "daemon", lambda: SimpleNamespace(df=lambda: {"BuildCache": [{"ID": "used"}]}))

    prune.remove_cache(["used"])
