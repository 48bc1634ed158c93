"""Site settings: their keys, and how flags, environment and the site file override each other.

A password stands in a file of its own or in the environment, never in a flag (the process list shows those) nor in the
site file (which people share).
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

FILE = "VERLJOB_SITE"  # the variable that names the site file


@dataclass(frozen=True)
class Key:
    """A word: the kind of its value (url, file, folder, text), what it is for, and other variables that tell it."""

    kind: str
    purpose: str
    customary: Sequence[str] = ()


KEYS = {
    "base_mirror": Key("text", "HOST/PATH in place of a base's registry, whose name is {registry} in it"),
    "wheelhouse": Key("folder", "where torch's CPU wheel lies"),
    "pip_index": Key("url", "package index in place of PyPI", ("PIP_INDEX_URL",)),
    "pip_index_password_file": Key("file", "with the password of pip_index's user"),
    "apt_mirror": Key("url", "mirror in place of the distribution's"),
    "apt_mirror_password_file": Key("file", "with the password of apt_mirror's user"),
    "ca": Key("file", "CA bundle for downloads", ("SSL_CERT_FILE", "PIP_CERT")),
    "proxy": Key("url", "for all downloads of a build"),
    "proxy_password_file": Key("file", "with the password of proxy's user"),
    "no_proxy": Key("text", "hosts that are asked without it, by comma"),
}

FLAGS = tuple(name for name in KEYS if not name.endswith("_password_file"))  # of `invoke build`


@dataclass(frozen=True)
class Setting:
    """A value, who gave it, and whether others can read it there."""

    value: str
    origin: str
    public: bool = True


def settings(site: str = "", environment: Mapping[str, str] | None = None, /, **flags: str) -> dict[str, Setting]:
    """Every key that is set: by a flag, else by VERLJOB_<KEY> or a customary variable, else by the site file.

    The file is ``site``, else the one that VERLJOB_SITE names. SiteError names what cannot be meant.
    """
    environment = os.environ if environment is None else environment
    path = site or environment.get(FILE, "")
    told = _of_file(Path(path)) if path else {}
    told.update(_of_environment(environment))
    told.update({name: Setting(value, flag(name)) for name, value in flags.items() if value})
    _refuse_unknown(told, "the flags")
    for name, setting in told.items():
        _refuse_impossible(name, setting)
    return {name: told[name] for name in KEYS if name in told}


def table(found: Mapping[str, Setting]) -> str:
    """The vocabulary for people: every key, its value without passwords, and who gave it."""
    lines = []
    for name, key in KEYS.items():
        setting = found.get(name)
        told = f"{masked(setting.value)}  ({setting.origin})" if setting else f"-  ({key.purpose})"
        lines.append(f"{name:24} {told}")
    return "\n".join(lines)


def masked(value: str) -> str:
    """A value with *** for the password, where it is a URL with one."""
    password = urlsplit(value).password if "://" in value else None
    return value.replace(f":{password}@", ":***@") if password else value


def refuse_missing(found: Mapping[str, Setting]) -> None:
    """SiteError where a file or folder that is named is not there."""
    for name, setting in found.items():
        is_there = {"file": Path.is_file, "folder": Path.is_dir}.get(KEYS[name].kind)
        if is_there and not is_there(Path(setting.value)):
            raise SiteError(f"{setting.origin}: {name} is {setting.value}, which is no {KEYS[name].kind} here")


def flag(name: str) -> str:
    """How a key is called on the command line."""
    return f"--{name.replace('_', '-')}"


def _of_file(path: Path) -> dict[str, Setting]:
    """The settings of a site file; paths in it are meant from its own folder."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as unreadable:
        raise SiteError(f"the site file {path} cannot be read: {unreadable.strerror}") from unreadable
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as mistake:
        raise SiteError(f"{path}: {mistake}") from mistake
    _refuse_unknown(told, str(path))
    found = {}
    for name, value in told.items():
        if not isinstance(value, str):
            raise SiteError(f"{path}: {name} is {value!r}; write a text in quotes")
        is_path = KEYS[name].kind in ("file", "folder")
        found[name] = Setting(str(path.parent / Path(value).expanduser()) if is_path else value, str(path))
    return found


def _of_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Setting]]:
    for name, key in KEYS.items():
        variables = (f"VERLJOB_{name.upper()}", *key.customary)
        if variable := next((each for each in variables if environment.get(each)), None):
            yield name, Setting(environment[variable], variable, public=False)


def _refuse_unknown(names: Iterable[str], where: str) -> None:
    for name in names:
        if name not in KEYS:
            near = difflib.get_close_matches(name, KEYS, n=1)
            meant = f" ({near[0]}?)" if near else ""
            raise SiteError(f"{where}: there is no key {name!r}{meant}; the keys are {', '.join(KEYS)}")


def _refuse_impossible(name: str, setting: Setting) -> None:
    value, named = setting.value, f"{setting.origin}: {name}"
    parts = urlsplit(value)
    if KEYS[name].kind == "url" and not (parts.scheme and (parts.netloc or parts.path)):
        raise SiteError(f"{named} is {value!r}; write a URL such as https://HOST/PATH")
    if KEYS[name].kind == "url" and parts.password and setting.public:
        raise SiteError(
            f"{named} has a password in it, where others can read it: write {parts.scheme}://USER@HOST… and put the "
            f"password into a file of its own, which {name}_password_file in the site file or "
            f"VERLJOB_{name.upper()}_PASSWORD_FILE names"
        )
    if name == "base_mirror" and "://" in value:
        raise SiteError(f"{named} is {value!r}; write HOST[:PORT][/PATH], as in an image's name")
