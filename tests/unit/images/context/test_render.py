"""Rendered Dockerfiles: committed as rendered, and limited to the syntax that every builder supports."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from images.catalog.catalog import Catalog
from images.catalog.variant import Sdist
from images.context import render

CATALOG = Catalog.read()
VARIANTS = list(CATALOG.variants.values())


def test_the_committed_dockerfile_is_up_to_date() -> None:
    for variant in VARIANTS:
        committed = (render.RENDERED / f"{variant.name}.Dockerfile").read_text(encoding="utf-8")

        assert render.dockerfile(variant) == committed, "run `invoke render`"


def test_no_dockerfile_of_a_removed_variant_is_left() -> None:
    assert {path.name.removesuffix(render.SUFFIX) for path in render.RENDERED.iterdir()} == set(CATALOG.variants)


def test_rendering_all_removes_the_files_of_removed_variants(tmp_path: Path) -> None:
    (tmp_path / "rocm5.Dockerfile").touch()
    (tmp_path / "notes").touch()

    written = render.write_all(CATALOG, tmp_path)

    assert {*tmp_path.iterdir()} == {*written, tmp_path / "notes"}


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    program = (
        "import hashlib; from images.context import render; from images.catalog.catalog import Catalog; "
        "print(hashlib.sha256(''.join(map(render.dockerfile, Catalog.read().variants.values())).encode()).hexdigest())"
    )
    expected = hashlib.sha256("".join(map(render.dockerfile, CATALOG.variants.values())).encode()).hexdigest()

    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        argv = [sys.executable, "-c", program]
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, check=True, cwd=render.TEMPLATES.parent
        )
        assert done.stdout.strip() == expected


def test_a_build_for_one_gpu_compiles_only_for_it() -> None:
    text = render.dockerfile(CATALOG.find("rocm", gpus="gfx942"))

    assert text.count('PYTORCH_ROCM_ARCH="gfx942"') == 2  # in the build of vLLM, and at run time
    assert 'verljob.gpus="gfx942"' in text
    assert "gfx90a" not in text


def test_labels_have_the_state_of_the_variant() -> None:
    for variant in VARIANTS:
        assert f'verljob.state="{variant.state}"' in render.dockerfile(variant)
        assert not set('"\\$') & set(str(variant.state))


def test_a_base_is_repaired_before_the_guard_records_it() -> None:
    final = render.dockerfile(CATALOG.variants["rocm10"]).rpartition("FROM ${BASE}\n")[2]

    assert 0 < final.index("/steps/amd_smi.py") < final.index("guard.py record")


@pytest.mark.parametrize("name", ["rocm6.2", "rocm6.2-prebuilt"])
def test_verls_code_path_for_this_vllm_is_chosen_and_checked_at_the_end(name: str) -> None:
    text = render.dockerfile(CATALOG.variants[name])

    assert text.index('ENV ROCM_PATH="/opt/rocm"') < text.index("guard.py record", text.rindex("FROM ${BASE}"))
    assert '--vllm-mode "customized"' in text
    assert "--training" in text
    assert "verl.trainer.main_ppo" in text


def test_a_rocm_image_does_not_start_in_a_checkout_of_its_base() -> None:
    for variant in CATALOG.of_platform("rocm"):
        last_stage = render.dockerfile(variant).rpartition("FROM ${BASE}")[2]
        assert re.findall(r"^WORKDIR (.*)$", last_stage, re.MULTILINE) == ["/"]


def test_requirements_of_a_replaced_package_are_installed_before_it_is_compiled() -> None:
    stage = render.dockerfile(CATALOG.variants["rocm10"]).partition("FROM ${BASE}\n")[0]

    assert 0 < stage.index("guard.py install --lock /lock.txt") < stage.index("setup.py bdist_wheel")


def test_flash_attn_is_compiled_in_its_own_stage_on_request() -> None:
    variant = CATALOG.variants["cu130-wheels"]
    requested = replace(variant, compiles={"flash-attn": Sdist("2.8.3", "0" * 64)})

    text, without = render.dockerfile(requested), render.dockerfile(variant)

    assert "FROM wheels AS flash-attn" in text
    assert f"flash-attn==2.8.3 --hash=sha256:{'0' * 64}" in text
    assert 'FLASH_ATTN_CUDA_ARCHS="80;90;100"' in text
    assert 'verljob.pin.flash-attn="2.8.3"' in text
    assert "flash-attn==2.8.3" not in without
    assert "verljob.attention" in without
    assert "verljob.attention" not in text


def test_an_image_has_the_annotation_keys_of_the_oci_specification() -> None:
    # https://github.com/opencontainers/image-spec/blob/main/annotations.md; the build sets created and base.digest.
    keys = "authors url documentation source version revision vendor licenses ref.name title description base.name"

    for variant in VARIANTS:
        labels = dict(re.findall(r'org\.opencontainers\.image\.([a-z.]+)="([^"]+)"', render.dockerfile(variant)))

        assert set(labels) == set(keys.split())
        assert labels["ref.name"] == labels["version"] == variant.tag


def test_only_syntax_of_docker_20_10_and_buildah_1_28_is_used() -> None:
    for variant in VARIANTS:
        text = render.dockerfile(variant)

        for newer in ("<<", "--link", "--network", "--checksum", "# syntax=", "--parents", "--exclude"):
            assert newer not in text


def test_a_build_argument_is_only_above_the_first_stage() -> None:
    for variant in VARIANTS:
        before, _, after = render.dockerfile(variant).partition("FROM ")

        assert re.findall(r"^ARG (\w+)", before, re.MULTILINE) == ["BASE"]
        assert "\nARG " not in after


def test_labels_have_every_pin_the_base_and_the_templates_revision() -> None:
    for variant in VARIANTS:
        text = render.dockerfile(variant)

        for name, version in variant.pins.items():
            assert f'verljob.pin.{name.lower()}="{version}"' in text
        assert f'image.base.name="{variant.base}"' in text
        assert f'verljob.template="{render.revision(variant)}"' in text


def test_the_toolkit_is_the_last_layer() -> None:
    for variant in VARIANTS:
        instructions = re.findall(r"^(RUN|COPY|ADD|ENV|ENTRYPOINT|CMD)", render.dockerfile(variant), re.MULTILINE)

        assert instructions[-3:] == ["COPY", "ENTRYPOINT", "CMD"]
        assert instructions.count("COPY") == 1


def test_packages_are_installed_by_the_guard_or_from_this_build_without_dependencies() -> None:
    for variant in VARIANTS:
        text = render.dockerfile(variant)

        guarded = text[text.index("guard.py record") :]
        assert (
            guarded.index("guard.py install")
            < guarded.index("compile.py --installed")
            < guarded.index("guard.py verify")
        )
        for line in re.findall(r".*pip install.*", text):
            assert "--no-deps" in line
            # torch's wheel from the context, or a replaced package's from its stage; else a part of the lock
            assert "--no-index" in line or "--require-hashes --only-binary :all:" in line


def test_secrets_are_mounted_not_passed_as_arguments() -> None:
    for variant in VARIANTS:
        text = render.dockerfile(variant)

        assert "PIP_INDEX_URL" not in text
        assert "--index-url" not in text
        assert "type=secret,id=pip" in text


def test_a_replaced_package_is_built_in_its_own_stage_from_its_commit() -> None:
    variant = CATALOG.variants["rocm6.2"]
    stages = re.split(r"^FROM ", render.dockerfile(variant), flags=re.MULTILINE)[1:]

    assert stages[0].startswith("${BASE} AS vllm\n")
    assert variant.replaces["vllm"].commit in stages[0]
    assert "from=vllm,source=/wheels" in stages[1]


def test_without_a_replacement_there_is_one_stage() -> None:
    text = render.dockerfile(replace(CATALOG.variants["rocm6.2"], replaces={}))

    assert len(re.findall("^FROM ", text, re.MULTILINE)) == 1
    assert "/wheels" not in text


def test_a_misspelt_name_in_a_template_is_an_error(tmp_path: Path) -> None:
    shutil.copytree(render.TEMPLATES, tmp_path / "t")
    template = tmp_path / "t/cpu.j2"
    template.write_text(
        template.read_text(encoding="utf-8").replace("variant.base_pinned ", "variant.bass "), encoding="utf-8"
    )

    with pytest.raises(UndefinedError, match="bass"):
        render.dockerfile(CATALOG.variants["cpu"], tmp_path / "t")


def test_the_revision_changes_with_the_template_and_with_every_pin(tmp_path: Path) -> None:
    variant = CATALOG.variants["cpu"]
    shutil.copytree(render.TEMPLATES, tmp_path / "t")
    with (tmp_path / "t/macros.j2").open("a", encoding="utf-8") as macros:
        macros.write("{# a word #}")
    bumped = replace(variant, installs={**variant.installs, "ray": "2.60.1"})

    revisions = {render.revision(variant), render.revision(variant, tmp_path / "t"), render.revision(bumped)}

    assert len(revisions) == 3
