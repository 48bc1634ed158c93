"""Writes a folder so that it holds exactly the given files, and leaves unchanged files untouched.

BuildKit sends a file to its daemon only if name, size, mode or mtime differ from the last build of the folder
(tonistiigi/fsutil). So an unchanged file is left alone, and a changed file is written as a new file with a new mtime:
an edit that restores size and mtime would change our digests without reaching the daemon. Files are copies, so that an
edit during a build has no effect and the checkout's modes do not count.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from types import TracebackType

from images.host.digests import DigestCache

FILE, FOLDER = 0o644, 0o755


class Staging:
    """Context manager: add the entries of the folder; on exit without an error all other entries are removed.

    ``sources`` caches digests of the copied files, ``staged`` those of the folder's own files. ``entries`` describes
    each path as images/context/inputs.py does; None for a linked file, which is not read.
    """

    def __init__(self, folder: Path, sources: DigestCache, staged: DigestCache) -> None:
        self._top, self._sources, self._staged = str(folder), sources, staged
        self._copied: dict[str, str] = {}
        self.entries: dict[str, str | None] = {}

    def __enter__(self) -> Staging:
        os.makedirs(self._top, exist_ok=True)
        os.chmod(self._top, FOLDER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._remove_others("")
            self._sources.save()
            self._staged.save()

    def folder(self, name: str) -> None:
        """Add a folder and its parents."""
        if name in self.entries:
            return
        target, current = self._add(name, f"{stat.S_IFDIR | FOLDER:o}")
        if current and current.st_mode == stat.S_IFDIR | FOLDER:
            return
        if not current or not stat.S_ISDIR(current.st_mode):
            self._remove(target, current)
            os.mkdir(target)
        os.chmod(target, FOLDER)

    def text(self, name: str, content: str) -> None:
        """Add a file with this text."""
        data = content.encode()
        digest = hashlib.sha256(data).hexdigest()
        target, current = self._add(name, f"{stat.S_IFREG | FILE:o} {len(data)} {digest}")
        if not (_is_unshared_file(current, FILE) and self._staged.sha256(target, current) == digest):
            self._write(target, current, data, FILE)

    def file(self, name: str, source: str, mode: int = FILE, state: os.stat_result | None = None) -> None:
        """Add a copy of a file; ``state`` is its stat result, if the caller has it."""
        target, current = self._add(name, None)
        digest = self._sources.sha256(source, state)
        if current and _is_unshared_file(current, mode) and self._staged.sha256(target, current) == digest:
            size = current.st_size
        else:  # the source may have changed since its digest was taken
            content = Path(source).read_bytes()
            self._write(target, current, content, mode)
            size, digest = len(content), self._staged.sha256(target)
        self._copied[name] = digest
        self.entries[name] = f"{stat.S_IFREG | mode:o} {size} {digest}"

    def link(self, name: str, source: Path) -> None:
        """Add a large file: a hard link if possible, else a copy; the daemon notices when it is another file."""
        target, current = self._add(name, None)
        state = source.stat()
        if current and os.path.samestat(current, state):
            return
        looks_alike = current and (current.st_size, current.st_mtime_ns) == (state.st_size, state.st_mtime_ns)
        self._remove(target, current)
        if not looks_alike:
            with suppress(OSError):  # another file system
                os.link(source, target)
                return
        shutil.copyfile(source, target)
        os.chmod(target, FILE)

    def symlink(self, name: str, to: str) -> None:
        """Add a symbolic link."""
        target, current = self._add(name, f"{stat.S_IFLNK | 0o777:o} {to}")
        if not (current and stat.S_ISLNK(current.st_mode) and os.readlink(target) == to):
            self._remove(target, current)
            os.symlink(to, target)

    def tree(
        self, name: str, source: str, left_out: Callable[[str], bool], mode: Callable[[str, os.stat_result], int]
    ) -> None:
        """Add all files, folders and links below a folder, except names that are ``left_out``."""
        self.folder(name)
        with os.scandir(source) as entries:
            for entry in sorted(entries, key=attrgetter("name")):
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
        """Return the sha256 of the paths and digests of the files copied below a folder."""
        copied = sorted((path, digest) for path, digest in self._copied.items() if path.startswith(f"{name}/"))
        return hashlib.sha256("".join(f"{path}\0{digest}\n" for path, digest in copied).encode()).hexdigest()

    def _add(self, name: str, entry: str | None) -> tuple[str, os.stat_result | None]:
        """Record an entry; return its path, and the stat result of the current file at that path."""
        if above := name.rpartition("/")[0]:
            self.folder(above)
        self.entries[name] = entry
        target = f"{self._top}/{name}"
        try:
            return target, os.lstat(target)
        except FileNotFoundError:
            return target, None

    def _write(self, target: str, current: os.stat_result | None, content: bytes, mode: int) -> None:
        self._remove(target, current)
        with open(target, "xb") as file:
            file.write(content)
        os.chmod(target, mode)

    def _remove(self, target: str, current: os.stat_result | None) -> None:
        if current and stat.S_ISDIR(current.st_mode):
            shutil.rmtree(target)
        elif current:
            os.unlink(target)

    def _remove_others(self, name: str) -> None:
        """Remove all paths below a folder that were not added."""
        with os.scandir(f"{self._top}/{name}") as entries:
            for entry in list(entries):
                inside = f"{name}/{entry.name}" if name else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if inside not in self.entries:
                    shutil.rmtree(entry.path) if is_folder else os.unlink(entry.path)
                elif is_folder:
                    self._remove_others(inside)


def _is_unshared_file(state: os.stat_result | None, mode: int) -> bool:
    """Whether this is a regular file of this mode with one name: another hard link could change its content."""
    return state is not None and state.st_mode == stat.S_IFREG | mode and state.st_nlink == 1
