"""CpuLayer: a layer's two halves in compiled code, one call each.

A layer of a small model takes a millisecond, and of that a call from Python to each product, norm, rotation
and gate takes a tenth. And steps with thousands of tokens are cut into pieces, so that what one operation
writes is still in the caches when the next one reads it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from minipaged.cpu.compiler.calls import Call
from minipaged.cpu.compiler.threads import barrier_address
from minipaged.cpu.layers.arguments import AfterArguments, BeforeArguments
from minipaged.cpu.layers.workspace import LayerRoom, RoomOfThread
from minipaged.cpu.products.panel import PANEL
from minipaged.cpu.products.panel_product import is_packed, product_threads
from minipaged.model.config import ModelConfig
from minipaged.model.layer import Layer

if TYPE_CHECKING:
    from minipaged.cpu.compiler.compiled import SharedWork

TOKENS_AT_ONCE = 256
"""Tokens of a step, at most, that go through a half together."""


def can_compile(layer: Layer, config: ModelConfig) -> bool:
    """Whether the loops are made for such a layer: all of its matrices are in panels."""
    attention, mlp = layer.self_attn, layer.mlp
    matrices = (attention.qkv_proj, attention.o_proj, mlp.gate_up_proj, mlp.down_proj)
    return all(is_packed(each.weight) for each in matrices) and config.intermediate_size % PANEL == 0


class CpuLayer:
    """A `LayerHalves` for the CPU, in float32 or bfloat16.

    Args:
        layer: whose weights it computes with. It keeps them; they are not to be exchanged any more.
        config: the model's shape.
        room: for its two halves, when they run at once; shared by all layers of the decoder.
    """

    def __init__(self, layer: Layer, config: ModelConfig, room: RoomOfThread) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self._weights = [each.data for each in layer.parameters()]  # their addresses are in use
        self._room = room
        self._heads_of_qkv = config.num_heads, config.num_kv_heads, config.num_kv_heads
        self._head_dim = config.head_dim
        self._hidden_size = config.hidden_size
        self._dtype = layer.input_layernorm.weight.dtype
        self._num_weights_before = attention.qkv_proj.weight.numel()
        self._num_weights_after = sum(
            each.weight.numel() for each in (attention.o_proj, mlp.gate_up_proj, mlp.down_proj)
        )
        self._before = BeforeArguments(
            hidden_size=config.hidden_size,
            num_queries=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            eps=config.rms_norm_eps,
            norm=_address(layer.input_layernorm.weight),
            qkv=_address(attention.qkv_proj.weight),
            qkv_bias=_address(attention.qkv_proj.bias),
            q_norm=_address(attention.q_norm.weight if attention.q_norm is not None else None),
            k_norm=_address(attention.k_norm.weight if attention.k_norm is not None else None),
        )
        self._after = AfterArguments(
            hidden_size=config.hidden_size,
            attended_size=config.num_heads * config.head_dim,
            intermediate_size=config.intermediate_size,
            eps=config.rms_norm_eps,
            norm=_address(layer.post_attention_layernorm.weight),
            o=_address(attention.o_proj.weight),
            o_bias=_address(attention.o_proj.bias),
            gate_up=_address(mlp.gate_up_proj.weight),
            down=_address(mlp.down_proj.weight),
        )

    @property
    def threads_for_decodes(self) -> int:
        """How many threads to use for decodes, however many there are: as many as one is worth."""
        return product_threads(self._num_weights_after, 1)

    def before_attention(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        num_tokens = len(hidden)
        hidden = self._fitting(hidden, self._hidden_size)
        cos, sin = (self._fitting(each, self._head_dim // 2, num_tokens) for each in (cos, sin))
        heads = hidden.new_empty(num_tokens, sum(self._heads_of_qkv), self._head_dim)
        for first in range(0, num_tokens, TOKENS_AT_ONCE):
            self.call_before(hidden, cos, sin, heads, self._room.room, first=first).run()
        q, k, v = heads.split(self._heads_of_qkv, dim=1)
        return q, k, v

    def after_attention(self, hidden: Tensor, attended: Tensor) -> Tensor:
        num_tokens = len(hidden)
        hidden = self._fitting(hidden, self._hidden_size)
        attended = self._fitting(attended, self._heads_of_qkv[0] * self._head_dim, num_tokens)
        result = torch.empty_like(hidden)  # [T, hidden]
        for first in range(0, num_tokens, TOKENS_AT_ONCE):
            self.call_after(hidden, attended, result, self._room.room, first=first).run()
        return result

    def call_before(
        self,
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
        heads: Tensor,
        room: LayerRoom,
        *,
        first: int = 0,
        num_threads: int | None = None,
    ) -> Call:
        """`before_attention` for at most `TOKENS_AT_ONCE` tokens, yet to be run. The call keeps no tensor
        alive that it is given, nor the room.

        Args:
            hidden, cos, sin: as there, contiguous and of the layer's dtype.
            heads: `[T, Hq + 2 * Hkv, D]`, written: queries, keys and values.
            room: for what lies between.
            first: the first token.
            num_threads: to use; as many as pay if not given.
        """
        arguments = type(self._before).from_buffer_copy(self._before)
        arguments.x = room.x_address
        arguments.hidden = _address(hidden, first)
        arguments.cos = _address(cos, first)
        arguments.sin = _address(sin, first)
        arguments.heads = _address(heads, first)
        num_tokens = len(hidden) - first
        return _call_on_threads(self._halves[0], arguments, num_tokens, self._num_weights_before, num_threads)

    def call_after(
        self,
        hidden: Tensor,
        attended: Tensor,
        result: Tensor,
        room: LayerRoom,
        *,
        first: int = 0,
        num_threads: int | None = None,
    ) -> Call:
        """`after_attention`, as `call_before`.

        Args:
            hidden, attended: as there, contiguous and of the layer's dtype.
            result: `[T, hidden]`, written; it may be `hidden`.
        """
        arguments = type(self._after).from_buffer_copy(self._after)
        arguments.x, arguments.gated = room.x_address, room.gated_address
        arguments.hidden = _address(hidden, first)
        arguments.attended = _address(attended, first)
        arguments.result = _address(result, first)
        num_tokens = len(hidden) - first
        return _call_on_threads(self._halves[1], arguments, num_tokens, self._num_weights_after, num_threads)

    @cached_property
    def _halves(self) -> tuple[SharedWork, SharedWork]:
        """Both in compiled code, imported when first used: loading a model does not wait for numba."""
        from minipaged.cpu.layers import layer_loops as loops

        if self._dtype == torch.float32:
            return loops.before_float32, loops.after_float32
        return loops.before_bfloat16, loops.after_bfloat16

    def _fitting(self, tensor: Tensor, size: int, num_tokens: int | None = None) -> Tensor:
        """A tensor as compiled code reads it: so many numbers for each token, one behind the other.

        Raises:
            ValueError: it has others.
        """
        expected = (len(tensor) if num_tokens is None else num_tokens) * size
        if tensor.numel() != expected or tensor.dtype != self._dtype:
            raise ValueError(
                f"{tensor.dtype} {list(tensor.shape)} is not {expected} numbers of {self._dtype}"
            )
        return tensor.contiguous()


def _call_on_threads(
    work: SharedWork,
    arguments: BeforeArguments | AfterArguments,
    num_left: int,
    num_weights: int,
    num_threads: int | None,
) -> Call:
    """A half over the next of the tokens that are left, as a call for several threads."""
    num_tokens = min(num_left, TOKENS_AT_ONCE)
    num_threads = num_threads or product_threads(num_weights, num_tokens)
    arguments.num_tokens = num_tokens
    arguments.num_threads = num_threads
    arguments.barrier = barrier_address(num_threads)
    return Call(work, arguments, num_threads)


def _address(tensor: Tensor | None, row: int = 0) -> int:
    """Of a tensor's row; 0 if there is none."""
    if tensor is None:
        return 0
    return tensor.data_ptr() + row * tensor.stride(0) * tensor.element_size()
