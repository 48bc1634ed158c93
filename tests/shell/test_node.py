"""node.sh: the container gets what Slurm gave the node and no more, and its end is told and cleaned up after."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.shell.rig import CHECKOUT, SECRET, Rig, left

STAYS = (
    'echo $$ > "$FAKE/container.pid"; trap "exit 143" TERM; while :; do read -t 0.1 < /dev/null || sleep 0.1; done\n'
)
STAYS_DEAF = STAYS.replace("exit 143", "")


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.05)


TMP = "/tmp"  # noqa: S108  the container's own


def values(argv: list[str], flag: str) -> list[str]:
    return [argv[index + 1] for index, word in enumerate(argv) if word == flag]


def mounted(argv: list[str]) -> dict[str, tuple[str, str]]:
    """Target → source, and the rest of the mount's words."""
    found = {}
    for mount in values(argv, "--mount"):
        words = dict(word.strip('"').partition("=")[::2] for word in mount.split(","))
        found[words["target"]] = (
            words.get("source", ""),
            ",".join(key for key in words if key in {"readonly", "tmpfs"}),
        )
    return found


def test_the_container_runs_in_the_foreground_as_the_account(rig: Rig) -> None:
    done = rig.node()

    argv = rig.docker_run()
    assert done.returncode == 0
    assert argv[:4] == ["run", "--rm", "--name", f"verljob-{os.getuid()}-20-1-0"]
    assert argv[-2:] == ["sha256:1234", "node"]
    assert values(argv, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert values(argv, "--network") == ["host"]
    assert values(argv, "--workdir") == [str(rig.work)]
    assert [label.split("=")[0] for label in values(argv, "--label")] == [
        "verljob.job", "verljob.attempt", "verljob.user", "verljob.node",
    ]  # fmt: skip


def test_it_gets_the_least_rights(rig: Rig) -> None:
    rig.node()

    argv = rig.docker_run()
    assert values(argv, "--cap-drop") == ["ALL"]
    assert values(argv, "--security-opt") == ["no-new-privileges"]
    assert not {"--privileged", "--cap-add", "--detach", "-d", "--pid", "--ipc"} & set(argv)


def test_a_profile_may_ask_for_more_and_replaces_what_the_platform_says(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("security=seccomp=unconfined\nshm=1g\nNCCL_SOCKET_IFNAME=ib0\nHYDRA_FULL_ERROR=0\n")

    rig.node(VERLJOB_PROFILE=str(profile))

    argv, env = rig.docker_run(), rig.faked("run.env")
    assert values(argv, "--security-opt") == ["no-new-privileges", "seccomp=unconfined"]
    assert values(argv, "--shm-size") == ["1g"]
    assert {"NCCL_SOCKET_IFNAME", "HYDRA_FULL_ERROR"} < set(values(argv, "--env"))
    assert "NCCL_SOCKET_IFNAME=ib0\n" in env
    assert "HYDRA_FULL_ERROR=0\n" in env


def test_what_the_user_exports_wins_over_profile_and_platform(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("NCCL_SOCKET_IFNAME=ib0\n")

    rig.node(VERLJOB_PROFILE=str(profile), NCCL_SOCKET_IFNAME="eth7")

    assert "NCCL_SOCKET_IFNAME=eth7\n" in rig.faked("run.env")


def test_it_gets_the_memory_and_the_cpus_of_the_step(rig: Rig) -> None:
    rig.node()

    argv = rig.docker_run()
    cpus = next(line for line in Path("/proc/self/status").read_text().splitlines() if "Cpus_allowed_list" in line)
    assert values(argv, "--memory") == [str(4096 * 1024 * 1024)]
    assert values(argv, "--cpuset-cpus") == [cpus.split()[1]]
    assert "VERLJOB_MEMORY_BYTES=4294967296\n" in rig.faked("run.env")
    assert "VERLJOB_CPUS=16\n" in rig.faked("run.env")


def test_every_mask_is_removed_from_it(rig: Rig) -> None:
    rig.node(ROCR_VISIBLE_DEVICES="0,1", CUDA_VISIBLE_DEVICES="0")

    asked, env = values(rig.docker_run(), "--env"), rig.faked("run.env")
    masks = (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
    )
    for mask in masks:  # named without a value: docker removes what the image sets
        assert mask in asked
        assert f"\n{mask}=" not in env


def test_variables_go_by_name_and_secrets_by_file(rig: Rig) -> None:
    rig.fake("container", 'cp "$FOLDER/secrets" "$FOLDER/token" "$FAKE"\n' + rig.container("code=0"))

    rig.environment["VERLJOB_SECRET_NAMES"] = "MY_KEY"  # noqa: S105  a name

    done = rig.node(HF_TOKEN=SECRET, WANDB_API_KEY="w", MY_KEY="m", WANDB_MODE="offline")

    asked = values(rig.docker_run(), "--env")
    assert all("=" not in name for name in asked)
    assert {"HOME", "USER", "LOGNAME", "HF_HOME", "TRANSFORMERS_CACHE", "SLURM_NODEID", "WANDB_MODE"} < set(asked)
    assert not {"HF_TOKEN", "WANDB_API_KEY", "MY_KEY", "VERLJOB_TOKEN", "PATH", "FAKE"} & set(asked)
    assert set(rig.faked("secrets").splitlines()) == {f"HF_TOKEN={SECRET}", "WANDB_API_KEY=w", "MY_KEY=m"}
    assert rig.faked("token") == "f" * 64
    assert SECRET not in rig.faked("docker.argv") + done.stdout + done.stderr
    assert "VERLJOB_TOKEN=" not in rig.faked("run.env")


def test_the_private_files_are_private(rig: Rig) -> None:
    rig.fake("container", 'stat -c "%a %F %n" "$FOLDER" "$FOLDER"/* > "$FAKE/modes"\n' + rig.container("code=0"))

    rig.node()

    modes = {Path(line.split()[-1]).name: line.split()[0] for line in rig.faked("modes").splitlines()}
    assert modes.pop(f"verljob-{os.getuid()}-20-1-0") == "700"
    assert modes == {
        "group": "644",
        "passwd": "644",
        "lease": "600",
        "out": "700",
        "secrets": "600",
        "tmp": "700",
        "token": "600",
    }


def test_the_account_is_known_by_name_inside(rig: Rig) -> None:
    rig.fake("container", 'cp "$FOLDER/passwd" "$FOLDER/group" "$FAKE"\n' + rig.container("code=0"))

    rig.node()

    name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert any(
        line.split(":")[0] == name and line.split(":")[2] == str(os.getuid())
        for line in rig.faked("passwd").splitlines()
    )
    assert {line.split(":")[2] for line in rig.faked("group").splitlines()} == {"0", *map(str, os.getgroups())}


def test_the_folders_of_the_contract_are_mounted_at_their_own_paths(rig: Rig) -> None:
    extra, verl = rig.root / "extra", rig.root / "verl, with a comma"
    extra.mkdir()
    verl.mkdir()
    (rig.home / ".ssh").mkdir()

    done = rig.node(
        VERLJOB_MOUNTS=f"{extra},{extra}:/data:ro",
        VERLJOB_VERL=str(rig.home / "x"),
        VERLJOB_DATA=str(rig.root / "data"),
    )
    assert done.returncode == 66  # VERLJOB_VERL is not there
    done = rig.node(
        VERLJOB_MOUNTS=f"{extra},{extra}:/data:ro", VERLJOB_DATA=str(rig.root / "data"), HF_HOME=f"{rig.home}/hf"
    )

    mounts = mounted(rig.docker_run())
    for path in (rig.home, rig.work, rig.root / "data", extra):
        assert mounts[str(path)] == (str(path), "")
    assert mounts["/data"] == (str(extra), "readonly")
    assert mounts[str(CHECKOUT)] == (str(CHECKOUT), "readonly")
    assert mounts[f"{rig.home}/.ssh"] == ("", "")
    assert str(rig.run_dir) not in mounts  # below the submit folder, which is there
    assert f"{rig.home}/hf" not in mounts
    assert mounts[TMP][0].endswith("-20-1-0/tmp")
    assert mounts["/etc/passwd"][1] == "readonly"


def test_what_the_user_mounts_read_only_below_the_home_is_read_only(rig: Rig) -> None:
    (rig.home / "data").mkdir()

    rig.node(VERLJOB_MOUNTS=f"{rig.home}/data:ro")

    assert mounted(rig.docker_run())[f"{rig.home}/data"] == (f"{rig.home}/data", "readonly")


def test_a_path_with_a_comma_or_a_quote_is_quoted_for_docker(rig: Rig) -> None:
    verl = rig.root / 'a "strange", path'
    verl.mkdir()

    rig.node(VERLJOB_VERL=str(verl))

    quoted = str(verl).replace('"', '""')
    assert f'type=bind,"source={quoted}","target={quoted}",readonly' in values(rig.docker_run(), "--mount")


def test_the_heads_verdict_is_filed_and_its_code_is_node_shs(rig: Rig) -> None:
    rig.fake("container", rig.container("code=7", before="echo hello from training"))

    done = rig.node()

    assert done.returncode == 7
    assert rig.verdict() == {
        "code": "7",
        "origin": "self",
        "stage": "train",
        "host": "n1",
        "cause": "as the test says",
        "fix": "",
    }
    assert "hello from training" in done.stdout
    assert "hello from training" in (rig.run_dir / "nodes" / "0-n1" / "node.log").read_text()
    assert left(rig) == []


def test_a_workers_talk_goes_to_its_log_and_its_verdict_to_the_steps_stderr(rig: Rig) -> None:
    rig.fake("container", rig.container("code=0", before="echo hello from a worker"))

    done = rig.node(1)

    assert done.stdout == ""
    assert done.stderr.startswith("verljob-verdict\t1-n2\tcode=0\torigin=self\t")
    assert "hello from a worker" in (rig.run_dir / "nodes" / "1-n2" / "node.log").read_text()


def test_a_worker_that_heard_the_heads_verdict_ends_with_0_lest_slurm_kills_the_head(rig: Rig) -> None:
    rig.fake("container", rig.container("code=7").replace("exit 7", "exit 0"))

    done = rig.node(1)

    assert done.returncode == 0
    assert "code=7" in done.stderr


def test_a_proxys_password_and_what_is_named_like_a_secret_go_by_file_too(rig: Rig) -> None:
    rig.fake("container", 'cp "$FOLDER/secrets" "$FAKE"\n' + rig.container("code=0"))
    plain = {"HTTP_PROXY": "http://proxy:3128", "HF_TOKEN_PATH": "/home/jo/token"}
    secret = {"HTTPS_PROXY": "http://jo:s3cret@proxy:3128", "WANDB_TEAM_SECRET": "w", "VLLM_API_KEY": "v"}

    rig.environment.update(plain, **secret, UNRELATED_PASSWORD="not for the container")  # noqa: S106  a stand-in

    rig.node()

    asked = set(values(rig.docker_run(), "--env"))
    assert set(plain) < asked
    assert not set(secret) & asked
    assert set(rig.faked("secrets").splitlines()) == {f"{name}={value}" for name, value in secret.items()}


def test_ray_is_told_to_ask_for_the_jobs_token_and_no_other(rig: Rig) -> None:
    rig.node(RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN="theirs", RAY_AUTH_TOKEN_PATH="/theirs")  # noqa: S106

    env = rig.faked("run.env")
    assert "RAY_AUTH_TOKEN" not in values(rig.docker_run(), "--env")
    assert {"RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/run/verljob/token"} <= set(env.splitlines())


def test_only_our_own_containers_are_removed_and_only_those_whose_job_slurm_no_longer_knows(rig: Rig) -> None:
    ours, theirs = f"verljob-{os.getuid()}", f"verljob-{os.getuid() + 1}"
    rig.fake("jobs", "18\tRUNNING\n20\tRUNNING\n")
    rig.fake("containers", f"{ours}-17-1-0\t17\n{ours}-18-1-0\t18\n{theirs}-16-1-0\t16\nby-hand\t15\n")

    rig.node()

    assert removed(rig) == [f"{ours}-17-1-0"]


def test_no_container_is_removed_while_slurm_does_not_answer(rig: Rig) -> None:
    rig.fake("controller-down", "")
    rig.fake("containers", f"verljob-{os.getuid()}-17-1-0\t17\n")

    rig.node()

    assert removed(rig) == []


def removed(rig: Rig) -> list[str]:
    """The containers that were removed, but for that of the job at hand."""
    calls = [call.splitlines() for call in rig.faked("docker.argv").split("\n\n")]
    own = f"verljob-{os.getuid()}-20-1-0"
    return [call[-1] for call in calls if call[:1] == ["rm"] and call[-1] != own]


def test_rays_logs_are_kept_without_secrets_and_bounded(rig: Rig) -> None:
    logs = 'mkdir -p "$FOLDER/tmp/ray/session_1/logs"; cd "$FOLDER/tmp/ray/session_1/logs"; '
    looks_like_one = f"hf_{'x' * 34} http://jo:pw@proxy:3128"
    logs += f"printf 'token {'f' * 64} and {SECRET} {looks_like_one}\\n' > gcs.log; : > empty.log; "
    logs += "printf '%2000000d' 1 > worker.out"
    rig.fake("container", rig.container("code=0", before=logs))

    rig.node(HF_TOKEN=SECRET)

    kept = rig.run_dir / "nodes" / "0-n1" / "ray"
    assert sorted(path.name for path in kept.iterdir()) == ["gcs.log", "worker.out"]
    assert (kept / "gcs.log").read_text() == "token *** and *** *** http://***@proxy:3128\n"
    assert (kept / "worker.out").stat().st_size == 1024 * 1024 + 1


def test_docker_that_is_not_permitted_ends_with_77_and_names_the_group(rig: Rig) -> None:
    rig.fake("denied", "")

    done = rig.node()

    assert done.returncode == 77
    assert "may not use Docker on n1" in rig.verdict()["cause"]
    assert "group" in rig.verdict()["cause"]


def test_an_engine_that_is_down_ends_with_69(rig: Rig) -> None:
    rig.fake("down", "")

    assert rig.node().returncode == 69
    assert "Cannot connect to the Docker daemon" in rig.verdict()["cause"]


def test_an_absent_image_ends_with_66_and_three_ways_to_bring_it(rig: Rig) -> None:
    rig.node(VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    verdict = rig.verdict()
    assert (verdict["code"], verdict["stage"]) == ("66", "image")
    assert all(word in verdict["cause"] for word in ("n1", "registry:5000/verl.cpu:1", "manifest"))
    assert all(word in verdict["fix"] for word in ("registry", "shared folder", "docker load"))


def test_an_image_is_pulled_and_run_by_its_id(rig: Rig) -> None:
    rig.fake("registry", "registry:5000/verl.cpu:1\n")

    rig.node(VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    assert rig.docker_run()[-2] == "sha256:pulled"
    assert "VERLJOB_IMAGE_DIGEST=sha256:pulled\n" in rig.faked("run.env")


def test_what_the_node_has_is_used_and_told_where_the_pull_fails(rig: Rig) -> None:
    rig.fake("images", "registry:5000/verl.cpu:1\tsha256:old\n")

    done = rig.node(VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    assert rig.docker_run()[-2] == "sha256:old"
    assert "warning: the pull of registry:5000/verl.cpu:1 failed" in done.stdout


def test_an_archive_is_loaded(rig: Rig) -> None:
    (rig.work / "image.tar").write_text("")

    rig.node(VERLJOB_IMAGE=str(rig.work / "image.tar"))

    assert rig.docker_run()[-2] == "sha256:loaded"


def test_an_image_of_somebody_else_is_refused(rig: Rig) -> None:
    rig.fake("entrypoint", "[bash]\n")

    assert rig.node().returncode == 64
    assert "no image of this toolkit" in rig.verdict()["cause"]


def test_what_docker_run_says_is_the_cause(rig: Rig) -> None:
    said = "docker: Error response from daemon: no such runtime.\\nSee 'docker run --help'."
    rig.fake("container", f'printf "{said}\\n" >&2; exit 125')

    assert rig.node().returncode == 69
    assert rig.verdict()["cause"].endswith("Error response from daemon: no such runtime.")


@pytest.mark.parametrize(("oom", "words"), [(False, "was killed"), (True, "more than the job's 4294967296 bytes")])
def test_a_killed_container_is_told_as_a_lost_node(rig: Rig, oom: bool, words: str) -> None:
    rig.fake("container", "exit 137")
    if oom:
        rig.fake("oom", "")

    assert rig.node().returncode == 76
    assert words in rig.verdict()["cause"]


@pytest.mark.parametrize("container", [STAYS, STAYS_DEAF], ids=["that obeys", "deaf to TERM"])
def test_term_ends_everything_within_five_seconds(rig: Rig, container: str) -> None:
    rig.fake("container", container)
    with rig.start_node() as node:
        wait_for(rig.root / "fake" / "container.pid")
        began = time.monotonic()
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=10)

    assert time.monotonic() - began < 5
    assert node.returncode == 143
    assert rig.verdict()["origin"] == "signal"
    assert left(rig) == []


def test_the_lease_ends_with_node_sh_though_its_client_lives_on(rig: Rig) -> None:
    """The client stands here for every child: one that held the FIFO open for writing would keep the lease alive."""
    rig.fake(
        "container", 'echo $$ > "$FAKE/container.pid"; read -r _ < "$FOLDER/lease"; echo gone > "$FAKE/lease-gone"\n'
    )
    with rig.start_node() as node:
        wait_for(rig.root / "fake" / "container.pid")
        assert not (rig.root / "fake" / "lease-gone").exists()
        node.kill()
        began = time.monotonic()
        wait_for(rig.root / "fake" / "lease-gone")

    assert time.monotonic() - began < 2


def test_what_a_killed_node_sh_left_is_swept_by_the_next_of_the_account(rig: Rig) -> None:
    stale = rig.root / "local" / f"verljob-{os.getuid()}-19-1-0"
    stale.mkdir()
    (stale / "file").write_text("")
    foreign = rig.root / "local" / f"verljob-{os.getuid() + 1}-19-1-0"
    foreign.mkdir()

    rig.node()

    assert not stale.exists()
    assert foreign.exists()
    assert ["rm", "--force", stale.name] in [call.splitlines() for call in rig.faked("docker.argv").split("\n\n")]


def test_a_sweep_keeps_the_logs_of_the_killed_node_and_removes_its_folder(rig: Rig) -> None:
    folder = rig.root / "local" / f"verljob-{os.getuid()}-20-1-1"
    logs = folder / "tmp" / "ray" / "session_1" / "logs"
    logs.mkdir(parents=True)
    (logs / "raylet.out").write_text(f"{'f' * 64}\n")
    (folder / "token").write_text("f" * 64)

    environment = rig.of_the_step(0, SLURMD_NODENAME="n2")  # the sweep's own step has one node, number 0
    done = rig.run("bash", str(CHECKOUT / "slurm" / "node.sh"), "sweep", **environment)

    assert done.returncode == 0, done.stderr
    assert (rig.run_dir / "nodes" / "1-n2" / "ray" / "raylet.out").read_text() == "***\n"
    assert left(rig) == []


def test_two_launches_of_one_job_do_not_share_a_node(rig: Rig) -> None:
    rig.fake("container", STAYS)
    with rig.start_node() as node:
        wait_for(rig.root / "fake" / "container.pid")
        second = rig.node()
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=10)

    assert second.returncode == 64
    assert "already has a launch running" in second.stdout + second.stderr


def test_without_a_shared_home_the_container_gets_an_empty_one(rig: Rig) -> None:
    done = rig.node(HOME=str(rig.root / "absent"), VERLJOB_DATA=str(rig.root / "data"), HF_HOME=str(rig.root / "hf"))

    mounts = mounted(rig.docker_run())
    assert done.returncode == 0
    assert mounts[str(rig.root / "absent")][0].endswith("-20-1-0/home")


def test_places_below_tmp_are_made_by_the_account(rig: Rig) -> None:
    """Otherwise the engine makes them as root, and the node-local folder cannot be removed."""
    rig.fake("container", '[[ -d $FOLDER/tmp/verljob-test-place ]] && touch "$FAKE/place"\n' + rig.container("code=0"))

    rig.node(VERLJOB_MOUNTS=f"{rig.work}:/tmp/verljob-test-place")

    assert (rig.root / "fake" / "place").exists()


def test_nobodys_folder_takes_the_place_of_the_private_tmp(rig: Rig) -> None:
    rig.node(VERLJOB_MOUNTS=TMP)

    assert mounted(rig.docker_run())[TMP][0].endswith("-20-1-0/tmp")
