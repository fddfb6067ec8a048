"""Typical mistakes, to the letter: line, field, message and remedy."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from moorage.config import load, stanza

from .conftest import PULL_SECRET

Stanzas = Mapping[str, stanza.Stanza]

HEAD = f"""\
apiVersion: v1
metadata:
  name: demo
baseDomain: example.com
pullSecret: '{PULL_SECRET}'
"""
NONE = "platform:\n  none: {}\n"

GOLDEN = [
    pytest.param(
        HEAD + NONE + "controlPlain:\n  replicas: 3\n",
        (8, "controlPlain", "there is no field `controlPlain` here", "did you mean `controlPlane`?"),
        id="misspelt field",
    ),
    pytest.param(
        HEAD.replace("baseDomain", "basedomain") + NONE,
        (4, "basedomain", "there is no field `basedomain` here", "did you mean `baseDomain`?"),
        id="misspelt required field, said once",
    ),
    pytest.param(
        HEAD.replace("  name: demo\n", "  name: 0123\n") + NONE,
        (3, "metadata.name", "must be text, but YAML reads a number", "quote it: '0123'"),
        id="octal name",
    ),
    pytest.param(
        HEAD.replace("  name: demo\n", "  name: on\n") + NONE,
        (3, "metadata.name", "must be text, but YAML reads true or false", "quote it: 'on'"),
        id="boolean name",
    ),
    pytest.param(
        HEAD.replace("  name: demo\n", "  name: 1e3\n") + NONE,
        (3, "metadata.name", "must be text, but YAML reads a number", "quote it: '1e3'"),
        id="exponent name",
    ),
    pytest.param(
        HEAD.replace("  name: demo\n", "  name: 2024-01-01\n") + NONE,
        (3, "metadata.name", "must be text, but YAML reads a date", "quote it: '2024-01-01'"),
        id="date name",
    ),
    pytest.param(
        HEAD.replace("  name: demo\n", "  name: My_Cluster\n") + NONE,
        (3, "metadata.name", "'My_Cluster' is not a DNS name: it has upper-case letters", "did you mean my-cluster?"),
        id="name with capitals",
    ),
    pytest.param(
        HEAD + NONE + 'controlPlane:\n  replicas: "3"\n',
        (9, "controlPlane.replicas", "must be a whole number, but YAML reads text", "remove the quotes"),
        id="quoted number",
    ),
    pytest.param(
        HEAD + NONE + "publish: internal\n",
        (8, "publish", "'internal' cannot be used: must be External or Internal", "did you mean Internal?"),
        id="choice in the wrong case",
    ),
    pytest.param(
        HEAD + NONE + "publish: Mixed\n",
        (
            8,
            "publish",
            "'Mixed' cannot be used: publishing API and ingress differently is for azure, which openshift-install "
            "serves",
            "use External or Internal",
        ),
        id="mixed publishing",
    ),
    pytest.param(
        HEAD + NONE + "compute:\n- name: worker\n  architecture: s390x\n",
        (
            10,
            "compute[0].architecture",
            "'s390x' cannot be used: machines of this architecture are not installed by moorage",
            "use amd64, arm64 or ppc64le",
        ),
        id="mainframe",
    ),
    pytest.param(
        HEAD + NONE + "capabilities:\n  baselineCapabilitySet: v4.20\n",
        (
            9,
            "capabilities.baselineCapabilitySet",
            "'v4.20' cannot be used: 4.20 added no set of its own",
            "did you mean vCurrent?",
        ),
        id="capability set that does not exist",
    ),
    pytest.param(
        HEAD + NONE + "networking:\n  machineNetwork:\n  - cidr: 10.0.0.5/16\n",
        (
            10,
            "networking.machineNetwork[0].cidr",
            "'10.0.0.5/16' is not the start of a range",
            "did you mean 10.0.0.0/16?",
        ),
        id="host bits",
    ),
    pytest.param(
        HEAD + NONE + "networking:\n  serviceNetwork: 172.30.0.0/16\n",
        (
            9,
            "networking.serviceNetwork",
            "must be a list, but YAML reads text",
            "start each entry on a line of its own with '- '",
        ),
        id="list forgotten",
    ),
    pytest.param(
        HEAD + "platform: none\n",
        (6, "platform", "must be a mapping of fields, but YAML reads text", ""),
        id="platform as text",
    ),
    pytest.param(
        HEAD + "platform:\n  aws:\n    region: us-east-1\n",
        (
            7,
            "platform.aws",
            "aws is a platform of openshift-install, not of moorage",
            "use openshift-install for it; moorage installs on dock, none or ovirt",
        ),
        id="platform of another installer",
    ),
    pytest.param(
        HEAD + "platform:\n  nome: {}\n",
        (7, "platform.nome", "there is no platform 'nome'", "did you mean `none`?"),
        id="misspelt platform",
    ),
    pytest.param(
        HEAD + "platform:\n  none: {}\n  dock: {}\n",
        (6, "platform", "names 2 platforms: none, dock", "keep the one the cluster goes to"),
        id="two platforms",
    ),
    pytest.param(
        HEAD,
        (1, "platform", "is required", "add it: Where the cluster goes."),
        id="no platform",
    ),
    pytest.param(
        HEAD + NONE + "arbiter:\n  replicas: 1\n",
        (
            8,
            "arbiter",
            "is known to openshift-install but not to moorage",
            "arbiter nodes exist on platform baremetal of openshift-install only",
        ),
        id="arbiter",
    ),
    pytest.param(
        HEAD.replace("'", "") + NONE,
        (5, "pullSecret", "must be text, but YAML reads a mapping", "the JSON is text here: put it in single quotes"),
        id="pull secret without quotes",
    ),
    pytest.param(
        HEAD + NONE + "controlPlane:\n  platform:\n    dock: {}\n",
        (
            10,
            "controlPlane.platform.dock",
            "the machines go to 'none', the platform of the cluster",
            "rename it to none, or remove it",
        ),
        id="machines on another platform",
    ),
    pytest.param(
        HEAD + NONE + "proxy:\n  httpProxy: http://a:b\n",
        (9, "proxy.httpProxy", "has no valid host and port", "write host:port"),
        id="proxy without a port number",
    ),
    pytest.param(
        HEAD + NONE + "baseDomain: example.org\n",
        (8, "baseDomain", "is given twice, in lines 4 and 8", "keep one of them"),
        id="field given twice",
    ),
]


@pytest.mark.parametrize(("text", "expected"), GOLDEN)
def test_a_typical_mistake_to_the_letter(text: str, expected: tuple[int, str, str, str], stanzas: Stanzas) -> None:
    [finding] = load.check(text, stanzas)

    assert (finding.line, finding.field, finding.message, finding.remedy) == expected
    assert finding.severity == "error"
