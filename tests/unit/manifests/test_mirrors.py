"""Mirrors, in the new spelling and the old."""

from moorage.config import model

DIGEST = "image-digest-mirror-set.yaml"
CONTENT = "image-content-source-policy.yaml"

SOURCES = (
    model.ImageSource(source="quay.io/okd", mirrors=("mirror.example.org/okd", "spare.example.org/okd")),
    model.ImageSource(source="registry.example.com/tools", mirrors=("mirror.example.org/tools",)),
)


def test_digest_sources_become_a_mirror_set_in_the_users_order(parsed, configure):
    files = parsed(configure(image_digest_sources=SOURCES))

    assert (files[DIGEST]["apiVersion"], files[DIGEST]["kind"]) == ("config.openshift.io/v1", "ImageDigestMirrorSet")
    assert files[DIGEST]["spec"]["imageDigestMirrors"] == [
        {"source": "quay.io/okd", "mirrors": ["mirror.example.org/okd", "spare.example.org/okd"]},
        {"source": "registry.example.com/tools", "mirrors": ["mirror.example.org/tools"]},
    ]
    assert CONTENT not in files


def test_content_sources_become_the_old_policy(parsed, configure):
    files = parsed(configure(image_content_sources=SOURCES[1:]))

    assert files[CONTENT]["apiVersion"] == "operator.openshift.io/v1alpha1"
    assert files[CONTENT]["kind"] == "ImageContentSourcePolicy"
    assert files[CONTENT]["spec"]["repositoryDigestMirrors"] == [
        {"source": "registry.example.com/tools", "mirrors": ["mirror.example.org/tools"]}
    ]
    assert DIGEST not in files


def test_a_source_that_must_not_be_contacted_stays_so(parsed, configure):
    sealed = model.ImageSource(source="quay.io/okd", mirrors=("m.example.org/okd",), source_policy="NeverContactSource")

    entry = parsed(configure(image_digest_sources=(sealed,)))[DIGEST]["spec"]["imageDigestMirrors"][0]

    assert entry["mirrorSourcePolicy"] == "NeverContactSource"


def test_a_policy_without_mirrors_is_left_out(parsed, configure):
    bare = model.ImageSource(source="quay.io/okd", source_policy="AllowContactingSource")

    entry = parsed(configure(image_digest_sources=(bare,)))[DIGEST]["spec"]["imageDigestMirrors"][0]

    assert entry == {"source": "quay.io/okd", "mirrors": []}


def test_no_mirrors_no_files(parsed):
    assert not {DIGEST, CONTENT} & parsed().keys()
