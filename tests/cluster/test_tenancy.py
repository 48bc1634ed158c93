"""Two jobs of two accounts on the two halves of one node: resources are separate, and each job refuses the other."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from verl_node.settings.ports import HeadPorts, NodePorts, parse_block

from slurm.testbed import Cluster
from tests.support.cluster.launches import WORK, Launch, submit
from tests.support.cluster.tenants import Tenant, as_neighbour

NODE = "n1"
END_FILE = f"{WORK}/leak-over"
HALF = ("--nodes=1", f"--nodelist={NODE}", "--cpus-per-task=4")
CANARIES = {
    "HF_TOKEN": "canary-of-hugging-face",
    "WANDB_API_KEY": "canary-of-wandb",
    "HTTPS_PROXY": "http://jo:canary-of-the-proxy@127.0.0.1:9",
    "MY_OWN": "canary-of-the-user",
}
CANARY = "canary-of-"
OURS, THEIRS = "verljob-2001-99998-1-0", "verljob-2002-99999-1-0"
STALE = {OURS: 99998, THEIRS: 99999}
"""Containers of killed launches, and their jobs, which Slurm does not know."""

# Prints the status of METHOD=URL requests with a token, or none (-), one a line.
REQUEST = """
import sys, urllib.error, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[1]} if sys.argv[1] != "-" else {}
for argument in sys.argv[2:]:
    method, url = argument.split("=", 1)
    try:
        code = urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=20).status
    except urllib.error.HTTPError as error:
        code = error.code
    print(code, method, url)
"""
NO_TOKEN, WRONG = "-", "0" * 64
GRPC_ATTACKER = Path(__file__).parents[1].joinpath("support/cluster/grpc_attacker.py").read_text(encoding="utf-8")
# Read-only services of gRPC itself, which Ray's C++ servers offer without a token.
OPEN_SERVICES = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "grpc.channelz.v1.Channelz"}
HARMLESS = (
    "/ray.rpc.NodeInfoGcsService/GetClusterId",
    "/ray.rpc.NodeManagerService/GetSystemConfig",
    "/ray.rpc.ObjectManagerService/Pull",
    "/ray.rpc.ReporterService/HealthCheck",
    "/ray.rpc.CoreWorkerService/NumPendingTasks",
)
"""A harmless method of each kind of server, called with the right token."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FOO")
# A call between Ray's own processes, without the header of the calling node.
SYNC = """
import sys, grpc
identity = lambda content: content
path = "/ray.rpc.syncer.RaySyncer/StartSync"
with grpc.insecure_channel(sys.argv[1]) as channel:
    call = channel.stream_stream(path, request_serializer=identity, response_deserializer=identity)
    try:
        next(iter(call(iter([b""]), timeout=20)))
    except grpc.RpcError as error:
        print(error.code().name)
"""
CALL_GCS = """
import sys, ray
try:
    ray._raylet.GcsClient(address=sys.argv[1]).internal_kv_keys(b"", b"")
except Exception as error:
    print("refused with", type(error).__name__)
"""
# Public paths in Ray's source, with which the page loads and requests a token (dashboard/http_server_head.py,
# http_server_agent.py); none of them shows or changes the job.
PUBLIC = {"/", "/favicon.ico", "/api/authentication_mode", "/api/healthz", "/api/gcs_healthz"}
PUBLIC |= {"/api/local_raylet_healthz", "/-/healthz", "/static/x"}


@dataclass(frozen=True)
class Pair:
    """The submitter's training, which prints all its secrets, and the neighbour's cluster."""

    launch: Launch
    neighbours: Launch
    image: str
    ours: Tenant
    theirs: Tenant
    token: str
    stale: dict[str, set[str]]

    @property
    def folder(self) -> str:
        return f"/tmp/verljob-2001-{self.launch.id}-1-0"  # noqa: S108  on the node

    @property
    def address(self) -> str:
        match = re.search(r"^nodes +n1 (\S+) ", self.launch.output(), re.MULTILINE)
        assert match
        return match[1]

    @property
    def head_ports(self) -> HeadPorts:
        return HeadPorts.parse(self.ours.environ()["VERLJOB_HEAD_PORTS"])

    @property
    def ports(self) -> NodePorts:
        return NodePorts.divide(*parse_block(self.ours.environ()["VERLJOB_PORT_BLOCK"]), self.head_ports)

    def answers(self, token: str, *urls: str) -> list[str]:
        """Send requests METHOD=URL as the neighbour; return `CODE METHOD URL` for each."""
        output = as_neighbour(self.ours.cluster, NODE, self.image, REQUEST, token, *urls)
        assert len(output.stdout.splitlines()) == len(urls), output.stderr
        return output.stdout.splitlines()

    def grpc_results(self, *tokens: str, only: tuple[str, ...] = ()) -> dict[int, dict[str, Any]]:
        """Call gRPC methods as the neighbour; return results by port (tests/support/cluster/grpc_attacker.py)."""
        addresses = [f"{self.address}:{listener.port}" for listener in self.ours.listeners()]
        arguments = [",".join(only), *tokens, "--", *addresses]
        output = as_neighbour(self.ours.cluster, NODE, self.image, GRPC_ATTACKER, *arguments)
        assert output.code == 0, output.stderr
        return {int(address.rpartition(":")[2]): result for address, result in json.loads(output.stdout).items()}

    def log(self, name: str) -> str:
        return self.ours.run(["cat", f"/tmp/ray/session_latest/logs/{name}"]).stdout  # noqa: S108


@pytest.fixture(scope="module")
def pair(cluster: Cluster, environment: dict[str, str], stub: str) -> Iterator[Pair]:
    cluster.host("login").run(["rm", "-f", END_FILE])
    secrets = {**CANARIES, "VERLJOB_SECRET_NAMES": "MY_OWN"}
    home = cluster.sync_checkout(user="neighbour")
    launches: list[Launch] = []
    with stale_containers(cluster, environment["VERLJOB_IMAGE"]) as stale:
        try:
            with slurmd_on(cluster, "0"):
                arguments = [f"{WORK}/leaky.yaml", f"stub.until={END_FILE}"]
                flags = [*HALF, "--gpus-per-node=1", "--mem=5G"]
                launches.append(submit(cluster, arguments, flags=flags, environment={**environment, **secrets}))
                launches[0].wait_for("leaky training runs", 180)
                left = {"after ours": stale()}
            with slurmd_on(cluster, "1"):
                flags = [*HALF, "--gpus-per-node=4", "--mem=4G"]
                launches.append(
                    submit(
                        cluster,
                        ["cluster"],
                        flags=flags,
                        environment={**environment, "VERLJOB_HOME": home},
                        folder="/home/neighbour",
                        script=f"{home}/slurm/launch.sh",
                        user="neighbour",
                    )
                )
                launches[1].wait_for("ready at", 180)
                left["after theirs"] = stale()
            ours, theirs = (Tenant.find(cluster, NODE, launch.id) for launch in launches)
            token = cluster.host(NODE).run(["cat", f"/tmp/verljob-2001-{launches[0].id}-1-0/token"])  # noqa: S108
            yield Pair(launches[0], launches[1], environment["VERLJOB_IMAGE"], ours, theirs, token.stdout, left)
        finally:
            for launch in launches:
                launch.cancel()
                launch.wait(60)


@contextmanager
def stale_containers(cluster: Cluster, image: str) -> Iterator[Callable[[], set[str]]]:
    """Start containers like those of killed launches of both accounts; yields a function that lists the rest."""
    node = cluster.host(NODE)
    for name, job in STALE.items():
        arguments = ["--detach", "--name", name, "--label", f"verljob.job={job}", image, "sleep", "600"]
        node.run(["docker", "run", *arguments])
    try:
        yield lambda: STALE.keys() & set(node.run(["docker", "ps", "--all", "--format", "{{.Names}}"]).stdout.split())
    finally:
        node.run(["docker", "rm", "--force", *STALE], check=False)


@contextmanager
def slurmd_on(cluster: Cluster, cpu: str) -> Iterator[None]:
    """Restrict slurmd to a CPU: the rehearsal cluster's Slurm sets no CPUs, and steps inherit those of slurmd."""
    node = cluster.host(NODE)
    before = node.run(["bash", "-c", "taskset -cp $(pgrep -x slurmd)"]).stdout.split()[-1]
    node.run(["bash", "-c", f"taskset -acp {cpu} $(pgrep -x slurmd)"])
    try:
        yield
    finally:
        node.run(["bash", "-c", f"taskset -acp {before} $(pgrep -x slurmd)"])


def test_a_job_removes_the_accounts_own_stale_containers_and_no_neighbours(pair: Pair) -> None:
    assert pair.stale == {"after ours": {THEIRS}, "after theirs": set()}


def test_the_two_halves_share_no_device_cpu_or_memory(pair: Pair) -> None:
    ours, theirs = (tenant.inspect()["HostConfig"] for tenant in (pair.ours, pair.theirs))

    assert [device["PathOnHost"] for device in ours["Devices"]] == ["/dev/standin-gpu0"]
    assert [device["PathOnHost"] for device in theirs["Devices"]] == [f"/dev/standin-gpu{n}" for n in range(1, 5)]
    assert (ours["CpusetCpus"], theirs["CpusetCpus"]) == ("0", "1")
    assert (ours["Memory"], theirs["Memory"]) == (5 << 30, 4 << 30)
    assert pair.ours.run(["sh", "-c", "ls /dev/standin-gpu*"]).stdout.split() == ["/dev/standin-gpu0"]


def test_ray_has_the_resources_of_the_step_and_an_actor_has_one_mask(pair: Pair) -> None:
    assert re.search(r"^nodes +n1 \S+ \(1 GPUs, 4 CPUs\)", pair.launch.output(), re.MULTILINE)
    assert re.search(r"an actor ran at \S+ \(Python \S+, CUDA_VISIBLE_DEVICES=0\)", pair.launch.output())


def test_the_container_runs_as_the_account_with_the_least_rights(pair: Pair) -> None:
    status = dict(line.split(":\t", 1) for line in pair.ours.run(["cat", "/proc/self/status"]).stdout.splitlines())

    assert {status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == ["2001"] * 4


def test_the_container_is_labelled_with_job_attempt_and_user(pair: Pair) -> None:
    labels = pair.ours.inspect()["Config"]["Labels"]

    assert [labels[f"verljob.{name}"] for name in ("job", "attempt", "user")] == [str(pair.launch.id), "1", "submitter"]


def test_a_job_listens_only_in_its_block_which_is_locked_for_all_accounts(pair: Pair) -> None:
    locks = pair.ours.cluster.host(NODE).run(["bash", "-c", "stat -c %U /tmp/verljob-ports/[0-9]*-*"]).stdout
    assert set(locks.split()) == {"submitter", "neighbour"}
    assert not pair.ours.ports() & pair.theirs.ports()
    for tenant in (pair.ours, pair.theirs):
        listeners = tenant.listeners()
        assert len(listeners) > 8  # services of Ray
        assert {listener.port for listener in listeners} - tenant.ports() == set()


def test_tmp_and_shared_memory_are_private(pair: Pair) -> None:
    for folder in ("/tmp", "/dev/shm"):  # noqa: S108  in the containers
        pair.ours.run(["touch", f"{folder}/rl-colocate-zmq-replica-0-rank-0.sock"])
        assert "rl-colocate" not in pair.theirs.run(["ls", folder]).stdout


def test_a_second_account_without_the_token_is_refused_by_the_gcs(pair: Pair, environment: dict[str, str]) -> None:
    gcs = re.search(r"`ray start --head` at (\S+)", pair.launch.output())
    assert gcs

    output = as_neighbour(pair.ours.cluster, NODE, environment["VERLJOB_IMAGE"], CALL_GCS, gcs[1])

    assert "refused with AuthenticationError" in output.stdout, output.stdout + output.stderr


def test_every_path_of_dashboard_agent_and_jobs_refuses_a_second_account(pair: Pair) -> None:
    dashboard = f"http://127.0.0.1:{pair.head_ports.dashboard}"
    agent = f"http://{pair.address}:{pair.ports.agent_http}"
    served = {dashboard: routes(pair.log("dashboard.log")), agent: routes(pair.log("dashboard_agent.log"))}
    assert any(path == "/api/jobs/" for _, path in served[dashboard]), served
    assert any("job_agent" in path for _, path in served[agent]), served
    urls = [f"{method}={base}{path}" for base, paths in served.items() for method, path in paths]

    for token, refusal in ((NO_TOKEN, "401 "), (WRONG, "403 ")):
        allowed = [line for line in pair.answers(token, *urls) if not line.startswith(refusal)]
        assert {re.sub(r"^http://[^/]+", "", line.split()[2]) for line in allowed} <= PUBLIC


def test_every_grpc_port_of_a_job_refuses_a_second_account_by_every_method(pair: Pair) -> None:
    """The GCS, the raylet, the object manager, the agent and every worker list their services by reflection."""
    ports, head = pair.ports, pair.head_ports
    listening = {listener.port for listener in pair.ours.listeners()}

    results = pair.grpc_results(NO_TOKEN, WRONG)

    assert {head.gcs, ports.node_manager, ports.object_manager, ports.agent_grpc} <= results.keys()
    assert any(ports.workers_first <= port <= ports.workers_last for port in results)
    metrics = {ports.metrics_export, ports.autoscaler_metrics, ports.dashboard_metrics}
    http = {head.dashboard, ports.agent_http, ports.runtime_env_agent, *metrics}
    assert listening - results.keys() <= {head.control, *http}
    for port, answers in results.items():
        for token in (NO_TOKEN, WRONG):
            assert answers[token].keys() <= {"UNAUTHENTICATED", "UNIMPLEMENTED"}, (port, token, answers)
            refused = {path.split("/")[1] for path in answers[token]["UNAUTHENTICATED"]}
            assert {*answers["services"]} - OPEN_SERVICES <= refused


def test_with_the_jobs_token_every_grpc_port_answers(pair: Pair) -> None:
    results = pair.grpc_results(pair.token.strip(), only=HARMLESS)

    assert {path for answers in results.values() for path in answers[pair.token.strip()]["OK"]} == {*HARMLESS}
    assert [port for port, answers in results.items() if not answers[pair.token.strip()].get("OK")] == []


def test_the_agent_of_runtime_environments_requires_the_token(pair: Pair) -> None:
    base = f"POST=http://{pair.address}:{pair.ports.runtime_env_agent}"
    paths = ("/get_or_create_runtime_env", "/delete_runtime_env_if_possible", "/get_runtime_envs_info")

    for token, refusal in ((NO_TOKEN, "401"), (WRONG, "403")):
        codes = [line.split()[0] for line in pair.answers(token, *(base + path for path in paths))]
        assert codes == [refusal] * 3
    assert pair.answers(pair.token.strip(), base + paths[2])[0].startswith("200 ")


def test_metrics_are_public_and_read_only(pair: Pair) -> None:
    ports = (pair.ports.metrics_export, pair.ports.autoscaler_metrics, pair.ports.dashboard_metrics)
    urls = [f"http://{pair.address}:{port}{path}" for port in ports for path in ("/metrics", "/x")]

    answers = pair.answers(NO_TOKEN, *(f"{method}={url}" for method in METHODS for url in urls))

    statuses = {(code, method) for code, method, _ in map(str.split, answers)}
    reads = {("200", "GET"), ("200", "OPTIONS")}
    assert statuses == reads | {("405", method) for method in METHODS if method not in ("GET", "OPTIONS")}


def routes(log: str) -> list[tuple[str, str]]:
    """Return the paths that an HTTP server of Ray logs at its start, with an x for each variable part."""
    resources = re.findall(r"<ResourceRoute \[([A-Z*]+)\] <(?:Plain|Dynamic|Static)Resource +(\S+?)>? ", log)
    return sorted({("GET" if method == "*" else method, re.sub(r"\{[^}]*\}", "x", path)) for method, path in resources})


def test_the_printed_command_shows_the_token_to_the_owner_only(pair: Pair) -> None:
    line = re.search(r"^its token +(srun .*)$", pair.launch.output(), re.MULTILINE)
    assert line
    login = pair.ours.cluster.host("login")

    assert login.run(shlex.split(line[1]), user="submitter").stdout == pair.token
    assert login.run(shlex.split(line[1]), user="neighbour", check=False).code != 0
    assert pair.ours.cluster.host(NODE).run(["ls", pair.folder], user="neighbour", check=False).code != 0


def test_ray_in_the_owners_container_needs_no_arguments(pair: Pair) -> None:
    status = pair.ours.run(["ray", "status"], user="submitter")

    assert status.stdout.count("node_") == 1, status.stdout + status.stderr


def test_engine_process_list_and_slurm_show_no_secret(pair: Pair, environment: dict[str, str]) -> None:
    node = pair.ours.cluster.host(NODE)
    shown = {
        "docker inspect": node.run(["docker", "inspect", pair.ours.container]).stdout,
        "docker logs": node.run(["bash", "-c", f"docker logs {pair.ours.container} 2>&1"]).stdout,
        "docker history": node.run(["docker", "history", "--no-trunc", environment["VERLJOB_IMAGE"]]).stdout,
        "ps": node.run(["ps", "axwwe"], user="neighbour").stdout,
        "scontrol": node.run(["scontrol", "show", "job", str(pair.launch.id)], user="neighbour").stdout,
    }

    assert "knows {" in shown["docker logs"]  # the training has printed them
    assert [source for source, text in shown.items() if CANARY in text or pair.token in text] == []


def test_no_file_of_a_job_has_a_secret(pair: Pair) -> None:
    """Must run after the tests above: it ends the training, with a secret in its last line."""
    cluster = pair.ours.cluster
    cluster.host("login").run(["touch", END_FILE], user="submitter")
    assert pair.launch.wait(60).code == 1, pair.launch.output()
    worker_logs = (
        cluster.host("login").run(["bash", "-c", f"cat {pair.launch.run_dir}/nodes/*/ray/worker-*.out"]).stdout
    )
    paths = [pair.launch.run_dir, cluster.job(pair.launch.id).output, "/tmp", "/dev/shm"]  # noqa: S108

    matches = [
        cluster.host(host).run(["grep", "-rlaF", "-e", CANARY, "-e", pair.token, *paths], check=False)
        for host in ("login", NODE)
    ]

    assert "HF_TOKEN ***" in worker_logs
    assert "fails as ***" in pair.launch.output()
    assert [output.stdout for output in matches] == ["", ""]


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="unmet: Ray 2.60's RaySyncer reads the header node_id before it checks the token, and aborts without it",
)
def test_no_call_without_the_token_ends_ray(pair: Pair) -> None:
    gcs = re.search(r"`ray start --head` at (\S+)", pair.neighbours.output())
    assert gcs

    output = as_neighbour(pair.theirs.cluster, NODE, pair.image, SYNC, gcs[1], user="submitter", uid=2001)

    assert output.stdout == "UNAUTHENTICATED\n", output.stderr


def test_a_job_whose_ray_another_account_ended_exits_with_76(pair: Pair) -> None:
    """The test above has ended Ray."""
    assert pair.neighbours.wait(60).code == 76, pair.neighbours.output()
