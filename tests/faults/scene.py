"""The job of a drill on the rehearsal cluster, commands on its nodes, and what to undo afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from slurm.testbed import Cluster
from slurm.testbed.hosts import Output
from tests.support.cluster.launches import WORK, Launch, submit

HEAD, WORKER = "n1", "n2"
ACCOUNT = "submitter"
STARTS_S = 120
LASTS = "stub.seconds=600"


@dataclass(frozen=True)
class Runtime:
    """A container runtime of slurm/runtimes: the settings by which a job selects it, and the name of its processes."""

    name: str
    image: str
    client: str = ""
    """Pattern by which `pgrep -f` finds the runtime's foreground process; empty if the runtime has none."""

    def environment(self) -> dict[str, str]:
        return {"VERLJOB_RUNTIME": self.name, "VERLJOB_IMAGE": self.image, "VERLJOB_HOME": f"/home/{ACCOUNT}/verljob"}


@dataclass
class Scene:
    """The job of one fault: first its flags and settings, after ``submit`` the job itself."""

    cluster: Cluster
    runtime: Runtime
    stub: str
    nodes: int = 2
    flags: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=lambda: [LASTS])
    environment: dict[str, str] = field(default_factory=dict)
    undo: ExitStack = field(default_factory=ExitStack)
    launch: Launch | None = None
    folder: str = WORK
    frozen: set[str] = field(default_factory=set)
    """Nodes that run no commands before `undo`."""
    happened: float | None = None
    """Time of the fault by the monotonic clock, if it came later than ``inject`` was called."""

    @property
    def job(self) -> Launch:
        assert self.launch is not None, "not submitted yet"
        return self.launch

    def submit(self) -> None:
        flags = [f"--nodes={self.nodes}", "--gpus-per-node=1", *self.flags]
        environment = {**self.runtime.environment(), **self.environment}
        arguments = [self.stub, *self.overrides]
        self.launch = submit(self.cluster, arguments, flags=flags, environment=environment, folder=self.folder)

    def on(self, node: str, *argv: str, check: bool = True) -> Output:
        """Run a command as root on a node."""
        return self.cluster.host(node).run(argv, check=check)

    def sh(self, node: str, script: str, *arguments: str, check: bool = True) -> Output:
        return self.on(node, "bash", "-c", script, "fault", *arguments, check=check)

    def undo_by(self, node: str, script: str, *arguments: str) -> None:
        """Run ``script`` on the node after the drill, whatever its outcome."""
        self.undo.callback(lambda: self.sh(node, script, *arguments))

    def pids(self, node: str, selection: Sequence[str]) -> list[str]:
        """Return the pids of the account's processes that match pgrep's arguments ``selection``, the oldest first."""
        pids = self.on(node, "pgrep", "-u", ACCOUNT, *selection, check=False).stdout.split()
        assert pids, f"no process of {ACCOUNT} matches {selection} on {node}"
        return sorted(pids, key=int)

    def signal(self, name: str, node: str, selection: Sequence[str]) -> None:
        """Send a signal to the oldest of the processes."""
        self.on(node, "kill", f"-{name}", self.pids(node, selection)[0])


Injection = Callable[[Scene], None]
