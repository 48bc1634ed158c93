"""Runs inside a build, with the image's own Python: ``collect.py FOLDER LOCK…`` downloads what guard.py installs.

Nothing that a requirement asks for in turn, since a lock names all of it, and the tools for what has no wheel.
Needs Python 3.8, pip and guard.py beside it.
"""

from __future__ import annotations

import sys

from guard import BUILD_TOOLS, build_tools, pip


def main() -> None:
    folder, *locks = sys.argv[1:]
    download = ["download", "--quiet", "--dest", folder, "--no-deps", "--require-hashes"]
    pip([*download, "--only-binary", ":all:", "-r", str(BUILD_TOOLS)])
    # pip asks a source distribution for its metadata even here, and that runs its build.
    with build_tools() as tools:
        files = [word for lock in locks for word in ("-r", lock)]
        pip([*download, "--no-build-isolation", "--use-pep517", *files], tools)


if __name__ == "__main__":
    main()
