"""A wheel's METADATA and table of contents, as zipfile reads them."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from images.pins import wheel_file


def wheel(path: Path, compression: int, comment: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", compression) as written:
        written.writestr("torch/__init__.py", "x = 1\n" * 100)
        written.writestr("torch-2.13.0.dist-info/METADATA", "Name: torch\nRequires-Dist: sympy\n" * 50)
        written.writestr("torch-2.13.0.dist-info/RECORD", "")
        written.comment = comment
    return path


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("comment", [b"", b"signed"])
def test_the_metadata_is_what_zipfile_reads(tmp_path: Path, compression: int, comment: bytes) -> None:
    path = wheel(tmp_path / "torch.whl", compression, comment)

    with zipfile.ZipFile(path) as read:
        assert wheel_file.metadata(path) == read.read("torch-2.13.0.dist-info/METADATA")


def test_what_is_no_plain_archive_has_no_directory(tmp_path: Path) -> None:
    assert wheel_file.directory(wheel(tmp_path / "plain.whl", zipfile.ZIP_DEFLATED)).startswith(b"PK\1\2")
    assert wheel_file.directory(wheel(tmp_path / "comment.whl", zipfile.ZIP_DEFLATED, b"signed")) == b""
    (tmp_path / "short.whl").write_bytes(b"PK")
    assert wheel_file.directory(tmp_path / "short.whl") == b""
