"""A release sets no tag before all of its images are complete in the registry, and a repeated run pushes nothing twice.

Registry and signatures are real, the registry in memory; builds, smoke tests and uploads of the engine are immediate.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import render
from images.engine.client import Engine
from images.errors import ImageError, NotTrusted, RegistryFailed, ReleaseFailed, TagTaken, UnknownVariant
from images.host.process import run
from images.provenance import attest, slsa
from images.registry import client, push, referrers
from images.registry.client import DOCKER_MANIFEST, Repository
from images.registry.referrers import PROVENANCE, SBOM, SIGNATURE
from images.release import candidate, publish
from images.release.release import Release
from images.report.record import BASE, BUILD_TYPE
from tests.support.images import fake_registry
from tests.support.images.fake_registry import PAIR, FakeRegistry

CATALOG = Catalog.read()
CPU, VLLM = CATALOG.variants["cpu"], CATALOG.variants["cpu-vllm"]
BOTH = [CPU, VLLM]
BASE_ID = "e" * 64


class FakeEngine:
    """An engine and its builds: the ID of a variant's image is one repeated digit, the number of its names in use."""

    def __init__(self, registry: FakeRegistry) -> None:
        self.registry = registry
        self.steps: list[str] = []
        self.failing: dict[str, str] = {}
        self.digit = {CPU.name: "1", VLLM.name: "2"}

    def build(self, request: Any, _: Site) -> str:
        self.take("build", request.variant.name)
        return f"sha256:{self.digit[request.variant.name] * 64}"

    def smoke_test(self, image: str) -> None:
        self.take("smoke test", self.variant(image))

    def upload(self, _: Engine, references: list[str]) -> dict[str, str]:
        for reference in references:
            image = f"sha256:{reference.rpartition('-')[2][0] * 64}"
            self.take("push", self.variant(image))
            config = {"config": {"Labels": {"verljob.state": "ran (2026-11-24, a laptop): trained"}}}
            blob = json.dumps({**config, "id": image}).encode()
            self.registry.blobs[image] = blob
            descriptors = [{"digest": image, "size": 7}, {"digest": "sha256:layer", "size": 1_000_000}]
            manifest = {"schemaVersion": 2, "config": descriptors[0], "layers": descriptors[1:]}
            self.registry.keep(reference.rpartition(":")[2], json.dumps(manifest).encode(), DOCKER_MANIFEST)
        return {}

    def statements(self, image: Any, name: str, digest: str) -> dict[referrers.Kind, bytes]:
        variant = CATALOG.variants[self.variant(image.id)]
        predicate = {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"variant": variant.name},
                "internalParameters": {"template": render.revision(variant)},
                "resolvedDependencies": [
                    {
                        "name": BASE,
                        "uri": "docker-image://debian:12@sha256:1",
                        "digest": {"sha256": "d" * 64},
                        "annotations": {"id": f"sha256:{BASE_ID}"},
                    }
                ],
            },
            "runDetails": {"builder": {"id": "urn:x"}},
        }
        return {SBOM: b"{}", PROVENANCE: slsa.statement(predicate, name, digest)}

    def local(self, reference: str) -> SimpleNamespace:
        digit = reference.rpartition(":")[2].rpartition("-")[2][0]
        return SimpleNamespace(id=f"sha256:{digit * 64}", tag=lambda _: None)

    def variant(self, image: str) -> str:
        return next(name for name, digit in self.digit.items() if digit == image[7])

    def take(self, step: str, variant: str) -> None:
        if self.failing.get(variant) == step:
            raise ImageError(f"the {step} fails")
        self.steps.append(f"{step} {variant}")

    def counted(self) -> Counter[str]:
        return Counter(self.steps)


@pytest.fixture
def engine(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    fake = FakeEngine(server)
    server.manifests.clear()
    images = SimpleNamespace(remove=lambda name, noprune: None)
    monkeypatch.setattr(push, "daemon", lambda: SimpleNamespace(images=images))
    monkeypatch.setattr(push, "choose", lambda: None)
    monkeypatch.setattr(push, "push_references", fake.upload)
    monkeypatch.setattr(candidate, "build", fake.build)
    monkeypatch.setattr(candidate, "smoke_test", fake.smoke_test)
    monkeypatch.setattr(candidate, "local", fake.local)
    monkeypatch.setattr(candidate.verify, "verify", lambda reference, key: None)
    monkeypatch.setattr(attest, "local", fake.local)
    monkeypatch.setattr(attest, "statements", fake.statements)
    monkeypatch.setattr(attest, "_write_files", lambda *_: [])
    monkeypatch.setattr(publish, "architecture", lambda: "amd64")
    return fake


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_key(tmp_path_factory.mktemp("keys"))


def make_key(folder: Path) -> Path:
    private, public = folder / "key.pem", folder / "release.pub"
    run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(private)])
    run(["openssl", "pkey", "-in", str(private), "-pubout", "-out", str(public)])
    return private


@pytest.fixture
def release(server: FakeRegistry, engine: FakeEngine, key: Path) -> Release:
    return Release("1.2.0", "c" * 40, f"{server.host}/team", key, "- a change", key.parent)


def run_release(release: Release, *variants: Variant) -> list[str]:
    lines: list[str] = []
    publish.publish(release, variants or BOTH, CATALOG, Site(), lines.append)
    return lines


def user_tags(server: FakeRegistry) -> list[str]:
    """Tags that a release sets for users, with the digit of their image."""
    tags = [tag for tag in server.manifests if tag == "latest" or tag.endswith("-v1.2.0")]
    return sorted(f"{tag} {json.loads(server.manifests[tag][1])['config']['digest'][7]}" for tag in tags)


ALL_TAGS = sorted([f"{CPU.tag}-v1.2.0 1", f"{VLLM.tag}-v1.2.0 2", "latest 1"])


def test_every_image_is_pushed_and_signed_before_the_first_tag(
    release: Release, server: FakeRegistry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    puts: list[str] = []
    put = Repository._put

    def record_put(repository: Repository, tag: str, manifest: client.Manifest) -> None:
        puts.append(tag)
        put(repository, tag, manifest)

    monkeypatch.setattr(Repository, "_put", record_put)
    run_release(release)

    steps = ["build", "smoke test", "push"]
    assert engine.steps == [f"{step} {each.name}" for each in BOTH for step in steps]
    ends = [tag.rpartition(".")[2] if tag.startswith("sha256-") else tag for tag in puts]
    candidates = [f"{each.tag}-v1.2.0-g{'c' * 12}" for each in BOTH]
    attached = ["sbom", "provenance", "sig"]
    tags = [f"{CPU.tag}-v1.2.0", f"{VLLM.tag}-v1.2.0", "latest"]
    assert ends == [*attached, candidates[0], *attached, candidates[1], *tags]
    assert user_tags(server) == ALL_TAGS


def test_published_images_are_described_by_the_registry(release: Release, server: FakeRegistry) -> None:
    images = publish.publish(release, BOTH, CATALOG, Site(), lambda _: None)

    digest = client.digest_of(server.manifests[f"{CPU.tag}-v1.2.0"][1])
    assert images[0] == publish.Published(
        "cpu",
        f"{server.host}/team/verl.cpu",
        f"{CPU.tag}-v1.2.0",
        digest,
        1_000_007,
        f"debian:12@sha256:{'d' * 64}",
        "ran (2026-11-24, a laptop)",
    )


def test_second_run_builds_and_sends_nothing(release: Release, server: FakeRegistry, engine: FakeEngine) -> None:
    run_release(release)
    engine.steps.clear()
    server.requests.clear()

    lines = run_release(release)

    assert engine.steps == []
    assert {each.split()[0] for each in server.requests} == {"GET"}
    assert lines[0].startswith("cpu: sha256:")
    assert "is already in" in lines[0]


@pytest.mark.parametrize("step", ["build", "smoke test", "push"])
def test_failed_image_stops_no_other_and_moves_no_tag(
    release: Release, server: FakeRegistry, engine: FakeEngine, step: str
) -> None:
    engine.failing = {CPU.name: step}

    with pytest.raises(ReleaseFailed, match=rf"(?s)1 of 2 images of v1\.2\.0 failed.*\n  cpu: the {step} fails$"):
        run_release(release)
    assert user_tags(server) == []

    engine.failing = {}
    engine.steps.clear()
    run_release(release)
    assert engine.steps == ["build cpu", "smoke test cpu", "push cpu"]
    assert user_tags(server) == ALL_TAGS


def test_run_killed_at_any_write_moves_no_tag_early_and_is_continued(
    release: Release, server: FakeRegistry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, left = Repository._send, 0

    def send_unless_killed(repository: Repository, method: str, url: str, limit: int, **options: Any) -> Any:
        nonlocal left
        if method in ("PUT", "POST"):
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return send(repository, method, url, limit, **options)

    monkeypatch.setattr(Repository, "_send", send_unless_killed)
    left = 1000
    run_release(release)
    writes = 1000 - left
    assert writes > 20
    for point in range(writes):
        server.manifests.clear()
        server.blobs.clear()
        engine.steps.clear()
        left = point
        with pytest.raises(KeyboardInterrupt):
            run_release(release)
        if user_tags(server):
            assert check_complete(release) == 2

        left = 1000
        run_release(release)
        assert user_tags(server) == ALL_TAGS
        assert check_complete(release) == 2
        assert [engine.counted()[f"push {each.name}"] for each in BOTH] == [1, 1]


def check_complete(release: Release) -> int:
    """Number of candidates with SBOM, provenance and signature."""
    return sum(candidate.find(release, each) != "" for each in BOTH)


def test_version_of_another_commit_does_not_move(release: Release, server: FakeRegistry, engine: FakeEngine) -> None:
    run_release(release)
    engine.steps.clear()
    engine.digit = {CPU.name: "3", VLLM.name: "4"}
    other = Release("1.2.0", "d" * 40, release.registry, release.key, "", release.folder)

    with pytest.raises(TagTaken, match=r"-v1\.2\.0 is published already as sha256:.*Raise `version`"):
        run_release(other)
    assert engine.steps == []
    assert user_tags(server) == ALL_TAGS


def test_candidate_signed_by_another_key_is_built_again(
    release: Release, engine: FakeEngine, tmp_path: Path, server: FakeRegistry
) -> None:
    stranger = Release("1.2.0", release.commit, release.registry, make_key(tmp_path), "", tmp_path)
    candidate.make(stranger, CPU, ["verl.cpu:1"], Site())
    engine.steps.clear()

    lines = run_release(release, CPU)

    assert "cpu: built again, since the image of an earlier run is not trusted:" in lines[0]
    assert engine.steps == ["build cpu", "smoke test cpu"]  # the same bytes are not pushed again
    assert candidate.find(release, CPU)


def test_candidate_of_another_variant_is_not_used(release: Release, server: FakeRegistry) -> None:
    digest = candidate.make(release, VLLM, ["verl.cpu:1"], Site())
    server.manifests[release.candidate_tag(CPU)] = server.manifests[digest]

    with pytest.raises(NotTrusted, match="was built from template"):
        candidate.find(release, CPU)


@pytest.mark.parametrize("kind", [SBOM, PROVENANCE, SIGNATURE])
def test_candidate_without_an_attachment_is_not_used(
    release: Release, server: FakeRegistry, kind: referrers.Kind
) -> None:
    digest = candidate.make(release, CPU, ["verl.cpu:1"], Site())
    del server.manifests[referrers.tag(digest, kind)]

    with pytest.raises(NotTrusted, match=f"no {kind.label}|has no signature"):
        candidate.find(release, CPU)


def test_latest_stays_at_a_newer_version(release: Release, server: FakeRegistry, engine: FakeEngine) -> None:
    newer = Release("1.10.0", "d" * 40, release.registry, release.key, "", release.folder)
    run_release(newer, CPU)
    engine.digit[CPU.name] = "3"

    lines = run_release(release, CPU)

    assert user_tags(server) == [f"{CPU.tag}-v1.2.0 3", "latest 1"]
    assert "latest stays: it has a newer version" in lines[-1]


@pytest.mark.parametrize(
    ("version", "tags", "newest"),
    [
        ("1.2.0", [], True),
        ("1.2.0", ["0.9.1-cpu-v1.2.0", "0.9.1-cpu-v1.1.9", "latest"], True),
        ("1.2.0", ["0.9.1-cpu-v1.10.0"], False),
        ("1.2.0", ["0.9.1-cpu-v1.3.0rc1", "0.9.1-cpu-v1.3.0-g0123456789ab", "0.7.0-rocm7.0-vllm0.10"], True),
        ("1.2.0rc1", [], False),
    ],
)
def test_latest_is_for_the_newest_final_version(version: str, tags: list[str], newest: bool) -> None:
    assert publish.is_newest(version, tags) == newest


@pytest.fixture
def served(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Variant], Variant]]:
    """Give a variant a base in the registry."""

    def with_base(variant: Variant) -> Variant:
        return replace(variant, base=f"{server.host}/team/base:1", base_digest="", base_made="")

    server.keep("1", fake_registry.SUBJECT, DOCKER_MANIFEST)
    yield with_base


def catalog_with(*variants: Variant) -> Catalog:
    return Catalog({each.name: each for each in variants}, {})


def test_variant_is_published_if_its_base_is_served_without_a_login(
    served: Callable[[Variant], Variant], engine: FakeEngine, server: FakeRegistry
) -> None:
    server.keep("1", fake_registry.SUBJECT, DOCKER_MANIFEST)
    own = served(VLLM)

    assert publish.choose(catalog_with(CPU, own)) == ([CPU, own], {})


@pytest.mark.parametrize("login", ["basic", "bearer"])
def test_variant_whose_base_needs_a_login_is_left_out(
    served: Callable[[Variant], Variant], engine: FakeEngine, server: FakeRegistry, tmp_path: Path, login: str
) -> None:
    own = served(VLLM)
    server.login = login
    (tmp_path / "config.json").write_text(json.dumps({"auths": {server.host: {"auth": PAIR}}}))

    reason = f"no registry serves its base {own.base} without a login"
    assert publish.choose(catalog_with(CPU, own)) == ([CPU], {VLLM.name: reason})
    assert not [each for each in server.authorizations if "Basic" in each]


def test_variant_whose_base_no_registry_has_is_left_out(
    served: Callable[[Variant], Variant], engine: FakeEngine, server: FakeRegistry
) -> None:
    own = served(VLLM)

    with pytest.raises(ReleaseFailed, match="no variant can be published: cpu-vllm: no registry serves its base"):
        publish.choose(catalog_with(own))


def test_registry_of_a_base_that_does_not_answer_is_an_error(engine: FakeEngine) -> None:
    absent = replace(VLLM, base="127.0.0.1:1/base:1", base_digest="", base_made="")

    with pytest.raises(RegistryFailed, match="does not answer"):
        publish.choose(catalog_with(CPU, absent))


def test_variant_for_another_processor_is_left_out(engine: FakeEngine) -> None:
    chosen, left_out = publish.choose(CATALOG, "cpu, cpu-aarch64")

    assert chosen == [CPU]
    assert left_out == {"cpu-aarch64": "it is for arm64, and this engine builds for amd64"}


@pytest.mark.parametrize("name", ["cpu; rm -rf .", "$(touch pwned)", "", "--all"])
def test_name_that_is_no_variant_fails(engine: FakeEngine, name: str) -> None:
    with pytest.raises(UnknownVariant):
        publish.choose(CATALOG, f"cpu,{name}")


def test_failed_smoke_test_names_the_image_and_the_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "test_image.py").write_text("def test_the_image_is_fine(): raise AssertionError('no entrypoint')\n")
    monkeypatch.setattr(candidate, "SMOKE_TESTS", tmp_path)

    with pytest.raises(ReleaseFailed, match=r"(?s)the smoke test of verl\.cpu:1 failed:.*test_the_image_is_fine"):
        candidate.smoke_test("verl.cpu:1")


def test_text_and_table_are_files_of_the_releases_folder(release: Release) -> None:
    images = publish.publish(release, [CPU], CATALOG, Site(), lambda _: None)

    files = publish.write_text(release, images, {"rocm": "it has no base"})

    assert [Path(file).name for file in files] == ["notes.md", "images.md", "release.pub"]
    assert "- a change\n\n## Images\n\n| variant" in Path(files[0]).read_text()
    assert Path(files[1]).read_text().endswith("\n- `rocm` is not published: it has no base\n")
