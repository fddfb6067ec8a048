"""The survey for oVirt, against an engine: what it asks and finds out, and that nothing is left where it ends."""

from __future__ import annotations

import contextlib
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from moorage import errors
from moorage.config import load, survey
from moorage.engine import errors as failures
from moorage.lab import faults
from moorage.lab.ovirt import serving
from moorage.platforms import registry
from moorage.platforms.ovirt import credentials
from moorage.platforms.ovirt import survey as ovirt_survey
from tests.unit.platforms_ovirt.survey_world import FIRST, LAST, THEN, Person, Run, changed, fault

# The whole of it.


def test_a_person_is_asked_in_order_and_what_they_choose_is_told_by_the_engine(run: Run) -> None:
    person = run.person()

    settled = run.attended(person)

    assert person.asked == [*FIRST, *THEN, *LAST]
    profile = run.found("vnic_profiles", "ovirtmgmt")
    assert settled.settings == {
        "ovirt_cluster_id": run.found("clusters", "Default"),
        "ovirt_storage_domain_id": run.found("storage_domains", "data"),
        "ovirt_network_name": "ovirtmgmt",
        "vnicProfileID": profile,
        "api_vips": ["192.168.7.2"],
        "ingress_vips": ["192.168.7.3"],
    }
    assert settled.machine_network == "192.168.7.0/24"
    assert any("signed in to the oVirt engine 4.5" in line for line in run.said)


def test_without_anybody_to_ask_the_answers_do_the_same(run: Run) -> None:
    settled = run.alone(run.answers())
    asked = run.attended(run.person())

    assert (settled.settings, settled.machine_network) == (asked.settings, asked.machine_network)


def test_the_answers_become_a_file_that_validates_and_holds_no_secret(run: Run) -> None:
    settled = run.alone(run.answers(ovirt_network_image="registry.example.com/moorage:1", dns_vip="192.168.7.4"))
    general = {
        "platform": "ovirt",
        "cluster_name": "demo",
        "base_domain": "example.com",
        "pull_secret": '{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}',
    }

    text = survey.yaml_text(survey.build(general, settled.settings, machine_network=settled.machine_network or ""))

    config, warnings = load.parse(text, registry.stanzas())
    assert warnings == []
    assert config.platform.settings.plain()["dns_vips"] == ["192.168.7.4"]
    assert run.password not in text
    assert "admin@internal" not in text


def test_credentials_are_written_at_the_end_and_only_then_for_their_owner_alone(run: Run) -> None:
    settled = run.attended(run.person())
    before = run.file.exists()

    said = settled.finish()

    assert not before
    assert stat.S_IMODE(run.file.stat().st_mode) == 0o600
    read = credentials.read(run.around.environ)
    assert (read.url, read.username, read.password.reveal()) == (
        run.running.served.url,
        "admin@internal",
        run.password,
    )
    assert read.ca_bundle == run.running.engine.ca_pem
    assert str(run.file) in said[0]


def test_credentials_that_cannot_be_written_are_told_of(run: Run) -> None:
    # Given somebody's home where .ovirt is something else
    settled = run.attended(run.person())
    run.file.parent.write_text("a file\n")

    with pytest.raises(errors.StoreError, match=r"ovirt-config.yaml cannot be written: ") as caught:
        settled.finish()

    assert "OVIRT_CONFIG" in caught.value.remedy


def test_the_password_is_in_nothing_that_is_said_or_traced(run: Run) -> None:
    settled = run.attended(run.person(ovirt_password=["not the password", run.password]))

    told = "\n".join([*run.said, *run.warned, *run.traced, repr(settled), *settled.finish()])
    assert run.password not in told
    assert "not the password" not in told
    assert run.traced


# What the engine has.


def test_free_space_helps_to_choose_and_what_cannot_be_used_is_not_offered(run: Run) -> None:
    person = run.person()

    run.attended(person)

    titles = [choice.title for choice in person.shown["ovirt_storage_domain"].choices]
    assert [title.split(" ")[0] for title in titles] == ["data", "slow"]
    assert "TiB free of 2.0 TiB" in titles[0]
    assert [choice.title for choice in person.shown["ovirt_cluster"].choices] == [
        "Default (data center Default)",
        "Edge (data center Default)",
    ]


def test_a_domain_in_maintenance_is_not_offered(run: Run) -> None:
    with changed(run, "storage_domains", "slow", status="maintenance"):
        person = run.person()
        run.attended(person)

    assert len(person.shown["ovirt_storage_domain"].choices) == 1


def test_the_profile_is_asked_for_where_there_are_two(run: Run) -> None:
    person = run.person(ovirt_network="storage", ovirt_vnic_profile="storage-trusted")

    settled = run.attended(person)

    assert person.asked[6:8] == ["ovirt_network", "ovirt_vnic_profile"]
    assert settled.settings["vnicProfileID"] == run.found("vnic_profiles", "storage-trusted")


@pytest.mark.parametrize("by", ["name", "id"])
def test_things_are_answered_beforehand_by_name_or_id(run: Run, by: str) -> None:
    edge = "Edge" if by == "name" else run.found("clusters", "Edge")
    slow = "slow" if by == "name" else run.found("storage_domains", "slow")

    settings = run.alone(run.answers(ovirt_cluster=edge, ovirt_storage_domain=slow)).settings

    assert settings["ovirt_cluster_id"] == run.found("clusters", "Edge")
    assert settings["ovirt_storage_domain_id"] == run.found("storage_domains", "slow")


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"ovirt_cluster": "Defualt"}, "ovirt_cluster", "did you mean `Default`?"),
        ({"ovirt_cluster": "Mine"}, "ovirt_cluster", "there are Default, Edge"),
        ({"ovirt_cluster": None}, "ovirt_cluster", "is not answered, and there is nobody to ask"),
        ({"ovirt_storage_domain": "iso"}, "ovirt_storage_domain", "'iso' is none of the data domains of Default"),
        ({"ovirt_network": "lan"}, "ovirt_network", "'lan' is none of the networks of Default"),
        ({"ovirt_network": "storage"}, "ovirt_vnic_profile", "is not answered"),
        ({"ovirt_vnic_profile": "storage"}, "ovirt_vnic_profile", "none of the vNIC profiles of ovirtmgmt"),
        ({"ovirt_template": "Blank"}, "ovirt_template", "'Blank' is none of the templates of Default"),
    ],
)
def test_what_the_engine_does_not_have(run: Run, given: dict[str, str | None], field: str, words: str) -> None:
    [(found, message)] = run.refused(run.answers(**given))

    assert found == field
    assert words in message
    assert run.nothing_left()


def test_a_cluster_without_storage_leads_back_to_the_choice_of_a_cluster(run: Run) -> None:
    with contextlib.ExitStack() as stack:
        for name in ("data", "slow"):
            stack.enter_context(changed(run, "storage_domains", name, status="maintenance"))
        person = run.person(ovirt_cluster=["Default", "Edge"])
        with pytest.raises(IndexError):  # the person has no third answer
            run.attended(person)

    assert person.asked[-3:] == ["ovirt_cluster"] * 3
    assert all("has no active data domain that this user may see" in line for line in run.warned)


def test_a_template_of_the_users_is_named_in_the_file(run: Run) -> None:
    settled = run.attended(run.person(ovirt_template="centos"))

    assert settled.settings["template"] == "centos"


@contextlib.contextmanager
def another_template(run: Run, **fields: Any) -> Iterator[str]:
    """One more template like centos, but for some fields; its id."""
    inventory = run.running.engine.inventory

    def add() -> str:
        like = inventory.named("templates", "centos")
        assert like is not None
        return str(inventory.add("templates", {**{k: v for k, v in like.items() if k != "id"}, **fields})["id"])

    identity = run.running.tell(add)
    try:
        yield identity
    finally:
        run.running.tell(lambda: inventory.remove("templates", identity))


def test_templates_of_other_clusters_and_of_installations_are_not_offered(run: Run) -> None:
    edge = {"id": run.found("clusters", "Edge")}
    person = run.person()

    with (
        another_template(run, name="demo-x1y2z-rhcos", description="moorage: demo-x1y2z"),
        another_template(run, name="elsewhere", cluster=edge),
        another_template(run, name="unfinished", status="locked"),
    ):
        run.attended(person)

    assert [choice.title.split(" ")[0] for choice in person.shown["ovirt_template"].choices] == ["upload", "centos"]


def test_two_templates_of_one_name_are_told_apart_by_their_ids(run: Run) -> None:
    with another_template(run, description="the second version") as twin:
        [(field, message)] = run.refused(run.answers(ovirt_template="centos"))
        settled = run.alone(run.answers(ovirt_template=twin))

    assert (field, twin in message) == ("ovirt_template", True)
    assert settled.settings["template"] == twin


def test_an_engine_that_fails_between_questions_is_asked_again(run: Run) -> None:
    fault(run, action=faults.FAIL, path="/ovirt-engine/api/templates", status=503, body="<html>", remaining=1)
    person = run.person(retry="again")

    settled = run.attended(person)

    assert person.asked == [*FIRST, *THEN[:-1], "retry", THEN[-1], *LAST]
    assert settled.settings["ovirt_network_name"] == "ovirtmgmt"


def test_a_person_may_stop_when_the_engine_fails(run: Run) -> None:
    fault(run, action=faults.FAIL, path="/ovirt-engine/api/clusters", status=503, body="<html>")

    with pytest.raises(failures.Transient):
        run.attended(run.person(retry=["again", "stop"]))

    assert run.nothing_left()


def test_an_engine_that_fails_between_answers_ends_a_run_with_nobody_to_ask(run: Run) -> None:
    fault(run, action=faults.FAIL, path="/ovirt-engine/api/templates", status=503, body="<html>")

    with pytest.raises(failures.Transient) as caught:
        run.alone(run.answers())

    assert caught.value.exit_code == errors.INFRASTRUCTURE
    assert run.nothing_left()


def test_a_session_that_ends_while_the_person_thinks_is_renewed(run: Run) -> None:
    class Slow(Person):
        def ask(self, question: survey.Question) -> str:
            run.sessions()
            return super().ask(question)

    assert run.attended(Slow(**run.person().answers)).settings  # type: ignore[arg-type]


def test_somebody_who_may_only_look_can_answer_the_questions(run: Run) -> None:
    viewer = run.running.served.password(serving.VIEWER)

    assert run.alone(run.answers(ovirt_username=serving.VIEWER, ovirt_password=viewer)).settings


# Addresses.


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("10.0.0.5", "is outside networking.machineNetwork, 192.168.7.0/24"),
        ("192.168.7.255", "is the broadcast address"),
        ("seven", "is not an IP address"),
        ("", "is required"),
    ],
)
def test_addresses_are_held_against_the_network_that_the_user_named(run: Run, typed: str, words: str) -> None:
    person = run.person(api_vip=[typed, "192.168.7.2"])

    run.attended(person)

    assert len(person.refused) == 1
    assert words in person.refused[0]


def test_ingress_and_api_do_not_share_an_address(run: Run) -> None:
    person = run.person(ingress_vip=["192.168.7.2", "192.168.7.3"])

    run.attended(person)

    assert person.refused == ["192.168.7.2 is given at api_vip too; each needs its own; choose another free address"]


@pytest.mark.parametrize("key", ["api_vip", "ingress_vip", "dns_vip"])
def test_a_wrong_address_ends_a_run_with_nobody_to_ask(run: Run, key: str) -> None:
    [(field, message)] = run.refused(run.answers(**{key: "10.0.0.5"}))

    assert field == key
    assert "192.168.7.0/24" in message


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("192.168.7.1/24", "is not the start of a range"),
        ("10.128.0.0/16", "overlaps 10.128.0.0/16"),
        ("100.64.0.0/16", "which OVN-Kubernetes uses"),
        ("fd00::/64", "all three networks have the same families"),
    ],
)
def test_a_network_that_the_file_could_not_have_is_refused_while_it_is_typed(run: Run, typed: str, words: str) -> None:
    person = run.person(machine_network=[typed, "192.168.7.0/24"])

    run.attended(person)

    assert len(person.refused) == 1
    assert words in person.refused[0]


def test_the_usual_network_is_proposed(run: Run) -> None:
    settled = run.alone(run.answers(machine_network=None, api_vip="10.0.0.5", ingress_vip="10.0.0.6"))

    assert settled.machine_network == "10.0.0.0/16"


# Ends.


def test_all_that_is_missing_is_named_before_the_engine_is_looked_at(run: Run) -> None:
    found = run.refused({})

    assert [field for field, _ in found] == ["ovirt_engine", "ovirt_password", "api_vip", "ingress_vip"]
    assert run.traced == []


@pytest.mark.parametrize("key", [*FIRST, *THEN, *LAST])
def test_who_leaves_at_any_question_leaves_nothing_behind(run: Run, key: str) -> None:
    class Leaving(Person):
        def ask(self, question: survey.Question) -> str:
            if question.key == key:
                raise KeyboardInterrupt
            return super().ask(question)

    with pytest.raises(KeyboardInterrupt):
        run.attended(Leaving(**run.person().answers))  # type: ignore[arg-type]

    assert run.nothing_left()


def test_a_survey_signs_out(run: Run) -> None:
    run.attended(run.person())

    assert run.sessions() == 0


def test_the_questions_of_a_platform_are_known_without_its_sdk() -> None:
    program = (
        "import sys; from moorage.platforms import registry; "
        "keys = registry.survey('ovirt').KEYS; "
        "print(len(keys), 'ovirtsdk4' in sys.modules, 'pycurl' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(len(ovirt_survey.KEYS)), "False", "False"]
