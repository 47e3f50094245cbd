"""float32 vectors as LLVM values, and the operations on them, for the innermost loops of this package."""

from __future__ import annotations

from typing import NamedTuple

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils

from minipaged.cpu.compiler.instructions import INT32, INT64

LANES = 16
"""How many numbers an LLVM vector has here. Where the processor's registers are shorter, LLVM uses several
for one vector."""

HAS_AVX512 = bool(llvm.get_host_cpu_features().get("avx512f"))
"""Whether there are 32 registers that each hold one vector. AVX2 has 16 registers and needs two for a vector;
NEON has 32 registers and needs four."""

FLOAT = ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
INTEGERS = ir.VectorType(INT32, LANES)


class Matrix(NamedTuple):
    """Where an operand's first number is, and how many bytes lie between two of its rows."""

    address: ir.Value
    stride: ir.Value
    number_bytes: int


def matrix_of(context, builder, type_, value) -> Matrix:
    """The `Matrix` that an argument stands for, from its numba type and its LLVM value.

    The argument is a *corner*, a tuple (two-dimensional array, row, column) that says where the matrix
    begins. The array's rows are contiguous. A slice could say this too, but numba would check its bounds.
    """
    array_type = type_.types[0]
    array, row, column = (builder.extract_value(value, i) for i in range(3))
    array = context.make_array(array_type)(context, builder, array)
    stride, _ = cgutils.unpack_tuple(builder, array.strides)
    number_bytes = array_type.dtype.bitwidth // 8
    first = builder.add(builder.ptrtoint(array.data, INT64), builder.mul(column, INT64(number_bytes)))
    return Matrix(builder.add(first, builder.mul(row, stride)), stride, number_bytes)


def row_of(builder, matrix, index):
    """The address of a row."""
    number = INT64(index) if isinstance(index, int) else index
    return builder.add(matrix.address, builder.mul(number, matrix.stride))


def phi_of(builder, type_, *incoming):
    phi = builder.phi(type_)
    for value, block in incoming:
        phi.add_incoming(value, block)
    return phi


def load_vector(builder, address, number_bytes=4):
    """Load `LANES` numbers as float32. A bfloat16 has 2 bytes, which are the upper half of a float32."""
    if number_bytes == 4:
        return builder.load(builder.inttoptr(address, ir.PointerType(VECTOR)), align=4)
    halves = ir.PointerType(ir.VectorType(ir.IntType(16), LANES))
    wide = builder.zext(builder.load(builder.inttoptr(address, halves), align=2), INTEGERS)
    return builder.bitcast(builder.shl(wide, INTEGERS([16] * LANES)), VECTOR)


def store_vector(builder, vector, address, number_bytes=4):
    """Store `LANES` numbers at an address, rounded to bfloat16 if `number_bytes` is 2."""
    if number_bytes == 2:
        upper = builder.lshr(builder.bitcast(rounded(builder, vector, 2), INTEGERS), INTEGERS([16] * LANES))
        vector = builder.trunc(upper, ir.VectorType(ir.IntType(16), LANES))
    builder.store(vector, builder.inttoptr(address, ir.PointerType(vector.type)), align=number_bytes)


def rounded(builder, vector, number_bytes):
    """A vector rounded to numbers of 4 bytes (float32) or 2 bytes (bfloat16, as in `numbers.kept`)."""
    if number_bytes == 4:
        return vector
    bits = builder.bitcast(vector, INTEGERS)
    odd = builder.and_(builder.lshr(bits, INTEGERS([16] * LANES)), INTEGERS([1] * LANES))
    raised = builder.add(builder.add(bits, INTEGERS([0x7FFF] * LANES)), odd)
    cut = builder.bitcast(builder.and_(raised, INTEGERS([0xFFFF0000] * LANES)), VECTOR)
    not_a_number = builder.bitcast(INTEGERS([0x7FC00000] * LANES), VECTOR)
    return builder.select(builder.fcmp_unordered("uno", vector, vector), not_a_number, cut)


def zeros():
    """A vector of zeros."""
    return ir.Constant(VECTOR, [0.0] * LANES)


def spread(builder, address):
    """The number at an address in all lanes of a vector."""
    return splat(builder, builder.load(builder.inttoptr(address, ir.PointerType(FLOAT))))


def splat(builder, number):
    """A number in all lanes of a vector."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, LANES), [0] * LANES))


def multiply_add(builder, a, b, c):
    """a × b + c, rounded once."""
    signature = ir.FunctionType(VECTOR, [VECTOR] * 3)
    function = cgutils.get_or_insert_function(builder.module, signature, f"llvm.fma.v{LANES}f32")
    return builder.call(function, [a, b, c])


def sum_of_lanes(builder, vector):
    """The sum of a vector's lanes. The order is free, so it takes four steps and not sixteen."""
    signature = ir.FunctionType(FLOAT, [FLOAT, VECTOR])
    function = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.vector.reduce.fadd.v{LANES}f32"
    )
    return builder.call(function, [FLOAT(0.0), vector], fastmath=("reassoc",))


def emit_cases(builder, number, most, emit):
    """Emit a piece of code for each value of `number` from 1 to `most`, with `emit(value)`.

    In this way, the number of registers that each piece fills is known when it is compiled.
    """
    end = builder.append_basic_block("end")
    choice = builder.switch(number, end)
    for value in range(1, most + 1):
        block = builder.append_basic_block(f"case{value}")
        choice.add_case(INT64(value), block)
        builder.position_at_end(block)
        emit(value)
        builder.branch(end)
    builder.position_at_end(end)


def emit_loop(builder, count, step, body):
    """Emit a loop that runs `body(i)` for i in range(0, count, step). count is at least 1."""
    before = builder.block
    loop, after = (builder.append_basic_block(name) for name in ("loop", "after"))
    builder.branch(loop)
    builder.position_at_end(loop)
    i = phi_of(builder, INT64, (INT64(0), before))
    body(i)
    following = builder.add(i, INT64(step))
    i.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
    builder.position_at_end(after)
