"""Generation inside the trainer's process, with the trainer's own module: no second copy of the weights.

Requests run in waves of at most ``max_batch``, sorted by context length so that little is padded.
A wave is left-padded, reads its contexts once (a context shared by several requests once for all of
them), and then writes one token per sequence and forward pass from the KV cache. When a quarter of
the rows has finished they leave the batch; counts decide that, never the clock, so a call repeated
with the same weights does the same work.

Matrix kernels may round differently by batch shape. With ``fixed_slots`` every pass has the same
shape whatever is asked: request i runs in slot i modulo ``fixed_slots``, contexts are padded to
``max_context``, and a request's tokens are the same, bit for bit, whatever the other slots hold.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from pydantic import Field
from torch import nn

from bimetal.config.options import Options
from bimetal.core.errors import RolloutError, boundary
from bimetal.rollout.answers import Answers
from bimetal.rollout.backend import Health, Output, Request, Sampling
from bimetal.rollout.cached import CachedRows, positions_of, vocabulary_of
from bimetal.rollout.sampling import draw, rules_of
from bimetal.rollout.stopping import Decode
from bimetal.rollout.weights import copy_weights, tensors_of


class Config(Options):
    """Options of this backend."""

    max_batch: int = Field(default=64, ge=1, le=4096)
    """Sequences written at the same time; more need more memory and, up to a point, less time."""

    fixed_slots: int = Field(default=0, ge=0, le=4096)
    """Slots of the fixed-slot mode, in which tokens do not depend on the rest of the batch; 0 is off."""

    max_context: int = Field(default=512, ge=1, le=1_048_576)
    """Tokens of the longest context in fixed-slot mode; every context is padded to it."""


def connect(
    options: Config,
    *,
    module: nn.Module,
    pad_token_id: int,
    decode: Decode,
    device: torch.device | None = None,
    autocast: torch.dtype | None = None,
) -> LocalBackend:
    """A backend that writes with this module.

    Args:
        options: The backend's section of the recipe.
        module: A Hugging Face causal language model with a KV cache; it stays the caller's.
        pad_token_id: Any id the embedding has; it fills places that attention never sees.
        decode: Ids to text, for stop strings.
        device: Where the module is; that of its first parameter if not given.
        autocast: The type of ``torch.autocast`` that the trainer computes in, if it does.

    ``load_weights`` of the backend takes ``None`` (the module was updated in place), a mapping from
    names to tensors, or the path of a folder with safetensors files.
    """
    where = device if device is not None else next(module.parameters()).device
    return LocalBackend(
        options, module=module, pad=pad_token_id, decode=decode, device=where, autocast=autocast
    )


class LocalBackend:
    """See ``connect``; one call at a time, others wait."""

    def __init__(
        self,
        options: Config,
        *,
        module: nn.Module,
        pad: int,
        decode: Decode,
        device: torch.device,
        autocast: torch.dtype | None,
    ) -> None:
        self._options = options
        self._module: nn.Module | None = module
        self._pad = pad
        self._decode = decode
        self._device = device
        self._autocast = autocast
        self._version = 0
        self._call = threading.Lock()
        # Touched by ``cancel`` from other threads; single set operations, so the lock is short.
        self._cancel = threading.Lock()
        self._running: set[str] = set()
        self._cancelled: set[str] = set()

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """Write an answer to every request; one output per request, in order.

        An answer also ends, with ``Finish.LENGTH``, where the model has no further position.

        Raises:
            RolloutError: A request cannot be served (too long, empty, unknown token id, twice the
                same id), the logits are not finite, or the engine failed.
        """
        with self._call, boundary(RolloutError, "local backend: generate"):
            module = self._open_module()
            admitted = [self._admitted(request, module) for request in requests]
            ids = {request.id for request in admitted}
            if len(ids) < len(admitted):
                raise RolloutError("two requests of one call have the same id; give each its own")
            with self._cancel:
                self._running, self._cancelled = ids, set()
            outputs: dict[str, Output] = {}
            with _evaluating(module), torch.inference_mode(), self._precision():
                for wave in self._waves(admitted):
                    outputs |= {output.request_id: output for output in self._write(module, wave)}
            return [outputs[request.id] for request in requests]

    def load_weights(self, handle: object, version: int) -> None:
        """Serve these weights from now on; waits for a running call.

        Raises:
            RolloutError: The handle is of no known kind, or its tensors do not fit the module.
        """
        with self._call, boundary(RolloutError, "local backend: load weights"):
            module = self._open_module()
            if isinstance(handle, Mapping):
                copy_weights(module, handle)
            elif isinstance(handle, str | Path):
                copy_weights(module, tensors_of(Path(handle)))
            elif handle is not None:
                raise RolloutError(
                    f"weights must be None, a mapping of tensors or a folder; found {type(handle).__name__}"
                )
            self._version = version

    def cancel(self, request_ids: Sequence[str]) -> None:
        """End these requests of the running call before their next token."""
        with self._cancel:
            self._cancelled |= self._running.intersection(request_ids)

    def health(self) -> Health:
        """Say whether the engine can serve; never raises."""
        if self._module is None:
            return Health(ok=False, version=self._version, detail="closed")
        return Health(ok=True, version=self._version, detail=f"in process on {self._device}")

    def close(self) -> None:
        """Let go of the module; calling it twice is allowed."""
        with self._call:
            self._module = None

    def _open_module(self) -> nn.Module:
        if self._module is None:
            raise RolloutError("the local backend is closed; connect a new one")
        return self._module

    def _precision(self) -> AbstractContextManager[object]:
        if self._autocast is None:
            return nullcontext()
        return torch.autocast(self._device.type, dtype=self._autocast)

    def _admitted(self, request: Request, module: nn.Module) -> Request:
        """The request with ``max_tokens`` cut to the model's room.

        Raises:
            RolloutError: It cannot be served.
        """
        context = request.context_ids
        limit = positions_of(module)
        vocabulary = vocabulary_of(module)
        fault = ""
        if not context:
            fault = "the context is empty; give at least one token"
        elif not all(0 <= token < vocabulary for token in context):
            fault = f"a token id is outside the model's vocabulary of {vocabulary}; render with its tokenizer"
        elif len(context) >= limit:
            fault = f"the context has {len(context)} tokens; the model has {limit} positions; shorten it"
        elif self._options.fixed_slots and len(context) > self._options.max_context:
            fault = (
                f"the context has {len(context)} tokens, fixed-slot mode holds "
                f"{self._options.max_context}; raise backend.max_context"
            )
        if fault:
            raise RolloutError(f"request {request.id}: {fault}")
        return _cut(request, room=limit - len(context))

    def _waves(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Requests that run together, in the order in which they run."""
        slots = self._options.fixed_slots
        if slots:
            yield from (list(requests[i : i + slots]) for i in range(0, len(requests), slots))
            return
        order = sorted(range(len(requests)), key=lambda i: (len(requests[i].context_ids), i))
        waves = -(-len(order) // self._options.max_batch)
        for wave in range(waves):
            # Waves of nearly equal size: 65 requests are 33 + 32, not 64 + 1.
            first, last = wave * len(order) // waves, (wave + 1) * len(order) // waves
            yield [requests[i] for i in order[first:last]]

    def _write(self, module: nn.Module, requests: list[Request]) -> list[Output]:
        """One wave: all its tokens."""
        rows = _padded_to_slots(requests, self._options.fixed_slots, self._pad)
        answers = Answers(rows, decode=self._decode, device=self._device, vocabulary=vocabulary_of(module))
        rules = rules_of(rows, vocabulary=vocabulary_of(module), device=self._device)
        fixed = self._options.max_context if self._options.fixed_slots else None
        state = CachedRows(
            module,
            rows,
            pad=self._pad,
            fixed_width=fixed,
        )
        for step in range(rules.noise.shape[1]):
            with self._cancel:
                cancelled = frozenset(self._cancelled)
            answers.cancel(cancelled)
            tokens, logprobs = draw(state.logits, rules, step=step)
            running = answers.take(state.rows, tokens=tokens, logprobs=logprobs, step=step)
            alive = int(running.sum())
            if not alive:
                break
            if not self._options.fixed_slots and alive <= 0.75 * len(running):
                kept = running.nonzero().squeeze(1)
                rules, tokens = rules.at(kept), tokens[kept]
                state.keep(kept)
            state.advance(module, tokens)
        return answers.outputs(count=len(requests), version=self._version)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; afterwards every submodule is as it was."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _cut(request: Request, *, room: int) -> Request:
    if request.sampling.max_tokens < 1:
        raise RolloutError(
            f"request {request.id}: max_tokens must be at least 1; found {request.sampling.max_tokens}"
        )
    if request.sampling.max_tokens <= room:
        return request
    return replace(request, sampling=replace(request.sampling, max_tokens=room))


def _padded_to_slots(requests: list[Request], slots: int, pad: int) -> list[Request]:
    """The requests and, in the slots they leave free, idle ones that write one token."""
    idle = Request(id="", context_ids=(pad,), key=0, sampling=Sampling(temperature=0.0, max_tokens=1))
    return requests + [idle] * (slots - len(requests))
