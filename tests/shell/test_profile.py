"""A site's profile in launch.sh and node.sh: its form, its conditions, what it sets, and attacks by its values."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.shell.rig import CHECKOUT, Rig
from tests.support.shell.step import SUCCESS, last_line

LIBRARIES = "common/log common/verdict common/env_table common/profile"
ENDS = "trap '[[ -z ${VERDICT[code]:-} ]] || verdict::sentence >&2' EXIT\n"
NOBODY = 65534
SITE = """about = "a site"

[values]
account = "p1"
partition = "gpu"

[sbatch]
flags = ["--account={account}"]

[gpus]
flag = "--gpus-per-node={n}"
per_node = 4

[nodes]
runtime = "podman"
local_disk = "/scratch/{user}"
binds = ["/data:/data:ro", "/work"]
internet = false

[environment.NCCL_CROSS_NIC]
value = "1"
when = ["nodes > 1"]

[environment.NCCL_NET]
value = "AWS Libfabric"
when = ["nodes > 1", "plugin"]

[environment.NCCL_NET_GDR_C2C]
value = "1"
when = ["gpu = GB200"]

[environment.VERLJOB_CHECKS]
value = "gpus.memory_is_free=4"

[container]
shm = "1g"
"""


@pytest.fixture
def site(rig: Rig) -> Path:
    path = rig.work / "site.toml"
    path.write_text(SITE)
    return path


def read(rig: Rig, path: Path | str, show: str, where: str = "node", **more: str) -> str:
    """Read a profile and return what ``show`` prints, or the error."""
    done = rig.source(LIBRARIES, f'{ENDS}profile::read "{path}" {where}\n{show}', **more)
    return done.stdout if done.returncode == 0 else f"{done.returncode} {done.stderr}"


VARIABLES = (
    'printf "%s\\n" "${VERLJOB_RUNTIME-}" "${VERLJOB_LOCAL-}" "${VERLJOB_MOUNTS-}" "${HF_HUB_OFFLINE-} ${WANDB_MODE-}"'
)
FABRIC = 'printf "%s|" "${NCCL_CROSS_NIC-}" "${NCCL_NET-}" "${VERLJOB_PLUGIN_VARIABLES-}" "${NCCL_NET_GDR_C2C-}"'


def test_a_profile_sets_the_launchs_settings(rig: Rig, site: Path) -> None:
    user = os.environ.get("USER") or "root"
    shown = read(
        rig, site, f'{VARIABLES}; echo "$VERLJOB_CHECKS ${{TABLE[shm]}}"', VERLJOB_LOCAL="<unset>"
    ).splitlines()

    assert shown[0] == "podman"
    assert shown[1] in (f"/scratch/{user}", "/scratch/root")
    assert shown[2:] == ["/data:/data:ro,/work", "1 offline", "gpus.memory_is_free=4 1g"]


def test_an_export_wins_over_a_profile(rig: Rig, site: Path) -> None:
    own = {"VERLJOB_RUNTIME": "bare", "VERLJOB_MOUNTS": "", "HF_HUB_OFFLINE": "0", "NCCL_NET": "Socket"}

    assert read(rig, site, VARIABLES, **own).splitlines() == ["bare", f"{rig.root}/local", "", "0 offline"]
    assert read(rig, site, FABRIC, SLURM_NNODES="2", **own) == "1|Socket|||"


@pytest.mark.parametrize(
    ("nodes", "where", "expected"),
    [
        ("1", "node", "||||"),
        ("2", "node", "1||NCCL_NET=AWS Libfabric||"),
        ("2", "launch", "1||||"),
        ("", "node", "1||NCCL_NET=AWS Libfabric||"),
    ],
)
def test_a_condition_on_nodes_and_plugin(rig: Rig, site: Path, nodes: str, where: str, expected: str) -> None:
    assert read(rig, site, FABRIC, where, SLURM_NNODES=nodes or "<unset>") == expected


def test_a_condition_on_the_gpu_reads_the_drivers_name(rig: Rig) -> None:
    card = rig.root / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    card.parent.mkdir(parents=True)
    card.write_text("Model: \t\t NVIDIA GB200\nIRQ:   \t\t 1\n")
    show = f'for kind in GB200 GB20 H100; do profile::_has_gpu "$kind" {rig.root} && echo "$kind"; done || true'

    assert rig.source(LIBRARIES, show).stdout == "GB200\n"


def test_the_container_gets_the_variables_whose_conditions_hold(rig: Rig, site: Path) -> None:
    site.write_text(
        SITE.replace('runtime = "podman"', 'runtime = "docker"')
        .replace(', "/work"', "")
        .replace("/data", str(rig.work))
    )

    done = rig.node(VERLJOB_PROFILE=str(site), SLURM_NNODES="2")

    assert done.returncode == 0, done.stdout
    argv, env = rig.docker_run(), rig.faked("run.env")
    assert {"NCCL_CROSS_NIC", "VERLJOB_PLUGIN_VARIABLES", "HF_HUB_OFFLINE", "WANDB_MODE"} <= set(argv)
    assert "VERLJOB_PLUGIN_VARIABLES=NCCL_NET=AWS Libfabric\n" in env
    assert "NCCL_NET" not in argv
    assert argv[argv.index("--shm-size") + 1] == "1g"


def test_a_personal_file_completes_a_site(rig: Rig) -> None:
    mine = rig.work / "mine.toml"
    mine.write_text(
        'site = "frontier"\n[nodes]\nlocal_disk = "/tmp/x"\n[environment.NCCL_SOCKET_IFNAME]\nvalue = "hsn0"\n'
    )
    show = 'echo "$VERLJOB_RUNTIME $VERLJOB_LOCAL $NCCL_SOCKET_IFNAME"'

    assert read(rig, mine, show, SLURM_NNODES="1", VERLJOB_LOCAL="<unset>") == "apptainer /tmp/x hsn0\n"


def test_a_personal_file_does_not_replace_the_sites_requirement(rig: Rig) -> None:
    """A copy of the checkout whose site requires signatures."""
    home = rig.root / "home2"
    (home / "slurm").mkdir(parents=True)
    (home / "slurm" / "lib").symlink_to(CHECKOUT / "slurm" / "lib")
    (home / "slurm" / "profiles").mkdir()
    requirement = '[environment.VERLJOB_REQUIRE_SIGNATURE]\nvalue = "{}"\n'
    (home / "slurm" / "profiles" / "strict.toml").write_text(requirement.format("/site.pub"))
    mine = rig.work / "mine.toml"
    for own in (
        requirement.format("/mine.pub"),
        requirement.format(""),
        requirement.format("/m") + 'when = ["nodes > 999"]\n',
    ):
        mine.write_text(f'site = "strict"\n{own}')
        shown = read(
            rig, mine, 'echo "$VERLJOB_REQUIRE_SIGNATURE"', VERLJOB_HOME=str(home), VERLJOB_REQUIRE_SIGNATURE="/x"
        )
        assert shown == "/site.pub\n"


@pytest.mark.parametrize(
    "line",
    [
        "about = 'single quotes'",
        'about = "a" # behind',
        'about="a"',
        ' about = "a"',
        'about = "a\\n"',
        'about = """a"""',
        "gpus = { flag = 1 }",
        "[[limits]]",
        "[nodes",
        "[nodes.a.b]",
        "[nodes ]",
        'nodes.runtime = "docker"',
        "about = 1.5",
        "about = 08",
        'about = ["a",\n',
        'about = ["a" , "b"]',
        "about = a",
        "about =",
        "= 1",
        'about = "\x1b[2J"',
        'about = "a\tb"',
        'about = "é"',
        'about = "a"b"',
        "about = 2026-1-1",
        "about",
        "$(id)",
        '[values]\npath = "a"\npath = "b"',
        "[nodes]\n[gpus]\n[nodes]",
        "[nodes]\ninternett = false",
        '[unknown]\nx = "1"',
        '[environment.A]\nvalues = "1"',
        "[limits.a]\nnode = 1",
        "source = 1",
    ],
)
def test_another_form_of_a_line_exits_with_64_and_its_number(rig: Rig, line: str) -> None:
    path = rig.work / "site.toml"
    path.write_text(f"# a comment\n\n{line}\n")

    shown = read(rig, path, "echo read")

    assert shown.startswith("64 "), shown
    assert f"{path}:" in shown
    assert "\x1b" not in shown


RUNS = [
    "$(id >$FAKE/pwned)",
    "`id >$FAKE/pwned`",
    "; id >$FAKE/pwned",
    "UID[$(id>$FAKE/pwned)]",
    "${IFS@P}",
    "a[$(id>$FAKE/pwned)]",
]


@pytest.mark.parametrize("text", RUNS)
@pytest.mark.parametrize(
    "place",
    [
        '[environment.NCCL_X]\nvalue = "{}"',
        '[environment.NCCL_X]\nvalue = "1"\nwhen = ["{}"]',
        '[modules]\nload = ["{}"]',
        '[hooks]\nbefore = "{}"',
        '[nodes]\nlocal_disk = "{}"',
        '[gpus]\nflag = ""\nper_node = "{}"',
        '[values]\naccount = "{}"',
        'site = "{}"',
        '[container]\nunset = "{}"',
        '[environment.VERLJOB_PULLS]\nvalue = "{}"',
        '[environment.{}]\nvalue = "1"',
        '[nodes]\nbinds = ["{}"]',
        '[environment.NCCL_X]\nvalue = "{}"\nwhen = ["plugin"]',
    ],
)
def test_a_value_is_never_run(rig: Rig, place: str, text: str) -> None:
    path = rig.work / "site.toml"
    path.write_text(place.replace("{}", text) + "\n")
    rig.fake("step", SUCCESS)

    launched = rig.launch("cluster", VERLJOB_PROFILE=str(path), VERLJOB_LOCAL=str(rig.root / "local"))
    done = rig.node(VERLJOB_PROFILE=str(path), VERLJOB_MODULES=text if "modules" in place else "")

    assert not (rig.root / "fake" / "pwned").exists()
    assert launched.returncode in (0, 64, 66, 69, 77), launched.stdout
    assert done.returncode in (0, 64, 66, 69, 77), done.stdout


@pytest.mark.parametrize(
    "name", ["BASH_ENV", "LD_PRELOAD", "PATH", "IFS", "VERLJOB_HOME", "VERLJOB_PROFILE", "ENV", "PS4"]
)
def test_a_profile_cannot_change_how_programs_start(rig: Rig, name: str) -> None:
    path = rig.work / "site.toml"
    path.write_text(f'[environment.{name}]\nvalue = "/evil"\n')

    shown = read(rig, path, "echo read")

    assert shown.startswith("64 ")
    assert f"sets {name}, which no table may set" in shown


def test_a_profile_by_path_must_be_own_and_not_writable_by_others(rig: Rig, site: Path) -> None:
    site.chmod(0o666)
    assert read(rig, site, "echo read").startswith("77 ")
    site.chmod(0o644)
    os.chown(site, NOBODY, NOBODY)
    assert "belongs to nobody" in read(rig, site, "echo read")


@pytest.mark.parametrize(
    "text", ['site = "../../evil"', 'site = "/evil"', 'site = "frontier.toml"', 'site = "nowhere"']
)
def test_a_site_is_a_name_of_the_folder(rig: Rig, text: str) -> None:
    path = rig.work / "site.toml"
    path.write_text(f"{text}\n")

    assert read(rig, path, "echo read").startswith("64 ")


def test_a_profile_of_the_old_form_works_and_says_so_once(rig: Rig) -> None:
    path = rig.work / "site.env"
    path.write_text("NCCL_CROSS_NIC=1\n")
    rig.fake("step", SUCCESS)

    launched = rig.launch("cluster", VERLJOB_PROFILE=str(path))
    on_node = rig.node(VERLJOB_PROFILE=str(path))

    assert launched.returncode == 0
    assert launched.stderr.count(f"the profile {path} has the old form") == 1
    assert on_node.returncode == 0
    assert "old form" not in on_node.stdout + on_node.stderr


def test_gpus_that_slurm_does_not_count_belong_to_the_job(rig: Rig) -> None:
    path = rig.work / "site.toml"
    path.write_text('[gpus]\nflag = ""\nper_node = 2\n')
    rig.fake("step", SUCCESS)

    done = rig.launch("gsm8k_grpo", VERLJOB_PROFILE=str(path), VERLJOB_PLATFORM="cuda")

    assert done.returncode == 0, done.stdout
    assert "SLURM_GPUS_ON_NODE=2\n" in rig.faked("srun.env")
    assert "SLURM_STEP_GPUS=0,1\n" in rig.faked("srun.env")
    path.write_text('[gpus]\nflag = "--gpus={n}"\nper_node = 2\n')
    assert "recipe gsm8k_grpo trains on GPUs and job 20 has none" in last_line(
        rig.launch("gsm8k_grpo", VERLJOB_PROFILE=str(path), VERLJOB_PLATFORM="cuda")
    )


def test_gpus_that_slurm_counts_are_not_replaced(rig: Rig) -> None:
    rig.fake("step", SUCCESS)

    rig.launch("cluster", VERLJOB_GPUS_PER_NODE="4", SLURM_JOB_GPUS="3", SLURM_GPUS_ON_NODE="1")

    assert "SLURM_GPUS_ON_NODE=1\n" in rig.faked("srun.env")
    assert "SLURM_STEP_GPUS=" not in rig.faked("srun.env")
    assert rig.launch("cluster", VERLJOB_GPUS_PER_NODE="many").returncode == 64
