"""A machine with fakes for most commands, to test ./run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.paths import CHECKOUT

# Commands of ./run itself; everything else on PATH is a fake, so that the machine's docker is never used.
REAL = ("bash", "cat", "chmod", "dirname", "mkdir", "rm", "setsid", "sleep", "tail", "touch")


TOOLS = ("buildah", "podman", "skopeo", "mksquashfs")


FAKES = {
    "id": "[[ $1 == -u ]] && echo ${FAKE_UID:-0} || echo tester",
    "apt-get": 'echo "apt-get $*" >> "$FAKE_LOG"; [[ $* != *install* ]] || touch "$FAKE_STATE/installed"',
    "apt-cache": '[[ " docker.io docker-compose debootstrap python3-venv debian-archive-keyring " == *" $2 "* ]]',
    # Makes environments whose python logs the arguments of pip and invoke.
    "python3": """case "$*" in
    *ensurepip*) exit 0 ;;
    --version) echo Python 3.11.2 ;;
    *venv*) mkdir -p "${@: -1}/bin"; cat "$FAKE_STATE/venv-python" > "${@: -1}/bin/python"
            chmod +x "${@: -1}/bin/python"; echo "venv ${@: -1}" >> "$FAKE_LOG" ;;
esac""",
    "debootstrap": "exit 0",
    "docker-compose": "exit 0",
    "dockerd": """trap 'rm "$FAKE_STATE/up"; echo "dockerd ended" >> "$FAKE_LOG"; exit 0' TERM
echo "dockerd $*" >> "$FAKE_LOG"
[[ -z ${FAKE_DOCKERD_FAILS:-} ]] || { echo "no space left on device"; exit 1; }
while [[ $1 != --pidfile ]]; do shift; done
echo $$ > "$2"; touch "$FAKE_STATE/up"
while :; do sleep 0.1; done""",
}


VENV_PYTHON = """[[ $* != "-S -c "* ]] || exit 0
[[ $1 != -m ]] || shift
[[ $1 != invoke || $2 != --search-root ]] || set -- invoke "${@:4}"
echo "$*" >> "$FAKE_LOG"
[[ $1 != invoke ]] || { [[ -z ${FAKE_LASTS:-} ]] || sleep 30 & wait; exit "${FAKE_CODE:-0}"; }"""


def docker(version: str, *, buildx: bool) -> str:
    """Return a docker client of this version, whose engine runs while the file `up` exists."""
    return f"""case "$*" in
    --version) echo "Docker version {version}, build abc" ;;
    "buildx version") {"exit 0" if buildx else "exit 1"} ;;
    "compose version") exit 1 ;;
    version*) [[ -e $FAKE_STATE/up ]] && echo 20.10.24 || {{ echo "${{FAKE_REFUSAL:-Cannot connect}}" >&2; exit 1; }} ;;
    info*) echo /var/lib/docker ;;
esac"""


class Machine:
    """A checkout in a folder whose name has a space, and a PATH of fakes."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "my checkout"
        self.bin, self.state, self.log = folder / "bin", folder / "state", folder / "log"
        for made in (self.checkout, self.bin, self.state):
            made.mkdir()
        shutil.copy(CHECKOUT / "run", self.checkout)
        shutil.copytree(CHECKOUT / "bootstrap", self.checkout / "bootstrap")
        shutil.copy(CHECKOUT / "pyproject.toml", self.checkout)
        (self.state / "venv-python").write_text(f"#!/bin/bash\n{VENV_PYTHON}\n")
        for name in REAL:
            (self.bin / name).symlink_to(str(shutil.which(name)))
        for name, body in FAKES.items():
            self.add_program(name, body)
        for name in TOOLS:
            self.add_program(name, "exit 0")
        self.add_program("docker", docker("20.10.24", buildx=False))
        self.engine_answers()

    def add_program(self, name: str, body: str, folder: Path | None = None) -> Path:
        path = (folder or self.bin) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)
        return path

    def remove_programs(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def engine_answers(self, answers: bool = True) -> None:
        if answers:
            (self.state / "up").touch()
        else:
            (self.state / "up").unlink()

    def environment(self, **extra: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "FAKE_LOG": str(self.log), "FAKE_STATE": str(self.state), **extra}

    def run(self, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "run", *arguments],
            env=self.environment(**extra),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
        )

    def calls(self, word: str) -> list[str]:
        """Return the logged calls that start with ``word``."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line for line in lines if line.startswith(word)]
