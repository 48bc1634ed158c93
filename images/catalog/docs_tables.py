"""Generated tables of README.md and docs/, between markers; `invoke render` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from packaging.version import Version

from images.catalog.catalog import Catalog
from images.catalog.compatibility import problems
from images.catalog.variant import State, Variant
from images.errors import CatalogError
from images.host.paths import ENTRYPOINTS, ROOT

REGISTRY = "registry.example.com/team"
ENGINES = ("vllm", "sglang", "vllm-cpu")
ROLLOUT_KEY = "actor_rollout_ref.rollout.name"
KEY_TABLES = ENTRYPOINTS / "verl_node" / "training" / "releases"


def families(catalog: Catalog) -> str:
    """Table of families: purpose, and the releases, engines, GPUs and machines of their variants."""
    rows = []
    for name, variants in _by_family(catalog).items():
        first = variants[0]
        rows.append([
            f"`{name}`" + (" (default)" if catalog.is_default(first) else ""),
            first.summary,
            _unique(variant.installs["verl"] for variant in variants),
            _unique(engine(variant) for variant in variants),
            _unique(gpu for variant in variants for gpu in variant.gpus) or "none",
            _unique(variant.machine for variant in variants),
        ])  # fmt: skip
    return _table(["variant", "for", "verl", "rollout", "GPUs", "machine"], rows)


def tags(catalog: Catalog) -> str:
    """Table of variants: tag and versions."""
    rows = []
    for variant in catalog.variants.values():
        pins = [variant.pins[name] for name in ("python", "torch", "ray")]
        image = " ".join(f"`{name}`" for name in catalog.names(variant))
        rows.append([image, f"`{variant.name}`", *pins, engine(variant), ", ".join(variant.gpus), recipes(variant)])
    return _table(["image", "variant", "Python", "torch", "Ray", "rollout", "GPUs", "recipes"], rows)


def states(catalog: Catalog) -> str:
    """Table of variants: the evidence that this pair of base and verl trains."""
    rows = [[f"`{each.name}`", each.state.kind, _evidence(each.state)] for each in catalog.variants.values()]
    return _table(["variant", "state", "evidence"], rows)


def bases(catalog: Catalog) -> str:
    """Table of families: base, whether it may move, and the sources that say that base and releases fit."""
    rows = [
        [
            f"`{name}`",
            variants[0].base.removeprefix("docker.io/"),
            pinned_by(variants[0]),
            "; ".join(variants[0].sources),
        ]
        for name, variants in _by_family(catalog).items()
    ]
    return _table(["family", "base", "pinned by", "read in"], rows)


def commands(catalog: Catalog) -> str:
    """Commands that build, push and launch every platform's default variant."""
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
    """Rollout engine, with its version if it is a package."""
    packages = [name for name in (variant.rollout, *ENGINES) if variant.rollout in name and name in variant.pins]
    return f"{variant.rollout} {variant.pins[packages[0]]}" if packages else variant.rollout


def pinned_by(variant: Variant) -> str:
    """The pin of the base: a digest, or only a tag, which its maker may set to another image."""
    if variant.base_digest:
        return "digest"
    return "a tag that moves" if variant.base_moves else "its tag: may move"


def recipes(variant: Variant) -> str:
    """Whether slurm/recipes/gsm8k_* run in this image, and the override that another rollout engine needs.

    verl_node uses the newest key table for newer releases.
    """
    series = [Version(path.stem.removeprefix("verl-")) for path in KEY_TABLES.glob("verl-*.yaml")]
    verl = Version(variant.installs["verl"])
    if verl < max(series) and verl.release[:2] not in [each.release for each in series]:
        return "no: no key table"
    if reasons := problems(variant):
        return f"no: {reasons[0]}"
    if variant.platform == "cpu":
        return "no: `demo_cpu` is the one for CPUs"
    return "yes" if variant.rollout == "vllm" else f"yes, with `{ROLLOUT_KEY}={variant.rollout}`"


PAGES: dict[str, dict[str, Callable[[Catalog], str]]] = {
    "README.md": {"commands": commands},
    "docs/tags.md": {"families": families, "states": states, "tags": tags, "bases": bases},
}


def write(catalog: Catalog, root: Path = ROOT) -> list[Path]:
    """Write the tables of every page between its markers."""
    for name, text in filled(catalog, root).items():
        (root / name).write_text(text, encoding="utf-8")
    return [root / name for name in PAGES]


def filled(catalog: Catalog, root: Path = ROOT) -> dict[str, str]:
    """Return the pages by name with current tables; raise CatalogError if a page has no marker."""
    pages = {name: (root / name).read_text(encoding="utf-8") for name in PAGES}
    for name, parts in PAGES.items():
        for key, part in parts.items():
            begin, end = f"<!-- {key}: from images/catalog.toml by `invoke render` -->", f"<!-- end of {key} -->"
            try:
                pages[name] = fill(pages[name], begin, end, part(catalog))
            except ValueError as error:
                raise CatalogError(f"{root / name}: {error}") from error
    return pages


def fill(page: str, begin: str, end: str, text: str) -> str:
    """Return the page with ``text`` between two lines; raise ValueError if the page does not have both."""
    before, _, rest = page.partition(f"{begin}\n")
    _, marker, after = rest.partition(end)
    if not marker:
        raise ValueError(f"no place for a generated part: add a line {begin} and, below it, {end}")
    return "".join([before, begin, "\n", text.rstrip("\n"), "\n", end, after])


def _by_family(catalog: Catalog) -> dict[str, list[Variant]]:
    variants: dict[str, list[Variant]] = {}
    for variant in catalog.variants.values():
        variants.setdefault(variant.family, []).append(variant)
    return variants


def _evidence(state: State) -> str:
    when = ", ".join(filter(None, [state.date, state.machine]))
    link = f" ([source]({state.link}))" if state.link else ""
    return f"{f'{when}: ' if when else ''}{state.what}{link}"


def _unique(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
