"""The certificate authority of a deployment."""

from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from monarch_infra import trust
from monarch_infra.model import Authority

NOW = datetime.now(timezone.utc)
SLACK = timedelta(minutes=5)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return trust.new_authority("d" * 32)


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority.certificate.encode())


def test_below_it_stand_issuers_of_meshes_and_below_those_only_leaves(certificate: x509.Certificate) -> None:
    """A path length of 1, and critical, so that nobody may overlook it."""
    found = certificate.extensions.get_extension_for_class(x509.BasicConstraints)

    assert found.critical
    assert (found.value.ca, found.value.path_length) == (True, 1)


def test_it_signs_certificates_and_nothing_else(certificate: x509.Certificate) -> None:
    """The key of a root is no server's and no client's."""
    found = certificate.extensions.get_extension_for_class(x509.KeyUsage)

    assert found.critical
    assert found.value.key_cert_sign
    assert not found.value.digital_signature
    assert not found.value.key_encipherment


def test_it_outlives_every_deployment_and_suits_clocks_that_are_behind(certificate: x509.Certificate) -> None:
    """Valid from 24 hours back for ten years."""
    assert abs(certificate.not_valid_before_utc - (NOW - timedelta(hours=24))) < SLACK
    assert abs(certificate.not_valid_after_utc - (NOW + timedelta(days=3650))) < SLACK


def test_it_is_signed_by_its_own_key(authority: Authority, certificate: x509.Certificate) -> None:
    """Certificate and key belong together."""
    key = serialization.load_pem_private_key(authority.key.encode(), password=None)

    certificate.verify_directly_issued_by(certificate)
    assert key.public_key() == certificate.public_key()


def test_it_names_its_deployment(certificate: x509.Certificate) -> None:
    """A person who sees it in a handshake knows whose it is."""
    assert certificate.subject.rfc4514_string() == f"CN=monarch-infra {'d' * 32}"


def test_no_two_are_alike() -> None:
    """Ids, keys and authorities are drawn, never derived."""
    assert trust.new_deployment_id() != trust.new_deployment_id()
    assert len(trust.new_deployment_id()) == 32
    assert trust.new_key() != trust.new_key()
    assert len(trust.new_key()) == 64
    assert trust.new_authority("d").key != trust.new_authority("d").key
