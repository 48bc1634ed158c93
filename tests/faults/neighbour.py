"""Another account's Ray on every node, which runs before a fault and has to work after it."""

from __future__ import annotations

from itertools import count

from slurm.testbed import Cluster
from tests.support.cluster.launches import wait_until

NAME = "neighbours-ray"
ANSWER_S = 20
# A driver that runs a task for every number in /tmp/request, and writes the result to /tmp/answer.
_DRIVER = """
import pathlib, time
import ray
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False)
task = ray.remote(num_cpus=0.1)(lambda number: number * number)
done = 0
pathlib.Path("/tmp/answer").write_text("1")
while True:
    request = pathlib.Path("/tmp/request")
    number = int(request.read_text() or 0) if request.exists() else 0
    if number > done:
        done = number
        pathlib.Path("/tmp/answer").write_text(str(ray.get(task.remote(number), timeout=10)))
    time.sleep(0.1)
"""
_REQUEST = """
echo "$1" > /tmp/new && mv /tmp/new /tmp/request
for _ in {1..60}; do
    [[ $(< /tmp/answer) != "$2" ]] || exit 0
    sleep 0.2
done
exit 1
"""
_numbers = count(2)


class Neighbour:
    """The account `neighbour`, with a Ray of one node on every node of the cluster."""

    def __init__(self, cluster: Cluster, image: str) -> None:
        self._cluster = cluster
        self._image = image

    def start(self, nodes: list[str]) -> None:
        for node in nodes:
            host = self._cluster.host(node)
            host.run(["docker", "rm", "--force", NAME], check=False)
            host.run(
                ["docker", "run", "--detach", "--name", NAME, "--network", "host", "--user", "2002:2000",
                 "--env", "HOME=/tmp", "--env", "USER=neighbour", "--shm-size", "256m", self._image,
                 "python3", "-c", _DRIVER],
                user="neighbour",
            )  # fmt: skip
        for node in nodes:
            wait_until(lambda node=node: self._answer(node) == "1", 90, f"Ray of the neighbour on {node}")  # type: ignore[misc]

    def stop(self, nodes: list[str]) -> None:
        for node in nodes:
            self._cluster.host(node).run(["docker", "rm", "--force", NAME], check=False)

    def problems(self, nodes: list[str]) -> list[str]:
        """Run a task of the neighbour on each node; return a sentence for each that fails."""
        number = next(_numbers)
        argv = ["docker", "exec", NAME, "bash", "-c", _REQUEST, "request", str(number), str(number * number)]
        return [
            f"{node}: the neighbour's Ray does not run a task"
            for node in nodes
            if self._cluster.host(node).run(argv, timeout_s=ANSWER_S, check=False).code
        ]

    def _answer(self, node: str) -> str:
        read = ["docker", "exec", NAME, "cat", "/tmp/answer"]  # noqa: S108  in the container
        return self._cluster.host(node).run(read, check=False).stdout.strip()
