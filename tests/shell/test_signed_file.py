"""VERLJOB_REQUIRE_SIGNATURE with Apptainer: a file runs if cosign verified its signature, on every node the same.

cosign is replayed: exit codes and errors of Debian's 2.5.0 and 3.1.1 (`cosign verify-blob`).
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.paths import CHECKOUT
from tests.support.shell.other_account import NEEDS_ROOT, UID
from tests.support.shell.rig import Rig
from tests.support.shell.step import last_line

COSIGN = """\
#!/bin/bash
printf '%s\\n' "$@" >> "$FAKE/cosign.argv"
cat "$FAKE/cosign.err" >&2
exit "$(< "$FAKE/cosign.code")"
"""
# The tasks of the step, one after the other.
STEP = f"""\
[[ ! -e $FAKE/before ]] || bash "$FAKE/before"
for id in 0 1; do
    SLURM_NODEID=$id SLURMD_NODENAME=n$((id + 1)) SLURM_NNODES=2 SLURM_CPUS_PER_TASK=16 bash {CHECKOUT}/slurm/node.sh
done
"""
NAME, DIGEST = "hub.example/team/verl.cpu", "sha256:" + "a" * 64
VERIFIED = "Verified OK\n"


@pytest.fixture
def file(rig: Rig) -> Path:
    """A signed file, and the public key of its signature."""
    cosign = rig.root / "bin" / "cosign"
    cosign.write_text(COSIGN)
    cosign.chmod(0o755)
    let_cosign_answer(rig, 0, VERIFIED)
    rig.fake("step", STEP)
    (rig.root / "release.pub").write_text("-----BEGIN PUBLIC KEY-----\n")
    folder = rig.root / "images"
    folder.mkdir(mode=0o755)
    made = folder / "verl.sif"
    made.write_text("#!/usr/bin/env run-singularity")
    Path(f"{made}.sig").write_text("MEUCIQ==")
    rig.environment |= {"VERLJOB_RUNTIME": "apptainer", "VERLJOB_REQUIRE_SIGNATURE": str(rig.root / "release.pub")}
    return made


def let_cosign_answer(rig: Rig, code: int, error: str) -> None:
    rig.fake("cosign.code", str(code))
    rig.fake("cosign.err", error)


def launch(rig: Rig, image: Path | str, **more: str) -> subprocess.CompletedProcess[str]:
    return rig.launch("cluster", script=None, VERLJOB_IMAGE=str(image), VERLJOB_COMPILE_CACHE="0", **more)


def containers(rig: Rig) -> int:
    path = rig.root / "fake" / "apptainer.argv"
    return path.read_text().count("/opt/verljob/entrypoint.sh\nnode\n") if path.exists() else 0


def refused(rig: Rig, done: subprocess.CompletedProcess[str], code: int) -> str:
    """Check that the job exited with ``code`` and started no container; return its last line."""
    assert (done.returncode, containers(rig)) == (code, 0), done.stdout + done.stderr
    assert last_line(done).startswith(f"verdict: {code} ")
    return last_line(done)


def test_every_node_runs_the_file_that_cosign_verified(rig: Rig, file: Path) -> None:
    done = launch(rig, file)

    assert (done.returncode, containers(rig)) == (0, 2), done.stdout + done.stderr
    key = rig.environment["VERLJOB_REQUIRE_SIGNATURE"]
    assert rig.faked("cosign.argv").splitlines() == [
        "verify-blob", "--key", key, "--signature", f"{file}.sig", "--insecure-ignore-tlog=true", "--", str(file),
    ]  # fmt: skip
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert f"{file}, sha256:{digest}, is signed by the owner of {key}" in done.stderr
    assert f"VERLJOB_IMAGE_SHA256={digest}\n" in rig.faked("srun.env")


def test_a_digest_beside_the_file_is_not_trusted(rig: Rig, file: Path) -> None:
    Path(f"{file}.sha256").write_text("b" * 64)
    rig.fake("before", f"echo changed > {file}.new; printf '#!/usr/bin/env other' > {file}; touch {file}.sha256")

    done = launch(rig, file, VERLJOB_IMAGE_SHA256="b" * 64)

    assert (
        f"would run sha256:{hashlib.sha256(file.read_bytes()).hexdigest()} for {file}, which was verified"
        in refused(rig, done, 77)
    )


@pytest.mark.parametrize(
    ("code", "error", "verdict"),
    [
        (
            1,
            "Error: invalid signature when validating ASN.1 encoded signature\n",
            77,
        ),
        (1, "Error: ecdsa: Invalid IEEE_P1363 encoded bytes\n", 77),
        (
            1,
            "Error: loading public key: pem to public key: unknown Public key PEM file type\n",
            64,
        ),
    ],
)
def test_an_unverified_file_does_not_run(rig: Rig, file: Path, code: int, error: str, verdict: int) -> None:
    let_cosign_answer(rig, code, error)

    assert error.splitlines()[0].removeprefix("Error: ") in refused(rig, launch(rig, file), verdict)


def test_a_file_without_a_signature_exits_with_77(rig: Rig, file: Path) -> None:
    Path(f"{file}.sig").unlink()
    line = refused(rig, launch(rig, file), 77)
    assert f"no file {file} with its signature {file}.sig" in line
    assert "cosign sign-blob" in line

    (rig.root / "sandbox").mkdir()
    (rig.root / "sandbox.sig").touch()
    refused(rig, launch(rig, rig.root / "sandbox"), 77)
    refused(rig, launch(rig, rig.root / "absent"), 66)
    assert not (rig.root / "fake" / "cosign.argv").exists()


def test_a_file_that_others_can_change_exits_with_77(rig: Rig, file: Path) -> None:
    for path, mode in ((file.parent, 0o777), (file, 0o666)):
        before = path.stat().st_mode
        path.chmod(mode)
        refused(rig, launch(rig, file, VERLJOB_SHARED_FOLDERS="1"), 77)
        path.chmod(before)
    link = file.parent / "link.sif"
    link.symlink_to(file)
    Path(f"{link}.sig").touch()
    assert "or is a link" in refused(rig, launch(rig, link), 77)


@NEEDS_ROOT
def test_a_file_of_another_account_exits_with_77(rig: Rig, file: Path) -> None:
    os.chown(file, UID, UID)

    assert f"owner {UID}" in refused(rig, launch(rig, file), 77)


def test_a_node_started_without_launch_sh_exits_with_77(rig: Rig, file: Path) -> None:
    for runtime, digest in (("apptainer", ""), ("apptainer", "sha256:12"), ("docker", "a" * 64)):
        environment = {
            "VERLJOB_RUNTIME": runtime,
            "VERLJOB_IMAGE": str(file),
            "VERLJOB_IMAGE_SHA256": digest,
            "VERLJOB_REQUIRE_SIGNATURE": rig.environment["VERLJOB_REQUIRE_SIGNATURE"],
        }
        assert rig.node(0, **environment).returncode == 77
    assert containers(rig) == 0


@pytest.fixture
def registry(rig: Rig, file: Path) -> str:
    """An image that cosign verifies in its registry."""
    rig.fake("registry", f"{NAME}@{DIGEST}\n")
    answer = f'printf \'[{{"critical":{{"image":{{"docker-manifest-digest":"{DIGEST}"}}}}}}]\'\n'
    (rig.root / "bin" / "cosign").write_text(COSIGN.replace("cat ", answer + "cat ", 1))
    return f"docker://{NAME}:1"


def test_an_image_of_a_registry_runs_by_its_verified_digest(rig: Rig, registry: str) -> None:
    done = launch(rig, registry)

    assert (done.returncode, containers(rig)) == (0, 2), done.stdout + done.stderr
    assert f"\nimage       {NAME}@{DIGEST}, platform cpu" in done.stdout


@pytest.mark.parametrize("change", ["printf x >> {file}", "printf x >> {file}.sha256", "rm {file}.sha256"])
def test_a_file_of_the_store_that_is_not_the_fetched_one_exits_with_77(rig: Rig, registry: str, change: str) -> None:
    store = rig.root / "store"
    assert launch(rig, registry, VERLJOB_IMAGE_STORE=str(store)).returncode == 0
    (rig.root / "fake" / "apptainer.argv").unlink()
    change = change.replace(">>", ">").format(file=store / f"{DIGEST[7:]}.sif")
    rig.fake("before", change)

    line = refused(rig, launch(rig, registry, VERLJOB_IMAGE_STORE=str(store)), 77)
    assert "is not the file that was fetched: remove it" in line


def test_a_store_that_others_can_write_exits_with_77(rig: Rig, registry: str) -> None:
    store = rig.root / "store"
    store.mkdir()
    store.chmod(0o777)

    refused(rig, launch(rig, registry, VERLJOB_IMAGE_STORE=str(store), VERLJOB_SHARED_FOLDERS="1"), 77)
