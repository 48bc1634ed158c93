from __future__ import annotations

import pytest
from verl_node.errors import BadSettings
from verl_node.settings.allocation import expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", "login"),
        ("n1,n2", "n1 n2"),
        ("n[1-3]", "n1 n2 n3"),
        ("n[3,1-2]", "n3 n1 n2"),
        ("gpu[08-11]", "gpu08 gpu09 gpu10 gpu11"),
        ("gpu[001,3]", "gpu001 gpu3"),
        ("n[99-101]", "n99 n100 n101"),
        ("n[1-2]-ib", "n1-ib n2-ib"),
        ("r[1-2]c[1-2]", "r1c1 r1c2 r2c1 r2c2"),
        ("r[1-2]c[01-02]-x,login[1,5]", "r1c01-x r1c02-x r2c01-x r2c02-x login1 login5"),
        ("n[a,b[1-2]]x", "nax nb1x nb2x"),
    ],
)
def test_a_host_list_is_expanded_as_by_scontrol(text: str, hosts: str) -> None:
    assert expand_hosts(text) == hosts.split()


@pytest.mark.parametrize("text", ["n[1-3", "n1-3]", "n[3-1]", "n[]", "n[1-99999999]", "n[1-9999]m[1-9999]"])
def test_a_malformed_host_list_is_refused(text: str) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        expand_hosts(text)
