"""What an engine on a CPU computes with: a decoder in compiled code in the place of the plain one.

The plain decoder is not changed: engines share a loaded model, and some of them run what is read in `model/`.
So the compiled one is another object. It has copies of the matrices in panels, and shares the other weights.
It is made once for each plain decoder, and lives as long as that does.

An engine that has loaded its model itself has no use for rows. Then each matrix in panels takes the place of
its rows, and no weight is in memory twice.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

from torch import nn

from minipaged.cpu.decoder import CompiledDecoder
from minipaged.cpu.products.choice import (
    TRIAL_BYTES,
    ChosenLinear,
    ProductChoice,
    choose_product,
    panels_pay,
)
from minipaged.cpu.recognise import why_not_compiled
from minipaged.errors import ConfigError
from minipaged.model.decoder import Decoder
from minipaged.model.layer import Linear

logger = logging.getLogger(__name__)

_made: WeakKeyDictionary[Decoder, dict[str, Decoder]] = WeakKeyDictionary()
"""For each decoder, those that were made of it."""


def plain_decoder(decoder: Decoder) -> Decoder:
    """The decoder itself if it is plain, else one of its weights in rows."""
    if not isinstance(decoder, CompiledDecoder):
        return decoder
    return _once(decoder, "plain", decoder.plain)


def compiled_decoder(decoder: Decoder, *, required: bool, takes_over: bool) -> Decoder:
    """A decoder in compiled code. If the loops do not compute it, the plain one, with a warning.

    Args:
        decoder: on the CPU; plain, or compiled for another engine.
        required: compile, also where a trial would find that PyTorch multiplies faster.
        takes_over: only the result will be used, so the decoder's rows may go.

    Raises:
        ConfigError: it is required, and the loops do not compute it.
    """
    reason = why_not_compiled(decoder)
    if reason is not None and required:
        raise ConfigError(
            f"compiled_layers=True, but compiled code does not compute this model: {reason}. Leave it out, "
            "or set compiled_layers=False"
        )
    if reason is not None:
        logger.info("The layers run in PyTorch, since compiled code does not compute them: %s", reason)
        return plain_decoder(decoder)
    if isinstance(decoder, CompiledDecoder):
        return decoder
    if takes_over:
        return _compile(decoder, required=required, takes_over=True)
    return _once(decoder, f"{required=}", lambda: _compile(decoder, required=required, takes_over=False))


def _compile(decoder: Decoder, *, required: bool, takes_over: bool) -> Decoder:
    """In compiled code if that is faster, else with the products that are. A short trial multiplies some of
    the matrices, with as many threads as torch has now. For a small model a trial would cost more than it can
    win."""
    weights = [module.weight for module in decoder.modules() if isinstance(module, Linear)]
    small = sum(weight.nbytes for weight in weights) < TRIAL_BYTES
    product = ProductChoice() if small else choose_product(weights)

    def chosen(linear: Linear) -> nn.Module:
        return ChosenLinear(linear, product)

    if not (required or small or panels_pay(weights, product)):
        return _with_linears(decoder, chosen)
    if takes_over:
        return CompiledDecoder(decoder, chosen, takes_over=True)
    return _once(decoder, "compiled", lambda: CompiledDecoder(decoder, chosen, takes_over=False))


def _with_linears(decoder: Decoder, replacement: Callable[[Linear], nn.Module]) -> Decoder:
    """A decoder of the same tensors, with others in the place of its projections."""
    tensors = [*decoder.parameters(), *decoder.buffers()]
    twin = copy.deepcopy(decoder, {id(tensor): tensor for tensor in tensors})
    for name, module in list(twin.named_modules()):
        if isinstance(module, Linear):
            twin.set_submodule(name, replacement(module))
    return twin


def _once(decoder: Decoder, what: str, make: Callable[[], Decoder]) -> Decoder:
    """The decoder of this name that was made of another before, or is made now. It must not refer to that
    one: it would never end."""
    made = _made.setdefault(decoder, {})
    if what not in made:
        made[what] = make()
    return made[what]
