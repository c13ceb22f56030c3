"""What is wrong with a job, in words. Owns the way from pydantic's faults to one InvalidJob
that names field, value and what is allowed; knows the job models only by their JSON schema."""

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from noidle.errors import InvalidJob, printable, shorten


def misfit(field: str, value: object, allowed: str) -> PydanticCustomError:
    """A fault that no single field's type can express, to be raised in a model's validator."""
    context = {"field": field, "value": value, "allowed": allowed}
    return PydanticCustomError("misfit", "{field}: allowed is {allowed}", context)


def first_fault(error: ValidationError, model: type[BaseModel]) -> InvalidJob:
    """The fault to show of all that pydantic found: a misspelt field before the missing one
    that it stands for."""
    faults = error.errors(include_url=False)
    fault = next((one for one in faults if one["type"] == "extra_forbidden"), faults[0])
    schema = model.model_json_schema()
    if fault["type"] == "extra_forbidden":
        return _unknown_field(fault, schema)
    if fault["type"] == "invalid_key":
        return InvalidJob.of("job", fault["loc"][-1], "fields named by text")
    if fault["type"] == "misfit":
        context = fault["ctx"]
        field = _name((*fault["loc"], context["field"]))
        return InvalidJob.of(field, context["value"], context["allowed"])
    field = _name(fault["loc"]) or "job"
    wanted = allowed(_find(schema, fault["loc"]), schema)
    if fault["type"] == "missing":
        return InvalidJob(f"{field} is missing: allowed is {wanted}", field=field, allowed=wanted)
    if fault["type"] == "string_unicode":
        wanted = "text that can be written as UTF-8, without half of a surrogate pair"
    return InvalidJob.of(field, fault["input"], wanted)


def nearest(name: str, known: Sequence[str]) -> str:
    """A hint for a name that is not known: the closest one, or all of them."""
    close = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.75)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}"


def _unknown_field(fault: ErrorDetails, schema: dict[str, Any]) -> InvalidJob:
    *parents, name = fault["loc"]
    known = list(_find(schema, tuple(parents)).get("properties", {}))
    field = _name(fault["loc"])
    value = shorten(fault["input"])
    hint = nearest(str(name), known)
    message = f"{field} = {value}: no such field; {hint}"
    return InvalidJob(message, field=field, value=value, allowed=hint)


def _name(location: Sequence[str | int]) -> str:
    return printable(".".join(str(part) for part in location))


def _find(schema: dict[str, Any], location: Sequence[str | int]) -> dict[str, Any]:
    found = schema
    for part in location:
        found = resolved(found, schema)
        found = (
            found.get("items", {}) if isinstance(part, int) else found["properties"].get(part, {})
        )
    return resolved(found, schema)


def resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follows references, and takes what is not null of an optional field."""
    if "$ref" in part:
        definition: dict[str, Any] = schema["$defs"][part["$ref"].rsplit("/", 1)[1]]
        return definition
    for choice in part.get("anyOf", []):
        if choice.get("type") != "null":
            return resolved(choice, schema)
    return part


def allowed(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a part of a model's JSON schema takes, in words."""
    part = resolved(part, schema)
    if "enum" in part:
        return " or ".join(part["enum"])
    # only types whose pattern says nothing to people carry a description
    if "pattern" in part and "description" in part:
        return str(part["description"])
    match part.get("type"):
        case "integer":
            return f"a whole number{_range(part)}"
        case "number":
            return f"a number{_range(part)}"
        case "string":
            return f"text{_length(part, 'character', 'characters')}"
        case "array":
            item = allowed(part["items"], schema)
            return f"a list{_length(part, 'entry', 'entries')}, each {item}"
        case "boolean":
            return "true or false"
        case "object":
            return f"an object with the fields {', '.join(sorted(part.get('properties', {})))}"
    return "something else"


def _range(part: dict[str, Any]) -> str:
    words = {
        "minimum": "from",
        "exclusiveMinimum": "above",
        "maximum": "to",
        "exclusiveMaximum": "below",
    }
    return "".join(
        f" {word} {_plain(part[bound])}" for bound, word in words.items() if bound in part
    )


def _plain(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else str(bound)


def _length(part: dict[str, Any], unit: str, units: str) -> str:
    what = "Items" if part["type"] == "array" else "Length"
    low, high = part.get(f"min{what}"), part.get(f"max{what}")
    if low and high:
        return f" of {low} to {high} {units}"
    if high:
        return f" of at most {high} {units}"
    return f" of at least {low} {unit if low == 1 else units}" if low else ""
