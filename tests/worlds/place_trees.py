"""A small discovery of places: a map, and devices at known clusters of it."""

from __future__ import annotations

from shoal.domain import Discovery
from shoal.entropy import Entropy
from shoal.mechanisms.several.events import below
from shoal.questions.coordinates import degrees
from shoal.questions.place_paths import PlacePaths
from shoal.questions.places import Places

CITY = PlacePaths(Places(48_060_000, 11_360_000, 48_250_000, 11_720_000, 1, 1), 4)
SMALL = Discovery(1, 3, 4, (), CITY)
# middles of clusters in microdegrees, and how many of 100 devices are near each
CLUSTERS = (
    (48_137_100, 11_575_300, 34),
    (48_139_900, 11_566_000, 20),
    (48_175_200, 11_556_000, 16),
    (48_218_000, 11_624_700, 10),
    (48_071_000, 11_700_000, 4),
)


def places_of(devices: int, entropy: Entropy, wide: int = 1_500) -> tuple[str, ...]:
    """A place for each device: near a cluster, within ``wide`` microdegrees, or anywhere on the
    map, but for 2 of 100 without a place.
    """
    south, west, north, east = CITY.edges(b"")
    places = list[str]()
    for _ in range(devices):
        share = below(100, entropy)
        if share >= 98:
            places.append("")
            continue
        where = south + below(north - south, entropy), west + below(east - west, entropy)
        for latitude, longitude, part in CLUSTERS:
            if 0 <= share < part:
                where = (
                    latitude + below(2 * wide, entropy) - wide,
                    longitude + below(2 * wide, entropy) - wide,
                )
            share -= part
        places.append(f"{degrees(where[0])}, {degrees(where[1])}")
    return tuple(places)
