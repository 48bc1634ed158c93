"""Where a fault is made: one job on the rehearsal cluster, and what has to be put right after it."""

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
    """A container runtime of slurm/runtimes, as a job asks for it and as its parts are found on a node."""

    name: str
    image: str
    client: str = ""
    """What `pgrep -f` finds the runtime's foreground process by; empty where it has none."""

    def environment(self) -> dict[str, str]:
        return {"VERLJOB_RUNTIME": self.name, "VERLJOB_IMAGE": self.image, "VERLJOB_HOME": f"/home/{ACCOUNT}/verljob"}


@dataclass
class Scene:
    """One fault's job: how it will be submitted, then the job itself."""

    cluster: Cluster
    runtime: Runtime
    stub: str
    nodes: int = 2
    flags: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=lambda: [LASTS])
    environment: dict[str, str] = field(default_factory=dict)
    undo: ExitStack = field(default_factory=ExitStack)
    launch: Launch | None = None
    folder: str = WORK
    frozen: set[str] = field(default_factory=set)
    """Nodes that cannot be asked before `undo`."""
    happened: float | None = None
    """When the fault was, by the monotonic clock, where that is not when it was begun."""

    @property
    def job(self) -> Launch:
        assert self.launch is not None, "not submitted yet"
        return self.launch

    def submit(self) -> None:
        flags = [f"--nodes={self.nodes}", "--gpus-per-node=1", *self.flags]
        environment = {**self.runtime.environment(), **self.environment}
        words = [self.stub, *self.words]
        self.launch = submit(self.cluster, words, flags=flags, environment=environment, folder=self.folder)

    def on(self, node: str, *argv: str, check: bool = True) -> Output:
        """Run a command as root on a node."""
        return self.cluster.host(node).run(argv, check=check)

    def sh(self, node: str, script: str, *arguments: str, check: bool = True) -> Output:
        return self.on(node, "bash", "-c", script, "fault", *arguments, check=check)

    def later(self, node: str, script: str, *arguments: str) -> None:
        """Put right after the fault, whatever came of it."""
        self.undo.callback(lambda: self.sh(node, script, *arguments))

    def pids(self, node: str, words: Sequence[str]) -> list[str]:
        """Pids of the account's processes on a node, the oldest first; ``words`` as pgrep takes them."""
        found = self.on(node, "pgrep", "-u", ACCOUNT, *words, check=False).stdout.split()
        assert found, f"no process of {ACCOUNT} matches {words} on {node}"
        return sorted(found, key=int)

    def signal(self, name: str, node: str, words: Sequence[str]) -> None:
        """Send a signal to the oldest of the processes."""
        self.on(node, "kill", f"-{name}", self.pids(node, words)[0])


Injection = Callable[[Scene], None]
