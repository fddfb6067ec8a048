"""keepalived.conf: what is read from it, and what keepalived's own test would refuse."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.lab.nodes import keepalived_conf as conf

WHOLE = """\
global_defs {
    enable_script_security
    script_user root
    max_auto_priority -1
}
! both kinds of comment
vrrp_script chk_lb {
    script "/usr/bin/timeout 1.9 /etc/keepalived/chk.sh"  # with words
    interval 2
    weight 20
    rise 3
    fall 4
}
vrrp_script chk_ingress
{
    script "/bin/true"
}
vrrp_instance harbour_API {
    state BACKUP
    interface ens3
    virtual_router_id 51
    priority 40
    advert_int 0.5
    unicast_src_ip 127.1.0.2
    unicast_peer {
        127.1.0.3
        127.1.0.4
    }
    authentication {
        auth_type PASS
        auth_pass harbour
    }
    virtual_ipaddress {
        127.1.0.9/20 label vip
    }
    track_script {
        chk_lb
        chk_ingress weight -5
    }
    nopreempt
}
"""


def instance(*lines: str) -> str:
    """An instance with all that is needed, in which these lines replace the ones of their keywords."""
    usual = {
        "interface": "interface ens3",
        "virtual_router_id": "virtual_router_id 51",
        "virtual_ipaddress": "virtual_ipaddress { 127.1.0.9 }",
    }
    usual |= {line.split()[0]: line for line in lines}
    return "vrrp_instance A {\n" + "\n".join(usual.values()) + "\n}\n"


def test_a_whole_file() -> None:
    found = conf.parse(WHOLE)

    assert dict(found.scripts) == {
        "chk_lb": conf.Script("chk_lb", "/usr/bin/timeout 1.9 /etc/keepalived/chk.sh", 2.0, 20, 3, 4),
        "chk_ingress": conf.Script("chk_ingress", "/bin/true"),
    }
    assert found.instances == (
        conf.Instance(
            name="harbour_API",
            router_id=51,
            addresses=("127.1.0.9",),
            interface="ens3",
            priority=40,
            advert_interval=0.5,
            source="127.1.0.2",
            peers=("127.1.0.3", "127.1.0.4"),
            authentication=("PASS", "harbour"),
            tracked=(("chk_lb", 20), ("chk_ingress", -5)),
            nopreempt=True,
        ),
    )
    assert found.warnings == ()


def test_what_is_left_out_has_keepaliveds_own_defaults() -> None:
    (found,) = conf.parse(instance()).instances

    assert (found.state, found.priority, found.advert_interval) == ("BACKUP", 100, 1.0)
    assert (found.peers, found.authentication, found.tracked) == (None, ("", ""), ())


def test_a_group_tracks_for_its_instances() -> None:
    text = (
        WHOLE + instance("virtual_router_id 52") + "vrrp_sync_group G {\ngroup {\nA\n}\ntrack_script {\nchk_lb\n}\n}\n"
    )

    assert conf.parse(text).instances[1].tracked == (("chk_lb", 20),)


def test_a_long_password_is_cut_and_that_is_said() -> None:
    text = instance("authentication {\nauth_type PASS\nauth_pass harbour_api_vip\n}")

    found = conf.parse(text)

    assert found.instances[0].authentication == ("PASS", "harbour_")
    assert found.warnings == ("(Line 7) Truncating auth_pass to 8 characters",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hello world", "(Line 1) Unknown keyword 'hello'"),
        ("global_defs {\nfrob 1\n}", "(Line 2) Unknown keyword 'frob'"),
        ("vrrp_script x {\ninterval 2\n}", "(Line 1) No script set for vrrp_script x"),
        ('vrrp_script x {\nscript "a"\nweight 300\n}', "(Line 3) weight: number '300' outside range [-253, 253]"),
        ('vrrp_script x {\nscript "a"\ninterval 0\n}', "(Line 3) interval: number '0' outside range"),
        ('vrrp_script x {\nscript "a\n}', "(Line 2) Unmatched quote"),
        (instance("bogus 3"), "(Line 5) Unknown keyword 'bogus'"),
        (instance("state SLEEPY"), "(Line 5) (A) unknown state 'SLEEPY'"),
        (instance("priority abc"), "(Line 5) priority: invalid number 'abc'"),
        (instance("priority 300"), "(Line 5) priority: number '300' outside range [1, 255]"),
        (instance("priority"), "(Line 5) Configuration line starting `priority` is missing a parameter"),
        (instance("advert_int 0"), "(Line 5) advert_int: number '0' outside range"),
        (instance("virtual_router_id 256"), "(Line 3) (A) VRID: number '256' outside range [1, 255]"),
        (instance("interface lo"), "(Line 2) (A) cannot use a loopback interface (lo) for vrrp"),
        (instance("virtual_ipaddress { 300.0.0.5/16 }"), "(Line 4) (A) VRRP parsed invalid IP 300.0.0.5/16"),
        (instance("virtual_ipaddress {\n}"), "(Line 1) (A) No VIP specified"),
        (instance("track_script { nosuch }"), "(Line 5) (A) track script nosuch not found"),
        (instance("authentication {\nauth_type FOO\n}"), "(Line 6) (A) unknown authentication type 'FOO'"),
        (instance("unicast_peer { nobody }"), "(Line 5) invalid address 'nobody'"),
        ("vrrp_instance A {\ninterface ens3\n}", "(Line 1) (A) the virtual router id must be set"),
        ("vrrp_instance A {\nvirtual_router_id 3\n}", "(Line 1) (A) Unknown interface!"),
        (instance() + instance("virtual_router_id 52"), "(Line 6) vrrp instance A already defined"),
        (instance() + instance().replace(" A ", " B "), "A and B both use VRID 51 on interface ens3"),
        (instance() + "}", "(Line 6) Extra '}' found"),
        (instance().rstrip("}\n"), "There are 2 missing '}'s"),
    ],
)
def test_nonsense_is_refused_with_its_line(text: str, why: str) -> None:
    with pytest.raises(conf.Wrong) as refused:
        conf.parse(text)

    assert why in str(refused.value)


@given(st.text(alphabet='vrp_instance{} \n"#!A1.', max_size=80))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(conf.Wrong):
        assert conf.parse(text).instances is not None
