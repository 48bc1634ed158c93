"""Rendered Dockerfiles: committed as they are rendered, and within what every builder understands."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from images import render
from images.catalog import Catalog
from images.spec import ImageSpec

CATALOG = Catalog.read()
VARIANTS = pytest.mark.parametrize("spec", CATALOG.variants.values(), ids=list(CATALOG.variants))


@VARIANTS
def test_the_committed_dockerfile_is_what_rendering_gives(spec: ImageSpec) -> None:
    committed = (render.RENDERED / f"{spec.variant}.Dockerfile").read_text(encoding="utf-8")

    assert render.dockerfile(spec) == committed, "run `invoke render`"


def test_no_dockerfile_is_left_of_a_variant_that_is_gone() -> None:
    assert {path.stem.removesuffix(".Dockerfile") for path in render.RENDERED.iterdir()} == set(CATALOG.variants)


@VARIANTS
def test_only_what_docker_20_10_and_buildah_1_28_know_is_used(spec: ImageSpec) -> None:
    text = render.dockerfile(spec)

    for newer in ("<<", "--link", "--network", "--checksum", "# syntax=", "--parents", "--exclude"):
        assert newer not in text


@VARIANTS
def test_no_build_argument_stands_where_its_change_would_rebuild_layers(spec: ImageSpec) -> None:
    before, _, after = render.dockerfile(spec).partition("FROM ")

    assert re.findall(r"^ARG (\w+)", before, re.MULTILINE) == ["BASE"]
    assert "\nARG " not in after


@VARIANTS
def test_labels_name_every_pin_the_base_and_the_templates_revision(spec: ImageSpec) -> None:
    text = render.dockerfile(spec)

    for name, version in spec.pins.items():
        assert f'verljob.pin.{name.lower()}="{version}"' in text
    assert f'image.base.name="{spec.base}"' in text
    assert f'verljob.template="{render.revision(spec)}"' in text


@VARIANTS
def test_an_image_has_the_annotation_keys_of_the_oci_specification(spec: ImageSpec) -> None:
    # https://github.com/opencontainers/image-spec/blob/main/annotations.md; created and base.digest are the build's.
    keys = "authors url documentation source version revision vendor licenses ref.name title description base.name"

    told = dict(re.findall(r'org\.opencontainers\.image\.([a-z.]+)="([^"]+)"', render.dockerfile(spec)))

    assert set(told) == set(keys.split())
    assert told["ref.name"] == told["version"] == spec.tag


@VARIANTS
def test_the_toolkit_is_the_last_layer(spec: ImageSpec) -> None:
    instructions = re.findall(r"^(RUN|COPY|ADD|ENV|ENTRYPOINT|CMD)", render.dockerfile(spec), re.MULTILINE)

    assert instructions[-3:] == ["COPY", "ENTRYPOINT", "CMD"]
    assert instructions.count("COPY") == 1


@VARIANTS
def test_every_pip_install_after_the_guard_is_under_its_constraints(spec: ImageSpec) -> None:
    guarded = render.dockerfile(spec).partition("guard.py record")[2]

    assert guarded.index("PIP_CONSTRAINT=") < guarded.index("pip install")
    assert guarded.rindex("guard.py verify") > guarded.rindex("pip install")


@VARIANTS
def test_a_secret_is_mounted_and_never_an_argument(spec: ImageSpec) -> None:
    text = render.dockerfile(spec)

    assert "PIP_INDEX_URL" not in text
    assert "--index-url" not in text
    assert "type=secret,id=pip" in text


def test_a_replaced_package_is_built_in_its_own_stage_from_its_commit() -> None:
    spec = CATALOG.variants["rocm6.2"]
    stages = re.split(r"^FROM ", render.dockerfile(spec), flags=re.MULTILINE)[1:]

    assert stages[0].startswith("${BASE} AS vllm\n")
    assert spec.replaces["vllm"].commit in stages[0]
    assert "from=vllm,source=/wheels" in stages[1]


def test_without_a_replacement_there_is_one_stage() -> None:
    text = render.dockerfile(replace(CATALOG.variants["rocm6.2"], replaces={}))

    assert len(re.findall("^FROM ", text, re.MULTILINE)) == 1
    assert "/wheels" not in text


def test_a_misspelt_name_in_a_template_stops(tmp_path: Path) -> None:
    shutil.copytree(render.TEMPLATES, tmp_path / "t")
    template = tmp_path / "t/cpu.j2"
    template.write_text(template.read_text(encoding="utf-8").replace("spec.base ", "spec.bass "), encoding="utf-8")

    with pytest.raises(UndefinedError, match="bass"):
        render.dockerfile(CATALOG.variants["cpu"], tmp_path / "t")


def test_the_revision_changes_with_the_template_and_with_every_pin(tmp_path: Path) -> None:
    spec = CATALOG.variants["cpu"]
    shutil.copytree(render.TEMPLATES, tmp_path / "t")
    with (tmp_path / "t/macros.j2").open("a", encoding="utf-8") as macros:
        macros.write("{# a word #}")
    bumped = replace(spec, installs={**spec.installs, "ray": "2.60.1"})

    revisions = {render.revision(spec), render.revision(spec, tmp_path / "t"), render.revision(bumped)}

    assert len(revisions) == 3
