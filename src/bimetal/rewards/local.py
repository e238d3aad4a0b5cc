"""Reward functions from a user's file, in the signatures of TRL, of verl, and our own.

Which one a function has is read off its parameters:

    items                           ours   verify(items, options, services) -> list[Verdict]
    completions                     TRL    f(prompts=..., completions=..., **columns) -> list[float | None]
    solution_str, ground_truth      verl   f(data_source, solution_str, ground_truth, extra_info) -> float or
                                           a dict with "score", whose other numbers become parts

A reward r must lie in [0, 1]; 1 is correct, less is wrong with partial credit, ``None`` means that the
function declines to judge: unknown, with reason ``declined``.

TRL functions receive a row's extra columns as lists, one element per completion. A required parameter
``reference``, ``ground_truth``, ``answer`` or ``solution`` that is no column receives the prompt's reference.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType, ModuleType
from typing import Literal, cast

from bimetal.config.options import Options
from bimetal.core.errors import ConfigError
from bimetal.core.types import Item, JsonValue, Status, Verdict
from bimetal.rewards.wire import finite

RewardFunction = Callable[..., object]
"""A function of the user, of any of the signatures."""

_REFERENCE_NAMES = ("reference", "ground_truth", "answer", "solution")
_USUAL_NAMES = ("verify", "score", "compute_score", "reward")


class Signature(StrEnum):
    """How a reward function is called."""

    OURS = "ours"
    TRL = "trl"
    VERL = "verl"


class LocalOptions(Options):
    """Options of a TRL or verl reward function."""

    completions: Literal["text", "messages"] = "text"
    """Whether a TRL function sees prompts and completions as text, or as lists of chat messages."""


def function_of(module: ModuleType, attribute: str) -> RewardFunction:
    """The reward function of a file: the named one, one with a usual name, or the only one there.

    Raises:
        ConfigError: It is missing, no function, or not the only one.
    """
    own = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_")
    }
    usual = [name for name in _USUAL_NAMES if name in own]
    name = attribute or (usual[0] if usual else next(iter(own)) if len(own) == 1 else "")
    function = getattr(module, name, None) if name else None
    if not callable(function):
        listed = ", ".join(sorted(own)) or "(none)"
        wanted = f"no function {attribute!r}" if attribute else "no single reward function"
        raise ConfigError(
            f"{module.__file__}: {wanted}; it holds {listed}; name one after a colon, as in 'file.py:score'"
        )
    return function


def signature_of(function: RewardFunction) -> Signature:
    """Which signature a function has, by the names of its parameters.

    >>> signature_of(lambda completions, **columns: [0.0 for _ in completions])
    <Signature.TRL: 'trl'>

    Raises:
        ConfigError: None of the three, or a coroutine.
    """
    parameters = inspect.signature(function).parameters
    name = getattr(function, "__name__", "the reward function")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{name} is a coroutine; give a plain function, it has a process of its own")
    if "items" in parameters:
        return Signature.OURS
    if "completions" in parameters:
        return Signature.TRL
    if {"solution_str", "ground_truth"} <= parameters.keys():
        return Signature.VERL
    raise ConfigError(
        f"{name}({', '.join(parameters)}) has no known signature; write one of: "
        "verify(items, options, services), f(prompts, completions, **columns), "
        "f(data_source, solution_str, ground_truth, extra_info)"
    )


def adapted(function: RewardFunction, options: LocalOptions) -> Callable[[Sequence[Item]], list[Verdict]]:
    """A function with TRL's or verl's signature as one from items to verdicts.

    Raises:
        ConfigError: The signature is neither.
    """
    signature = signature_of(function)
    parameters = inspect.signature(function).parameters
    if signature is Signature.TRL:
        return lambda items: _trl_verdicts(function, parameters, items=items, form=options.completions)
    if signature is Signature.VERL:
        return lambda items: [_verl_verdict(function, parameters, item=item) for item in items]
    raise ConfigError("a function of items is a domain's verify and needs no adapter")


def verdict_of_reward(reward: object, parts: Mapping[str, float] = MappingProxyType({})) -> Verdict:
    """What a plain reward says; outside [0, 1] it is unknown, with advice.

    >>> verdict_of_reward(1.0).status, verdict_of_reward(0.25).status, verdict_of_reward(None).status
    (<Status.CORRECT: 'correct'>, <Status.WRONG: 'wrong'>, <Status.UNKNOWN: 'unknown'>)
    """
    if reward is None:
        return Verdict(status=Status.UNKNOWN, reward=None, reason="declined")
    number = finite(reward)
    if number is None:
        return _broken(f"the reward function returned {reward!r}; return a finite number in [0, 1] or None")
    if not 0.0 <= number <= 1.0:
        return _broken(
            f"the reward function returned {number}, outside [0, 1]; rescale it there, "
            "as in (r - lowest) / (highest - lowest)"
        )
    status = Status.CORRECT if number == 1.0 else Status.WRONG
    return Verdict(status=status, reward=number, parts=parts)


def _broken(detail: str) -> Verdict:
    return Verdict(status=Status.UNKNOWN, reward=None, reason="verifier_error", detail=detail[:500])


def _trl_verdicts(
    function: RewardFunction, parameters: Mapping[str, inspect.Parameter], *, items: Sequence[Item], form: str
) -> list[Verdict]:
    if not items:
        return []
    columns: dict[str, list[JsonValue]] = {}
    for name in dict.fromkeys(key for item in items for key in item.prompt.meta):
        columns[name] = [item.prompt.meta.get(name) for item in items]
    if form == "messages":
        columns["prompts"] = [[_turn(m.role, m.content) for m in item.prompt.messages] for item in items]
        columns["completions"] = [[_turn("assistant", item.response)] for item in items]
    else:
        columns["prompts"] = ["\n\n".join(m.content for m in item.prompt.messages) for item in items]
        columns["completions"] = [item.response for item in items]
    for name in _REFERENCE_NAMES:
        if _is_required(parameters.get(name)) or name == "reference":
            columns.setdefault(name, [item.prompt.reference for item in items])
    returned = function(**_accepted(columns, parameters))
    if not hasattr(returned, "__iter__") or isinstance(returned, str | Mapping):
        raise TypeError(f"expected a list with one reward per completion; got {returned!r}")
    return [verdict_of_reward(reward) for reward in cast("Sequence[object]", returned)]


def _verl_verdict(
    function: RewardFunction, parameters: Mapping[str, inspect.Parameter], *, item: Item
) -> Verdict:
    arguments: dict[str, JsonValue] = {
        "data_source": item.prompt.meta.get("data_source", item.prompt.source or item.prompt.domain),
        "solution_str": item.response,
        "ground_truth": item.prompt.reference,
        "extra_info": item.prompt.meta.get("extra_info", dict(item.prompt.meta)),
    }
    returned = function(**_accepted(arguments, parameters))
    if not isinstance(returned, Mapping):
        return verdict_of_reward(returned)
    scores = cast("Mapping[str, object]", returned)
    if "score" not in scores:
        raise KeyError(f"the returned dict has no 'score'; it has {sorted(map(str, scores))}")
    parts = {str(k): number for k, v in scores.items() if k != "score" and (number := finite(v)) is not None}
    return verdict_of_reward(scores["score"], parts)


def _turn(role: str, content: str) -> dict[str, JsonValue]:
    return {"role": role, "content": content}


def _accepted(values: Mapping[str, object], parameters: Mapping[str, inspect.Parameter]) -> dict[str, object]:
    """The values a function can take by name.

    Raises:
        ConfigError: It requires one that the row does not have.
    """
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    missing = [name for name, p in parameters.items() if _is_required(p) and name not in values]
    if missing:
        raise ConfigError(
            f"the reward function requires {', '.join(missing)}; the row offers {', '.join(sorted(values))}; "
            "add the column to the data, or give the parameter a default"
        )
    return {name: value for name, value in values.items() if takes_all or name in parameters}


def _is_required(parameter: inspect.Parameter | None) -> bool:
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return (
        parameter is not None and parameter.kind in by_name and parameter.default is inspect.Parameter.empty
    )
