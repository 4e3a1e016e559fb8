"""Domains as messages, and back: a part of ``shoal.codec``."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.domain import (
    AnswerRecord,
    Categories,
    Discovery,
    Domain,
    Norm,
    Numeric,
    Places,
    Vector,
    Words,
    YesNo,
)
from shoal.errors import Kind, ShoalError
from shoal.protos import task_pb2
from shoal.questions.discovery import Alphabet
from shoal.questions.layout import NamedShape
from shoal.questions.place_paths import PlacePaths
from shoal.questions.record import Attribute
from shoal.questions.spelling import LETTERS

__all__ = [
    "decode_domain",
    "decode_layout",
    "decode_paths",
    "decode_places",
    "decode_record",
    "encode_domain",
    "encode_layout",
    "encode_paths",
    "encode_places",
    "encode_record",
]


def encode_domain(domain: Domain) -> task_pb2.Domain:
    """The domain as shoal.v1.Domain, with the field of its kind set."""
    match domain:
        case YesNo():
            return task_pb2.Domain(yes_no=task_pb2.YesNo())
        case Categories():
            return task_pb2.Domain(
                categories=task_pb2.Categories(
                    labels=domain.names, lower_bounds=domain.lower_bounds
                )
            )
        case Numeric():
            numeric = task_pb2.Numeric(
                low=domain.low,
                high=domain.high,
                levels=domain.levels,
                clip=domain.clip,
                unit=domain.unit,
            )
            return task_pb2.Domain(numeric=numeric)
        case Words():
            return task_pb2.Domain(words=task_pb2.Words(labels=domain.names))
        case Discovery():
            paths = domain.alphabet if isinstance(domain.alphabet, PlacePaths) else None
            discovery = task_pb2.Discovery(
                first=domain.first,
                longest=domain.longest,
                most=domain.most,
                known=domain.known,
                parts=None if paths is None else encode_paths(paths),
                fresh=domain.fresh,
            )
            return task_pb2.Domain(discovery=discovery)
        case Places():
            return task_pb2.Domain(places=encode_places(domain))
        case Vector():
            vector = task_pb2.Vector(
                dimension=domain.dimension,
                norm=task_pb2.Norm.ValueType(domain.norm),
                clip=domain.clip,
                grid=domain.grid,
                names=domain.names,
                unit=domain.unit,
                layout=encode_layout(domain.layout),
            )
            return task_pb2.Domain(vector=vector)
        case AnswerRecord():
            return task_pb2.Domain(record=encode_record(domain))


def encode_layout(layout: Iterable[NamedShape]) -> list[task_pb2.NamedArray]:
    """Named arrays as messages: of a task, or of a release."""
    return [task_pb2.NamedArray(name=one.name, shape=one.shape) for one in layout]


def decode_layout(messages: Iterable[task_pb2.NamedArray]) -> tuple[NamedShape, ...]:
    """The other way round. Raises INVALID for what its class refuses."""
    return tuple(NamedShape(one.name, tuple(one.shape)) for one in messages)


def encode_places(places: Places) -> task_pb2.Places:
    """The domain of a map as its own message."""
    return task_pb2.Places(
        south=places.south,
        west=places.west,
        north=places.north,
        east=places.east,
        rows=places.rows,
        columns=places.columns,
    )


def decode_places(message: task_pb2.Places) -> Places:
    """The other way round. Raises INVALID for what its class refuses."""
    return Places(
        message.south, message.west, message.north, message.east, message.rows, message.columns
    )


def encode_record(record: AnswerRecord) -> task_pb2.Record:
    """The domain of a record as its own message: releases carry it too."""
    return task_pb2.Record(
        attributes=[
            task_pb2.Attribute(
                name=one.name,
                answers=task_pb2.Categories(
                    labels=one.answers.names, lower_bounds=one.answers.lower_bounds
                ),
            )
            for one in record.attributes
        ],
        marginals=[task_pb2.Marginal(attributes=one) for one in record.marginals],
        together=record.together,
    )


def decode_record(message: task_pb2.Record) -> AnswerRecord:
    """The other way round. Raises INVALID for what its class refuses."""
    return AnswerRecord(
        tuple(
            Attribute(
                one.name, Categories(tuple(one.answers.labels), tuple(one.answers.lower_bounds))
            )
            for one in message.attributes
        ),
        tuple(tuple(one.attributes) for one in message.marginals),
        message.together,
    )


def encode_paths(paths: PlacePaths) -> task_pb2.MapParts:
    """The parts of a map as their own message: releases carry it too."""
    return task_pb2.MapParts(map=encode_places(paths.box), across=paths.across)


def decode_paths(message: task_pb2.MapParts) -> PlacePaths:
    """The other way round. Raises INVALID for what its class refuses."""
    return PlacePaths(decode_places(message.map), message.across)


def decode_domain(message: task_pb2.Domain) -> Domain:
    """The domain of a message. Raises INVALID for an unknown kind, and what its class refuses."""
    match message.WhichOneof("kind"):
        case "yes_no":
            return YesNo()
        case "categories":
            return Categories(
                tuple(message.categories.labels), tuple(message.categories.lower_bounds)
            )
        case "numeric":
            numeric = message.numeric
            return Numeric(numeric.low, numeric.high, numeric.levels, numeric.clip, numeric.unit)
        case "words":
            return Words(tuple(message.words.labels))
        case "discovery":
            asked = message.discovery
            alphabet: Alphabet = decode_paths(asked.parts) if asked.HasField("parts") else LETTERS
            known = tuple(asked.known)
            return Discovery(asked.first, asked.longest, asked.most, known, alphabet, asked.fresh)
        case "vector":
            vector = message.vector
            return Vector(
                vector.dimension,
                _norm(vector.norm),
                vector.clip,
                vector.grid,
                tuple(vector.names),
                vector.unit,
                decode_layout(vector.layout),
            )
        case "record":
            return decode_record(message.record)
        case "places":
            return decode_places(message.places)
        case _:
            raise ShoalError(Kind.INVALID, "task: its domain is of no known kind")


def _norm(number: int) -> Norm:
    try:
        return Norm(number)
    except ValueError:
        raise ShoalError(Kind.INVALID, "task: the norm of its vector is of no known kind") from None
