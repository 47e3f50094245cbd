"""Random weights in a real model's shape. They are enough for all measurements, but not for useful text."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def fill_random(views: Mapping[str, Tensor], seed: int) -> None:
    """Fill weight views with seeded noise. Its scale keeps activations and logits near 1.

    The numbers are drawn on the device of the views. The same seed gives the same weights only for the same
    kind of device and the same dtype.

    Args:
        views: weight views from `Decoder.weight_views()`.
        seed: seed of the random numbers.
    """
    generators: dict[torch.device, torch.Generator] = {}
    for name, view in views.items():
        if view.device not in generators:
            generators[view.device] = torch.Generator(view.device).manual_seed(seed)
        if name.endswith("norm.weight"):
            view.fill_(1.0)
            continue
        # A sum of fan_in products of unit variance has variance fan_in.
        scale = view.shape[1] ** -0.5 if view.dim() == 2 else 0.02
        view.normal_(0.0, scale, generator=generators[view.device])
