"""Source distributions are built with tools pinned by hash: real pip, and an index that offers other tools."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import subprocess
import tarfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import stub_wheel

from images.context.render import TEMPLATES
from tests.support.images.serving import serving

# Build backend of `source` in place of setuptools: the minimum that pip needs.
BACKEND = """
import zipfile
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "source-1.0-py3-none-any.whl"
    with zipfile.ZipFile(Path(folder, name), "w") as wheel:
        for member, text in {
            "source.py": f"BUILT_BY = {__file__!r}",
            "source-1.0.dist-info/METADATA": "Metadata-Version: 2.1\\nName: source\\nVersion: 1.0\\n",
            "source-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
            "source-1.0.dist-info/RECORD": "source.py,,\\n",
        }.items():
            wheel.writestr(member, text)
    return name

__legacy__ = __import__("sys").modules[__name__]
"""
EVIL = "from pathlib import Path\nPath({!r}).touch()\n"
# The guard of an image, with another folder and without `pip check`.
DRIVER = """
import sys
sys.path.insert(0, {steps!r})
import guard
from pathlib import Path
guard.FOLDER, guard.BUILD_TOOLS = Path({folder!r}), Path({folder!r}) / "build-tools.txt"
guard.conflicts = lambda: []
if {download!r}:
    sys.argv = ["guard.py", "download", "--folder", {download!r}, "--lock", str(guard.FOLDER / "lock.txt")]
    guard.main()
else:
    guard.record([], guard.FOLDER / "lock.txt", ["source==1.0"], [])
    guard.install(guard.FOLDER / "lock.txt")
"""


class Index(http.server.SimpleHTTPRequestHandler):
    """An index by PEP 503: the listing of a folder is a page of links."""

    requested: list[str]

    def log_message(self, *_: object) -> None:
        self.requested.append(self.path)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with only pip, without the tools that built the package of an earlier test."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=True, symlinks=True)
    subprocess.run([folder / "bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools"], check=True)
    return folder / "bin/python"


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """URL of an index with `source`, which has no wheel, the pinned tool, and a newer one that writes `ran`."""
    simple = tmp_path / "served/simple"
    for name in ("source", "setuptools", "wheel"):
        (simple / name).mkdir(parents=True)
    with tarfile.open(simple / "source/source-1.0.tar.gz", "w:gz") as archive:
        for name, text in {"setup.py": "", "PKG-INFO": "Metadata-Version: 2.1\nName: source\nVersion: 1.0\n"}.items():
            member = tarfile.TarInfo(f"source-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    stub_wheel.write(simple / "wheel", "wheel", "1.0")
    stub_wheel.write(simple / "setuptools", "setuptools", "80.0", backend(BACKEND))
    evil = EVIL.format(str(tmp_path / "ran"))
    stub_wheel.write(simple / "setuptools", "setuptools", "999.0", backend(evil + BACKEND))
    lines = [
        ("build-tools.txt", "setuptools==80.0", simple / "setuptools/setuptools-80.0-py3-none-any.whl", ""),
        ("lock.txt", "source==1.0", simple / "source/source-1.0.tar.gz", "  # sdist"),
    ]
    for file, pin, path, mark in lines:
        (tmp_path / file).write_text(f"{pin} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}{mark}\n")
    Index.requested = []
    handler = functools.partial(Index, directory=str(tmp_path / "served"))
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/simple"


def backend(text: str) -> dict[str, str]:
    return {"setuptools/__init__.py": "", "setuptools/build_meta.py": text}


def installs(
    python: Path, folder: Path, index: str, download: str = "", config: Path = Path("/dev/null")
) -> subprocess.CompletedProcess[str]:
    """Install or download by the guard from the index, then uninstall the package."""
    driver = DRIVER.format(steps=str(TEMPLATES), folder=str(folder), download=download)
    environment = {
        "PIP_INDEX_URL": index,
        "PIP_CONFIG_FILE": str(config),
        "PIP_CACHE_DIR": str(folder / "cache"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run([python, "-c", driver], env=environment, capture_output=True, text=True, check=False)
    argv = [str(python), "-c", "import source; print(source.BUILT_BY)"]
    built_by = subprocess.run(argv, capture_output=True, text=True, check=False)
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "source"], capture_output=True, check=True)
    return subprocess.CompletedProcess(done.args, done.returncode, built_by.stdout, done.stdout + done.stderr)


def test_index_does_not_choose_the_build_tools(python: Path, index: str, tmp_path: Path) -> None:
    done = installs(python, tmp_path, index)

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("setuptools/build_meta.py\n")
    assert not (tmp_path / "ran").exists()
    assert not [path for path in Index.requested if "wheel/" in path or "999" in path]
    assert (tmp_path / "requirements.txt").read_text() == (tmp_path / "lock.txt").read_text()


def test_build_tool_with_another_hash_fails(python: Path, index: str, tmp_path: Path) -> None:
    files = tmp_path / "served/simple/setuptools"
    (files / "setuptools-999.0-py3-none-any.whl").rename(files / "setuptools-80.0-py3-none-any.whl")

    done = installs(python, tmp_path, index)

    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_source_without_a_mark_in_the_lock_is_not_built(python: Path, index: str, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(lock.read_text().replace("  # sdist", ""))

    done = installs(python, tmp_path, index)

    assert done.returncode == 1
    assert "No matching distribution found for source==1.0" in done.stderr


def test_bundle_has_the_build_tools_and_runs_no_others(python: Path, index: str, tmp_path: Path) -> None:
    done = installs(python, tmp_path, index, download=str(tmp_path / "wheels"))

    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    names = sorted(path.name for path in (tmp_path / "wheels").iterdir())
    assert names == ["setuptools-80.0-py3-none-any.whl", "source-1.0.tar.gz"]

    (tmp_path / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {tmp_path}/wheels\n")
    offline = installs(python, tmp_path, "http://127.0.0.1:9/simple", config=tmp_path / "pip.conf")
    assert offline.returncode == 0, offline.stderr
