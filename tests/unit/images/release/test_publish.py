"""A release sets no tag before all of its images are complete in the registry, and a repeated run pushes nothing twice.

Registry and signatures are real, the registry in memory; builds, smoke tests and uploads of the engine are immediate.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.context import context
from images.engine.client import Engine
from images.errors import ImageError, NotTrusted, RegistryFailed, ReleaseFailed, TagTaken, UnknownVariant
from images.host.process import run
from images.pins import locks
from images.provenance import attest, slsa
from images.registry import client, push, referrers
from images.registry.client import DOCKER_MANIFEST, Repository
from images.registry.referrers import PROVENANCE, SBOM, SIGNATURE
from images.release import candidate, publish
from images.release.notes import Published
from images.release.release import Release
from images.report.record import BASE, BUILD_TYPE
from tests.support.images import fake_registry
from tests.support.images.fake_registry import PAIR, FakeRegistry
from tests.support.paths import ENTRYPOINTS

CATALOG = Catalog.read()
CPU, VLLM = CATALOG.variants["cpu"], CATALOG.variants["cpu-vllm"]
BOTH = [CPU, VLLM]
TAGS_FOR_USERS = re.compile(r"^latest$|-v1\.2\.0$")
ALL_TAGS = {f"{CPU.tag}-v1.2.0": ("cpu", 1), f"{VLLM.tag}-v1.2.0": ("cpu-vllm", 1), "latest": ("cpu", 1)}


class FakeEngine:
    """An engine and its builds: another ``build_number`` gives other images."""

    def __init__(self, registry: FakeRegistry) -> None:
        self.registry = registry
        self.steps: list[str] = []
        self.failing: dict[str, str] = {}
        self.built: dict[str, tuple[str, bytes]] = {}  # variant and configuration by the image's ID
        self.build_number = 1

    def build(self, request: Any, _: Site) -> str:
        self.take("build", request.variant.name)
        labels = {"verljob.state": "ran (2026-11-24, a laptop): trained"}
        content = json.dumps({"config": {"Labels": labels}, "of": [request.variant.name, self.build_number]}).encode()
        image = client.digest_of(content)
        self.built[image] = request.variant.name, content
        return image

    def smoke_test(self, image: str) -> None:
        self.take("smoke test", self.built[image][0])

    def upload(self, _: Engine, references: list[str]) -> dict[str, str]:
        for reference in references:
            image = self.local(reference).id
            variant, content = self.built[image]
            self.take("push", variant)
            self.registry.blobs[image] = content
            layers = [{"digest": "sha256:layer", "size": 1_000_000}]
            manifest = {"config": {"digest": image, "size": len(content)}, "layers": layers}
            self.registry.keep(reference.rpartition(":")[2], json.dumps(manifest).encode(), DOCKER_MANIFEST)
        return {}

    def statements(self, image: Any, name: str, digest: str) -> dict[referrers.Kind, bytes]:
        variant = CATALOG.variants[self.built[image.id][0]]
        base = {
            "name": BASE,
            "uri": "docker-image://debian:12",
            "digest": {"sha256": "d" * 64},
            "annotations": {"id": f"sha256:{'e' * 64}"},
        }
        own = candidate.context_files(variant, "debian:12")
        files = [{"name": name, "digest": {"sha256": digest}} for name, digest in own.items()]
        predicate = {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"variant": variant.name, "base": "debian:12"},
                "resolvedDependencies": [base, *files],
            },
            "runDetails": {"builder": {"id": "urn:x"}},
        }
        return {SBOM: b"{}", PROVENANCE: slsa.statement(predicate, name, digest)}

    def local(self, reference: str) -> SimpleNamespace:
        """An image by its ID or by the tag of its upload, which ends with 12 digits of the ID."""
        digits = re.split("[:-]", reference)[-1]
        image = next(each for each in self.built if each.startswith(f"sha256:{digits}"))
        return SimpleNamespace(id=image, tag=lambda _: None)

    def take(self, step: str, variant: str) -> None:
        if self.failing.get(variant) == step:
            raise ImageError(f"the {step} fails")
        self.steps.append(f"{step} {variant}")

    def user_tags(self) -> dict[str, tuple[str, int]]:
        """Tags that a release sets for users, with the variant and the build of their images."""
        kept = self.registry.manifests
        ids = {tag: json.loads(kept[tag][1])["config"]["digest"] for tag in kept if TAGS_FOR_USERS.search(tag)}
        return {tag: tuple(json.loads(self.built[image][1])["of"]) for tag, image in ids.items()}


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
    monkeypatch.setattr(context, "STAGED", tmp_path / "staged")
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
    assert engine.user_tags() == ALL_TAGS


def test_published_images_are_described_by_the_registry(release: Release, server: FakeRegistry) -> None:
    images = publish.publish(release, BOTH, CATALOG, Site(), lambda _: None)

    content = server.manifests[f"{CPU.tag}-v1.2.0"][1]
    digest, size = client.digest_of(content), json.loads(content)["config"]["size"] + 1_000_000
    name, base = f"{server.host}/team/verl.cpu", f"debian:12@sha256:{'d' * 64}"
    state = "ran (2026-11-24, a laptop)"
    assert images[0] == Published("cpu", name, f"{CPU.tag}-v1.2.0", digest, size, base, state)


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
    assert engine.user_tags() == {}

    engine.failing = {}
    engine.steps.clear()
    run_release(release)
    assert engine.steps == ["build cpu", "smoke test cpu", "push cpu"]
    assert engine.user_tags() == ALL_TAGS


def test_run_killed_before_any_manifest_moves_no_tag_early_and_is_continued(
    release: Release, server: FakeRegistry, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, left = Repository._send, 0

    def send_unless_killed(repository: Repository, method: str, url: str, limit: int, **options: Any) -> Any:
        nonlocal left
        if method == "PUT" and "/manifests/" in url:
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return send(repository, method, url, limit, **options)

    monkeypatch.setattr(Repository, "_send", send_unless_killed)
    left = 1000
    run_release(release)
    writes = 1000 - left
    assert writes == 11  # of each image three attachments and the candidate, then the tags
    for point in range(writes):
        for each in (server.manifests, server.blobs, engine.steps):
            each.clear()
        left = point
        with pytest.raises(KeyboardInterrupt):
            run_release(release)
        if engine.user_tags():
            assert check_complete(release) == 2

        left = 1000
        run_release(release)
        assert engine.user_tags() == ALL_TAGS
        assert check_complete(release) == 2
        assert [engine.steps.count(f"push {each.name}") for each in BOTH] == [1, 1]


def check_complete(release: Release) -> int:
    """Number of candidates with SBOM, provenance and signature."""
    return sum(candidate.find(release, each) != "" for each in BOTH)


def test_version_of_another_commit_does_not_move(release: Release, server: FakeRegistry, engine: FakeEngine) -> None:
    run_release(release)
    engine.steps.clear()
    engine.build_number = 2
    other = Release("1.2.0", "d" * 40, release.registry, release.key, "", release.folder)

    with pytest.raises(TagTaken, match=r"-v1\.2\.0 is published already as sha256:.*Raise `version`"):
        run_release(other)
    assert engine.steps == []
    assert engine.user_tags() == ALL_TAGS


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

    with pytest.raises(NotTrusted, match="from other files than cpu has in this checkout, among them Dockerfile"):
        candidate.find(release, CPU)


@pytest.mark.parametrize(("changed", "file"), [("toolkit", "toolkit/entrypoint.sh"), ("lock", "lock.txt")])
def test_candidate_of_an_older_toolkit_or_lock_is_not_used_though_this_key_signed_it(
    release: Release, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changed: str, file: str
) -> None:
    with monkeypatch.context() as patch:
        if changed == "toolkit":
            older = tmp_path / "entrypoints"
            shutil.copytree(ENTRYPOINTS, older)
            (older / "entrypoint.sh").write_text("#!/bin/bash\n")
            patch.setattr(context, "ENTRYPOINTS", older)
        else:
            older = tmp_path / "lock.txt"
            older.write_text(locks.path(CPU).read_text().replace("aiohttp==3", "aiohttp==2"))
            patch.setattr(locks, "path", lambda _: older)
        candidate.make(release, CPU, ["verl.cpu:1"], Site())
        assert candidate.find(release, CPU)

    with pytest.raises(NotTrusted, match=f"among them .*{file}"):
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
    engine.build_number = 2

    lines = run_release(release, CPU)

    assert engine.user_tags() == {f"{CPU.tag}-v1.2.0": ("cpu", 2), "latest": ("cpu", 1)}
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
def served(server: FakeRegistry, monkeypatch: pytest.MonkeyPatch) -> Callable[[Variant], Variant]:
    """Give a variant a base in the registry."""

    def with_base(variant: Variant) -> Variant:
        return replace(variant, base=f"{server.host}/team/base:1", base_digest="", base_made="")

    server.keep("1", fake_registry.SUBJECT, DOCKER_MANIFEST)
    return with_base


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
    assert "- a change\n\n## Published images\n\n| variant" in Path(files[0]).read_text()
    assert Path(files[1]).read_text().endswith("\n- `rocm` is not published: it has no base\n")
