"""The machine of crowd.py as a root folder with namespaces, for machines without a container engine.

    docker create --name bench verljob-bench-host && docker export bench | tar --extract --directory ROOT

Needs root and the permission to create namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from slurm.errors import CommandFailed

NAMESPACES = ["--mount", "--uts", "--ipc", "--net", "--pid"]
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STATE = ("home", "var/spool/slurmctld", "var/spool/slurmd")
MOUNTS = """mount --bind "$0" "$0" && cd "$0"
mount --rbind /dev dev && mount --rbind /sys sys && mount -t proc proc proc
mount -t tmpfs -o size=2g,mode=1777 shm dev/shm && mount -t tmpfs -o mode=0755 run run
hostname login && pivot_root . mnt && umount --lazy mnt && exec chroot . /usr/local/sbin/bench-host "$1" """


class Root:
    """A cluster of ``nodes`` nodes in ``folder``, with its own namespaces; it starts at once."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self._folder, self._log = folder.resolve(), folder.resolve().with_name("bench-host.log")
        for part in STATE:  # of an earlier run
            if (folder / part).exists():
                shutil.rmtree(folder / part)
            (folder / part).mkdir()
        inside = ["bash", "-euc", MOUNTS, str(self._folder), str(nodes)]
        with self._log.open("wb") as log:
            argv = ["unshare", *NAMESPACES, "--fork", "--kill-child", *inside]
            self._outer = subprocess.Popen(argv, stdout=log, stderr=log)
        self._inner = ""

    def run(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        folder: str = "/",
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 120,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``argv`` in the namespaces and wait for its end. Raises CommandFailed like slurm/testbed/hosts.py."""
        home = "/root" if user == "root" else f"/home/{user}"
        settings = {"PATH": PATH, "HOME": home, "USER": user, **(environment or {})}
        enter = ["nsenter", f"--target={self._init()}", *NAMESPACES]
        become = ["chpst", "-u", user, "env", "-i", f"--chdir={folder}"]
        variables = [f"{name}={value}" for name, value in settings.items()]
        limited = [*become, *variables, "timeout", "--signal=KILL", str(timeout_s), *argv]
        done = subprocess.run([*enter, *limited], capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise CommandFailed(argv, done.returncode, done.stdout + done.stderr, where=f"{self._folder} as {user}")
        return done

    def _init(self) -> str:
        """Return the pid of the first process in the namespaces: the only child of unshare."""
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        self._inner = self._inner or "".join(children.read_text().split()[:1])
        return self._inner

    def put(self, sources: Iterable[Path], folder: str, *, user: str = "root") -> None:
        """Copy files and folders into ``folder``, which is created if missing, as files of ``user``."""
        target = self._folder / folder.lstrip("/")
        for source in sources:
            copied = target / source.name
            target.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copied, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
            else:
                shutil.copy2(source, copied)
        self.run(["chown", "--recursive", f"{user}:", folder])

    def daemon_log(self) -> str:
        """Return the last lines of the cluster's daemons."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-30:])

    def cpu_s(self) -> float:
        """Return the CPU seconds of the whole machine by /proc/stat; nothing else should run on it."""
        user, nice, system, _idle, _iowait, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:8])
        return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")

    def down(self) -> None:
        """Kill the first process of the namespaces, and with it all others."""
        self._outer.kill()
        self._outer.wait()
