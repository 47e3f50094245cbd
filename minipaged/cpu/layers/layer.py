"""CompiledLayer: a layer in compiled code, with one call for each of its two halves.

The first half is what comes before attention, the second half what comes after it. A layer of a small model
takes a millisecond. If Python called each product, norm, rotation and gate, these calls would take a tenth of
that time. Steps with thousands of tokens are cut into pieces, so that the results of one operation are still
in the caches when the next one reads them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from minipaged.cpu.compiler.calls import Call
from minipaged.cpu.compiler.threads import Work, barrier_address
from minipaged.cpu.layers.layer_loops import (
    AfterArguments,
    BeforeArguments,
    after_bfloat16,
    after_float32,
    before_bfloat16,
    before_float32,
)
from minipaged.cpu.layers.workspace import LayerWorkspace, WorkspaceOfThread
from minipaged.cpu.products.panel_linear import PanelLinear, product_threads
from minipaged.model.config import ModelConfig
from minipaged.model.layer import Layer, Linear

TOKENS_AT_ONCE = 256
"""The most tokens of a step that go through one half of a layer together."""


class CompiledLayer(nn.Module):
    """A `Layer` for the CPU, in float32 or bfloat16.

    Args:
        layer: the layer with the weights. These must not be replaced by other tensors afterwards, because the
            compiled code uses their addresses.
        config: the model's sizes, which the layer must have (see `recognise.why_not_compiled`).
        in_panels: turns a projection's weight into panels (see `products/panel_linear.py`).
        workspace: memory for intermediate results. All layers of the decoder share it.
    """

    def __init__(
        self,
        layer: Layer,
        config: ModelConfig,
        in_panels: Callable[[Linear], PanelLinear],
        workspace: WorkspaceOfThread,
    ) -> None:
        super().__init__()
        attention, mlp = layer.self_attn, layer.mlp
        qkv, o = in_panels(attention.qkv_proj), in_panels(attention.o_proj)
        gate_up, down = in_panels(mlp.gate_up_proj), in_panels(mlp.down_proj)
        norms = {"q_norm": attention.q_norm, "k_norm": attention.k_norm}
        head_norms = {name: norm for name, norm in norms.items() if norm is not None}
        # The weights keep the names that they have in a `Layer`.
        self.input_layernorm = layer.input_layernorm
        self.self_attn = nn.ModuleDict({"qkv_proj": qkv, "o_proj": o, **head_norms})
        self.post_attention_layernorm = layer.post_attention_layernorm
        self.mlp = nn.ModuleDict({"gate_up_proj": gate_up, "down_proj": down})
        self._weights = [each.data for each in self.parameters()]
        self._workspace = workspace
        self._heads_of_qkv = config.num_heads, config.num_kv_heads, config.num_kv_heads
        self._head_dim = config.head_dim
        self._hidden_size = config.hidden_size
        self._dtype = layer.input_layernorm.weight.dtype
        self._num_weights_before = qkv.weight.numel()
        self._num_weights_after = sum(each.weight.numel() for each in (o, gate_up, down))
        in_float32 = self._dtype == torch.float32
        self._first_half = before_float32 if in_float32 else before_bfloat16
        self._second_half = after_float32 if in_float32 else after_bfloat16
        self._before = BeforeArguments(
            hidden_size=config.hidden_size,
            num_queries=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            eps=config.rms_norm_eps,
            norm=_address(layer.input_layernorm.weight),
            qkv=_address(qkv.weight),
            qkv_bias=_address(qkv.bias),
            q_norm=_address(None if attention.q_norm is None else attention.q_norm.weight),
            k_norm=_address(None if attention.k_norm is None else attention.k_norm.weight),
        )
        self._after = AfterArguments(
            hidden_size=config.hidden_size,
            attended_size=config.num_heads * config.head_dim,
            intermediate_size=config.intermediate_size,
            eps=config.rms_norm_eps,
            norm=_address(layer.post_attention_layernorm.weight),
            o=_address(o.weight),
            o_bias=_address(o.bias),
            gate_up=_address(gate_up.weight),
            down=_address(down.weight),
        )

    @property
    def threads_for_decodes(self) -> int:
        """How many threads to use for a step of decodes.

        The work of a single decode decides, so the result is the same for any number of decodes.
        """
        return product_threads(self._num_weights_after, 1)

    def before_attention(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute what `Layer.before_attention` computes."""
        num_tokens = len(hidden)
        hidden = self._fitting(hidden, self._hidden_size)
        cos, sin = (self._fitting(each, self._head_dim // 2, num_tokens) for each in (cos, sin))
        heads = hidden.new_empty(num_tokens, sum(self._heads_of_qkv), self._head_dim)
        for first in range(0, num_tokens, TOKENS_AT_ONCE):
            self.call_before(hidden, cos, sin, heads, self._workspace.workspace, first=first).run()
        q, k, v = heads.split(self._heads_of_qkv, dim=1)
        return q, k, v

    def after_attention(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Compute what `Layer.after_attention` computes."""
        num_tokens = len(hidden)
        hidden = self._fitting(hidden, self._hidden_size)
        attended = self._fitting(attended, self._heads_of_qkv[0] * self._head_dim, num_tokens)
        result = torch.empty_like(hidden)  # [T, hidden]
        for first in range(0, num_tokens, TOKENS_AT_ONCE):
            self.call_after(hidden, attended, result, self._workspace.workspace, first=first).run()
        return result

    def call_before(
        self,
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
        heads: Tensor,
        workspace: LayerWorkspace,
        *,
        first: int = 0,
        num_threads: int | None = None,
    ) -> Call:
        """`before_attention` for at most `TOKENS_AT_ONCE` tokens, as a call that has not run yet.

        The call keeps neither its tensors nor the workspace alive.

        Args:
            hidden, cos, sin: as in `before_attention`, contiguous and of the layer's dtype.
            heads: `[T, Hq + 2 * Hkv, D]`. It is overwritten with queries, keys and values.
            workspace: memory for intermediate results.
            first: the row of the first token to compute.
            num_threads: number of threads to use. If it is not given, the amount of work decides.
        """
        arguments = type(self._before).from_buffer_copy(self._before)
        arguments.x = workspace.x_address
        arguments.hidden = _address(hidden, first)
        arguments.cos = _address(cos, first)
        arguments.sin = _address(sin, first)
        arguments.heads = _address(heads, first)
        num_tokens = len(hidden) - first
        return _call_on_threads(
            self._first_half, arguments, num_tokens, self._num_weights_before, num_threads
        )

    def call_after(
        self,
        hidden: Tensor,
        attended: Tensor,
        result: Tensor,
        workspace: LayerWorkspace,
        *,
        first: int = 0,
        num_threads: int | None = None,
    ) -> Call:
        """`after_attention` as a call that has not run yet; see `call_before`.

        Args:
            hidden, attended: as in `after_attention`, contiguous and of the layer's dtype.
            result: `[T, hidden]`. It is overwritten, and may be `hidden`.
        """
        arguments = type(self._after).from_buffer_copy(self._after)
        arguments.x, arguments.gated = workspace.x_address, workspace.gated_address
        arguments.hidden = _address(hidden, first)
        arguments.attended = _address(attended, first)
        arguments.result = _address(result, first)
        num_tokens = len(hidden) - first
        return _call_on_threads(
            self._second_half, arguments, num_tokens, self._num_weights_after, num_threads
        )

    def _fitting(self, tensor: Tensor, size: int, num_tokens: int | None = None) -> Tensor:
        """Check that a tensor has `size` numbers for each token, and make it contiguous for compiled code.

        Raises:
            ValueError: the tensor has another size or dtype.
        """
        expected = (len(tensor) if num_tokens is None else num_tokens) * size
        if tensor.numel() != expected or tensor.dtype != self._dtype:
            raise ValueError(
                f"{tensor.dtype} {list(tensor.shape)} is not {expected} numbers of {self._dtype}"
            )
        return tensor.contiguous()


def _call_on_threads(
    work: Work,
    arguments: BeforeArguments | AfterArguments,
    num_left: int,
    num_weights: int,
    num_threads: int | None,
) -> Call:
    """A call that computes one half of the layer for the next piece of the tokens, on several threads."""
    num_tokens = min(num_left, TOKENS_AT_ONCE)
    num_threads = num_threads or product_threads(num_weights, num_tokens)
    arguments.num_tokens = num_tokens
    arguments.num_threads = num_threads
    arguments.barrier = barrier_address(num_threads)
    return Call(work, arguments, num_threads)


def _address(tensor: Tensor | None, row: int = 0) -> int:
    """The address of a tensor's row; 0 if there is no tensor."""
    if tensor is None:
        return 0
    return tensor.data_ptr() + row * tensor.stride(0) * tensor.element_size()
