"""Tools: the schemas of their arguments, and their results."""

from __future__ import annotations

import asyncio
import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from allstop import Agent, Event, Model, ModelRequest, Reply, ToolCx, tool
from support import run_alone


class Unit(enum.Enum):
    CELSIUS = "celsius"
    KELVIN = "kelvin"


@dataclass
class Place:
    city: str
    height: float = 0


class Options(TypedDict, total=False):
    days: int


@tool(effect="read_only", timeout=5, parallel=False)
async def forecast(
    place: Place,
    unit: Annotated[Unit, "Unit of the temperature"],
    words: list[str],
    style: Literal["short", "long"] = "short",
    options: Options | None = None,
    cx: ToolCx = None,  # type: ignore[assignment]
) -> dict[str, Any]:
    """Weather of the next days."""
    assert isinstance(place, Place) and isinstance(unit, Unit) and not cx.stopped
    return {"place": place, "unit": unit.value, "words": words, "call": cx.call_id}


def results(*calls: tuple[str, dict[str, Any]]) -> Model:
    """A model that makes these calls, and answers with their results."""

    def answer(request: ModelRequest) -> str | Reply:
        if not request.tool_results:
            return Reply(calls=calls)
        return " | ".join(message["content"] for message in request.messages if message["role"] == "tool")

    return Model.from_function(answer)


def test_types_make_the_schema() -> None:
    assert forecast.schema == {
        "type": "object",
        "properties": {
            "place": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "height": {"type": "number"}},
                "required": ["city"],
                "additionalProperties": False,
            },
            "unit": {"enum": ["celsius", "kelvin"], "description": "Unit of the temperature"},
            "words": {"type": "array", "items": {"type": "string"}},
            "style": {"enum": ["short", "long"]},
            "options": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"days": {"type": "integer"}},
                        "required": [],
                        "additionalProperties": False,
                    },
                    {"type": "null"},
                ]
            },
        },
        "required": ["place", "unit", "words"],
        "additionalProperties": False,
    }


def test_arguments_and_results_are_converted() -> None:
    arguments = {"place": {"city": "Lima", "height": 161}, "unit": "kelvin", "words": ["sun"]}
    text = run_alone(Agent(results(("forecast", arguments)), tools=[forecast]))
    assert text.startswith('{"place": {"city": "Lima", "height": 161.0}, "unit": "kelvin", "words": ["sun"], "call": ')


def test_wrong_arguments_never_reach_the_function() -> None:
    text = run_alone(Agent(results(("forecast", {"place": {}, "unit": "rankine", "words": []})), tools=[forecast]))
    assert "forecast" in text and "AssertionError" not in text


def test_exception_is_the_error_result() -> None:
    @tool
    def divide(by: int) -> float:
        """Divides one."""
        return 1 / by

    text = run_alone(Agent(results(("divide", {"by": 0}), ("divide", {"by": 4})), tools=[divide]))
    assert text == "ZeroDivisionError: division by zero | 0.25"
    assert divide(by=2) == 0.5


def test_plain_functions_are_tools() -> None:
    def greet(name: str) -> str:
        return f"Hello, {name}."

    assert run_alone(Agent(results(("greet", {"name": "Ana"})), tools=[greet])) == "Hello, Ana."


def test_call_beyond_its_time_is_stopped_alone() -> None:
    @tool(timeout=0.05, effect="read_only")
    async def work() -> None:
        await asyncio.Event().wait()

    assert "timeout" in run_alone(Agent(results(("work", {})), tools=[work]))


def test_blocking_tools_run_beside_each_other() -> None:
    import threading

    both = threading.Barrier(2, timeout=10)

    @tool
    def meet() -> str:
        both.wait()
        return "met"

    assert run_alone(Agent(results(("meet", {}), ("meet", {})), tools=[meet])) == "met | met"


def test_output_is_an_event() -> None:
    @tool
    def work(cx: ToolCx) -> str:
        cx.output("half done")
        return "done"

    async def main() -> list[Event]:
        run = Agent(results(("work", {})), tools=[work]).start("go")
        events = [event async for event in run.events()]
        assert str(await run) == "done"
        return events

    events = asyncio.run(main())
    assert [event["text"] for event in events if event.type == "tool_output"] == ["half done"]
    assert events[-1].type == "turn_ended"


def test_mistakes_of_the_program_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    def untyped(place: object) -> None: ...

    with pytest.raises(TypeError, match="no JSON schema"):
        tool(untyped)

    def variadic(*places: str) -> None: ...

    with pytest.raises(TypeError, match="not a plain parameter"):
        tool(variadic)

    async def twice() -> None:
        with pytest.raises(ValueError, match="forecast"):
            Agent(results(), tools=[forecast, forecast]).start("go")
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
        with pytest.raises(ValueError, match="OPENAI_API_KEY"):
            Agent(Model.from_env("gpt-5-mini")).start("go")

    asyncio.run(twice())

    def generates() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        tool(generates)
    with pytest.raises(ValueError, match="`effect` is one of read_only"):
        tool(effect="zz")(lambda: "x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Model.from_env"):
        Agent("gpt-5-mini")  # type: ignore[arg-type]
    for grace in (float("nan"), float("inf"), -1):
        with pytest.raises(ValueError, match="`grace`"):
            Agent(results(), grace=grace)


def test_run_sync_refuses_an_event_loop() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="await agent.run"):
            Agent(results()).run_sync("go")

    asyncio.run(main())


def test_integers_are_exact_or_an_error() -> None:
    @tool
    def double(number: int) -> int:
        return 2 * number

    numbers = [2**63 - 1, 2**64 - 1, 2**70]
    text = run_alone(Agent(results(*(("double", {"number": number}) for number in numbers)), tools=[double]))
    first, second, third = text.split(" | ")
    assert (first, second) == (str(2**64 - 2), str(2**65 - 2))
    assert third.startswith("ValueError: ") and "64 bits" in third


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ("\ud800", "UnicodeEncodeError"),
        (float("nan"), "ValueError"),
        ({"key": [float("inf")]}, "ValueError"),
        ((one for one in ()), "TypeError"),
    ],
)
def test_result_that_no_model_can_read_is_an_error(result: Any, error: str) -> None:
    @tool
    def work() -> Any:
        return result

    @tool
    async def fails() -> None:
        raise ValueError("\ud800")

    agent = Agent(results(("work", {}), ("fails", {})), tools=[work, fails])
    first, second = run_alone(agent).split(" | ")
    assert first.startswith(f"{error}: ") and second == "ValueError: \\ud800"


def test_models_of_pydantic_are_optional() -> None:
    class PydanticLike:
        """The two methods of a model of pydantic that the package uses."""

        def __init__(self, city: str) -> None:
            self.city = city

        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            return {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

        @classmethod
        def model_validate(cls, value: dict[str, Any]) -> PydanticLike:
            return cls(**value)

        def model_dump(self, mode: str) -> dict[str, Any]:
            return {"city": self.city, "mode": mode}

    def visit(place: Any) -> Any:
        return place

    visit.__annotations__ = {"place": PydanticLike}
    agent = Agent(results(("visit", {"place": {"city": "Lima"}})), tools=[visit])
    assert run_alone(agent) == '{"city": "Lima", "mode": "json"}'


def test_definitions_of_models_are_at_the_root() -> None:
    class City:
        """A model of pydantic that refers to itself and to another model."""

        @classmethod
        def model_json_schema(cls, ref_template: str = "#/$defs/{model}") -> dict[str, Any]:
            next_city = {"anyOf": [{"$ref": ref_template.format(model="City")}, {"type": "null"}]}
            place = {"type": "object", "properties": {"height": {"type": cls.height}}}
            city = {"type": "object", "properties": {"place": {"$ref": ref_template.format(model="Place")}, "next": next_city}}
            return {"$defs": {"City": city, "Place": place}, "$ref": ref_template.format(model="City")}

        @classmethod
        def model_validate(cls, value: dict[str, Any]) -> dict[str, Any]:
            return value

        height = "number"

    class OtherCity(City):
        height = "string"

    def visit(city: Any, cities: Any, others: Any) -> Any:
        return [city, cities, others]

    visit.__annotations__ = {"city": City, "cities": list[City], "others": list[OtherCity]}
    schema = tool(visit).schema
    assert set(schema["$defs"]) == {"City", "Place", "City_2", "Place_2"}
    assert schema["properties"]["others"]["items"] == {"$ref": "#/$defs/City_2"}
    lima = {"place": {"height": 161}, "next": {"place": {"height": 3399}}}
    other = {"place": {"height": "high"}}
    arguments = {"city": lima, "cities": [lima], "others": [other]}
    wrong = {**arguments, "others": [lima]}
    text = run_alone(Agent(results(("visit", arguments), ("visit", wrong)), tools=[visit]))
    first, second = text.split(" | ")
    assert json.loads(first) == [lima, [lima], [other]] and "must be of type string" in second


def test_type_that_contains_itself_is_an_error() -> None:
    def visit(place: Any) -> None: ...

    visit.__annotations__ = {"place": Nested}
    with pytest.raises(TypeError, match="contains itself"):
        tool(visit)


@dataclass
class Nested:
    inner: Nested | None = None
