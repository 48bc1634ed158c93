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
    """Return the statement about an image as JSON; ``digest`` identifies the image."""
    validated = MessageToDict(ParseDict(predicate, Provenance()))
    subject = ResourceDescriptor(name=name, digest={"sha256": digest.partition(":")[2]})
    stated = Statement([subject.pb], PREDICATE, validated)
    stated.validate()
    return json.dumps(MessageToDict(stated.pb), indent=1, sort_keys=True).encode() + b"\n"


def read(content: bytes) -> tuple[list[str], dict[str, Any]]:
    """Return the digests of a statement's images and its predicate; raise NotTrusted if it is not valid provenance."""
    try:
        stated = Statement.copy_from_pb(ParseDict(json.loads(content), Message()))
        stated.validate()
        predicate = MessageToDict(stated.pb.predicate)
        ParseDict(predicate, Provenance())
    except (ValueError, ParseError) as error:
        raise NotTrusted(f"the provenance is not an in-toto statement of SLSA provenance: {error}") from error
    kind = predicate.get("buildDefinition", {}).get("buildType")
    if (stated.pb.predicate_type, kind) != (PREDICATE, BUILD_TYPE):
        raise NotTrusted(f"the provenance is a {stated.pb.predicate_type} of {kind}, not a {PREDICATE} of {BUILD_TYPE}")
    return [f"sha256:{subject.digest['sha256']}" for subject in stated.pb.subject], predicate
