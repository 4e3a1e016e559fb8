"""Who a client certificate names. OpenSSL has verified its chain by then; nothing that a header
says is looked at.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.x509.oid import NameOID

from shoal.console.signin.visitors import Roles, Visitor, plain

PREFIXES = ("CN:", "email:", "DNS:", "URI:")


def names(certificate: bytes) -> list[str]:
    """ "CN:Ada", "email:ada@example", "DNS:...", "URI:...": what a DER certificate says of its
    holder. A subject with several common names has none.
    """
    try:
        parsed = x509.load_der_x509_certificate(certificate)
        common = parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        found = [f"CN:{common[0].value!s}"] if len(common) == 1 else []
        try:
            others = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except x509.ExtensionNotFound:
            return found
    except ValueError:
        return []
    kinds: tuple[
        tuple[str, type[x509.RFC822Name | x509.DNSName | x509.UniformResourceIdentifier]], ...
    ]
    kinds = (
        ("email:", x509.RFC822Name),
        ("DNS:", x509.DNSName),
        ("URI:", x509.UniformResourceIdentifier),
    )
    for prefix, kind in kinds:
        found += [f"{prefix}{value}" for value in others.get_values_for_type(kind)]
    return found


def visitor(certificate: bytes | None, roles: Roles) -> Visitor | None:
    """None for no certificate, and for one whose names have no role."""
    known = names(certificate) if certificate else []
    role = roles.of(known)
    if role is None:
        return None
    named = next(each for each in known if roles.of([each]) is role)
    return Visitor(plain(named.partition(":")[2]), named, role, "certificate")
