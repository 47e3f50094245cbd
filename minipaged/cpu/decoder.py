"""CompiledDecoder: a decoder whose layers, norm, logits and word embeddings are in compiled code."""

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
    """A `Decoder` with compiled parts. What it does with them it inherits: `forward`, `enter` and `logits`.

    Args:
        plain: whose weights it computes with, if `recognise.why_not_compiled` finds no reason. Matrices are
            copied in panels, the rest is shared.
        other_linear: what replaces a projection whose weight does not fit panels.
        takes_over: put the panels into the plain decoder in place of its rows, matrix by matrix, so that no
            more than one is in memory twice. The plain decoder cannot compute any more.
    """

    def __init__(
        self, plain: Decoder, other_linear: Callable[[Linear], nn.Module], *, takes_over: bool
    ) -> None:
        nn.Module.__init__(self)  # a Decoder's own would make weights
        self.config = config = plain.config
        copied: dict[nn.Parameter, nn.Parameter] = {}  # the word embeddings may be there twice

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
        # The types are those of what is replaced: the inherited methods call nothing else.
        self.embed_tokens = plain.embed_tokens
        if embeds_panels:
            self.embed_tokens = cast(Embedding, PanelEmbedding(panels_of(plain.embed_tokens.weight)))
        self.layers = cast(list[Layer], layers)
        self.norm = cast(RMSNorm, CompiledNorm(plain.norm))
        self.rotary = plain.rotary
        self.lm_head = cast(Linear, linear(plain.lm_head) if has_panels else other_linear(plain.lm_head))

    @property
    def compiled_layers(self) -> list[CompiledLayer]:
        """The layers, as what they are."""
        return cast(list[CompiledLayer], self.layers)

    @property
    def compiled_norm(self) -> CompiledNorm:
        """The norm, as what it is."""
        return cast(CompiledNorm, self.norm)

    def plain(self) -> Decoder:
        """A plain decoder with the same weights: matrices are copied in rows, the rest is shared."""
        plain = Decoder(self.config, self.dtype, self.device)
        mine = dict(self.named_parameters())
        for name, parameter in plain.named_parameters():
            weight = mine[name].data
            parameter.data = in_rows(weight) if weight.dim() == 3 else weight
        return plain

    def weight_views(self) -> dict[str, Tensor]:
        """As a `Decoder`'s, but of a copy: writing to them changes nothing."""
        return self.plain().weight_views()
