"""What a decoder computes with on a CPU: the fastest matrix product, and layers in compiled code."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from minipaged.cpu.layers.layer import TOKENS_AT_ONCE, CpuLayer, can_compile
from minipaged.cpu.layers.norm import cpu_norm
from minipaged.cpu.layers.workspace import RoomOfThread
from minipaged.cpu.products.choice import TRIAL_BYTES, ProductChoice, choose_product, packing_pays
from minipaged.cpu.products.panel_product import can_pack, is_packed, packed, packed_linear, packed_rows
from minipaged.model.decoder import Decoder
from minipaged.model.leaves import Linear


@torch.inference_mode()
def use_cpu_kernels(decoder: Decoder) -> None:
    """Put a decoder's matrices in the order that the CPU's loops read, and the loops in its layers' place.

    A short trial multiplies some of the matrices, with as many threads as torch has now. One after the
    other is then packed, so that no more than one is in memory twice. A small model is packed without a
    trial, which would take longer than all that the model may ever lose by it; and loading it does not wait
    for numba.
    """
    weights = decoder.matrices()
    small = sum(weight.nbytes for weight in weights) < TRIAL_BYTES
    product = ProductChoice() if small else choose_product(weights)
    if small or packing_pays(weights, product):
        for weight in weights:
            if can_pack(weight):
                weight.data = packed(weight.data)
    for module in decoder.modules():
        if isinstance(module, Linear):
            module.product = packed_linear if is_packed(module.weight) else product
    decoder.rows_of = cpu_rows
    layers = decoder.own_layers()
    if all(can_compile(layer, decoder.config) for layer in layers):
        room = RoomOfThread(decoder.config, TOKENS_AT_ONCE)
        decoder.norm.norm = cpu_norm
        decoder.faster_layers = [CpuLayer(layer, decoder.config, room) for layer in layers]


def cpu_rows(ids: Tensor, weight: Tensor) -> Tensor:
    """`F.embedding`, of a matrix in panels or in rows."""
    return packed_rows(ids, weight) if is_packed(weight) else F.embedding(ids, weight)
