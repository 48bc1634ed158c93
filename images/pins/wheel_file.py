"""One file out of a wheel, without reading what else it has.

zipfile makes an object of each entry, and torch's wheel has 12 000: that takes longer than everything else that a build
of an unchanged image does. The layout is that of PKWARE's APPNOTE, 4.3.7, 4.3.12 and 4.3.16.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from pathlib import Path

END = struct.Struct("<4s4H2LH")  # without a comment, which wheels do not have
ENTRY = struct.Struct("<4s6H3L5H2L")
LOCAL_BYTES = 30


def directory(wheel: Path) -> bytes:
    """The table of contents; nothing where the file is no plain archive (Zip64, a comment, cut off)."""
    with wheel.open("rb") as file:
        file.seek(-min(END.size, wheel.stat().st_size), 2)
        end = file.read()
        if len(end) != END.size or not end.startswith(b"PK\5\6"):
            return b""
        size, offset = END.unpack(end)[5:7]
        if 0xFFFFFFFF in (size, offset):
            return b""
        file.seek(offset)
        return file.read(size) + end


def metadata(wheel: Path) -> bytes:
    """The METADATA of a wheel."""
    table = directory(wheel)
    place = table.find(b".dist-info/METADATA")
    start = table.rfind(b"PK\1\2", 0, place) if place >= 0 else -1
    if start < 0:
        with zipfile.ZipFile(wheel) as archive:
            return archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))
    facts = ENTRY.unpack_from(table, start)
    method, packed_size, offset = facts[4], facts[8], facts[16]
    with wheel.open("rb") as file:
        file.seek(offset)
        head = file.read(LOCAL_BYTES)
        name, extra = struct.unpack_from("<2H", head, LOCAL_BYTES - 4)
        file.seek(name + extra, 1)
        packed = file.read(packed_size)
    return zlib.decompress(packed, -zlib.MAX_WBITS) if method == zipfile.ZIP_DEFLATED else packed
