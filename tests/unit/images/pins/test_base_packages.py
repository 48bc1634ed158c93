"""Descriptions of bases: steps, marks, reports; uv is a fake executable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from images.catalog.catalog import Catalog
from images.errors import CatalogError
from images.pins import base_packages
from images.pins.base_packages import Base, Step

CATALOG = Catalog.read()
BASE = Base("b", "r.example/b:1", "Debian", "3.12", "/usr", "2_36", "2026-01-01", ["a link"], [])


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A uv that resolves a requirement to version 1, keeps what is preferred, and logs its arguments."""
    script = tmp_path / "uv"
    script.write_text(
        "#!/bin/sh\n"
        f'echo "$*" >> {tmp_path}/argv; for each; do [ "$flag" != --output-file ] || out=$each; flag=$each; done\n'
        "grep -v '^$' $3 | sed -e 's/==.*//' -e 's/[<>[].*//' | while read -r name; do\n"
        '    grep "^$name==" $3 || grep "^$name==" $out || echo "$name==1"\n'
        "done > $out.new; mv $out.new $out\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


def written(uv: Path, *steps: Step, **changed: object) -> list[str]:
    base = replace(BASE, steps=steps, **changed)  # type: ignore[arg-type]
    return base_packages.write(base, {"b": base}, uv).read_text().splitlines()


def test_only_a_version_that_no_source_names_is_marked(uv: Path) -> None:
    assert written(uv, Step(pip=["six==1.17", "numpy<2"])) == ["numpy==1  # dated", "six==1.17"]


def test_steps_are_resolved_for_the_bases_python_and_date(uv: Path) -> None:
    written(uv, Step(pip=["six"]))

    argv = (uv / "argv").read_text()
    assert "--python-version 3.12 --python-platform x86_64-manylinux_2_36" in argv
    assert "--exclude-newer 2026-01-01" in argv


def test_steps_of_the_base_below_are_resolved_for_its_own_date(uv: Path) -> None:
    below = replace(BASE, name="below", date="2025-06-01", steps=[Step(pip=["six"])])
    base = replace(BASE, steps=[Step(pip=["numpy"])], below="below")

    base_packages.write(base, {"b": base, "below": below}, uv)

    dates = [line.split("--exclude-newer ")[1].split()[0] for line in (uv / "argv").read_text().splitlines()]
    assert dates == ["2025-06-01", "2026-01-01"]


def test_a_later_step_removes_and_replaces_packages(uv: Path) -> None:
    steps = [Step(pip=["six==1.16", "verl==1"]), Step(removes=["verl"]), Step(no_deps=["six==1.17"])]

    assert written(uv, *steps) == ["six==1.17"]
    assert (uv / "argv").read_text().splitlines()[-1].endswith("--no-deps")


def test_a_package_of_no_index_is_listed_with_its_requirements_but_not_resolved(uv: Path) -> None:
    lines = written(uv, Step(needs=["flash-attn==2.8.3"], made=["flash-attn==2.8.3"]), Step(pip=["six"]))

    assert lines == ["einops==1  # dated", "flash-attn==2.8.3", "six==1  # dated", "torch==1  # dated"]


def test_local_labels_are_those_of_the_description(uv: Path) -> None:
    assert written(uv, Step(pip=["torch==2.11.0"]), labels={"torch": "+cu130"}) == ["torch==2.11.0+cu130"]


def test_a_description_with_an_unknown_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('image = "r.example/a:1"\nsteps = [{ pipp = ["six"] }]\n')

    with pytest.raises(CatalogError, match=r"bad\.toml: .*pipp"):
        base_packages.read(tmp_path)


def test_report_has_a_line_for_every_base_of_a_gpu_image() -> None:
    lines = list(base_packages.report(CATALOG))

    assert len(lines) == len({each.base for each in CATALOG.variants.values() if not each.base_made})
    assert not [line for line in lines if "not described" in line and "ubuntu" not in line]
    found = {line.split(":")[0]: line for line in lines}
    assert "rocm6.2: incomplete: " in found["rocm6.2"]
    assert "nothing known of rocm/pytorch's own packages" in found["rocm6.2"]
    assert "requirements unknown: amdsmi" in found["rocm6.2"]


def test_every_source_of_a_package_of_no_index_is_given() -> None:
    from images.pins.requirements import outside_index

    assert [name for name, table in outside_index().items() if not table.get("source")] == []
    assert all(base.sources for base in base_packages.read().values())
