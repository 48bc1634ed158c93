"""VERLJOB_REQUIRE_SIGNATURE: what nobody has signed with the key that a site names is not started, nor pulled."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.shell.rig import CHECKOUT, Rig

NAME = "hub.example/team/verl.cpu"
MANIFEST = b'{"schemaVersion": 2, "config": {}}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two private keys, and their public halves as NAME.pub."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("site", "other"):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(folder / name))
        openssl("pkey", "-in", str(folder / name), "-pubout", "-out", str(folder / f"{name}.pub"))
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def hub(rig: Rig) -> Path:
    """What the registry has: the image by tag and digest."""
    folder = rig.root / "fake" / "hub"
    folder.mkdir()
    for name in ("1", DIGEST):
        (folder / name).write_bytes(MANIFEST)
    (rig.root / "bin" / "openssl").symlink_to(str(shutil.which("openssl")))
    (rig.root / "bin" / "curl").symlink_to(Path(__file__).parent / "hub" / "curl")
    rig.fake("registry", f"{NAME}@{DIGEST}\n")
    return folder


def signature(folder: Path, key: Path, digest: str = DIGEST) -> Mapping[str, object]:
    """Sign a digest as `invoke push --key` does; the layer of the signature's manifest."""
    payload = json.dumps({"critical": {"image": {"docker-manifest-digest": digest}}, "optional": {"by": key.name}})
    named = f"sha256:{hashlib.sha256(payload.encode()).hexdigest()}"
    (folder / named).write_text(payload)
    openssl("dgst", "-sha256", "-sign", str(key), "-out", str(folder / "made"), str(folder / named))
    value = base64.b64encode((folder / "made").read_bytes()).decode()
    return {"annotations": {"dev.cosignproject.cosign/signature": value}, "digest": named, "size": len(payload)}


def attach(folder: Path, *layers: Mapping[str, object]) -> None:
    told = {"config": {"digest": "sha256:" + "e" * 64}, "layers": layers, "subject": {"digest": DIGEST}}
    (folder / f"{DIGEST.replace(':', '-')}.sig").write_text(json.dumps(told, indent=1))


def pulled(rig: Rig) -> list[str]:
    """What the engine was asked to pull or to run."""
    calls = [call.splitlines() for call in rig.faked("docker.argv").split("\n\n")]
    return [call[-1] if call[0] == "pull" else "run" for call in calls if call[:1] in (["pull"], ["run"])]


@pytest.mark.parametrize("reference", [f"{NAME}:1", f"{NAME}@{DIGEST}", f"{NAME}:1@{DIGEST}"])
def test_a_signed_image_runs_by_the_digest_that_was_verified(
    rig: Rig, hub: Path, keys: dict[str, Path], reference: str
) -> None:
    attach(hub, signature(hub, keys["other"]), signature(hub, keys["site"]))

    done = rig.node(VERLJOB_IMAGE=reference, VERLJOB_REQUIRE_SIGNATURE=str(keys["site.pub"]))

    assert done.returncode == 0, done.stderr
    assert pulled(rig) == [f"{NAME}@{DIGEST}", "run"]
    assert f"{NAME}@{DIGEST} is signed by the owner of {keys['site.pub']}" in done.stdout
    assert not list((rig.root / "local").iterdir())


def test_nothing_is_asked_where_no_signature_is_wanted(rig: Rig, hub: Path) -> None:
    rig.fake("registry", f"{NAME}:1\n")

    assert rig.node(VERLJOB_IMAGE=f"{NAME}:1").returncode == 0
    assert not (rig.root / "fake" / "curl.urls").exists()


def refused(rig: Rig, key: Path, reference: str = f"{NAME}:1") -> dict[str, str]:
    """The verdict of a node that started and pulled nothing."""
    done = rig.node(VERLJOB_IMAGE=reference, VERLJOB_REQUIRE_SIGNATURE=str(key))

    verdict = rig.verdict()
    assert str(done.returncode) == verdict["code"]
    assert verdict["stage"] == "image"
    assert pulled(rig) == []
    assert not list((rig.root / "local").iterdir())
    return verdict


def test_an_unsigned_image_is_not_pulled(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    verdict = refused(rig, keys["site.pub"])

    assert verdict["code"] == "77"
    assert verdict["cause"] == (
        f"{NAME}:1 ({DIGEST}) is not signed, and VERLJOB_REQUIRE_SIGNATURE wants {keys['site.pub']}"
    )
    assert "./run push --key" in verdict["fix"]


def test_another_keys_signature_is_none(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    attach(hub, signature(hub, keys["other"]))

    verdict = refused(rig, keys["site.pub"])

    assert (verdict["code"], verdict["cause"]) == (
        "77",
        f"{NAME}:1 ({DIGEST}) is signed, but not by the owner of {keys['site.pub']}",
    )


def test_another_images_signature_is_none(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    attach(hub, signature(hub, keys["site"], "sha256:" + "1" * 64))

    verdict = refused(rig, keys["site.pub"])

    assert (verdict["code"], verdict["cause"]) == (
        "77",
        f"the signature beside {NAME}:1 ({DIGEST}) is for another image",
    )


def test_a_payload_that_was_changed_after_signing_is_none(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    layer = signature(hub, keys["site"], "sha256:" + "1" * 64)
    attach(hub, layer)
    payload = hub / str(layer["digest"])
    payload.write_text(payload.read_text().replace("sha256:" + "1" * 64, DIGEST))

    assert "is signed, but not by the owner of" in refused(rig, keys["site.pub"])["cause"]


def test_a_registry_that_gives_another_image_for_a_digest_is_named(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    attach(hub, signature(hub, keys["site"]))
    (hub / DIGEST).write_bytes(MANIFEST + b" ")

    verdict = refused(rig, keys["site.pub"], f"{NAME}@{DIGEST}")

    assert verdict["code"] == "77"
    assert "hub.example gives an image of digest sha256:" in verdict["cause"]


@pytest.mark.parametrize("reference", ["verl.cpu:latest", "/shared/verl.tar"])
def test_an_image_of_no_registry_has_no_signature(rig: Rig, hub: Path, keys: dict[str, Path], reference: str) -> None:
    verdict = refused(rig, keys["site.pub"], reference)

    assert verdict["code"] == "64"
    assert f"VERLJOB_IMAGE={reference} names none" in verdict["cause"]


def test_a_key_that_cannot_be_read_is_named(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    assert "is /none, which is no public key that n1 can read" in refused(rig, Path("/none"))["cause"]
    assert refused(rig, keys["site"])["code"] == "64"


@pytest.mark.parametrize("tool", ["openssl", "curl"])
def test_a_node_without_the_tools_says_so(rig: Rig, hub: Path, keys: dict[str, Path], tool: str) -> None:
    (rig.root / "bin" / tool).unlink()

    verdict = refused(rig, keys["site.pub"])

    assert (verdict["code"], verdict["cause"]) == (
        "69",
        f"there is no {tool} on n1, which VERLJOB_REQUIRE_SIGNATURE needs",
    )


def test_a_registry_that_does_not_answer_is_told_with_curls_words(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    rig.fake("hub.down", "")

    verdict = refused(rig, keys["site.pub"])

    assert verdict["code"] == "66"
    assert verdict["cause"] == (
        f"https://hub.example answers nothing (curl: (7) Failed to connect) when n1 asks for {NAME}:1"
    )


def test_a_registry_that_gives_no_signature_is_not_taken_for_an_unsigned_image(
    rig: Rig, hub: Path, keys: dict[str, Path]
) -> None:
    attach(hub, signature(hub, keys["site"]))
    rig.fake("hub.broken", "")

    verdict = refused(rig, keys["site.pub"])

    assert verdict["code"] == "66"
    assert f"answers 503 when n1 asks for the signature of {NAME}:1" in verdict["cause"]


def test_docker_s_login_is_used_and_stands_in_no_argument(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    attach(hub, signature(hub, keys["site"]))
    login = base64.b64encode(b"robot:hunter2").decode()
    rig.fake("login", f"Basic {login}")
    (rig.home / ".docker").mkdir()
    (rig.home / ".docker" / "config.json").write_text(json.dumps({"auths": {"hub.example": {"auth": login}}}, indent=1))

    done = rig.node(VERLJOB_IMAGE=f"{NAME}:1", VERLJOB_REQUIRE_SIGNATURE=str(keys["site.pub"]))

    assert done.returncode == 0, done.stdout
    assert login not in rig.faked("curl.argv")
    assert "let-in" not in rig.faked("curl.argv")


def test_without_a_login_the_answer_is_told(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    rig.fake("login", "Basic nobody-has-it")

    verdict = refused(rig, keys["site.pub"])

    assert verdict["code"] == "66"
    assert "https://hub.example answers 401" in verdict["cause"]
    assert verdict["fix"].endswith("docker login hub.example")


def test_a_registry_that_docker_asks_without_tls_is_asked_so(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    attach(hub, signature(hub, keys["site"]))
    rig.fake("insecure", "other.example hub.example \n")

    rig.node(VERLJOB_IMAGE=f"{NAME}:1", VERLJOB_REQUIRE_SIGNATURE=str(keys["site.pub"]))

    assert {url.split("/v2/")[0] for url in rig.faked("curl.urls").split()} == {"http://hub.example"}


# What podman 4.3.1 says, with the names of this test.
REGISTRIES = """{"quay.io":{"Prefix":"quay.io","Location":"quay.io","Insecure":false,"PullFromMirror":"","Mirrors":null,
"Blocked":false,"MirrorByDigestOnly":false},"hub.example":{"Prefix":"hub.example","Location":"hub.example",
"Insecure":INSECURE,"PullFromMirror":"","Mirrors":null,"Blocked":false,"MirrorByDigestOnly":false}}"""


@pytest.mark.parametrize(("insecure", "scheme"), [("true", "http"), ("false", "https")])
def test_podman_too_says_which_registries_have_no_tls(rig: Rig, insecure: str, scheme: str) -> None:
    rig.fake("registries", REGISTRIES.replace("INSECURE", insecure))
    script = 'registry::of hub.example/team/verl.cpu:1; printf %s "$REGISTRY_URL"'

    done = rig.source("say verdict process runtime registry", script, VERLJOB_RUNTIME="podman")

    assert done.stdout == f"{scheme}://hub.example", done.stderr


def test_what_a_profile_demands_is_not_taken_back_by_an_export(rig: Rig, hub: Path, keys: dict[str, Path]) -> None:
    profile = rig.work / "site.env"
    profile.write_text(f"VERLJOB_REQUIRE_SIGNATURE={keys['site.pub']}\n")
    rig.fake("step", f"exec env SLURM_NODEID=0 SLURM_NNODES=2 SLURM_CPUS_PER_TASK=16 bash {CHECKOUT}/slurm/node.sh")

    done = rig.launch("cluster", VERLJOB_IMAGE=f"{NAME}:1", VERLJOB_PROFILE=str(profile), VERLJOB_REQUIRE_SIGNATURE="")

    assert done.returncode == 77
    assert f"{NAME}:1 ({DIGEST}) is not signed" in done.stdout.splitlines()[-1]
    assert pulled(rig) == []
