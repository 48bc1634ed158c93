"""Text of a release: a version's section of CHANGELOG.md and the table of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.errors import ReleaseFailed
from images.release import notes
from images.release.notes import Published

CHANGELOG = """# Changelog

All changes.

## [Unreleased]

- not yet

## [0.2.0] - 2026-12-01

### Fixed

- `$(touch pwned)`; "quoted" | and `backticks`

## 0.2.0rc1

- older

## [0.1.0] - 2026-11-24
"""
DIGEST = "sha256:" + "ab" * 32
IMAGE = Published("cpu", "r.example/verl.cpu", "0.9.1-cpu-v0.2.0", DIGEST, 560_000_000, "debian@sha256:1", "ran")


@pytest.fixture
def changelog(tmp_path: Path) -> Path:
    path = tmp_path / "CHANGELOG.md"
    path.write_text(CHANGELOG)
    return path


def test_section_is_the_text_below_the_versions_heading(changelog: Path) -> None:
    assert notes.section("0.2.0", changelog) == '### Fixed\n\n- `$(touch pwned)`; "quoted" | and `backticks`'
    assert notes.section("0.2.0rc1", changelog) == "- older"


def test_version_without_a_section_fails_with_the_sections_that_exist(changelog: Path) -> None:
    with pytest.raises(ReleaseFailed, match=r"no text for 0\.3\.0 \(it has Unreleased, 0\.2\.0, 0\.2\.0rc1, 0\.1\.0\)"):
        notes.section("0.3.0", changelog)


def test_empty_section_fails(changelog: Path) -> None:
    with pytest.raises(ReleaseFailed, match=r"the section of 0\.1\.0 is empty.*rename \[Unreleased\] to \[0\.1\.0\]"):
        notes.section("0.1.0", changelog)


def test_table_has_a_row_for_each_image_and_a_line_for_each_variant_left_out() -> None:
    assert notes.table([IMAGE], {"rocm6.2": "no registry serves its base"}).splitlines() == [
        "| variant | image | digest | size | base | state |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| `cpu` | `r.example/verl.cpu:0.9.1-cpu-v0.2.0` | `{DIGEST}` | 560 MB | `debian@sha256:1` | ran |",
        "",
        "- `rocm6.2` is not published: no registry serves its base",
    ]


def test_text_has_the_changes_the_table_and_a_command_by_digest() -> None:
    text = notes.text("- a change", [IMAGE], {})

    assert text.startswith("- a change\n\n## Images\n\n| variant |")
    assert f"export VERLJOB_IMAGE=r.example/verl.cpu@{DIGEST}\n" in text
