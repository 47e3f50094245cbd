"""The small steps of a layer, one kernel each: residual and norm, norm and rotation of heads, SiLU times up.

PyTorch launches a kernel for each operation. A decode step computes few numbers, so these launches take
longer than the arithmetic. Each of these kernels rounds where the PyTorch operations round, so that the
results differ from `minipaged/model/` only by the order of sums.
"""

# pyright: reportCallIssue=false
# (A launch takes options that are not parameters of the kernel.)

import torch
import triton
import triton.language as tl

GATE_TILE = 1024
"""How many numbers one program of `silu_times` computes."""


@triton.jit
def add_norm_kernel(
    x,  # [T, SIZE], contiguous
    residual,  # as x; overwritten with the sum
    weight,  # [SIZE]
    output,  # as x
    eps,
    SIZE: tl.constexpr,
    PADDED: tl.constexpr,  # SIZE, padded to a power of two
    ADDS: tl.constexpr,  # whether there is anything to add; if not, x is normed and the residual is not used
):
    """One program for each token."""
    at = tl.arange(0, PADDED)  # [PADDED]
    inside = at < SIZE
    row = tl.program_id(0).to(tl.int64) * SIZE + at
    dtype = output.dtype.element_ty
    numbers = tl.load(x + row, mask=inside, other=0.0).to(tl.float32)
    if ADDS:
        numbers += tl.load(residual + row, mask=inside, other=0.0).to(tl.float32)
        numbers = numbers.to(dtype)
        tl.store(residual + row, numbers, mask=inside)
        numbers = numbers.to(tl.float32)
    normed = (numbers * tl.rsqrt(tl.sum(numbers * numbers) / SIZE + eps)).to(dtype)
    scale = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + row, (scale * normed.to(tl.float32)).to(dtype), mask=inside)


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm of each row.

    Args:
        x: `[T, size]`, contiguous.
        weight: `[size]`.
        eps: added to the mean of the squares.

    Returns:
        `[T, size]`.
    """
    return _norm(x, x, weight, eps, adds=False)


def add_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Add `x` to `residual`, in place, and return the RMSNorm of the sum. Arguments as for `norm`."""
    return _norm(x, residual, weight, eps, adds=True)


def _norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float, *, adds: bool
) -> torch.Tensor:
    num_tokens, size = x.shape
    output = torch.empty_like(x)  # [T, size]
    if num_tokens:
        padded = triton.next_power_of_2(size)
        add_norm_kernel[(num_tokens,)](
            x,
            residual,
            weight,
            output,
            eps,
            SIZE=size,
            PADDED=padded,
            ADDS=adds,
            num_warps=min(max(padded // 512, 1), 16),
            enable_fp_fusion=True,
        )
    return output


@triton.jit
def rotate_kernel(
    heads,  # [T, num_heads + 2 * num_kv_heads, 2 * HALF], contiguous: queries, keys, values
    output,  # [T, num_heads + num_kv_heads, 2 * HALF], contiguous
    cos,  # [T, 1, HALF], contiguous
    sin,  # as cos
    query_weight,  # [2 * HALF]
    key_weight,  # as query_weight
    token_stride,  # from a token's heads to the next token's
    num_heads,
    eps,
    HALF: tl.constexpr,  # half of a head's numbers
    PADDED: tl.constexpr,  # HALF, padded to a power of two
    NORMS: tl.constexpr,  # whether heads are normed before they are rotated
):
    """One program for each query head and each key head of each token."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, PADDED)  # [PADDED]
    inside = at < HALF
    dtype = output.dtype.element_ty
    source = heads + token * token_stride + head * 2 * HALF + at
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + HALF, mask=inside, other=0.0)
    if NORMS:
        weight = query_weight if head < num_heads else key_weight
        a, b = first.to(tl.float32), second.to(tl.float32)
        scale = tl.rsqrt((tl.sum(a * a) + tl.sum(b * b)) / (2 * HALF) + eps)
        first = _product(tl.load(weight + at, mask=inside, other=0.0), (a * scale).to(dtype), dtype)
        second = _product(tl.load(weight + HALF + at, mask=inside, other=0.0), (b * scale).to(dtype), dtype)
    c = tl.load(cos + token * HALF + at, mask=inside, other=0.0)
    s = tl.load(sin + token * HALF + at, mask=inside, other=0.0)
    target = output + (token * tl.num_programs(1) + head) * 2 * HALF + at
    left, right = _product(first, c, dtype).to(tl.float32), _product(second, s, dtype).to(tl.float32)
    tl.store(target, (left - right).to(dtype), mask=inside)
    left, right = _product(second, c, dtype).to(tl.float32), _product(first, s, dtype).to(tl.float32)
    tl.store(target + HALF, (left + right).to(dtype), mask=inside)


@triton.jit
def _product(a, b, dtype: tl.constexpr):
    """The product, rounded as PyTorch rounds it."""
    return (a.to(tl.float32) * b.to(tl.float32)).to(dtype)


def rotate_heads(
    qkv: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    num_heads: int,
    num_kv_heads: int,
    norms: tuple[torch.Tensor, torch.Tensor, float] | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Split the heads of a step's tokens into queries, keys and values. Norm and rotate queries and keys.

    Args:
        qkv: `[T, (num_heads + 2 * num_kv_heads) * D]`, contiguous.
        cos: `[T, 1, D / 2]`, contiguous.
        sin: as `cos`.
        num_heads: number of query heads.
        num_kv_heads: number of key heads, and of value heads.
        norms: the norms' weights `[D]` for queries and for keys, and the number that is added to the mean of
            the squares. `None` if heads are not normed.

    Returns:
        q `[T, num_heads, D]`, k and v `[T, num_kv_heads, D]`, as `AttendFn` takes them.
    """
    half, num_rotated = cos.shape[-1], num_heads + num_kv_heads
    heads = qkv.unflatten(-1, (-1, 2 * half))  # [T, num_heads + 2 * num_kv_heads, D]
    rotated = torch.empty_like(heads[:, :num_rotated], memory_format=torch.contiguous_format)
    query_weight, key_weight, eps = norms or (qkv, qkv, 0.0)
    if len(qkv):
        padded = triton.next_power_of_2(half)
        rotate_kernel[(len(qkv), num_rotated)](
            heads,
            rotated,
            cos,
            sin,
            query_weight,
            key_weight,
            heads.stride(0),
            num_heads,
            eps,
            HALF=half,
            PADDED=padded,
            NORMS=norms is not None,
            num_warps=1,
            enable_fp_fusion=True,
        )
    return rotated[:, :num_heads], rotated[:, num_heads:], heads[:, num_rotated:]


@triton.jit
def silu_times_kernel(
    gate_up,  # [T, 2 * SIZE], contiguous: gates, then the numbers that they multiply
    output,  # [T, SIZE], contiguous
    SIZE: tl.constexpr,
    TILE: tl.constexpr,
):
    """One program for each tile of each token."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)  # [TILE]
    inside = at < SIZE
    dtype = output.dtype.element_ty
    gate = tl.load(gate_up + token * 2 * SIZE + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * 2 * SIZE + SIZE + at, mask=inside, other=0.0)
    opened = (gate / (1.0 + tl.exp(-gate))).to(dtype)
    tl.store(output + token * SIZE + at, _product(opened, up, dtype), mask=inside)


def silu_times(gate_up: torch.Tensor) -> torch.Tensor:
    """Compute `silu(gate) * up` `[T, size]`.

    Args:
        gate_up: `[T, 2 * size]`, contiguous. The gates come first.
    """
    num_tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    output = gate_up.new_empty(num_tokens, size)  # [T, size]
    if num_tokens:
        tile = min(GATE_TILE, triton.next_power_of_2(size))
        silu_times_kernel[(num_tokens, -(-size // tile))](
            gate_up, output, SIZE=size, TILE=tile, enable_fp_fusion=True
        )
    return output
