"""SamplingDefaults: the sampling parameters that a model's files give.

They apply to requests without parameters, as in vLLM. This module does not import torch.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from minipaged.errors import SamplingParamsError
from minipaged.sampling.params import SamplingParams


@dataclass(frozen=True)
class SamplingDefaults:
    """The sampling values of a model's files, unchanged. They are checked only when they are used.

    Attributes:
        temperature, top_k, top_p, min_p, repetition_penalty, max_tokens: as in `SamplingParams`; `None`
            where the files say nothing.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None

    @property
    def named(self) -> dict[str, float | int]:
        """The parameters that the files name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def params(self) -> SamplingParams:
        """`SamplingParams` with these values. The other parameters have their default values.

        Raises:
            SamplingParamsError: one of these values is not possible.
        """
        try:
            return SamplingParams(**self.named)  # pyright: ignore[reportArgumentType]
        except SamplingParamsError as error:
            raise SamplingParamsError(
                f"the model's own sampling values cannot be used: {error}. Give SamplingParams, or set "
                "generation_config='vllm' to leave the model's values out"
            ) from error

    def __str__(self) -> str:
        """The parameters as text, such as `temperature=0.6, top_p=0.95`; empty if the files name none."""
        return ", ".join(f"{name}={value:g}" for name, value in self.named.items())
