"""The parts of docs/profiles.md that are generated from slurm/profiles/ and its keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from slurm.jobs import profile
from slurm.jobs.profile import KEYS, ORIGIN, Key, Profile
from slurm.jobs.profile_flags import Request, flags
from slurm.jobs.profile_report import command
from tests.pages import fill
from tests.support.paths import CHECKOUT

PAGE = CHECKOUT / "docs" / "profiles.md"
KINDS = {str: "text", list: "list", int: "number", bool: "true or false", date: "date"}
IMAGES = {
    "apptainer": "/shared/images/verl.{platform}.sif",
    "enroot": "/shared/images/verl.{platform}.sqsh",
    "docker": "registry.example.org/verl.{platform}:latest",
}
PLATFORMS = {"lumi": "rocm", "frontier": "rocm", "docker": "rocm"}
_ANY_DAY = date(2026, 1, 1)  # only bad nodes depend on it, and the shipped profiles have none


def updated(page: str) -> str:
    """Return the page with its keys and sites generated again."""
    sites = "\n\n".join(_site(profile.read(name)) for name in profile.names())
    for name, text in {"keys": "\n".join(_keys()) + "\n", "sites": f"\n{sites}\n\n"}.items():
        page = fill(page, name, text)
    return page


def _keys() -> Iterator[str]:
    yield from ("| key | type | meaning |", "|---|---|---|")
    for name, key in KEYS.items():
        yield _row(name.replace("*", "NAME"), key)
    for name, key in ORIGIN.items():
        yield _row(f"{name} of a table", key)


def _row(name: str, key: Key) -> str:
    shown = f"`{name}`" if " " not in name else f"`{name.partition(' ')[0]}` {name.partition(' ')[2]}"
    return f"| {shown} | {KINDS[key.kind]} | {key.meaning} |"


def _site(site: Profile) -> str:
    rehearsal = site.name == "rehearsal"
    image = IMAGES.get(str(site.get("nodes", "runtime")), "<image> VERLJOB_RUNTIME=<runtime>")
    image = "registry:5000/verl.cpu:latest" if rehearsal else image.format(platform=PLATFORMS.get(site.name, "cuda"))
    # demo_cpu trains with one worker a node: eight need more memory.
    passed = flags(site, Request(["--gpus-per-node=1"] if rehearsal else [], {}), _ANY_DAY)
    last = command(passed, "demo_cpu" if rehearsal else "gsm8k_grpo")
    lines = [f"export VERLJOB_PROFILE={site.name}", f"export VERLJOB_IMAGE={image}", last]
    rows = ["| part | value | source |", "|---|---|---|", *_facts(site)]
    return "\n".join([f"### {site.name}", "", f"{site.get('', 'about')}.", "", "```sh", *lines, "```", "", *rows])


def _facts(site: Profile) -> Iterator[str]:
    for table in _order(site):
        values = {key: value for key, value in site.tables[table].items() if key not in ORIGIN}
        kind, _, name = table.partition(".")
        if kind == "environment":
            conditions = values.get("when")
            when = f", if {' and '.join(conditions)}" if isinstance(conditions, list) else ""
            shown = f"`{name}={values['value']}`{when}"
        else:
            shown = ", ".join(f"{key} {_value(value)}" for key, value in sorted(values.items()))
        yield f"| {kind}{f' {name}' if name and kind != 'environment' else ''} | {shown} | {_source(site, table)} |"


def _order(site: Profile) -> list[str]:
    kinds = list(dict.fromkeys(key.partition(".")[0] for key in KEYS if "." in key))
    return sorted(
        (table for table in site.tables if table), key=lambda table: (kinds.index(table.partition(".")[0]), table)
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{each}`" for each in value)
    return "(none)" if value == "" else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _source(site: Profile, table: str) -> str:
    shown = [f"[{_short(source)}]({_target(source)})" for source in site.sources(table)]
    script = "a user's script: " if site.get(table, "user_script", False) else ""
    return f"{script}{', '.join(shown)}, {site.get(table, 'date')}"


def _short(source: str) -> str:
    return source.rpartition("/")[2] or source.rstrip("/").rpartition("//")[2]


def _target(source: str) -> str:
    return source if source.startswith("https://") else f"../{source}".replace("../docs/", "")
