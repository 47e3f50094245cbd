"""Random weights of a real model's shape: everything but the words can be measured with them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def fill_random(views: Mapping[str, Tensor], seed: int) -> None:
    """Fills weight views with seeded noise, scaled so that activations and logits stay near 1.

    Drawn on the device where the views live: the same seed gives the same weights on the same kind
    of device and dtype, not across them.

    Args:
        views: from `Decoder.weight_views()`.
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
