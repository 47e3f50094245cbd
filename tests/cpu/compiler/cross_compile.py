"""Compiles the loops for other processors: a script, since it takes numba's optimiser from its process.

It takes numba's IR before it is optimised. LLVM optimises and compiles it for each target, as there.

    python -P cross_compile.py FOLDER     writes IR, and assembly for each target, in files for each loop
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import llvmlite.binding as llvm
from numba.core import codegen

import minipaged.cpu
from minipaged.cpu.compiler import code_cache

TARGETS = {
    "neoverse-n1": "aarch64-unknown-linux-gnu",
    "apple-m1": "arm64-apple-macosx14.0.0",
}
"""Processors by their names in LLVM, and the systems on which they are met."""

LOOPS = (
    "attention.threaded_attention.attend_bfloat16",
    "attention.cache_write_loops.write_tokens",
    "layers.layer_loops.before_bfloat16",
    "layers.layer_loops.after_float32",
    "compiler.calls.run_calls",
)
"""The other loops are inside of these, or are the same in the other dtype."""


@contextmanager
def no_cache() -> Iterator[bool]:
    yield False


def main(folder: Path) -> None:
    unoptimised: list[str] = []
    code_cache.own_cache = no_cache  # what is kept has no IR
    llvm.get_host_cpu_features = llvm.FeatureMap  # no AVX-512: the loops ask for it
    take_away(codegen.CPUCodeLibrary, unoptimised)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for loop in LOOPS:
        module, name = f"{minipaged.cpu.__name__}.{loop}".rsplit(".", 1)
        work = getattr(import_module(module), name)
        assert work.address
        (folder / f"{name}.ll").write_text(unoptimised[-1], encoding="utf-8")
        for cpu, triple in TARGETS.items():
            (folder / f"{name}.{cpu}.s").write_text(assembly(unoptimised[-1], cpu, triple), encoding="utf-8")


def take_away(library: type, unoptimised: list[str]) -> None:
    """No library of numba's is optimised from now on. The IR of each is noted instead."""
    library._optimize_functions = lambda self, ll_module: None
    library._optimize_final_module = lambda self: unoptimised.append(str(self._final_module))


def assembly(ir: str, cpu: str, triple: str) -> str:
    lines = [line for line in ir.splitlines() if not line.startswith(("target triple", "target datalayout"))]
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
    module = llvm.parse_assembly("\n".join(lines))
    module.triple = triple
    module.data_layout = str(machine.target_data)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(module, passes)
    module.verify()
    return machine.emit_assembly(module)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
