"""The list of core options: adding one is a deliberate edit here and a line in the changelog."""

from __future__ import annotations

from bimetal.config.describe import sections
from bimetal.config.schema import Recipe

OWN = {
    "": "name seed output model data domain backend budget trainer verifier evaluation stage",
    "domain.NAME": "name weight",
    "backend": "name",
    "budget": "currency amount wall_seconds",
    "trainer": "micro_batch_tokens threads checkpoint_every_steps keep_checkpoints source_gradient_every "
    "unknown_share_limit max_prompt_tokens max_response_tokens save_stage_models",
    "verifier": "workers time_limit_seconds",
    "evaluation": "every_steps problems_per_domain samples temperature split",
    "stage.N": "name method curriculum optimizer critic_optimizer share prompts_per_batch group_size "
    "demonstration_prompts updates_per_rollout epochs temperature",
    "stage.N.method": "name",
    "stage.N.curriculum": "name",
    "stage.N.optimizer": "name learning_rate betas weight_decay warmup_share schedule clip_norm",
    "stage.N.critic_optimizer": "name learning_rate betas weight_decay warmup_share schedule clip_norm",
}


def test_no_core_option_appears_by_accident() -> None:
    found = {path: set(model.model_fields) for path, model in sections(Recipe)}
    for path, names in OWN.items():
        assert found.pop(path) == set(names.split()), path
    # The sections of model and data have tests of their own.
    assert {path.partition(".")[0] for path in found} <= {"model", "data"}
