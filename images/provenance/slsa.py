"""SLSA provenance v1 as an in-toto statement, by in-toto's own bindings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as Message

from images.errors import NotTrusted
from images.report.record import BUILD_TYPE

PREDICATE = "https://slsa.dev/provenance/v1"


def statement(predicate: Mapping[str, Any], name: str, digest: str) -> bytes:
    """The statement about the image ``name`` that is known by ``digest``, as JSON."""
    checked = MessageToDict(ParseDict(predicate, Provenance()))
    subject = ResourceDescriptor(name=name, digest={"sha256": digest.partition(":")[2]})
    made = Statement([subject.pb], PREDICATE, checked)
    made.validate()
    return json.dumps(MessageToDict(made.pb), indent=1, sort_keys=True).encode() + b"\n"


def read(content: bytes) -> tuple[list[str], dict[str, Any]]:
    """The digests of the images that a statement is about, and its predicate; NotTrusted where it is no provenance."""
    try:
        stated = Statement.copy_from_pb(ParseDict(json.loads(content), Message()))
        stated.validate()
        predicate = MessageToDict(stated.pb.predicate)
        ParseDict(predicate, Provenance())
    except (ValueError, ParseError) as broken:
        raise NotTrusted(f"the provenance is no in-toto statement of SLSA provenance: {broken}") from broken
    kind = predicate.get("buildDefinition", {}).get("buildType")
    if (stated.pb.predicate_type, kind) != (PREDICATE, BUILD_TYPE):
        raise NotTrusted(f"the provenance is a {stated.pb.predicate_type} of {kind}, not a {PREDICATE} of {BUILD_TYPE}")
    return [f"sha256:{each.digest['sha256']}" for each in stated.pb.subject], predicate
