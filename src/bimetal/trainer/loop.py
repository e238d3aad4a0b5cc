"""The loop: SFT, RL, every hybrid and every sequence of them run through these lines.

It does not know which method runs, which domain, or which backend.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from bimetal.core.metrics import Metrics
from bimetal.core.types import Group
from bimetal.data.collate import collate
from bimetal.trainer.accounting import pass_cost, rollout_cost, update_cost
from bimetal.trainer.observe import rollout_metrics, unknown_share_guard
from bimetal.trainer.parts import optimizer_parts
from bimetal.trainer.run import Run
from bimetal.trainer.signals import signals, wanted
from bimetal.trainer.step import STEP, StepShape, passes_of, take_step


def train(run: Run, *, should_stop: Callable[[], bool]) -> bool:
    """Run every stage to the end of its budget.

    Returns:
        Whether the run is finished; ``False`` when it was asked to stop, after a checkpoint.
    """
    if run.position.step == 0 and run.position.batch == 0:
        run.evaluate()
    while True:
        while not run.budget.is_stage_spent:
            groups = roll_out(run)
            update(run, groups)
            run.finish_batch(groups)
            if should_stop() or run.budget.is_over_wall_limit:
                run.save()
                return False
        run.end_stage()
        if run.position.stage + 1 == len(run.plans):
            break
        run.begin_stage(run.position.stage + 1)
    run.finish()
    return True


def roll_out(run: Run) -> tuple[Group, ...]:
    """Draw, draft, generate and judge the groups of the next roll-out batch."""
    start = perf_counter()
    draws = run.stage.draw(run.visits)
    run.pipeline.submit(draws)
    groups = run.pipeline.take(
        len(draws),
        run.stage.order,
        batch=run.position.batch,
        progress=run.budget.stage_progress,
        version=run.position.step,
    )
    run.budget.spend(rollout_cost(run.flops, groups))
    limit = run.recipe.trainer.unknown_share_limit
    unknown_share_guard(groups, limit=limit, forget=run.journal.forget_verdicts)
    run.times["rollout"] = perf_counter() - start
    return groups


def update(run: Run, groups: tuple[Group, ...]) -> None:
    """Give credit, and move the models once per part of the roll-out batch."""
    start = perf_counter()
    method, options, trainer = run.stage.plan.method, run.stage.plan.options, run.recipe.trainer
    updates = options.updates_per_rollout * options.epochs
    passes = wanted(method, groups, updates=updates)
    found = signals(run.models, passes, micro_batch_tokens=trainer.micro_batch_tokens)
    run.budget.spend(pass_cost(run.flops, passes))
    credits = dict(zip((t.id for g in groups for t in g.traces), method.credit(groups, found), strict=True))
    run.traces.add(groups, credits, stage=run.stage.name, batch=run.position.batch)
    news = rollout_metrics(groups)
    for rows in optimizer_parts(groups, credits, options, streams=run.streams, batch=run.position.batch):
        compare = run.is_due(trainer.source_gradient_every)
        shape = StepShape(
            micro_batch_tokens=trainer.micro_batch_tokens,
            compare_sources=compare,
            number=run.position.step,
            old_is_policy=updates == 1,
        )
        batch = collate(rows, terms=[t.name for t in method.terms], signals=found)
        metrics = take_step(
            run.models,
            method,
            {STEP: batch},
            progress=run.budget.stage_progress,
            shape=shape,
            ranks=run.ranks,
        )
        traces = [row.trace for row in rows]
        run.budget.spend(update_cost(run.flops, traces, passes=passes_of(run.models, method, batch, shape)))
        run.position.step += 1
        run.times["update"], start = perf_counter() - start, perf_counter()
        run.report(metrics.merged(news))
        news = Metrics()
    run.backend.load_weights(None, run.position.step)
