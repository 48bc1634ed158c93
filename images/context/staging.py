"""Writes a folder so that it holds exactly the given files, and leaves unchanged files untouched.

BuildKit sends a file to its daemon only where name, size, mode or time differ from the last build of the folder
(tonistiigi/fsutil), so a file that stays is not sent again, and one that changes is a new file with a time of its own:
an edit that restores size and mtime would reach our digests and not the daemon. It is a copy, so nobody edits it while
it is built, and its mode and not that of a checkout counts.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from images.host.digests import Digests

FILE, FOLDER = 0o644, 0o755


class Staging:
    """``with`` it, tell what the folder holds; what was not told is gone when it ends without an error.

    ``sources`` knows the digests of the files that are copied, ``staged`` those of the folder's own. ``inputs`` are
    what images/context/inputs.py would find in the folder then; None for a linked file, at which it has to look.
    """

    def __init__(self, folder: Path, sources: Digests, staged: Digests) -> None:
        self._top, self._sources, self._staged = str(folder), sources, staged
        self._told: dict[str, str] = {}
        self.inputs: dict[str, str | None] = {}

    def __enter__(self) -> Staging:
        os.makedirs(self._top, exist_ok=True)
        os.chmod(self._top, FOLDER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._forget("")
            self._sources.keep()
            self._staged.keep()

    def folder(self, name: str) -> None:
        """A folder, and those that it lies in."""
        if name in self._told:
            return
        target, there = self._tell(name)
        self.inputs[name] = f"{stat.S_IFDIR | FOLDER:o}"
        if there and there.st_mode == stat.S_IFDIR | FOLDER:
            return
        if not there or not stat.S_ISDIR(there.st_mode):
            self._clear(target, there)
            os.mkdir(target)
        os.chmod(target, FOLDER)

    def text(self, name: str, content: str) -> None:
        """A file of this text."""
        target, there = self._tell(name)
        wanted = content.encode()
        digest = hashlib.sha256(wanted).hexdigest()
        self.inputs[name] = f"{stat.S_IFREG | FILE:o} {len(wanted)} {digest}"
        if not (_is_own(there, FILE) and self._staged.sha256(target, there) == digest):
            self._write(target, there, wanted, FILE)

    def file(self, name: str, source: str, mode: int = FILE, state: os.stat_result | None = None) -> None:
        """A copy of a file; ``state`` is what stat told of it just now."""
        target, there = self._tell(name)
        self._told[name] = self._sources.sha256(source, state)
        if there and _is_own(there, mode) and self._staged.sha256(target, there) == self._told[name]:
            length = there.st_size
        else:  # what it holds now may be newer than its digest
            content = Path(source).read_bytes()
            self._write(target, there, content, mode)
            length, self._told[name] = len(content), self._staged.sha256(target)
        self.inputs[name] = f"{stat.S_IFREG | mode:o} {length} {self._told[name]}"

    def link(self, name: str, source: Path) -> None:
        """A large file: a hard link where one is possible, and where the daemon will see that it is another one."""
        target, there = self._tell(name)
        self.inputs[name] = None
        wanted = source.stat()
        if there and os.path.samestat(there, wanted):
            return
        looks_alike = there and (there.st_size, there.st_mtime_ns) == (wanted.st_size, wanted.st_mtime_ns)
        self._clear(target, there)
        if not looks_alike:
            with suppress(OSError):  # another file system
                os.link(source, target)
                return
        shutil.copyfile(source, target)
        os.chmod(target, FILE)

    def symlink(self, name: str, to: str) -> None:
        """A symbolic link."""
        target, there = self._tell(name)
        self.inputs[name] = f"{stat.S_IFLNK | 0o777:o} {to}"
        if not (there and stat.S_ISLNK(there.st_mode) and os.readlink(target) == to):
            self._clear(target, there)
            os.symlink(to, target)

    def tree(
        self, name: str, source: str, left_out: Callable[[str], bool], mode: Callable[[str, os.stat_result], int]
    ) -> None:
        """All below a folder; what is neither file, folder nor link is no part of a package."""
        self.folder(name)
        with os.scandir(source) as entries:
            for entry in sorted(entries, key=_name):
                inside = f"{name}/{entry.name}"
                if left_out(entry.name):
                    continue
                if entry.is_symlink():
                    self.symlink(inside, os.readlink(entry.path))
                elif entry.is_dir():
                    self.tree(inside, entry.path, left_out, mode)
                elif entry.is_file():
                    state = entry.stat()
                    self.file(inside, entry.path, mode(entry.name, state), state)

    def digest(self, name: str) -> str:
        """The sha256 over the paths and digests of the files that were copied below a folder."""
        told = sorted((each, digest) for each, digest in self._told.items() if digest and each.startswith(f"{name}/"))
        return hashlib.sha256("".join(f"{each}\0{digest}\n" for each, digest in told).encode()).hexdigest()

    def _tell(self, name: str) -> tuple[str, os.stat_result | None]:
        """Where a name lies, and what is there."""
        if above := name.rpartition("/")[0]:
            self.folder(above)
        self._told[name] = ""
        target = f"{self._top}/{name}"
        try:
            return target, os.lstat(target)
        except FileNotFoundError:
            return target, None

    def _write(self, target: str, there: os.stat_result | None, content: bytes, mode: int) -> None:
        self._clear(target, there)
        with open(target, "xb") as file:
            file.write(content)
        os.chmod(target, mode)

    def _clear(self, target: str, there: os.stat_result | None) -> None:
        if there and stat.S_ISDIR(there.st_mode):
            shutil.rmtree(target)
        elif there:
            os.unlink(target)

    def _forget(self, name: str) -> None:
        """Remove what was not told."""
        with os.scandir(f"{self._top}/{name}") as entries:
            for entry in list(entries):
                inside = f"{name}/{entry.name}" if name else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if inside not in self._told:
                    shutil.rmtree(entry.path) if is_folder else os.unlink(entry.path)
                elif is_folder:
                    self._forget(inside)


def _is_own(there: os.stat_result | None, mode: int) -> bool:
    """Whether this is a file of this mode, and by no other name somebody else's."""
    return there is not None and there.st_mode == stat.S_IFREG | mode and there.st_nlink == 1


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name
