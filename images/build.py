"""Building one variant: base, context, secrets, then one `docker build`."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker.models.images import Image

from images import base, context, freshness, record, report, wheels
from images.buildlog import BuildLog
from images.catalog import Catalog
from images.compatibility import refuse_impossible
from images.engine import Engine, choose, daemon, machine
from images.errors import Incompatible
from images.progress import Progress, Whole
from images.running import Running
from images.source import Source
from images.spec import ImageSpec

CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT")


@dataclass(frozen=True)
class Site:
    """What this place has of its own; none of it ends in a layer."""

    ca: Path | None = None
    pip_index: str | None = None
    apt_mirror: str | None = None
    wheelhouse: Path | None = None

    @classmethod
    def here(
        cls,
        *,
        ca: str = "",
        pip_index: str = "",
        apt_mirror: str = "",
        wheelhouse: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Site:
        """From flags; the CA bundle also from SSL_CERT_FILE or PIP_CERT, the index from PIP_INDEX_URL."""
        environment = os.environ if environment is None else environment
        bundle = ca or next((environment[name] for name in CA_VARIABLES if environment.get(name)), None)
        return cls(
            ca=Path(bundle) if bundle else None,
            pip_index=pip_index or environment.get("PIP_INDEX_URL"),
            apt_mirror=apt_mirror,
            wheelhouse=Path(wheelhouse) if wheelhouse else None,
        )

    def pip_environment(self) -> dict[str, str]:
        """What pip on this machine is told; a password in the index stays out of its arguments."""
        settings = {"PIP_CERT": self.ca, "PIP_INDEX_URL": self.pip_index}
        return {name: str(value) for name, value in settings.items() if value}

    def git_environment(self, _repository: str) -> dict[str, str]:
        """What git on this machine is told when it asks a repository."""
        return {"GIT_SSL_CAINFO": str(self.ca)} if self.ca else {}

    def secrets(self, spec: ImageSpec, folder: Path) -> list[str]:
        """Write pip's and apt's configuration into ``folder``; the flags that hand them to the build."""
        pip = ["[global]", "disable-pip-version-check = true"]
        apt = ['APT::Keep-Downloaded-Packages "true";', 'Acquire::Retries "3";']
        files = {}
        if self.ca:
            files["ca"] = self.ca
            pip.append("cert = /run/secrets/ca")
            apt.append('Acquire::https::CAInfo "/run/secrets/ca";')
        if self.pip_index:
            pip.append(f"index-url = {self.pip_index}")
        if self.apt_mirror:
            lines = [f"deb {self.apt_mirror} {suite}" for suite in spec.apt_suites]
            files["sources"] = _write(folder / "sources", lines)
            apt += ['Dir::Etc::SourceList "/run/secrets/sources";', 'Dir::Etc::SourceParts "-";']
        files["pip"] = _write(folder / "pip", pip)
        files["apt"] = _write(folder / "apt", apt)
        return [word for name, path in files.items() for word in ("--secret", f"id={name},src={path}")]


def build(
    spec: ImageSpec,
    site: Site,
    tags: Sequence[str],
    *,
    from_base: str = "",
    lock: Path | None = None,
    verl: Source | None = None,
    anyway: bool = False,
    progress: Progress | None = None,
    running: Running | None = None,
) -> str:
    """Build, give the image ``tags``, and return its ID; nothing is built where its inputs have not changed.

    ``from_base`` takes the place of the catalog's base, ``lock`` of the variant's own; ``verl`` is the source that the
    spec was applied to. ``anyway`` asks the engine even where nothing changed. The report goes to .build/reports.
    """
    refuse_impossible(spec)
    if spec.machine != machine():
        raise Incompatible(f"{spec.variant} is for {spec.machine}, this engine builds for {machine()}: build it there.")
    engine, progress = choose(), progress or Whole()
    reference = base_of(spec, engine, from_base, site)
    with context.alone(spec), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        folder = context.stage(spec, reference, torch_of(spec, site), lock, verl)
        inputs = freshness.inputs(folder, str(daemon().images.get(reference).id), engine)
        if not anyway and (image := freshness.find(freshness.key(inputs))):
            _name(image, tags)
            report.renew(tags[0], str(image.id))
            progress.end(tags[0], f"unchanged, {image.id}")
            return str(image.id)
        log, started, begun = BuildLog(), record.now(), time.monotonic()

        def each(line: str) -> None:
            log.feed(line)
            progress.line(tags[0], line, log)

        flags = [*site.secrets(spec, Path(private)), "--label", f"{freshness.LABEL}={freshness.key(inputs)}"]
        (running or Running()).watch(argv(engine, reference, tags, folder, flags), engine.environment, each)
        image = daemon().images.get(tags[0])
        freshness.keep(freshness.key(inputs), str(image.id))
        made = report.make(
            tags[0],
            image,
            daemon().images.get(reference),
            log,
            engine=str(engine),
            ended=record.now(),
            seconds=time.monotonic() - begun,
            dockerfile=(folder / "Dockerfile").read_text(encoding="utf-8"),
            inputs=inputs,
        )
        progress.end(tags[0], f"{report.summary(made)}\n  report {report.write(made)}")
        if not record.read(str(image.id)):
            record.write(str(image.id), record.predicate(spec, engine, reference, folder, started))
    return str(image.id)


def names(spec: ImageSpec, catalog: Catalog, tag: str = "") -> list[str]:
    """The references that a build gives its image: its own tag, and ``latest`` for the platform's default variant."""
    if tag:
        return [tag if ":" in tag else f"{spec.name}:{tag}"]
    latest = [f"{spec.name}:latest"] if catalog.is_default(spec) and not spec.source else []
    return [f"{spec.name}:{spec.tag}", *latest]


def argv(engine: Engine, reference: str, tags: Sequence[str], folder: Path, secrets: Sequence[str]) -> list[str]:
    """The build command. Facts of this build are labels given here, since an ARG would bust the layers below it."""
    manifest = json.loads((folder / "toolkit/image.json").read_text(encoding="utf-8"))
    labels = {
        "verljob.base": reference,
        "verljob.base.id": str(daemon().images.get(reference).id),
        "verljob.toolkit": manifest["toolkit"],
    }
    flags = [word for name in tags for word in ("--tag", name)]
    flags += [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]
    flags += ["--progress", "plain", "--build-arg", f"BASE={reference}"]
    return engine.build_argv([*flags, *secrets, str(folder)])


def _name(image: Image, tags: Sequence[str]) -> None:
    for tag in tags:
        if tag not in image.tags:
            image.tag(tag)


def torch_of(spec: ImageSpec, site: Site) -> list[Path]:
    """The wheel of torch, where the base does not bring it."""
    if "torch" not in spec.installs:
        return []
    cache = context.STAGED / "wheels"
    environment = site.pip_environment()
    return [wheels.torch_cpu(spec.installs["torch"], spec.python, cache, site.wheelhouse, environment)]


def base_of(spec: ImageSpec, engine: Engine, asked: str, site: Site) -> str:
    """The reference of the base that this machine has, made or pulled where it had none; ``asked`` is another."""
    if spec.base_made and not asked:
        return base.ensure(spec.base, spec.base_made, site.apt_mirror or spec.apt_mirror, engine)
    reference = asked or spec.base
    if not base.present(reference):
        base.pull(engine, reference)
    return reference


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o600)
    return path
