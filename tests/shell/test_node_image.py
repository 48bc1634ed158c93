"""node.sh: an unusable engine or image is reported with its fix."""

from __future__ import annotations

from tests.support.shell.rig import Rig


def test_missing_permission_for_docker_exits_with_77_and_names_the_group(rig: Rig) -> None:
    rig.fake("denied", "")

    done = rig.node()

    assert done.returncode == 77
    assert "may not use Docker on n1" in rig.verdict()["cause"]
    assert "group" in rig.verdict()["cause"]


def test_an_engine_that_is_down_exits_with_69(rig: Rig) -> None:
    rig.fake("down", "")

    assert rig.node().returncode == 69
    assert "Cannot connect to the Docker daemon" in rig.verdict()["cause"]


def test_a_missing_image_exits_with_66_and_three_ways_to_get_it(rig: Rig) -> None:
    rig.node(VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    verdict = rig.verdict()
    assert (verdict["code"], verdict["stage"]) == ("66", "image")
    assert all(word in verdict["cause"] for word in ("n1", "registry:5000/verl.cpu:1", "manifest"))
    assert all(word in verdict["fix"] for word in ("registry", "shared folder", "docker load"))


def test_an_image_is_pulled_and_run_by_its_id(rig: Rig) -> None:
    rig.fake("registry", "registry:5000/verl.cpu:1\n")

    rig.node(VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    assert rig.docker_run()[-2] == "sha256:pulled"
    assert "VERLJOB_IMAGE_DIGEST=sha256:pulled\n" in rig.faked("run.env")


def test_if_the_pull_fails_the_local_image_is_used_with_a_warning(rig: Rig) -> None:
    rig.fake("images", "registry:5000/verl.cpu:1\tsha256:old\n")

    done = rig.node(VERLJOB_IMAGE="registry:5000/verl.cpu:1")

    assert rig.docker_run()[-2] == "sha256:old"
    assert "warning: the pull of registry:5000/verl.cpu:1 failed" in done.stdout


def test_an_archive_is_loaded(rig: Rig) -> None:
    (rig.work / "image.tar").write_text("")

    rig.node(VERLJOB_IMAGE=str(rig.work / "image.tar"))

    assert rig.docker_run()[-2] == "sha256:loaded"


def test_an_image_of_another_project_is_refused(rig: Rig) -> None:
    rig.fake("entrypoint", "[bash]\n")

    assert rig.node().returncode == 64
    assert "is not an image of this toolkit" in rig.verdict()["cause"]


def test_the_error_of_docker_run_is_the_cause(rig: Rig) -> None:
    error = "docker: Error response from daemon: no such runtime.\\nSee 'docker run --help'."
    rig.fake("container", f'printf "{error}\\n" >&2; exit 125')

    assert rig.node().returncode == 69
    assert rig.verdict()["cause"].endswith("Error response from daemon: no such runtime.")
