"""Runs the real launch.sh and node.sh without Slurm or Docker: PATH has fakes and the allowed tools only."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.paths import CHECKOUT, FAKES, RECORDED

SCONTROL = RECORDED / "scontrol"
SECRET = "hf_a-known-secret"  # noqa: S105  no real secret

# The required tools of a compute node: bash, coreutils, util-linux, and getent of the C library.
COREUTILS = (
    "cat chmod cp date dirname du env id ln ls mkdir mkfifo mktemp mv nproc od paste printf readlink realpath rm rmdir "
    "sha256sum sleep sort"
)
TOOLS = f"bash flock getent setpriv stat tail tee timeout touch tr uniq {COREUTILS}".split()


@dataclass
class Rig:
    """Folders of one test, and the environment that Slurm sets."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("bin", "fake", "home", "local", "work"):
            (self.root / folder).mkdir()
        for tool in TOOLS:
            (self.root / "bin" / tool).symlink_to(str(shutil.which(tool)))
        for fake in FAKES.iterdir():
            (self.root / "bin" / fake.name).symlink_to(fake)
        self.fake("hosts", "n1\nn2\n")
        self.fake("node", (SCONTROL / "node-n1.txt").read_text())
        self.fake("images", "verl.cpu:latest\tsha256:1234\n")
        self.fake("registry", "")
        self.fake("entrypoint", "[tini -g -- /opt/verljob/entrypoint.sh]\n")
        self.fake("container", self.container("code=0"))
        self.environment = {
            "PATH": str(self.root / "bin"),
            "HOME": str(self.home),
            "FAKE": str(self.root / "fake"),
            "SLURM_JOB_ID": "20",
            "SLURM_JOB_NAME": "verl",
            "SLURM_JOB_NODELIST": "n[1-2]",
            "SLURM_JOB_CPUS_PER_NODE": "16(x2)",
            "SLURM_SUBMIT_DIR": str(self.work),
            "SLURM_SUBMIT_HOST": "login",
            "SLURMD_NODENAME": "n1",
            "VERLJOB_LOCAL": str(self.root / "local"),
            "VERLJOB_PORTS_FOLDER": str(self.root / "ports"),
        }
        self.record("absolute", str(CHECKOUT / "slurm" / "launch.sh"))

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def run_dir(self) -> Path:
        return self.work / "verljob" / "20" / "attempt-1"

    def fake(self, name: str, text: str) -> None:
        (self.root / "fake" / name).write_text(text)

    def faked(self, name: str) -> str:
        return (self.root / "fake" / name).read_text()

    def record(self, name: str, command: str) -> None:
        """Let scontrol show a recorded job, with ``command`` as its script.

        The records were taken after the jobs had ended; EndTime of a running job without a limit is Unknown.
        """
        record = re.sub("(?m)^   Command=.*$", lambda _: f"   Command={command}", recorded(name))
        self.fake("job", re.sub(r"EndTime=\S+", "EndTime=Unknown", record))

    def container(self, verdict: str, before: str = "") -> str:
        """Return the script of a container that runs ``before`` and writes a verdict."""
        text = "\n".join([verdict, "origin=self", "stage=train", "host=n1", "cause=as the test says", "fix="])
        code = verdict.partition("=")[2]
        return f"{before}\nprintf '{text}\n' > \"$FOLDER/out/verdict\"\nexit {code}\n"

    def launch(self, *arguments: str, script: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.run("bash", str(script or CHECKOUT / "slurm" / "launch.sh"), *arguments, **changes)

    def step_environment(self, node_id: int = 0, /, **changes: str) -> dict[str, str]:
        """Return the environment of node.sh: that of launch.sh, then that of the task."""
        self.run_dir.mkdir(parents=True, exist_ok=True)
        own = {
            "SLURM_NODEID": str(node_id),
            "SLURMD_NODENAME": f"n{node_id + 1}",
            "SLURM_NNODES": "2",
            "SLURM_CPUS_PER_TASK": "16",
            "SLURM_MEM_PER_NODE": "4096",
            "VERLJOB_HOME": str(CHECKOUT),
            "VERLJOB_PLATFORM": "cpu",
            "VERLJOB_PROFILE": "",
            "VERLJOB_RUNTIME": "docker",
            "VERLJOB_IMAGE": "verl.cpu:latest",
            "VERLJOB_RUN_DIR": str(self.run_dir),
            "VERLJOB_ATTEMPT": "1",
            "VERLJOB_RECIPE": str(CHECKOUT / "slurm" / "recipes" / "demo_cpu.yaml"),
            "VERLJOB_OVERRIDES": "",
            "VERLJOB_HEAD_NODE": "n1",
            "VERLJOB_HEAD_PORTS": "32501,32502,32503",
            "VERLJOB_NODELIST_HOSTS": "n1,n2",
            "VERLJOB_PORT_RANGE": "20000-32767",
            "VERLJOB_PORTS": "512",
            "VERLJOB_TOKEN": "f" * 64,
            "VERLJOB_STALL_S": "8",
        }
        return {**self.environment, **own, **changes}

    def node(self, node_id: int = 0, **changes: str) -> subprocess.CompletedProcess[str]:
        return self.run("bash", str(CHECKOUT / "slurm" / "node.sh"), **self.step_environment(node_id, **changes))

    def start_node(self, **changes: str) -> subprocess.Popen[str]:
        environment = self.step_environment(**changes)
        return subprocess.Popen(
            ["bash", f"{environment['VERLJOB_HOME']}/slurm/node.sh"], env=environment, cwd=self.work,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def source(self, libraries: str, script: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run ``script`` in a shell that has sourced these libraries of slurm/lib."""
        lines = [f'source "$VERLJOB_HOME/slurm/lib/{name}.sh"' for name in libraries.split()]
        text = "\n".join(["set -Eeuo pipefail", "HOST=n1 STAGE=checks ENDING=", *lines, script])
        return self.run("bash", "-c", text, **{"VERLJOB_HOME": str(CHECKOUT), **changes})

    def run(self, *argv: str, **changes: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in {**self.environment, **changes}.items() if value != "<unset>"}
        return subprocess.run(
            argv, env=environment, cwd=self.work, capture_output=True, text=True, check=False, timeout=30
        )

    def docker_run(self) -> list[str]:
        """Return the arguments of the last `docker run`."""
        calls = [call.splitlines() for call in self.faked("docker.argv").split("\n\n")]
        return next(call for call in reversed(calls) if call[:1] == ["run"])

    def verdict(self, node_id: int = 0) -> dict[str, str]:
        text = (self.run_dir / "nodes" / f"{node_id}-n{node_id + 1}" / "verdict").read_text()
        return dict(line.split("=", 1) for line in text.splitlines())


def recorded(name: str) -> str:
    """Return `scontrol show job` of the job ``name``: how its script was given, and the release if it is not 22.05."""
    return (SCONTROL / f"job-{name}.txt").read_text()


def mode(path: Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def leftovers(rig: Rig) -> list[str]:
    """List the files that are left in the node-local folder and in the folder of port locks."""
    return [path.name for path in rig.root.glob("[lp]o*/*") if path.name != "guard"]
