"""Random weights of a real model's shape: everything but the words can be measured with them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def fill_random(slots: Mapping[str, Tensor], seed: int) -> None:
    """Fills weight slots with seeded noise, scaled so that activations and logits stay near 1.

    Drawn on the device where the slots live: the same seed gives the same weights on the same kind
    of device and dtype, not across them.

    Args:
        slots: from `Decoder.weight_slots()`.
    """
    generators: dict[torch.device, torch.Generator] = {}
    for name, slot in slots.items():
        if slot.device not in generators:
            generators[slot.device] = torch.Generator(slot.device).manual_seed(seed)
        if name.endswith("norm.weight"):
            slot.fill_(1.0)
            continue
        # A sum of fan_in products of unit variance has variance fan_in.
        scale = slot.shape[1] ** -0.5 if slot.dim() == 2 else 0.02
        slot.normal_(0.0, scale, generator=generators[slot.device])
