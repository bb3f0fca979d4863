"""JSON schemas of the parameters of a function, and the conversion of its arguments."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

FLOAT_INTEGERS_END = 2**53
"""End of the integers that a floating-point number can represent exactly. A longer integer of 64 bits is no such number."""

_SIMPLE: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def parameters(function: Callable[..., Any], context: type) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Returns the schema, the types of the parameters, and the name of the parameter that takes the context."""
    hints = typing.get_type_hints(function, include_extras=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    definitions: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    context_name = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"`{name}` of the tool `{function.__name__}` is not a plain parameter")
        hint = hints.get(name, Any)
        if hint is context:
            context_name = name
            continue
        kinds[name] = hint
        try:
            properties[name] = schema(hint, definitions)
        except RecursionError:
            raise TypeError(f"the type of `{name}` contains itself; use a model of pydantic") from None
        if parameter.default is parameter.empty:
            required.append(name)
    root = _object(properties, required) | ({"$defs": definitions} if definitions else {})
    return root, kinds, context_name


def schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Returns the JSON schema of a type. Adds the schemas that it refers to, which belong to the root of the whole schema."""
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    if hasattr(hint, "model_json_schema"):  # a model of pydantic
        return _pydantic(hint, definitions)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        texts = [one for one in arguments[1:] if isinstance(one, str)]
        return schema(arguments[0], definitions) | ({"description": texts[0]} if texts else {})
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema(one, definitions) for one in arguments]}
    if origin in (list, set, frozenset, Sequence) or hint in (list, set):
        return {"type": "array"} | ({"items": schema(arguments[0], definitions)} if arguments else {})
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": schema(arguments[0], definitions)}
    if origin in (dict, Mapping) or hint is dict:
        return {"type": "object"} | ({"additionalProperties": schema(arguments[1], definitions)} if arguments else {})
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = dataclasses.fields(hint)
        required = [field.name for field in fields if _is_required(field)]
        return _object({field.name: schema(hints[field.name], definitions) for field in fields}, required)
    if typing.is_typeddict(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        return _object({name: schema(one, definitions) for name, one in hints.items()}, sorted(hint.__required_keys__))
    raise TypeError(f"no JSON schema for {hint!r}; annotate the parameter with `dict` or a dataclass")


def convert(hint: Any, value: Any) -> Any:
    """Converts a value of JSON to a type for which the schema was made."""
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return convert(arguments[0], value)
    if origin in (typing.Union, types.UnionType):
        if value is None or type(value) in arguments:
            return value
        return convert(next(one for one in arguments if one is not type(None)), value)
    if origin in (list, set, frozenset, tuple, Sequence) and arguments:
        return (list if origin is Sequence else origin)(convert(arguments[0], one) for one in value)
    if origin is dict and arguments:
        return {name: convert(arguments[1], one) for name, one in value.items()}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return hint(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint, include_extras=True)
        return hint(**{name: convert(hints[name], one) for name, one in value.items()})
    if hint is int and isinstance(value, float):
        if abs(value) >= FLOAT_INTEGERS_END:
            raise ValueError(f"the integer {value:.0f} is too long to be exact; its limit is 64 bits")
        return int(value)
    return float(value) if hint is float else value


def _pydantic(model: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Schema of a model of pydantic, without its own definitions."""
    schema = dict(model.model_json_schema())
    own = schema.pop("$defs", {})
    if any(definitions.get(name, value) != value for name, value in own.items()):
        # Another model has this name, so all names of this model get a number.
        suffix = f"_{len(definitions)}"
        schema = dict(model.model_json_schema(ref_template=f"#/$defs/{{model}}{suffix}"))
        own = {name + suffix: value for name, value in schema.pop("$defs").items()}
    definitions.update(own)
    return schema


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
