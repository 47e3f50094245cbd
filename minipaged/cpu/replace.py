"""Replace an engine's plain decoder by one in compiled code.

The plain decoder is not changed: engines share a loaded model, and some of them run the plain code in
`model/`. So the compiled decoder is a separate object. It has copies of the matrices in panels (see
`products/panel_linear.py`), and shares the other weights. It is made once for each plain decoder, and lives
as long as the plain decoder.

If an engine does not share its loaded model, it does not need the matrices in rows. Then each matrix in
panels replaces the matrix in rows, and no weight stays in memory twice.
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
"""For each decoder, the decoders that were made from it, by name."""


def plain_decoder(decoder: Decoder) -> Decoder:
    """The decoder itself if it is plain. Otherwise a plain decoder with the same weights, in rows."""
    if not isinstance(decoder, CompiledDecoder):
        return decoder
    return _once(decoder, "plain", decoder.plain)


def compiled_decoder(decoder: Decoder, *, required: bool, takes_over: bool) -> Decoder:
    """Return the decoder in compiled code. If the loops cannot compute it, log this and return the plain one.

    Args:
        decoder: a decoder on the CPU. It is plain, or was compiled for another engine.
        required: whether to compile even if a trial would show that PyTorch multiplies faster.
        takes_over: the caller uses only the result, so the plain decoder's matrices may be freed.

    Raises:
        ConfigError: `required` is true, and the loops cannot compute this decoder.
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
    """The decoder in compiled code if that is faster, else the plain code with the fastest matrix products.

    A short trial multiplies some of the matrices, with torch's current number of threads. For a small model
    there is no trial, since the trial would take longer than it could save.
    """
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
    """A copy of the decoder that shares its tensors and has other modules for its projections."""
    tensors = [*decoder.parameters(), *decoder.buffers()]
    twin = copy.deepcopy(decoder, {id(tensor): tensor for tensor in tensors})
    for name, module in list(twin.named_modules()):
        if isinstance(module, Linear):
            twin.set_submodule(name, replacement(module))
    return twin


def _once(decoder: Decoder, what: str, make: Callable[[], Decoder]) -> Decoder:
    """The decoder with the name `what` that was made from `decoder`. If there is none yet, `make` makes it.

    The new decoder must not refer to `decoder`, because then `decoder` would never be freed.
    """
    made = _made.setdefault(decoder, {})
    if what not in made:
        made[what] = make()
    return made[what]
