"""CompiledDecoder: a decoder whose layers, norm, logits and word embeddings are compiled code."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from minipaged.cpu.layers.layer import TOKENS_AT_ONCE, CompiledLayer
from minipaged.cpu.layers.norm import CompiledNorm
from minipaged.cpu.layers.workspace import WorkspaceOfThread
from minipaged.cpu.products.panel_linear import (
    PanelEmbedding,
    PanelLinear,
    fits_panels,
    in_panels,
    in_rows,
)
from minipaged.model.decoder import Decoder
from minipaged.model.layer import Embedding, Layer, Linear, RMSNorm


class CompiledDecoder(Decoder):
    """A `Decoder` with compiled parts. The inherited `forward`, `enter` and `logits` call these parts.

    Args:
        plain: the decoder that has the weights. `recognise.why_not_compiled` must return `None` for it.
            Matrices are copied into panels (see `products/panel_linear.py`), and all other weights are
            shared.
        other_linear: makes the replacement for a projection whose weight does not fit panels.
        takes_over: whether to replace the plain decoder's matrices by the panels, one by one, so that only
            one matrix at a time is in memory twice. After that the plain decoder cannot compute any more.
    """

    def __init__(
        self, plain: Decoder, other_linear: Callable[[Linear], nn.Module], *, takes_over: bool
    ) -> None:
        nn.Module.__init__(self)  # Decoder.__init__ would allocate weights
        self.config = config = plain.config
        copied: dict[nn.Parameter, nn.Parameter] = {}  # the word embeddings may also be the output matrix

        def panels_of(weight: nn.Parameter) -> nn.Parameter:
            if weight not in copied:
                panels = in_panels(weight.data)
                copied[weight] = nn.Parameter(panels, requires_grad=False)
                if takes_over:
                    weight.data = panels
            return copied[weight]

        def linear(of: Linear) -> PanelLinear:
            return PanelLinear(panels_of(of.weight), of.bias)

        workspace = WorkspaceOfThread(config, TOKENS_AT_ONCE)
        layers = nn.ModuleList(CompiledLayer(each, config, linear, workspace) for each in plain.layers)
        has_panels = fits_panels(plain.lm_head.weight)
        embeds_panels = has_panels and plain.lm_head.weight is plain.embed_tokens.weight
        # The casts keep the types that `Decoder` declares. The inherited methods only call these parts.
        self.embed_tokens = plain.embed_tokens
        if embeds_panels:
            self.embed_tokens = cast(Embedding, PanelEmbedding(panels_of(plain.embed_tokens.weight)))
        self.layers = cast(list[Layer], layers)
        self.norm = cast(RMSNorm, CompiledNorm(plain.norm))
        self.rotary = plain.rotary
        self.lm_head = cast(Linear, linear(plain.lm_head) if has_panels else other_linear(plain.lm_head))

    @property
    def compiled_layers(self) -> list[CompiledLayer]:
        """The layers, with their real type."""
        return cast(list[CompiledLayer], self.layers)

    @property
    def compiled_norm(self) -> CompiledNorm:
        """The decoder's norm, cast to its class for the type checker."""
        return cast(CompiledNorm, self.norm)

    def plain(self) -> Decoder:
        """A plain decoder with the same weights. Matrices are copied into row-major order. All other
        weights are shared."""
        plain = Decoder(self.config, self.dtype, self.device)
        mine = dict(self.named_parameters())
        for name, parameter in plain.named_parameters():
            weight = mine[name].data
            parameter.data = in_rows(weight) if weight.dim() == 3 else weight
        return plain

    def weight_views(self) -> dict[str, Tensor]:
        """Like `Decoder.weight_views`, but of a copy. Writing to the views does not change this decoder."""
        return self.plain().weight_views()
