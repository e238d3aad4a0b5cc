"""Weights by name: reading them from a folder and copying them into a module in place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from bimetal.core.errors import RolloutError


def tensors_of(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder's safetensors files.

    Raises:
        RolloutError: There are none.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RolloutError(f"no safetensors file in {folder}; save the weights there first")
    return {name: tensor for file in files for name, tensor in load_file(file).items()}


def copy_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy the tensors into the module; a parameter tied to one of them may be missing.

    Raises:
        RolloutError: A name is missing or unknown.
    """
    state = module.state_dict()
    unknown = sorted(set(tensors) - set(state))
    given = {state[name].data_ptr() for name in tensors if name in state}
    missing = sorted(n for n, t in state.items() if n not in tensors and t.data_ptr() not in given)
    if unknown or missing:
        raise RolloutError(
            f"the weights do not fit the module; found {len(unknown)} unknown names {unknown[:3]} and "
            f"{len(missing)} missing ones {missing[:3]}; load weights of the same model"
        )
    module.load_state_dict(dict(tensors), strict=False)
