"""Generated tables of README.md and docs/, between markers; `invoke render` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from packaging.version import Version

from images.catalog.catalog import Catalog
from images.catalog.variant import Variant
from images.errors import CatalogError
from images.host.paths import ENTRYPOINTS, ROOT

REGISTRY = "registry.example.com/team"
ENGINES = ("vllm", "sglang", "vllm-cpu")
KEY_TABLES = ENTRYPOINTS / "verl_node" / "training" / "releases"


def families(catalog: Catalog) -> str:
    """A row a family: what it is for, and the releases, engines, GPUs and machines that it has variants for."""
    rows = []
    for name, variants in _by_family(catalog).items():
        first = variants[0]
        rows.append([
            f"`{name}`" + (" (default)" if catalog.is_default(first) else ""),
            first.summary,
            _listed(variant.installs["verl"] for variant in variants),
            _listed(engine(variant) for variant in variants),
            _listed(gpu for variant in variants for gpu in variant.gpus) or "none",
            _listed(variant.machine for variant in variants),
        ])  # fmt: skip
    return _table(["variant", "for", "verl", "rollout", "GPUs", "machine"], rows)


def tags(catalog: Catalog) -> str:
    """A row a variant: its tag, what it is built on, and what is in it."""
    rows = []
    for variant in catalog.variants.values():
        pins = [variant.pins[name] for name in ("python", "torch", "ray")]
        image = " ".join(f"`{name}`" for name in catalog.names(variant))
        rows.append([image, f"`{variant.name}`", *pins, engine(variant), ", ".join(variant.gpus), recipes(variant)])
    return _table(["image", "variant", "Python", "torch", "Ray", "rollout", "GPUs", "recipes"], rows)


def bases(catalog: Catalog) -> str:
    """A row a family: its base, and where it was read that base and releases fit."""
    rows = [
        [f"`{name}`", variants[0].base.removeprefix("docker.io/"), "; ".join(variants[0].sources)]
        for name, variants in _by_family(catalog).items()
    ]
    return _table(["family", "base", "read in"], rows)


def commands(catalog: Catalog) -> str:
    """Build, push and launch of every platform's default variant."""
    lines = []
    for platform, name in catalog.defaults.items():
        chosen = catalog.variants[name]
        recipe = "demo_cpu" if platform == "cpu" else "gsm8k_grpo"
        gpus = 1 if platform == "cpu" else 8
        lines += [
            f"./run build --platform {platform}    # {chosen.repository}:{chosen.tag}: {chosen.summary}",
            f"./run push --platform {platform} --registry {REGISTRY}",
            f"VERLJOB_IMAGE={REGISTRY}/{chosen.repository}:{chosen.tag} \\",
            f"    sbatch --nodes=2 --gpus-per-node={gpus} slurm/launch.sh {recipe}",
        ]
    return "\n".join(["```sh", *lines, "```"])


def engine(variant: Variant) -> str:
    """The rollout engine with its version, as far as it is one of its own."""
    version = next(
        (
            variant.pins[name]
            for name in (variant.rollout, *ENGINES)
            if variant.rollout in name and name in variant.pins
        ),
        "",
    )
    return f"{variant.rollout} {version}".strip()


def recipes(variant: Variant) -> str:
    """Whether slurm/recipes can be said to this verl; verl_node takes the newest key table for all that is newer."""
    series = [Version(path.stem.removeprefix("verl-")) for path in KEY_TABLES.glob("verl-*.yaml")]
    verl = Version(variant.installs["verl"])
    return "yes" if verl >= max(series) or any(each.release == verl.release[:2] for each in series) else "no key table"


PAGES: dict[str, dict[str, Callable[[Catalog], str]]] = {
    "README.md": {"commands": commands},
    "docs/tags.md": {"families": families, "tags": tags, "bases": bases},
}


def write(catalog: Catalog, root: Path = ROOT) -> list[Path]:
    """Fill the markers of every page."""
    for name, text in filled(catalog, root).items():
        (root / name).write_text(text, encoding="utf-8")
    return [root / name for name in PAGES]


def filled(catalog: Catalog, root: Path = ROOT) -> dict[str, str]:
    """The pages by name as they should be; CatalogError where one has lost a marker."""
    return {
        name: _fill(root / name, {key: part(catalog) for key, part in parts.items()}) for name, parts in PAGES.items()
    }


def _fill(page: Path, parts: dict[str, str]) -> str:
    text = page.read_text(encoding="utf-8")
    for key, part in parts.items():
        begin, end = f"<!-- {key}: from images/catalog.toml by `invoke render` -->\n", f"<!-- end of {key} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise CatalogError(f"{page} has no place for its {key}: a line {begin.strip()} and, after it, {end}")
        text = "".join([before, begin, part, "\n", end, after])
    return text


def _by_family(catalog: Catalog) -> dict[str, list[Variant]]:
    found: dict[str, list[Variant]] = {}
    for variant in catalog.variants.values():
        found.setdefault(variant.family, []).append(variant)
    return found


def _listed(words: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
