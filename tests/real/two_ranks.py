"""One rank of two: every method's step over real gloo ranks against the step of one rank.

Run by ``test_ranks.py`` as ``python -m tests.real.two_ranks FOLDER RANK``. Each rank builds the same scenes,
takes the same steps in several ways, and rank 0 writes what it found as JSON: case -> gap, allowed, and more.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bimetal.core.batch import Batch
from bimetal.core.errors import NonFiniteError
from bimetal.core.metrics import Metrics
from bimetal.data.microbatch import Piece, cut
from bimetal.objectives.method import Method, Need
from bimetal.testing.methods import Candidate, candidates
from bimetal.testing.scene import Scene, asked, scene
from bimetal.trainer.optimizer import LearningRate, RoleOptimizer
from bimetal.trainer.parallel import Ranks, shard
from bimetal.trainer.roles import CRITIC, POLICY, role_of
from bimetal.trainer.step import STEP, StepShape, take_step

SHAPE = StepShape(micro_batch_tokens=40)
TOLERANCE = 1e-9


def a_scene(method: Method, layout: str) -> Scene:
    """The same scene on every rank; its models sharded over the ranks if asked."""
    whole = scene(method, 0, drift="some")
    if layout == "sharded":
        for name in whole.models.trained:
            module = whole.models[name].module
            blocks = module.backbone.h if name == CRITIC else module.model.transformer.h
            role = role_of(name, shard(module, list(blocks)))
            role.optimizer = RoleOptimizer(role.parameters, name="sgd", rate=LearningRate(peak=1.0))
            whole.models.roles[name] = role
    return whole


def whole_tensor(x: Tensor) -> Tensor:
    """All of a tensor that may be sharded, as a copy."""
    return (x.full_tensor() if hasattr(x, "full_tensor") else x).detach().clone()


def change(whole: Scene, batch: Batch, ranks: Ranks) -> tuple[Tensor, Metrics]:
    """The change of all trained parameters by one real step, as one vector."""
    owned = [p for role in whole.models.trained for p in whole.models[role].parameters.values()]
    before = [whole_tensor(p) for p in owned]
    metrics = take_step(whole.models, whole.method, {STEP: batch}, progress=0.3, shape=SHAPE, ranks=ranks)
    return torch.cat([(whole_tensor(p) - b).reshape(-1) for p, b in zip(owned, before, strict=True)]), metrics


def long_rows_apart(method: Method, batch: Batch, ranks: Ranks) -> list[Piece]:
    """All long rows in one piece on rank 0, then dead ones; each short row in its own on rank 1.

    Where a method asks for whole groups, the groups take the place of the rows.
    """
    groups = batch.group.tolist() if Need.WHOLE_GROUPS in method.needs else list(range(batch.size))
    units = [tuple(i for i, g in enumerate(groups) if g == group) for group in sorted(set(groups))]
    lengths = batch.attention.sum(dim=1).tolist()
    sizes = [max(lengths[i] for i in unit) for unit in units]
    middle = sorted(sizes)[(len(sizes) - 1) // 2]
    long = tuple(i for unit, size in zip(units, sizes, strict=True) if size > middle for i in unit)
    short = [Piece(rows=unit) for unit, size in zip(units, sizes, strict=True) if size <= middle]
    if ranks.rank == 1:
        return short
    return [Piece(rows=long), *(Piece(rows=(0,), live=False) for _ in short[1:])]


def compared(one: Tensor, other: Tensor, parts: float) -> dict[str, float]:
    """How far apart two changes are, and how far they may be."""
    return {"gap": float((one - other).norm()), "allowed": TOLERANCE * parts, "norm": float(one.norm())}


def cases(candidate: Candidate, layout: str, ranks: Ranks) -> dict[str, Mapping[str, float]]:
    """One method in one layout: a real step, and a cut in which one rank has all the long rows."""
    single = scene(candidate.method(), 0, drift="some")
    batch = single.batch()
    parts = sum(
        ask.gradients(role=role).norm()
        for i in range(batch.size)
        for ask in [asked(single, batch, [Piece(rows=(i,))])]
        for role in ask.roles()
    )
    expected, alone = change(single, batch, Ranks())
    found, metrics = change(a_scene(candidate.method(), layout), batch, ranks)
    names = [name for name in alone if name.startswith(("term/", "ratio/", "gate/"))]
    away = max(abs((metrics.value(n) or 0.0) - (alone.value(n) or 0.0)) for n in names)

    apart = a_scene(candidate.method(), layout)
    ask = asked(apart, batch, long_rows_apart(apart.method, batch, ranks), ranks=ranks)
    gradients = [g for role in ask.roles() for g in ask.gradients(role=role).parts.values()]
    vector = -torch.cat([whole_tensor(g).reshape(-1) for g in gradients])
    lengths = [int(n) for n in batch.attention.sum(dim=1)]
    live = [sum(p.live for p in entry) for entry in cut(lengths, tokens=SHAPE.micro_batch_tokens, ranks=2)]
    return {
        f"{candidate.name}-{layout}-step": {
            **compared(expected, found, parts),
            "metrics_away": away,
            "norm_away": abs(metrics.value("gradient/norm") - alone.value("gradient/norm")),
            "live_rank_0": live[0],
            "live_rank_1": live[1],
        },
        f"{candidate.name}-{layout}-long_rows_apart": compared(expected, vector, parts),
    }


class Spoiled(nn.Module):
    """A policy that says not-a-number, on one rank only."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch, statistics, others):
        output = self.inner(batch, statistics, others)
        object.__setattr__(output, "logprobs", output.logprobs * math.nan)
        return output


def refused_everywhere(candidate: Candidate, ranks: Ranks) -> bool:
    """Whether a number that is not finite on rank 1 alone stops every rank before anything moves."""
    whole = scene(candidate.method(), 0)
    role = whole.models[POLICY]
    if ranks.rank == 1:
        role.module = Spoiled(role.module)
    before = [p.detach().clone() for p in role.parameters.values()]
    try:
        take_step(whole.models, whole.method, {STEP: whole.batch()}, progress=0.3, shape=SHAPE, ranks=ranks)
        stopped = False
    except NonFiniteError:
        moved = zip(before, role.parameters.values(), strict=True)
        stopped = all(torch.equal(b, p) for b, p in moved)
    return all(ranks.gather(stopped))


def main(folder: Path, rank: int) -> None:
    """Everything, in an order that is the same on both ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    ranks = Ranks.from_environment()
    found: dict[str, object] = {"gathered": ranks.gather(rank)}
    methods = {c.name: c for c in candidates() if c.name != "chord"}  # the variant chord_mu is chord
    for candidate in methods.values():
        for layout in ("plain", "sharded"):
            found |= cases(candidate, layout, ranks)
    found["refused"] = refused_everywhere(methods["grpo"], ranks)
    tensors = [torch.full((3,), float(rank + 1)), torch.ones((2, 2), dtype=torch.float64) * rank]
    ranks.sum_in_place(tensors)
    found["summed"] = [t.reshape(-1).tolist() for t in tensors]
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
