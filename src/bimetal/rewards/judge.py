"""A verifier, loaded from a domain module or a user's file, and one group judged by it without ever raising.

This runs inside a worker process and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pydantic import ValidationError

from bimetal.config.options import Options
from bimetal.core.catalogue import Location, Source, load
from bimetal.core.errors import BimetalError, ConfigError, DataError, VerifierError, boundary
from bimetal.core.types import Item, JsonValue, Services, Status, Verdict
from bimetal.rewards.local import LocalOptions, Signature, adapted, function_of, signature_of
from bimetal.rewards.wire import Document, verdict_document

DomainVerify = Callable[[Sequence[Item], Options, Services], Sequence[Verdict]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A verifier with its options bound; ``timeout_status`` is what a hanging answer becomes."""

    name: str
    verify: Callable[[Sequence[Item]], object]
    timeout_status: Status


def load_judge(location: Location, options: Mapping[str, JsonValue]) -> Judge:
    """Load the verifier that lives there and check its options.

    Raises:
        ConfigError: The code raised, exports no verifier, or refuses the options.
    """
    entry = load(location)
    status = Status(getattr(entry.module, "TIMEOUT_STATUS", Status.UNPARSEABLE))
    if status not in {Status.UNPARSEABLE, Status.WRONG}:
        raise ConfigError(f"TIMEOUT_STATUS of {location.name!r} must be unparseable or wrong; got {status}")
    if location.source is Source.FILE:
        function = function_of(entry.module, location.attribute)
    else:
        function = getattr(entry.module, "verify", None)
        if function is None:
            raise ConfigError(f"domain {location.name!r} ({location.module}) exports no function verify")
    if location.source is Source.FILE and signature_of(function) is not Signature.OURS:
        local = cast("LocalOptions", _checked_options(LocalOptions, options, name=location.name))
        return Judge(name=location.name, verify=adapted(function, local), timeout_status=status)
    verify = cast("DomainVerify", function)
    bound = _checked_options(getattr(entry.module, "Config", Options), options, name=location.name)
    return Judge(
        name=location.name, verify=lambda items: verify(items, bound, Services()), timeout_status=status
    )


def judged(judge: Judge, items: Sequence[Item]) -> list[Document]:
    """Exactly one verdict per item, as JSON, whatever the verifier does.

    A verifier that raises over a group is asked again item by item, so that one item cannot spoil others.

    Raises:
        MemoryError: Memory ran out; the process should end, and the item be tried once more in a fresh one.
    """
    try:
        with boundary(VerifierError, f"verify {items[0].prompt.id}" if items else "verify"):
            returned = judge.verify(items)
            verdicts = list(cast("Sequence[object]", returned))
    except (BimetalError, SystemExit, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from None
        if len(items) > 1:
            return [document for item in items for document in judged(judge, [item])]
        reason = "bad_row" if isinstance(error, DataError) else "verifier_error"
        message = str(error) if isinstance(error, BimetalError) else f"{type(error).__name__}: {error}"
        return [_unknown(judge, message, reason=reason) for _ in items]
    if len(verdicts) != len(items):
        message = f"the verifier returned {len(verdicts)} verdicts for {len(items)} responses"
        return [_unknown(judge, message) for _ in items]
    return [_document(judge, verdict) for verdict in verdicts]


def _document(judge: Judge, verdict: object) -> Document:
    try:
        document = verdict_document(verdict)
    except (TypeError, ValueError) as error:
        return _unknown(judge, f"malformed verdict: {error}")
    return document if document["verifier"] else {**document, "verifier": judge.name}


def _unknown(judge: Judge, message: str, *, reason: str = "verifier_error") -> Document:
    verdict = Verdict(status=Status.UNKNOWN, reward=None, reason=reason, verifier=judge.name)
    return verdict_document(replace(verdict, detail=message[:500]))


def _checked_options(config: type[Options], options: Mapping[str, JsonValue], *, name: str) -> Options:
    try:
        return config.model_validate(dict(options))
    except ValidationError as error:
        found = "; ".join(
            f"{'.'.join(map(str, e['loc'])) or 'options'}: {e['msg']}, got {e['input']!r}"
            for e in error.errors()
        )
        known = ", ".join(config.model_fields) or "(none)"
        raise ConfigError(f"domain {name!r}: {found}; its options are: {known}") from error
