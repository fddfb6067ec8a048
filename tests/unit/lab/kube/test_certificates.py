"""Certificates on request: from the asking to the signing, with the refusals of the real server and controller."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.lab.kube import authentication, certificates, problem, roles, users
from tests.unit.lab.kube import access_world as worlds
from tests.unit.lab.kube.signing_office import (
    HOUR,
    NAMES,
    SERVING_USAGES,
    Office,
    asked,
    request,
)


@pytest.mark.parametrize("curve", [True, False], ids=["EC", "RSA"])
def test_a_new_node_gets_the_certificate_by_which_it_is_known(curve: bool) -> None:
    office = Office(curve)
    office.create(asked(), worlds.recorded_user("boot"))
    office.signer.look()
    assert "certificate" not in office.status
    office.approve()

    office.signer.look()

    access = authentication.Access(client_ca=worlds.pem(office.ca))
    user = authentication.authenticate(access, office.world.api, worlds.der(office.certificate))
    assert (user.name, user.groups) == ("system:node:n1", ("system:nodes", "system:authenticated"))
    usages = office.certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usages) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_a_serving_certificate_has_the_names_that_were_asked_for_and_no_more_of_the_request() -> None:
    office = Office()
    office.create(asked(certificates.KUBELET_SERVING, request=request(names=NAMES), usages=SERVING_USAGES))
    office.approve()
    office.signer.look()

    extensions = office.certificate.extensions
    assert list(extensions.get_extension_for_class(x509.SubjectAlternativeName).value) == list(NAMES)
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]


@pytest.mark.parametrize(
    ("seconds", "duration", "ca_hours", "lasts"),
    [
        (None, 10 * HOUR, 24.0, 10 * HOUR - 300),
        (None, 2 * HOUR, 24.0, 2 * HOUR),
        (HOUR, 10 * HOUR, 24.0, HOUR),
        (20 * HOUR, 10 * HOUR, 24.0, 10 * HOUR - 300),
        (None, 10 * HOUR, 3.0, 3 * HOUR),
    ],
    ids=["long", "short", "as asked", "not longer than usual", "not longer than the signer"],
)
def test_how_long_a_certificate_lasts(seconds: float | None, duration: float, ca_hours: float, lasts: float) -> None:
    office = Office(hours=(-1, ca_hours), duration=duration)
    now = datetime.datetime.now(datetime.UTC)
    office.create(asked(**({} if seconds is None else {"expirationSeconds": int(seconds)})))
    office.approve()
    office.signer.look()

    made = office.certificate
    assert abs((made.not_valid_before_utc - now).total_seconds() + 300) < 10
    assert abs((made.not_valid_after_utc - now).total_seconds() - lasts) < 10


def test_a_signer_whose_time_is_over_signs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    office = Office(hours=(-2, -1))
    office.create(asked())
    office.approve()

    office.signer.look()

    assert "certificate" not in office.status
    assert "expired in the past" in caplog.text


@pytest.mark.parametrize(
    ("signer", "spec", "words"),
    [
        (
            certificates.KUBELET_CLIENT,
            {"request": request("system:node:n1", "x")},
            "subject organization is not system:nodes",
        ),
        (
            certificates.KUBELET_CLIENT,
            {"request": request("n1")},
            "subject common name does not begin with system:node:",
        ),
        (certificates.KUBELET_CLIENT, {"request": request(names=NAMES[:1])}, "DNS subjectAltNames are not allowed"),
        (certificates.KUBELET_CLIENT, {"request": request(names=NAMES[1:])}, "IP subjectAltNames are not allowed"),
        (
            certificates.KUBELET_CLIENT,
            {"usages": ["client auth"]},
            "usages did not match [client auth digital signature key encipherment]",
        ),
        (certificates.KUBELET_SERVING, {"usages": SERVING_USAGES}, "DNS or IP subjectAltName is required"),
        (
            certificates.KUBELET_SERVING,
            {"request": request(names=NAMES)},
            "usages did not match [digital signature key encipherment server auth]",
        ),
        (
            certificates.KUBELET_SERVING,
            {"request": request(names=(*NAMES, x509.UniformResourceIdentifier("a://b"))), "usages": SERVING_USAGES},
            "URI subjectAltNames are not allowed",
        ),
        (
            certificates.KUBELET_SERVING,
            {"request": request(names=(*NAMES, x509.RFC822Name("a@b.c"))), "usages": SERVING_USAGES},
            "Email subjectAltNames are not allowed",
        ),
        (certificates.CLIENT, {"usages": ["server auth"]}, "invalid usage for client certificate: server auth"),
        (
            certificates.CLIENT,
            {"usages": ["digital signature"]},
            "missing required usage for client certificate: client auth",
        ),
    ],
)
def test_a_request_that_breaks_the_signers_rules_fails(signer: str, spec: dict[str, Any], words: str) -> None:
    office = Office()
    office.create(asked(signer, **spec))
    office.approve()

    office.signer.look()
    office.signer.look()

    [_, failed] = office.status["conditions"]
    assert (failed["type"], failed["reason"], failed["message"]) == ("Failed", "SignerValidationFailure", words)
    assert "certificate" not in office.status


def test_what_was_denied_or_is_for_another_signer_stays_unsigned() -> None:
    denied, foreign = Office(), Office()
    denied.create(asked())
    denied.write("approval", {"conditions": [{"type": "Denied", "status": "True"}]})
    foreign.create(asked("example.com/mine"))
    foreign.approve()

    for office in (denied, foreign):
        office.signer.look()
        assert "certificate" not in office.status


def test_a_request_tells_who_made_it_whatever_it_says_itself() -> None:
    office = Office()
    user = users.User("alice", ("devs",), "u1", {"why": ("x",)})

    office.create({**asked(username="evil", groups=["system:masters"]), "status": {"certificate": "x"}}, user)

    spec = office.entry.object["spec"]
    told = {key: spec[key] for key in ("username", "groups", "uid", "extra")}
    assert told == {"username": "alice", "groups": ["devs"], "uid": "u1", "extra": {"why": ["x"]}}
    assert office.status == {}


@pytest.mark.parametrize("subresource", ["", "status", "approval"])
def test_what_was_asked_for_never_changes(subresource: str) -> None:
    office = Office()
    office.create(asked())
    spec = office.entry.object["spec"]

    office.write(subresource, {}, spec={**spec, "usages": ["any"], "username": "system:admin"})

    assert office.entry.object["spec"] == spec


INVALID = 'CertificateSigningRequest.certificates.k8s.io "csr-1" is invalid: '


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"request": request(spoilt=True)}, "x509: ECDSA verification failure"),
        (
            {"request": worlds.encoded("hello")},
            INVALID + "spec.request: Invalid value: []byte{0x68, 0x65, 0x6c, 0x6c, 0x6f}: PEM block type must be"
            " CERTIFICATE REQUEST",
        ),
        ({"usages": []}, INVALID + "spec.usages: Required value"),
        ({"usages": ["client auth", "client auth"]}, INVALID + 'spec.usages[1]: Duplicate value: "client auth"'),
        ({"usages": ["foo"]}, 'spec.usages[0]: Unsupported value: "foo": supported values: "any", "cert sign"'),
        (
            {"signerName": "kubernetes.io/legacy-unknown"},
            "the legacy signerName is not allowed via this API version",
        ),
        ({"signerName": "nodomain"}, "must be a fully qualified domain and path of the form 'example.com/signer-name'"),
        ({"signerName": ""}, INVALID + "spec.signerName: Required value"),
        ({"signerName": "foo/x"}, '"foo": should be a domain with at least two segments separated by dots'),
        ({"signerName": "Foo.com/x"}, 'Invalid value: "Foo.com": validating label "Foo": a lowercase RFC 1123 label'),
        (
            {"expirationSeconds": 5},
            INVALID + "spec.expirationSeconds: Invalid value: 5: may not specify a duration less than 600 seconds"
            " (10 minutes)",
        ),
        (
            {"signerName": certificates.CLIENT, "request": request("x", "system:masters")},
            'certificatesigningrequests.certificates.k8s.io "csr-1" is forbidden: use of'
            " kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        ),
    ],
)
def test_a_request_no_signer_could_use_is_refused(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(problem.Problem) as refusal:
        Office().create(asked(**spec))

    assert words in refusal.value.message


APPROVED = {"type": "Approved", "status": "True"}
DENIED = {"type": "Denied", "status": "True"}


@pytest.mark.parametrize(
    ("subresource", "status", "words"),
    [
        (
            "approval",
            {"conditions": []},
            'status.conditions: Forbidden: updates may not remove a condition of type "Approved"',
        ),
        (
            "approval",
            {"conditions": [APPROVED, DENIED]},
            'status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive',
        ),
        ("approval", {"conditions": [APPROVED, APPROVED]}, 'status.conditions[1].type: Duplicate value: "Approved"'),
        (
            "approval",
            {"conditions": [{**APPROVED, "status": "False"}]},
            'status.conditions[0].status: Unsupported value: "False": supported values: "True"',
        ),
        (
            "approval",
            {"conditions": [APPROVED, {"type": "", "status": ""}]},
            "[status.conditions[1].type: Required value, status.conditions[1].status: Required value]",
        ),
        (
            "status",
            {"conditions": [APPROVED, DENIED]},
            'status.conditions: Forbidden: updates may not add a condition of type "Denied"',
        ),
        (
            "status",
            {"conditions": [APPROVED], "certificate": worlds.encoded("garbage")},
            'status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block',
        ),
    ],
)
def test_nothing_that_was_decided_is_taken_back(subresource: str, status: dict[str, Any], words: str) -> None:
    office = Office()
    office.create(asked())
    office.approve()

    with pytest.raises(problem.Problem) as refusal:
        office.write(subresource, status)

    assert words in refusal.value.message


def test_a_certificate_is_not_exchanged_for_another() -> None:
    office = Office()
    office.create(asked())
    office.approve()
    office.signer.look()
    other = worlds.encoded(worlds.pem(office.ca))

    with pytest.raises(problem.Problem, match="updates may not modify existing certificate content"):
        office.write("status", {**office.status, "certificate": other})
    before = office.status
    office.write("approval", {"conditions": before["conditions"], "certificate": other})
    office.write("", {"conditions": []})
    assert office.status == before


def test_only_those_who_may_approve_for_the_signer_approve() -> None:
    office = Office()
    office.create(asked())

    with pytest.raises(problem.Problem) as refusal:
        office.approve(worlds.recorded_user("boot"))
    assert refusal.value.message == (
        'certificatesigningrequests.certificates.k8s.io "csr-1" is forbidden: user not permitted to approve requests'
        ' with signerName "kubernetes.io/kube-apiserver-client-kubelet"'
    )
    # Kim may for kubernetes.io/*, but does not sign.
    office.approve(worlds.recorded_user("kim"))
    [condition] = office.status["conditions"]
    assert condition["lastUpdateTime"] == condition["lastTransitionTime"]
    with pytest.raises(problem.Problem, match="not permitted to sign requests"):
        office.write("status", {"certificate": worlds.encoded(worlds.pem(office.ca))}, worlds.recorded_user("kim"))


def test_a_node_asks_in_its_own_name_alone() -> None:
    node = worlds.recorded_user("n1")

    Office().create(asked(), node)
    with pytest.raises(problem.Problem, match="can only create a node CSR with CN=system:node:n1"):
        Office().create(asked(request=request("system:node:n2")), node)


@pytest.mark.parametrize(
    ("who", "approved"), [("n1", True), ("boot", False), ("bob", False)], ids=["its own", "a new machine's", "a man's"]
)
def test_renewals_are_approved_without_asking_anybody(who: str, approved: bool) -> None:
    office = Office()
    roles.openshift(office.world.api)
    office.create(asked(), worlds.recorded_user(who))

    certificates.Approver(office.world.api).look()

    assert certificates.condition(office.entry.object, "Approved") is approved


def test_a_running_signer_signs_what_comes() -> None:
    office = Office()

    async def story() -> None:
        running = asyncio.create_task(office.signer.run())
        await asyncio.sleep(0)
        watch = office.world.store.watch(certificates.REQUESTS)
        office.create(asked())
        office.approve()
        async with asyncio.timeout(10):
            while "certificate" not in office.status:
                watch.ready()
                await watch.wait()
        running.cancel()

    asyncio.run(story())

    assert office.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "system:node:n1"


def test_a_signer_needs_its_own_key() -> None:
    office = Office()

    with pytest.raises(ValueError, match="not that of its certificate"):
        certificates.Signer(office.world.api, worlds.pem(office.ca), worlds.private_pem(worlds.key("stranger")))
