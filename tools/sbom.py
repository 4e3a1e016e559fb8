"""Write a bill of materials (CycloneDX, JSON) beside the wheel in dist/: `make sbom`.

What the wheel itself says that it wants, through and through, for the extras that are run (not
those of developers), in the versions of constraints.txt, for this platform. It is a function of
wheel, constraints and installed metadata: the same wheel has the same bill.
"""

from __future__ import annotations

import email
import email.message
import hashlib
import os
import re
import sys
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path

from constraints import read
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
DEVELOPERS = frozenset({"dev", "docs", "release"})  # extras that nobody runs Shoal with
_NAME = 60  # characters
_SPACE = uuid.UUID("6f1c53f2-7f0b-4a3c-9a4e-1f5d3a0e7c11")  # of our serial numbers


class BillError(Exception):
    """One line: what is missing."""


@dataclass
class Part:
    """A package that is installed with Shoal. ``extras``: those that bring it; none: all do."""

    found: Distribution
    extras: set[str] = field(default_factory=set)
    always: bool = False
    wants: set[str] = field(default_factory=set)


def bill(wheel: Path, versions: Mapping[str, str], made: datetime) -> str:
    """The JSON of a wheel. ``versions``: of constraints.txt. Raises BillError where a package is
    not installed here, or in another version.
    """
    data = wheel.read_bytes()
    metadata = _metadata(wheel)
    lines = metadata.get_all("Requires-Dist") or []
    extras = [
        extra for extra in metadata.get_all("Provides-Extra") or [] if extra not in DEVELOPERS
    ]
    parts: dict[str, Part] = {}
    for extra in ("", *extras):
        for requirement in _wanted(lines, {extra} if extra else set()):
            _add(requirement, extra, parts, versions)
    digest = hashlib.sha256(data).hexdigest()
    root = _component(str(metadata["Name"]), str(metadata["Version"]), ComponentType.APPLICATION)
    root.description = metadata["Summary"]
    root.licenses.add(LicenseExpression(str(metadata["License-Expression"])))
    root.hashes.add(HashType(alg=HashAlgorithm.SHA_256, content=digest))
    whole = Bom(serial_number=uuid.uuid5(_SPACE, digest))
    whole.metadata.timestamp, whole.metadata.component = made, root
    whole.metadata.tools.components.add(
        _component("cyclonedx-python-lib", version("cyclonedx-python-lib"), ComponentType.LIBRARY)
    )
    components = {name: _of(part) for name, part in sorted(parts.items())}
    for component in components.values():
        whole.components.add(component)
    first = {normal(one.name) for extra in ("", *extras) for one in _wanted(lines, {extra})}
    whole.register_dependency(root, [components[name] for name in sorted(first)])
    for name, part in sorted(parts.items()):
        whole.register_dependency(components[name], [components[one] for one in sorted(part.wants)])
    return JsonV1Dot6(whole).output_as_string(indent=1) + "\n"


def normal(name: str) -> str:
    """A distribution's name as the packaging standard compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


def _wanted(lines: list[str], extras: set[str]) -> Iterator[Requirement]:
    """What of ``lines`` holds on this platform: without extras, and for each of ``extras``."""
    for line in lines:
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras | {""}):
            yield one


def _add(
    requirement: Requirement, extra: str, parts: dict[str, Part], versions: Mapping[str, str]
) -> None:
    """The package and all that it wants."""
    name = normal(requirement.name)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise BillError(
            f"{name} is not installed here: pip install -c constraints.txt {name}"
        ) from None
    # of a build for one machine (2.13.0+cpu) the version that all builds have
    if found.version.partition("+")[0] != versions.get(name):
        raise BillError(
            f"{name} {found.version} is installed, constraints.txt has {versions.get(name)}: "
            "make distclean lint"
        )
    part = parts.setdefault(name, Part(found))
    if (part.always and not requirement.extras) or extra in part.extras:
        return
    part.always |= not extra
    part.extras |= {extra} - {""}
    for child in _wanted(found.requires or [], set(requirement.extras)):
        part.wants.add(normal(child.name))
        _add(child, extra, parts, versions)


def _component(name: str, version: str, kind: ComponentType) -> Component:
    url = PackageURL("pypi", name=normal(name), version=version)
    return Component(name=name, version=version, type=kind, purl=url, bom_ref=str(url))


def _of(part: Part) -> Component:
    made = _component(part.found.name, part.found.version, ComponentType.LIBRARY)
    made.scope = ComponentScope.REQUIRED if part.always else ComponentScope.OPTIONAL
    if not part.always:
        for extra in sorted(part.extras):
            made.properties.add(Property(name="shoal:extra", value=extra))
    metadata = part.found.metadata
    try:
        # asked whether it is there first: who imports importlib_metadata gets its objects, which
        # raise for a field that is not
        fields = ("License-Expression", "License")
        stated = next((metadata[name] for name in fields if name in metadata), "")
        made.licenses.add(LicenseExpression(canonicalize_license_expression(stated)))
    except InvalidLicenseExpression:
        names = [
            line.rpartition(" :: ")[2]
            for line in metadata.get_all("Classifier") or []
            if line.startswith("License :: OSI Approved :: ")
        ]
        if not names and 0 < len(stated) < _NAME:
            names = [stated]  # in words; longer ones are the text of the licence itself
        for name in names:
            made.licenses.add(DisjunctiveLicense(name=name))
    return made


def main() -> int:
    """Write the bill of the one wheel in dist/; the exit status."""
    wheels = sorted((ROOT / "dist").glob("shoal-*.whl"))
    if len(wheels) != 1:
        print("tools/sbom.py: dist/ holds no wheel, or several: make dist first", file=sys.stderr)
        return 1
    (wheel,) = wheels
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH") or _newest(wheel))
    try:
        text = bill(
            wheel,
            read((ROOT / "constraints.txt").read_text()),
            datetime.fromtimestamp(epoch, UTC),
        )
    except BillError as error:
        print(f"tools/sbom.py: {error}", file=sys.stderr)
        return 1
    out = wheel.with_name(f"{wheel.name.partition('-py3')[0]}.cdx.json")
    out.write_text(text)
    print(out.relative_to(ROOT))
    return 0


def _newest(wheel: Path) -> float:
    """The time that its files have: that of the commit."""
    with zipfile.ZipFile(wheel) as archive:
        return max(datetime(*info.date_time, tzinfo=UTC).timestamp() for info in archive.infolist())


if __name__ == "__main__":
    raise SystemExit(main())
