"""Site settings: their keys, and how flags, environment and the site file override each other.

A password is in a password file or in the environment, never in a flag (the process list shows flags) or in the site
file (which people share).
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from images.errors import SiteError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "VERLJOB_SITE"  # environment variable with the path of the site file


@dataclass(frozen=True)
class Key:
    """A setting: the kind of its value (url, file, folder, text), its purpose, and other variables that set it."""

    kind: str
    purpose: str
    customary: Sequence[str] = ()


KEYS = {
    "base_mirror": Key("text", "HOST/PATH that replaces a base's registry; {registry} in it is the registry's name"),
    "wheelhouse": Key("folder", "folder with torch's CPU wheel"),
    "pip_index": Key("url", "package index that replaces PyPI", ("PIP_INDEX_URL",)),
    "pip_index_password_file": Key("file", "file with the password of pip_index's user"),
    "apt_mirror": Key("url", "mirror that replaces the distribution's"),
    "apt_mirror_password_file": Key("file", "file with the password of apt_mirror's user"),
    "ca": Key("file", "CA bundle for downloads", ("SSL_CERT_FILE", "PIP_CERT")),
    "proxy": Key("url", "proxy for all downloads of a build"),
    "proxy_password_file": Key("file", "file with the password of proxy's user"),
    "no_proxy": Key("text", "hosts that are reached without the proxy, separated by commas"),
}

FLAGS = tuple(name for name in KEYS if not name.endswith("_password_file"))  # of `invoke build`


@dataclass(frozen=True)
class Setting:
    """A value, its origin, and whether others can read it at the origin."""

    value: str
    origin: str
    public: bool = True


def settings(site: str = "", environment: Mapping[str, str] | None = None, /, **flags: str) -> dict[str, Setting]:
    """Return every key that is set: by a flag, else by VERLJOB_<KEY> or a customary variable, else by the site file.

    The file is ``site``, else the path in VERLJOB_SITE. SiteError names a setting that is not valid.
    """
    environment = os.environ if environment is None else environment
    path = site or environment.get(FILE, "")
    found = _from_file(Path(path)) if path else {}
    found.update(_from_environment(environment))
    found.update({name: Setting(value, flag(name)) for name, value in flags.items() if value})
    _refuse_unknown(found, "the flags")
    for name, setting in found.items():
        _refuse_invalid(name, setting)
    return {name: found[name] for name in KEYS if name in found}


def table(found: Mapping[str, Setting]) -> str:
    """Format every key with its value, without passwords, and its origin."""
    lines = []
    for name, key in KEYS.items():
        setting = found.get(name)
        text = f"{masked(setting.value)}  ({setting.origin})" if setting else f"-  ({key.purpose})"
        lines.append(f"{name:24} {text}")
    return "\n".join(lines)


def masked(value: str) -> str:
    """Replace the password of a URL by ***."""
    password = urlsplit(value).password if "://" in value else None
    return value.replace(f":{password}@", ":***@") if password else value


def refuse_missing(found: Mapping[str, Setting]) -> None:
    """Raise SiteError if a file or folder of a setting does not exist."""
    for name, setting in found.items():
        exists = {"file": Path.is_file, "folder": Path.is_dir}.get(KEYS[name].kind)
        if exists and not exists(Path(setting.value)):
            kind = KEYS[name].kind
            raise SiteError(f"{setting.origin}: {name} is {setting.value}, but there is no such {kind} on this machine")


def flag(name: str) -> str:
    """Return the command line flag of a key."""
    return f"--{name.replace('_', '-')}"


def _from_file(path: Path) -> dict[str, Setting]:
    """Read a site file; its relative paths start at its folder."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as unreadable:
        raise SiteError(f"the site file {path} cannot be read: {unreadable.strerror}") from unreadable
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as mistake:
        raise SiteError(f"{path}: {mistake}") from mistake
    _refuse_unknown(content, str(path))
    found = {}
    for name, value in content.items():
        if not isinstance(value, str):
            raise SiteError(f"{path}: {name} is {value!r}; write a string in quotes")
        is_path = KEYS[name].kind in ("file", "folder")
        found[name] = Setting(str(path.parent / Path(value).expanduser()) if is_path else value, str(path))
    return found


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    for name, key in KEYS.items():
        variables = (f"VERLJOB_{name.upper()}", *key.customary)
        if variable := next((each for each in variables if environment.get(each)), None):
            yield name, Setting(environment[variable], variable, public=False)


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    for name in names:
        if name not in KEYS:
            near = difflib.get_close_matches(name, KEYS, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise SiteError(f"{where}: unknown key {name!r}{hint}; the keys are {', '.join(KEYS)}")


def _refuse_invalid(name: str, setting: Setting) -> None:
    value, named = setting.value, f"{setting.origin}: {name}"
    parts = urlsplit(value)
    if KEYS[name].kind == "url" and not (parts.scheme and (parts.netloc or parts.path)):
        raise SiteError(f"{named} is {value!r}; write a URL such as https://HOST/PATH")
    if KEYS[name].kind == "url" and parts.password and setting.public:
        raise SiteError(
            f"{named} contains a password, which others can read there: write {parts.scheme}://USER@HOST… and put the "
            f"password into a file; set {name}_password_file in the site file or "
            f"VERLJOB_{name.upper()}_PASSWORD_FILE to its path"
        )
    if name == "base_mirror" and "://" in value:
        raise SiteError(f"{named} is {value!r}; write HOST[:PORT][/PATH], as in an image's name")
