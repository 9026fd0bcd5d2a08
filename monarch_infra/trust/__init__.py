"""Keys and certificates of a deployment.

It makes and reads key material; who gets it and when is not decided here.
"""

import secrets
from datetime import datetime, timedelta, timezone

from monarch_infra.model import Authority

AUTHORITY_DAYS = 3650
"""Ten years: the root outlives every deployment, so that only leaves are ever renewed."""
BACKDATED_H = 24
"""Certificates are valid from a day back, for hosts whose clock is behind."""


def new_deployment_id() -> str:
    """Return 128 random bits, in hex."""
    return secrets.token_hex(16)


def new_key() -> str:
    """Return a deployment key: 256 random bits, in hex."""
    return secrets.token_hex(32)


def new_authority(deployment: str) -> Authority:
    """Make the certificate authority of a deployment.

    Its path length is 1: below it stand issuing certificates of meshes, and below those only leaves.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"monarch-infra {deployment}")])
    now = datetime.now(timezone.utc)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=BACKDATED_H))
        .not_valid_after(now + timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(
        certificate=certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key=key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
