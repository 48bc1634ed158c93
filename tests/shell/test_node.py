"""node.sh: the container gets exactly the node's share of the allocation."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.shell.container import TMP, mounted, values
from tests.support.shell.rig import CHECKOUT, SECRET, Rig


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


def test_the_container_has_no_capabilities(rig: Rig) -> None:
    rig.node()

    argv = rig.docker_run()
    assert values(argv, "--cap-drop") == ["ALL"]
    assert values(argv, "--security-opt") == ["no-new-privileges"]
    assert not {"--privileged", "--cap-add", "--detach", "-d", "--pid", "--ipc"} & set(argv)


def test_a_profile_wins_over_the_platform(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("security=seccomp=unconfined\nshm=1g\nNCCL_SOCKET_IFNAME=ib0\nHYDRA_FULL_ERROR=0\n")

    rig.node(VERLJOB_PROFILE=str(profile))

    argv, env = rig.docker_run(), rig.faked("run.env")
    assert values(argv, "--security-opt") == ["no-new-privileges", "seccomp=unconfined"]
    assert values(argv, "--shm-size") == ["1g"]
    assert {"NCCL_SOCKET_IFNAME", "HYDRA_FULL_ERROR"} < set(values(argv, "--env"))
    assert "NCCL_SOCKET_IFNAME=ib0\n" in env
    assert "HYDRA_FULL_ERROR=0\n" in env


def test_an_export_wins_over_profile_and_platform(rig: Rig) -> None:
    profile = rig.work / "site.env"
    profile.write_text("NCCL_SOCKET_IFNAME=ib0\n")

    rig.node(VERLJOB_PROFILE=str(profile), NCCL_SOCKET_IFNAME="eth7")

    assert "NCCL_SOCKET_IFNAME=eth7\n" in rig.faked("run.env")


def test_the_container_has_the_memory_and_cpus_of_the_step(rig: Rig) -> None:
    rig.node()

    argv = rig.docker_run()
    cpus = next(line for line in Path("/proc/self/status").read_text().splitlines() if "Cpus_allowed_list" in line)
    assert values(argv, "--memory") == [str(4096 * 1024 * 1024)]
    assert values(argv, "--cpuset-cpus") == [cpus.split()[1]]
    assert "VERLJOB_MEMORY_BYTES=4294967296\n" in rig.faked("run.env")
    assert "VERLJOB_CPUS=16\n" in rig.faked("run.env")


def test_every_gpu_mask_is_removed(rig: Rig) -> None:
    rig.node(ROCR_VISIBLE_DEVICES="0,1", CUDA_VISIBLE_DEVICES="0")

    passed, env = values(rig.docker_run(), "--env"), rig.faked("run.env")
    masks = (
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "CUDA_VISIBLE_DEVICES",
        "RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES",
    )
    for mask in masks:  # named without a value: docker removes what the image sets
        assert mask in passed
        assert f"\n{mask}=" not in env


def test_variables_are_passed_by_name_and_secrets_by_file(rig: Rig) -> None:
    rig.fake("container", 'cp "$FOLDER/secrets" "$FOLDER/token" "$FAKE"\n' + rig.container("code=0"))

    rig.environment["VERLJOB_SECRET_NAMES"] = "MY_KEY"  # noqa: S105  a name

    done = rig.node(HF_TOKEN=SECRET, WANDB_API_KEY="w", MY_KEY="m", WANDB_MODE="offline")

    passed = values(rig.docker_run(), "--env")
    assert all("=" not in name for name in passed)
    assert {"HOME", "USER", "LOGNAME", "HF_HOME", "TRANSFORMERS_CACHE", "SLURM_NODEID", "WANDB_MODE"} < set(passed)
    assert not {"HF_TOKEN", "WANDB_API_KEY", "MY_KEY", "VERLJOB_TOKEN", "PATH", "FAKE"} & set(passed)
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


def test_passwd_and_group_have_the_account(rig: Rig) -> None:
    rig.fake("container", 'cp "$FOLDER/passwd" "$FOLDER/group" "$FAKE"\n' + rig.container("code=0"))

    rig.node()

    name = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert any(
        line.split(":")[0] == name and line.split(":")[2] == str(os.getuid())
        for line in rig.faked("passwd").splitlines()
    )
    assert {line.split(":")[2] for line in rig.faked("group").splitlines()} == {"0", *map(str, os.getgroups())}


def test_the_jobs_folders_are_mounted_at_their_own_paths(rig: Rig) -> None:
    extra, verl = rig.root / "extra", rig.root / "verl, with a comma"
    extra.mkdir()
    verl.mkdir()
    (rig.home / ".ssh").mkdir()

    done = rig.node(
        VERLJOB_MOUNTS=f"{extra},{extra}:/data:ro",
        VERLJOB_VERL=str(rig.home / "x"),
        VERLJOB_DATA=str(rig.root / "data"),
    )
    assert done.returncode == 66  # VERLJOB_VERL does not exist
    done = rig.node(
        VERLJOB_MOUNTS=f"{extra},{extra}:/data:ro", VERLJOB_DATA=str(rig.root / "data"), HF_HOME=f"{rig.home}/hf"
    )

    mounts = mounted(rig.docker_run())
    for path in (rig.home, rig.work, rig.root / "data", extra):
        assert mounts[str(path)] == (str(path), "")
    assert mounts["/data"] == (str(extra), "readonly")
    assert mounts[str(CHECKOUT)] == (str(CHECKOUT), "readonly")
    assert mounts[f"{rig.home}/.ssh"] == ("", "")
    assert str(rig.run_dir) not in mounts  # below the submit folder, which is mounted
    assert f"{rig.home}/hf" not in mounts
    assert mounts[TMP][0].endswith("-20-1-0/tmp")
    assert mounts["/etc/passwd"][1] == "readonly"


def test_a_read_only_mount_below_the_home_is_read_only(rig: Rig) -> None:
    (rig.home / "data").mkdir()

    rig.node(VERLJOB_MOUNTS=f"{rig.home}/data:ro")

    assert mounted(rig.docker_run())[f"{rig.home}/data"] == (f"{rig.home}/data", "readonly")


def test_a_path_with_a_comma_or_a_quote_is_quoted_for_docker(rig: Rig) -> None:
    verl = rig.root / 'a "strange", path'
    verl.mkdir()

    rig.node(VERLJOB_VERL=str(verl))

    quoted = str(verl).replace('"', '""')
    assert f'type=bind,"source={quoted}","target={quoted}",readonly' in values(rig.docker_run(), "--mount")


def test_proxy_passwords_and_variables_named_like_secrets_are_passed_by_file(rig: Rig) -> None:
    rig.fake("container", 'cp "$FOLDER/secrets" "$FAKE"\n' + rig.container("code=0"))
    plain = {"HTTP_PROXY": "http://proxy:3128", "HF_TOKEN_PATH": "/home/jo/token"}
    secret = {"HTTPS_PROXY": "http://jo:s3cret@proxy:3128", "WANDB_TEAM_SECRET": "w", "VLLM_API_KEY": "v"}

    rig.environment.update(plain, **secret, UNRELATED_PASSWORD="not for the container")  # noqa: S106  a stand-in

    rig.node()

    passed = set(values(rig.docker_run(), "--env"))
    assert set(plain) < passed
    assert not set(secret) & passed
    assert set(rig.faked("secrets").splitlines()) == {f"{name}={value}" for name, value in secret.items()}


def test_ray_uses_the_jobs_token_and_no_other(rig: Rig) -> None:
    rig.node(RAY_AUTH_MODE="disabled", RAY_AUTH_TOKEN="theirs", RAY_AUTH_TOKEN_PATH="/theirs")  # noqa: S106

    env = rig.faked("run.env")
    assert "RAY_AUTH_TOKEN" not in values(rig.docker_run(), "--env")
    assert {"RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/run/verljob/token"} <= set(env.splitlines())


def test_without_a_shared_home_the_container_has_an_empty_one(rig: Rig) -> None:
    done = rig.node(HOME=str(rig.root / "absent"), VERLJOB_DATA=str(rig.root / "data"), HF_HOME=str(rig.root / "hf"))

    mounts = mounted(rig.docker_run())
    assert done.returncode == 0
    assert mounts[str(rig.root / "absent")][0].endswith("-20-1-0/home")


def test_mount_points_below_tmp_are_created_by_the_account(rig: Rig) -> None:
    """The engine would create them as root, and the node-local folder could not be removed."""
    rig.fake("container", '[[ -d $FOLDER/tmp/verljob-test-mount ]] && touch "$FAKE/found"\n' + rig.container("code=0"))

    rig.node(VERLJOB_MOUNTS=f"{rig.work}:/tmp/verljob-test-mount")

    assert (rig.root / "fake" / "found").exists()


def test_no_mount_replaces_the_private_tmp(rig: Rig) -> None:
    rig.node(VERLJOB_MOUNTS=TMP)

    assert mounted(rig.docker_run())[TMP][0].endswith("-20-1-0/tmp")
