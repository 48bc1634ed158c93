"""slurm/profiles/: every value has a source and a date, no vendor calls a variable obsolete, and all readers agree."""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from slurm.jobs import profile
from slurm.jobs.profile import KEYS, ORIGIN, Profile
from slurm.jobs.profile_check import OBSOLETE, obsolete
from tests.support.paths import CHECKOUT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = profile.names()
FIRST = date(2024, 1, 1)
# Their files are slurm/runtimes/; enroot and apptainer may be in another branch than the profiles.
RUNTIMES = {path.stem for path in (CHECKOUT / "slurm" / "runtimes").glob("*.sh")}
PREFIXES = ("NCCL_", "RCCL_", "FI_", "UCX_", "HSA_", "VLLM_", "VERLJOB_")
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@pytest.fixture(params=NAMES)
def site(request: pytest.FixtureRequest) -> Profile:
    return profile.read(request.param)


def flat(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the tables of a TOML file by their dotted names."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in content.items():
        if not isinstance(value, dict):
            tables.setdefault("", {})[key] = value
            continue
        for name, inner in value.items():
            if isinstance(inner, dict):
                tables[f"{key}.{name}"] = inner
            else:
                tables.setdefault(key, {})[name] = inner
    return tables


def test_the_sites_of_the_docs_have_a_profile() -> None:
    assert set(NAMES) >= {
        "lumi", "frontier", "perlmutter", "leonardo", "juwels", "jupiter", "alps", "vista", "aws-parallelcluster",
        "coreweave", "docker", "rehearsal",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_bash_reads_what_a_toml_parser_reads(name: str) -> None:
    content = tomllib.loads((profile.PROFILES / f"{name}.toml").read_text(encoding="utf-8"))

    assert profile.read(name).tables == flat(content)


def test_bash_and_python_know_the_same_keys() -> None:
    text = (CHECKOUT / "slurm" / "lib" / "common" / "profile.sh").read_text()
    keys, origin = (re.search(rf"readonly {name}='([^']*)'", text) for name in ("PROFILE_KEYS", "PROFILE_ORIGIN"))
    pairs = dict(re.findall(r"\[([a-z_.]+)\]=(VERLJOB_\w+)", text))
    separators = dict(re.findall(r"\[([a-z_.]+)\]='(.)'", text))
    offline = re.search(r"PROFILE_OFFLINE='([^']*)'", text)

    assert keys
    assert origin
    assert offline
    assert (set(keys[1].split()), set(origin[1].split())) == (set(KEYS), set(ORIGIN))
    assert (pairs, separators) == (profile.VARIABLES, profile.SEPARATORS)
    assert dict(pair.split("=") for pair in offline[1].split()) == profile.OFFLINE


def test_every_table_has_a_source_and_a_date(site: Profile) -> None:
    for table in site.tables.keys() - {""}:
        noted = site.get(table, "date", None)
        assert site.sources(table), table
        assert isinstance(noted, date), table
        assert FIRST <= noted <= date.today(), table
        for source in site.sources(table):
            assert source.startswith("https://") or (CHECKOUT / source).is_file(), source


def test_a_users_script_is_called_one(site: Profile) -> None:
    for table in site.tables.keys() - {""}:
        scripts = [source for source in site.sources(table) if "OpenThoughts" in source]
        assert bool(scripts) == (site.get(table, "user_script", False) is True), table


def test_no_variable_is_called_obsolete_by_its_vendor(site: Profile) -> None:
    for setting in site.settings():
        assert obsolete(setting.name, setting.value) is None, setting


@pytest.mark.parametrize(
    "assignment",
    ["FI_PROVIDER=efa", "RDMAV_FORK_SAFE=1", "RDMAV_HUGEPAGES_SAFE=1", "NCCL_PROTO=simple", "FI_EFA_FORK_SAFE=1"],
)
def test_an_obsolete_variable_is_found(assignment: str) -> None:
    found = obsolete(*assignment.split("="))

    assert found in OBSOLETE
    assert found
    assert found.source.startswith("https://")


def test_variables_are_of_the_fabric_or_the_launch_and_conditions_can_be_read(site: Profile) -> None:
    for setting in site.settings():
        if setting.table.startswith("environment."):
            assert setting.name.startswith(PREFIXES), setting
        for condition in setting.when:
            assert re.fullmatch(r"nodes > [1-9]\d*|gpu = \w+|plugin", condition), setting


def test_flags_are_long_and_their_placeholders_are_explained(site: Profile) -> None:
    flags = [*site.get("sbatch", "flags", []), *([site.get("gpus", "flag")] if site.get("gpus", "flag") else [])]
    known = {"account", "n", "type", *site.tables.get("values", {})}

    assert flags
    assert [flag for flag in flags if not re.fullmatch(r"--[a-z-]+(=[A-Za-z0-9:{}_.-]+)?", flag)] == []
    assert {name for flag in flags for name in PLACEHOLDER.findall(flag)} <= known
    assert site.get("nodes", "runtime", "docker") in RUNTIMES
    assert site.get("", "about")


@pytest.mark.parametrize("line", ['value = "1"', 'value = "1"\nsource = "https://x"', 'value = "1"\ndate = 2026-01-01'])
def test_a_value_without_source_or_date_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f"[environment.NCCL_X]\n{line}\n")

    with pytest.raises(AssertionError):
        test_every_table_has_a_source_and_a_date(profile.read(str(path)))
