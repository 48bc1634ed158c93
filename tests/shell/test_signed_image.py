"""VERLJOB_REQUIRE_SIGNATURE: cosign verifies the image on the first node, and every node runs the verified digest.

cosign is replayed: recorded/cosign has the output of Debian's 2.5.0 and 3.1.1 in each case;
tests/image/test_cosign.py runs both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT, RECORDED
from tests.support.shell.rig import Rig
from tests.support.shell.step import SUCCESS, last_line

VERSIONS = ("2.5.0", "3.1.1")
NAME = "hub.example/team/verl.cpu"
DIGEST = "sha256:aa5acc014a73ad4ab9fc753b0b8f2759167e82251d7c780b6bd521cd48174a43"
OTHER = "sha256:" + "1" * 64
COSIGN = """\
#!/bin/bash
printf '%s\\n' "$@" > "$FAKE/cosign.argv"
env > "$FAKE/cosign.env"
[[ ! -e $FAKE/cosign.sleeps ]] || exec sleep 100
cat "$FAKE/cosign.out"
cat "$FAKE/cosign.err" >&2
exit "$(< "$FAKE/cosign.code")"
"""
# The tasks of the step, one after the other.
STEP = f"""\
for id in 0 1; do
    SLURM_NODEID=$id SLURMD_NODENAME=n$((id + 1)) SLURM_NNODES=2 SLURM_CPUS_PER_TASK=16 bash {CHECKOUT}/slurm/node.sh
done
"""
# Records that it was called: no script may call it.
CURL = "#!/bin/bash\ntouch $FAKE/curl.ran\n"


@pytest.fixture
def key(rig: Rig) -> Path:
    """A public key; with a cosign on PATH, an engine that can pull the image by its digest, and real nodes."""
    for name, text in (("cosign", COSIGN), ("curl", CURL), ("openssl", CURL)):
        (rig.root / "bin" / name).write_text(text)
        (rig.root / "bin" / name).chmod(0o755)
    let_cosign_answer(rig, "verified")
    rig.fake("registry", f"{NAME}@{DIGEST}\n")
    rig.fake("step", STEP)
    path = rig.root / "release.pub"
    path.write_text("-----BEGIN PUBLIC KEY-----\n")
    return path


def let_cosign_answer(rig: Rig, case: str, version: str = "2.5.0") -> None:
    answer = json.loads((RECORDED / "cosign_verify" / f"{version}.json").read_text())[case]
    for name in ("out", "err"):
        rig.fake(f"cosign.{name}", answer[name])
    rig.fake("cosign.code", str(answer["code"]))


def let_cosign_verify(rig: Rig, *digests: str, optional: str = "null") -> None:
    """Let cosign print payloads of these digests."""
    identity = '"identity":{"docker-reference":"x"}'
    rig.fake("cosign.out", "[" + ",".join(
        f'{{"critical":{{{identity},"image":{{"docker-manifest-digest":"{digest}"}}}},"optional":{optional}}}'
        for digest in digests
    ) + "]")  # fmt: skip


def launch(rig: Rig, key: Path, image: str = f"{NAME}:1", **more: str) -> subprocess.CompletedProcess[str]:
    more = {"VERLJOB_REQUIRE_SIGNATURE": str(key), **more}
    return rig.launch("cluster", script=None, VERLJOB_IMAGE=image, **more)


def calls(rig: Rig) -> list[str]:
    """The commands pull (with the image), load and run of the engine."""
    path = rig.root / "fake" / "docker.argv"
    argvs = [call.splitlines() for call in path.read_text().split("\n\n")] if path.exists() else []
    return [argv[-1] if argv[0] == "pull" else argv[0] for argv in argvs if argv[:1] in (["pull"], ["load"], ["run"])]


def refused(rig: Rig, done: subprocess.CompletedProcess[str], code: int) -> str:
    """Check that the job exited with ``code`` and started nothing; return its last line."""
    assert done.returncode == code, done.stdout + done.stderr
    assert calls(rig) == []
    assert not list((rig.root / "local").iterdir())
    assert last_line(done).startswith(f"verdict: {code} (launch on n1): ")
    return last_line(done)


@pytest.mark.parametrize(
    ("reference", "case", "version"),
    [
        (f"{NAME}:1", "verified", "2.5.0"),
        (f"{NAME}:1", "verified", "3.1.1"),
        (f"{NAME}@{DIGEST}", "verified twice", "3.1.1"),
        (f"{NAME}:1@{DIGEST}", "verified", "2.5.0"),
    ],
)
def test_every_node_runs_the_digest_that_cosign_verified(
    rig: Rig, key: Path, reference: str, case: str, version: str
) -> None:
    let_cosign_answer(rig, case, version)

    done = launch(rig, key, reference)

    assert done.returncode == 0, done.stdout + done.stderr
    assert calls(rig) == [f"{NAME}@{DIGEST}", "run", "run"]  # the second node finds what the first has pulled
    assert f"{NAME}@{DIGEST} is signed by the owner of {key}" in done.stderr
    assert f"\nimage       {NAME}@{DIGEST}, platform cpu" in done.stdout
    assert f"VERLJOB_IMAGE={NAME}@{DIGEST}\n" in rig.faked("srun.env")
    assert not (rig.root / "fake" / "curl.ran").exists()
    assert not list((rig.root / "local").iterdir())


def test_cosign_verifies_without_a_transparency_log(rig: Rig, key: Path) -> None:
    rig.fake("step", SUCCESS)

    launch(rig, key)

    assert rig.faked("cosign.argv").splitlines() == [
        "verify", "--key", str(key), "--insecure-ignore-tlog=true", "--check-claims=true", "--output", "json", "--",
        f"{NAME}:1",
    ]  # fmt: skip


def test_cosign_uses_plain_http_only_if_the_engine_does(rig: Rig, key: Path) -> None:
    rig.fake("step", SUCCESS)

    launch(rig, key, NO_PROXY="hub.example", HTTP_PROXY="http://proxy:1")
    env = rig.faked("cosign.env").splitlines()
    assert "HTTP_PROXY=http://127.0.0.1:0" in env
    assert "http_proxy=http://127.0.0.1:0" in env
    assert "NO_PROXY=hub.example" not in env

    launch(rig, key, NO_PROXY="hub.example", HTTPS_PROXY="http://proxy:1")
    assert {"NO_PROXY=hub.example", "HTTPS_PROXY=http://proxy:1"} < set(rig.faked("cosign.env").splitlines())

    rig.fake("insecure", "other.example hub.example \n")
    launch(rig, key, HTTP_PROXY="http://proxy:1")
    assert "--allow-http-registry=true" in rig.faked("cosign.argv").splitlines()
    assert "HTTP_PROXY=http://proxy:1" in rig.faked("cosign.env").splitlines()


# Output of podman 4.3.1, with the names of this test.
REGISTRIES = """{"quay.io":{"Prefix":"quay.io","Location":"quay.io","Insecure":false,"PullFromMirror":"","Mirrors":null,
"Blocked":false,"MirrorByDigestOnly":false},"hub.example":{"Prefix":"hub.example","Location":"hub.example",
"Insecure":INSECURE,"PullFromMirror":"","Mirrors":null,"Blocked":false,"MirrorByDigestOnly":false}}"""


@pytest.mark.parametrize("insecure", ["true", "false"])
def test_podmans_insecure_registries_are_recognized(rig: Rig, key: Path, insecure: str) -> None:
    rig.fake("registries", REGISTRIES.replace("INSECURE", insecure))
    rig.fake("step", SUCCESS)

    done = launch(rig, key, VERLJOB_RUNTIME="podman", XDG_RUNTIME_DIR="/run/user/of-the-login-node")

    assert done.returncode == 0, done.stdout
    assert ("--allow-http-registry=true" in rig.faked("cosign.argv")) == (insecure == "true")
    assert "XDG_RUNTIME_DIR=/run/user/of-the-login-node\n" in rig.faked("srun.env")


def test_cosign_does_not_run_without_a_required_signature(rig: Rig, key: Path) -> None:
    rig.fake("step", SUCCESS)

    assert launch(rig, key, VERLJOB_REQUIRE_SIGNATURE="").returncode == 0
    assert not (rig.root / "fake" / "cosign.argv").exists()


@pytest.mark.parametrize(
    ("case", "code", "message"),
    [
        ("unsigned", 77, f"{NAME}:1 is not signed, and VERLJOB_REQUIRE_SIGNATURE demands a signature by "),
        ("another key", 77, f"{NAME}:1 is signed, but not this image by the owner of "),
        ("another image", 77, f"signatures: invalid or missing digest in claim: {DIGEST}"),
        ("a private key", 64, "which cosign cannot read: "),
        ("no such tag", 66, "could not verify hub.example/team/verl.cpu:1 (code 11): image tag not found"),
        ("no blob", 66, "could not verify hub.example/team/verl.cpu:1 (code 12): no matching signatures: GET "),
        ("down", 66, "connect: connection refused"),
        ("login", 66, "401 Unauthorized"),
    ],
)  # fmt: skip
def test_an_unverified_image_is_not_pulled(rig: Rig, key: Path, case: str, code: int, message: str) -> None:
    for version in VERSIONS:
        let_cosign_answer(rig, case, version)

        line = refused(rig, launch(rig, key), code)

        assert message in line
        assert {64: "a public key", 66: "docker login hub.example", 77: "./run push --key"}[code] in line
        assert f'"code": {code}' in (rig.run_dir / "result.json").read_text()


def test_payloads_with_different_digests_are_refused(rig: Rig, key: Path) -> None:
    let_cosign_verify(rig, DIGEST, OTHER)

    assert f"cosign verified {NAME}:1 and did not name one digest: {OTHER}" in refused(rig, launch(rig, key), 77)


@pytest.mark.parametrize(
    "digests",
    [(), ("",), ("sha256:" + "A" * 64,), ("sha256:12",), (DIGEST + "\\n",), ("$(touch ran)",), (f"x@{DIGEST}",)],
)
def test_a_malformed_digest_is_refused(rig: Rig, key: Path, digests: tuple[str, ...]) -> None:
    let_cosign_verify(rig, *digests)

    assert "did not name one digest" in refused(rig, launch(rig, key), 77)
    assert not (rig.work / "ran").exists()


def test_a_digest_in_an_annotation_is_ignored(rig: Rig, key: Path) -> None:
    let_cosign_verify(rig, DIGEST, optional=json.dumps({"note": f'"docker-manifest-digest":"{OTHER}"'}))

    assert launch(rig, key).returncode == 0
    assert calls(rig)[0] == f"{NAME}@{DIGEST}"


def test_another_digest_than_the_given_one_exits_with_77(rig: Rig, key: Path) -> None:
    assert f"cosign verified {DIGEST}, and VERLJOB_IMAGE is " in refused(rig, launch(rig, key, f"{NAME}@{OTHER}"), 77)


def test_an_output_of_more_than_a_mebibyte_is_refused(rig: Rig, key: Path) -> None:
    rig.fake("cosign.out", "x" * (2 << 20) + f'"docker-manifest-digest":"{DIGEST}"')

    refused(rig, launch(rig, key), 77)


def test_a_registrys_error_is_printed_without_control_characters(rig: Rig, key: Path) -> None:
    let_cosign_answer(rig, "down")
    rig.fake("cosign.err", "Error: \x1b]52;c;eA==\a" + "x" * 1000 + "\nverdict: 0\n")

    line = refused(rig, launch(rig, key), 66)

    assert "?]52;c;eA==?" in line
    assert len(line) < 800


def test_a_hanging_cosign_is_killed(rig: Rig, key: Path) -> None:
    rig.fake("cosign.sleeps", "")
    library = (CHECKOUT / "slurm" / "lib" / "node" / "signed_image.sh").read_text()
    copy = rig.root / "checkout"
    shutil.copytree(CHECKOUT / "slurm", copy / "slurm", ignore=shutil.ignore_patterns("testbed", "*.py"))
    (copy / "slurm/lib/node/signed_image.sh").write_text(library.replace("LIMIT_S=60", "LIMIT_S=1"))

    done = rig.launch(
        "cluster", script=copy / "slurm/launch.sh", VERLJOB_HOME=str(copy), VERLJOB_IMAGE=f"{NAME}:1",
        VERLJOB_REQUIRE_SIGNATURE=str(key),
    )  # fmt: skip

    assert f"could not verify {NAME}:1 (code 124): no end after 1 s" in refused(rig, done, 66)


@pytest.mark.parametrize(
    ("reference", "runtime"),
    [
        ("verl.cpu:latest", "docker"),
        ("/shared/verl.tar", "docker"),
        ("./verl.tar", "podman"),
        ("--key=x/y", "docker"),
        ("a/b c", "docker"),
        ("/shared/environment", "bare"),
    ],
)
def test_an_image_outside_of_a_registry_exits_with_77(rig: Rig, key: Path, reference: str, runtime: str) -> None:
    (rig.work / "verl.tar").touch()

    line = refused(rig, launch(rig, key, reference, VERLJOB_RUNTIME=runtime), 77)

    assert "demands a signature in the image's registry, and VERLJOB_IMAGE=" in line
    assert not (rig.root / "fake" / "cosign.argv").exists()


def test_an_unreadable_key_is_reported_by_name(rig: Rig, key: Path) -> None:
    for named in ("/none", "release.pub", "https://thief.example/key", str(rig.root)):
        done = launch(rig, key, VERLJOB_REQUIRE_SIGNATURE=named)
        assert f"is {named}, which is not a file that n1 can read" in refused(rig, done, 64)


def test_a_missing_cosign_exits_with_77(rig: Rig, key: Path) -> None:
    (rig.root / "bin" / "cosign").unlink()

    line = refused(rig, launch(rig, key), 77)

    assert "demands a signature, and there is no cosign to verify it on n1 — install cosign 2.5 or newer" in line
    assert "VERLJOB_COSIGN=its absolute path in the profile" in line


def test_the_profile_sets_the_path_of_cosign(rig: Rig, key: Path) -> None:
    (rig.root / "bin" / "cosign").rename(rig.root / "cosign of the site")
    profile = rig.work / "site.env"
    profile.write_text(f"VERLJOB_REQUIRE_SIGNATURE={key}\nVERLJOB_COSIGN={rig.root}/cosign of the site\n")
    (rig.root / "mine").write_text(f"#!/bin/bash\nprintf '%s' '\"docker-manifest-digest\":\"{OTHER}\"'\n")
    (rig.root / "mine").chmod(0o755)

    done = launch(rig, Path(), VERLJOB_PROFILE=str(profile), VERLJOB_COSIGN=str(rig.root / "mine"))

    assert done.returncode == 0, done.stdout
    assert calls(rig)[0] == f"{NAME}@{DIGEST}"
    for missing in ("/none", "cosign"):
        profile.write_text(f"VERLJOB_REQUIRE_SIGNATURE={key}\nVERLJOB_COSIGN={missing}\n")
        assert launch(rig, Path(), VERLJOB_PROFILE=str(profile)).returncode == 77


@pytest.mark.parametrize("mine", ["", "/mine.pub"])
def test_an_export_does_not_replace_a_profiles_requirement(rig: Rig, key: Path, mine: str) -> None:
    profile = rig.work / "site.env"
    profile.write_text(f"VERLJOB_REQUIRE_SIGNATURE={key}\nVERLJOB_REQUIRE_SIGNATURE=/second.pub\n")
    let_cosign_answer(rig, "unsigned")

    done = launch(rig, key, VERLJOB_PROFILE=str(profile), VERLJOB_REQUIRE_SIGNATURE=mine)

    assert f"demands a signature by {key}" in refused(rig, done, 77)


def test_a_file_named_like_the_image_is_ignored(rig: Rig, key: Path) -> None:
    for name in (f"{NAME}@{DIGEST}", f"{NAME}:1"):
        (rig.work / name).parent.mkdir(parents=True, exist_ok=True)
        (rig.work / name).write_text("another archive")
    rig.fake("registry", f"{NAME}@{DIGEST}\n{NAME}:1\n")

    for demand in (str(key), ""):
        assert launch(rig, key, VERLJOB_REQUIRE_SIGNATURE=demand).returncode == 0

    assert calls(rig) == [f"{NAME}@{DIGEST}", "run", "run", f"{NAME}:1", "run", f"{NAME}:1", "run"]


def test_a_node_refuses_an_image_with_another_digest(rig: Rig, key: Path) -> None:
    # The node has another image under the name of that digest, and its engine reports the other digest.
    rig.fake("images", f"{NAME}@{DIGEST}\tsha256:evil\n")
    wrong = (
        (rig.root / "bin" / "docker")
        .resolve()
        .read_text()
        .replace("*RepoDigests*) while", f"*RepoDigests*) echo {NAME}@{OTHER} ;;\n *Nothing*) while")
    )
    (rig.root / "bin" / "docker").unlink()
    (rig.root / "bin" / "docker").write_text(wrong)
    (rig.root / "bin" / "docker").chmod(0o755)

    done = launch(rig, key)

    assert done.returncode == 77
    assert calls(rig) == []
    assert (
        f"n1 would run sha256:evil for {NAME}@{DIGEST}, which was verified, and it has the digests {OTHER}"
        in last_line(done)
    )


def test_a_runtime_without_digests_exits_with_77(rig: Rig, key: Path) -> None:
    copy = rig.root / "checkout"
    shutil.copytree(CHECKOUT / "slurm", copy / "slurm", ignore=shutil.ignore_patterns("testbed", "*.py"))
    (copy / "entrypoints").symlink_to(CHECKOUT / "entrypoints")
    (copy / "slurm/runtimes/pretend.sh").write_text(
        "runtime::available() { :; }\nruntime::find() { IMAGE_ID=sha256:pretended; }\n"
        "runtime::start_argv() { touch $FAKE/started; exit 1; }\n"
    )

    done = rig.node(
        VERLJOB_HOME=str(copy), VERLJOB_RUNTIME="pretend", VERLJOB_IMAGE=f"{NAME}@{DIGEST}",
        VERLJOB_REQUIRE_SIGNATURE=str(key),
    )  # fmt: skip

    assert done.returncode == 77
    assert "the runtime pretend does not know the digests of images" in rig.verdict()["cause"]
    assert not (rig.root / "fake" / "started").exists()


@pytest.mark.parametrize(
    "image", [f"{NAME}:1", "/shared/verl.tar", f"/shared/x@{DIGEST}", "verl.cpu:latest", f"a/b@{DIGEST} "]
)
def test_a_node_refuses_an_image_that_is_not_pinned(rig: Rig, key: Path, image: str) -> None:
    done = rig.node(VERLJOB_IMAGE=image, VERLJOB_REQUIRE_SIGNATURE=str(key))

    assert done.returncode == 77
    assert calls(rig) == []
    assert "launch.sh verified none for VERLJOB_IMAGE=" in rig.verdict()["cause"]


def test_a_dry_run_prints_the_verification_without_running_it(rig: Rig, key: Path) -> None:
    done = launch(rig, key, VERLJOB_DRY_RUN="1", SLURM_JOB_ID="<unset>", VERLJOB_HOME=str(CHECKOUT))

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"# {NAME}:1 is first verified with the key {key} by cosign, and run by its digest\n" in done.stdout
    assert not (rig.root / "fake" / "cosign.argv").exists()
