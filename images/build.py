"""Building one variant: base, context, secrets, then one `docker build`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from images import base, context, record, wheels
from images.catalog import Catalog
from images.compatibility import refuse_engine, refuse_impossible
from images.engine import Engine, choose, daemon
from images.errors import BaseUnreachable
from images.process import stream
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


def build(spec: ImageSpec, site: Site, tags: Sequence[str], *, from_base: str = "", lock: Path | None = None) -> str:
    """Build, give the image ``tags``, and return its ID; the build's progress goes to standard error.

    ``from_base`` takes the place of the catalog's base, ``lock`` of the variant's own lock.
    """
    refuse_impossible(spec)
    refuse_engine(spec, daemon().version())
    engine = choose()
    reference, started = _base(spec, engine, from_base, site), record.now()
    with context.alone(spec), tempfile.TemporaryDirectory(prefix="verljob-build-") as private:
        folder = context.stage(spec, reference, _torch(spec, site), lock)
        secrets = site.secrets(spec, Path(private))
        stream(argv(engine, reference, tags, folder, secrets), engine.environment)
        image_id = str(daemon().images.get(tags[0]).id)
        if not record.read(image_id):
            record.write(image_id, record.predicate(spec, engine, reference, folder, started))
    return image_id


def names(spec: ImageSpec, catalog: Catalog, tag: str = "") -> list[str]:
    """The references that a build gives its image: its own tag, and ``latest`` for the platform's default variant."""
    if tag:
        return [tag if ":" in tag else f"{spec.name}:{tag}"]
    latest = [f"{spec.name}:latest"] if catalog.is_default(spec) else []
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
    return engine.build_argv([*flags, "--build-arg", f"BASE={reference}", *secrets, str(folder)])


def _torch(spec: ImageSpec, site: Site) -> list[Path]:
    """The wheel of torch, where the base does not bring it."""
    if "torch" not in spec.installs:
        return []
    cache = context.STAGED / "wheels"
    environment = site.pip_environment()
    return [
        wheels.torch_cpu(spec.installs["torch"], spec.python, cache, site.wheelhouse, environment, machine=spec.machine)
    ]


def _base(spec: ImageSpec, engine: Engine, asked: str, site: Site) -> str:
    if spec.base_made and not asked:
        return base.ensure(spec.base, spec.base_made, site.apt_mirror or spec.apt_mirror, engine)
    reference = asked or spec.base_pinned
    if not base.present(reference):
        try:
            base.pull(engine, reference)
        except BaseUnreachable:
            # One that was loaded from an archive has its tag and no digest.
            if reference == spec.base or not base.present(spec.base):
                raise
            return spec.base
    return reference


def _write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    path.chmod(0o600)
    return path
