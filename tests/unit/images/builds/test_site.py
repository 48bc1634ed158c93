"""Site settings: their precedence, their validation, and the configuration that a build gets."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from images.builds import site_settings
from images.builds.site import Site
from images.catalog.catalog import Catalog
from images.errors import SiteError

CPU, ROCM = (Catalog.read().variants[name] for name in ("cpu", "rocm6.2"))
SECRET = "hunter2/+"  # noqa: S105  a fake, with characters that a URL has to escape
EVERYTHING = """
base_mirror = "harbor.example.org/{registry}"
wheelhouse = "wheels"
pip_index = "https://robot@index.example.org/simple"
pip_index_password_file = "secret"
apt_mirror = "http://mirror.example.org/debian"
ca = "ca.pem"
proxy = "http://robot@proxy.example.org:3128"
proxy_password_file = "secret"
no_proxy = "index.example.org"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "site.toml").write_text(EVERYTHING)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "ca.pem").touch()
    (tmp_path / "wheels").mkdir()
    return tmp_path / "site.toml"


def refused(text: str, tmp_path: Path) -> str:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(SiteError) as refusal:
        Site.read(str(tmp_path / "site.toml"), {})
    return str(refusal.value)


def test_a_site_file_has_all_settings_and_its_paths_are_relative_to_its_folder(file: Path) -> None:
    assert Site.read(str(file), {}) == Site(
        base_mirror="harbor.example.org/{registry}",
        wheelhouse=file.parent / "wheels",
        pip_index="https://robot:hunter2%2F%2B@index.example.org/simple",
        apt_mirror="http://mirror.example.org/debian",
        ca=file.parent / "ca.pem",
        proxy="http://robot:hunter2%2F%2B@proxy.example.org:3128",
        no_proxy="index.example.org",
    )


def test_a_flag_replaces_the_file_named_by_the_environment(file: Path, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('apt_mirror = "http://other/debian"')

    assert Site.read("", {"VERLJOB_SITE": str(file)}).apt_mirror == "http://mirror.example.org/debian"
    assert Site.read(str(tmp_path / "other.toml"), {"VERLJOB_SITE": str(file)}).apt_mirror == "http://other/debian"
    assert Site.read("", {}) == Site()


def test_a_flag_overrides_the_environment_and_that_the_file(file: Path) -> None:
    machine = {"VERLJOB_APT_MIRROR": "http://environment/debian"}

    assert Site.read(str(file), machine).apt_mirror == "http://environment/debian"
    assert Site.read(str(file), machine, apt_mirror="http://flag/debian").apt_mirror == "http://flag/debian"


def test_our_variables_override_customary_ones(tmp_path: Path) -> None:
    ours, machine, pips = (tmp_path / name for name in ("ours", "machine", "pip"))
    for path in (ours, machine, pips):
        path.touch()
    customary = {"SSL_CERT_FILE": str(machine), "PIP_CERT": str(pips), "PIP_INDEX_URL": "https://pip/simple"}

    assert Site.read("", {**customary, "VERLJOB_CA": str(ours)}).ca == ours
    assert Site.read("", customary).ca == machine
    assert Site.read("", {"PIP_CERT": str(pips)}).ca == pips
    assert Site.read("", customary).pip_index == "https://pip/simple"


def test_an_unknown_key_is_reported_with_the_nearest(tmp_path: Path) -> None:
    assert "unknown key 'apt_miror' (did you mean apt_mirror?); the keys are base_mirror," in refused(
        "apt_miror = 'x'", tmp_path
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ca = 3", "ca is 3; write a string in quotes"),
        ("ca = ", "Invalid value"),
        ("pip_index = 'index'", "pip_index is 'index'; write a URL such as https://HOST/PATH"),
        ("base_mirror = 'https://harbor/hub'", "write HOST[:PORT][/PATH], as in an image's name"),
        ("proxy = 'http://a:b@proxy:1'", "contains a password, which others can read there"),
        ("proxy = 'http://proxy:1'\nproxy_password_file = 'site.toml'", "proxy has no user: write http://USER@HOST"),
        (
            "proxy = 'http://a@proxy:1'\nproxy_password_file = 'none'",
            "/none, but there is no such file on this machine",
        ),
        ("wheelhouse = 'site.toml'", "wheelhouse is {}/site.toml, but there is no such folder on this machine"),
    ],
)
def test_an_invalid_setting_is_refused(text: str, message: str, tmp_path: Path) -> None:
    assert message.replace("{}", str(tmp_path)) in refused(text, tmp_path)


def test_a_missing_site_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SiteError, match="cannot be read: No such file"):
        Site.read(str(tmp_path / "none.toml"), {})


def test_a_password_is_accepted_in_a_variable_and_not_in_a_flag() -> None:
    url = "https://me:secret@index/simple"

    assert Site.read("", {"PIP_INDEX_URL": url}).pip_index == url
    with pytest.raises(SiteError, match="VERLJOB_PIP_INDEX_PASSWORD_FILE") as refusal:
        Site.read("", {}, pip_index=url)
    assert "secret@" not in str(refusal.value)


def test_the_table_has_the_origin_of_each_setting_and_no_password(file: Path) -> None:
    machine = {"VERLJOB_SITE": str(file), "PIP_INDEX_URL": "https://me:secret@index/simple"}

    lines = site_settings.table(site_settings.settings("", machine, apt_mirror="http://flag/debian")).splitlines()

    assert [line.split()[0] for line in lines] == list(site_settings.KEYS)
    assert "pip_index                https://me:***@index/simple  (PIP_INDEX_URL)" in lines
    assert "apt_mirror               http://flag/debian  (--apt-mirror)" in lines
    assert f"no_proxy                 index.example.org  ({file})" in lines
    assert "secret@" not in "".join(lines)


@pytest.mark.parametrize(
    ("reference", "mirrored"),
    [
        ("docker.io/rocm/vllm:rocm6.2", "harbor.example.org/docker.io/rocm/vllm:rocm6.2"),
        ("docker.io/library/debian:bookworm-slim", "harbor.example.org/docker.io/library/debian:bookworm-slim"),
        ("debian:bookworm", "harbor.example.org/docker.io/library/debian:bookworm"),
        ("nvcr.io/nvidia/pytorch:25.01", "harbor.example.org/nvcr.io/nvidia/pytorch:25.01"),
    ],
)
def test_a_base_is_pulled_from_the_sites_mirror_of_its_registry(reference: str, mirrored: str) -> None:
    assert Site(base_mirror="harbor.example.org/{registry}").mirrored(reference) == mirrored
    assert Site(base_mirror="mirror:5000/hub").mirrored("docker.io/rocm/vllm:1") == "mirror:5000/hub/rocm/vllm:1"
    assert Site().mirrored(reference) == reference


def test_passwords_reach_the_build_in_private_files_not_in_arguments(file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()

    flags = Site.read(str(file), {}).secrets(CPU, folder)

    assert "hunter2" not in " ".join(flags)
    assert flags[:2] == ["--secret", f"id=ca,src={file.parent / 'ca.pem'}"]
    assert f"id=pip,src={folder / 'pip'}" in flags
    assert [path.name for path in folder.iterdir() if stat.S_IMODE(path.stat().st_mode) != 0o600] == []


def test_pip_apt_and_git_are_configured_with_ca_mirror_and_proxy(file: Path, tmp_path: Path) -> None:
    Site.read(str(file), {"VERLJOB_NO_PROXY": "other"}).secrets(ROCM, tmp_path)

    proxy = "http://robot:hunter2%2F%2B@proxy.example.org:3128"
    pip, apt, git = ((tmp_path / name).read_text().splitlines() for name in ("pip", "apt", "git"))
    assert pip[2:] == [
        "cert = /run/secrets/ca",
        "index-url = https://robot:hunter2%2F%2B@index.example.org/simple",
        f"proxy = {proxy}",
    ]
    assert {f'Acquire::http::Proxy "{proxy}";', 'Acquire::https::CAInfo "/run/secrets/ca";'} < set(apt)
    assert 'Dir::Etc::SourceList "/run/secrets/sources";' in apt
    vllm = '[http "https://github.com/vllm-project/vllm.git"]'
    assert git == ["[http]", 'sslCAInfo = "/run/secrets/ca"', vllm, f'proxy = "{proxy}"']
    assert (tmp_path / "sources").read_text().splitlines() == [
        "deb http://mirror.example.org/debian focal main universe",
        "deb http://mirror.example.org/debian focal-updates main universe",
    ]


def test_hosts_of_no_proxy_are_reached_without_the_proxy(file: Path, tmp_path: Path) -> None:
    site = Site.read(str(file), {})
    site.secrets(CPU, tmp_path)

    assert "proxy" not in (tmp_path / "pip").read_text()
    assert "PIP_PROXY" not in site.pip_environment()
    assert "Proxy" in (tmp_path / "apt").read_text()


def test_without_settings_the_configuration_is_empty(tmp_path: Path) -> None:
    Site().secrets(ROCM, tmp_path)

    assert (tmp_path / "pip").read_text().splitlines() == ["[global]", "disable-pip-version-check = true"]
    assert "CAInfo" not in (tmp_path / "apt").read_text()
    assert "Proxy" not in (tmp_path / "apt").read_text()
    assert (tmp_path / "git").read_text() == "\n"
    assert not (tmp_path / "sources").exists()
