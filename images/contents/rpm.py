"""RPM's database of installed packages, where a base has one: the SQLite form of RPM 4.16 and later.

A row holds a header: counts of index entries and of bytes, the entries (tag, type, offset, count; each big-endian), and
the bytes that they point into (https://rpm-software-management.github.io/rpm/manual/format_header.html).
"""

from __future__ import annotations

import sqlite3
import struct
import tempfile
from collections.abc import Iterator

from images.errors import ImageError

SQLITE = ("var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite")
OLDER = ("var/lib/rpm/Packages", "usr/lib/sysimage/rpm/Packages", "usr/lib/sysimage/rpm/Packages.db")
DATABASES = (*SQLITE, *OLDER)
TAGS = {1000: "name", 1001: "version", 1002: "release", 1003: "epoch", 1022: "arch"}
INT32, ENTRY = 4, 16


def headers(path: str, database: bytes) -> Iterator[dict[str, str]]:
    """The installed packages, by the names of Debian's fields; gpg-pubkey is a key and none."""
    if path in OLDER:
        if database:
            raise ImageError(f"/{path} is an RPM database of before 4.16, whose packages cannot be told here")
        return
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
        copy.write(database)
        copy.flush()
        try:
            connection = sqlite3.connect(f"file:{copy.name}?mode=ro&immutable=1", uri=True)
            try:
                rows = [blob for (blob,) in connection.execute("SELECT blob FROM Packages")]
            finally:
                connection.close()
        except sqlite3.Error as broken:
            raise ImageError(f"/{path} is no RPM database that can be read: {broken}") from broken
    for blob in rows:
        told = tags(blob)
        if told["name"] != "gpg-pubkey":
            epoch = f"{told['epoch']}:" if "epoch" in told else ""
            version = f"{epoch}{told['version']}-{told['release']}"
            yield {"Package": told["name"], "Version": version, "Architecture": told.get("arch", "noarch")}


def tags(blob: bytes) -> dict[str, str]:
    """The tags of a header that are known here."""
    entries, _ = struct.unpack_from(">II", blob)
    store = 8 + entries * ENTRY
    found = {}
    for index in range(entries):
        tag, kind, offset, _ = struct.unpack_from(">IIII", blob, 8 + index * ENTRY)
        if tag in TAGS:
            at = store + offset
            text = (
                str(struct.unpack_from(">I", blob, at)[0])
                if kind == INT32
                else blob[at : blob.index(b"\0", at)].decode()
            )
            found[TAGS[tag]] = text
    return found
