"""Deployment: a model on one or more devices, and how much of their memory is left for the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from minipaged.config import EngineConfig
from minipaged.engine.memory_plan import MemoryPlan
from minipaged.errors import ConfigError
from minipaged.kv.size import bytes_per_block, resolve_max_model_len
from minipaged.loading.known_models import ModelShape
from minipaged.sim.device import Device
from minipaged.sim.step_time import Roofline

DEFAULT_UTILIZATION = 0.92


@dataclass(frozen=True)
class Deployment:
    """A model on devices. All sizes are totals over all devices.

    Attributes:
        model: the model, in its published dtype.
        device: one of the devices.
        num_devices: how many devices share each layer.
        kv_cache_bytes: memory for the KV cache. With `None`, it is 92 % of the devices' memory minus the
            weights. Activations are not counted.
        overhead: seconds that each step takes in addition to the roofline.

    Raises:
        ConfigError: the number of the model's weights is not known, or they leave no memory.
    """

    model: ModelShape
    device: Device
    num_devices: int = 1
    kv_cache_bytes: int | None = None
    overhead: float = 0.0

    def __post_init__(self) -> None:
        if self.num_devices < 1 or self.overhead < 0:
            raise ConfigError(f"a deployment has at least 1 device and an overhead of at least 0: {self}")
        if self.usable_kv_bytes <= 0:
            raise ConfigError(
                f"{self.num_devices} × {self.device.name} × {DEFAULT_UTILIZATION:g} − "
                f"{self.weight_bytes / 1e9:,.1f} GB of weights leaves no memory for the KV cache of "
                f"{self.model.name}: take more devices or larger ones"
            )

    @property
    def num_parameters(self) -> int:
        """The number of weights of the model."""
        if self.model.num_parameters is None:
            raise ConfigError(
                f"the number of weights of {self.model.name} does not follow from its config, and without "
                "it there is no step time: name a model that the engine runs, or one of `minipaged kv`"
            )
        return self.model.num_parameters

    @property
    def weight_bytes(self) -> int:
        weights = self.model.weights_bytes()
        assert weights is not None
        return weights

    @property
    def usable_kv_bytes(self) -> int:
        """Memory for the KV cache."""
        if self.kv_cache_bytes is not None:
            return self.kv_cache_bytes
        self.num_parameters  # noqa: B018 (raises if it is not known)
        return int(self.num_devices * self.device.memory_bytes * DEFAULT_UTILIZATION) - self.weight_bytes

    def step_time(self) -> Roofline:
        """How long its steps take."""
        return Roofline.of(
            self.model,
            self.num_parameters,
            self.device,
            num_devices=self.num_devices,
            overhead=self.overhead,
        )

    def memory_plan(self, config: EngineConfig) -> MemoryPlan:
        """The memory plan of an engine with these settings. `config.num_blocks` overrides the memory size.

        Raises:
            ConfigError: the memory cannot hold one request of `config.max_model_len`.
        """
        size = bytes_per_block(self.model.kv_shape(), config.block_size)
        num_blocks = config.num_blocks or self.usable_kv_bytes // size
        return MemoryPlan(
            num_blocks=num_blocks,
            block_size=config.block_size,
            max_model_len=resolve_max_model_len(
                config.max_model_len, self.model.max_position_embeddings, num_blocks, config.block_size
            ),
            bytes_per_block=size,
            num_cpu_blocks=num_blocks - 1 if config.preemption_mode == "swap" else None,
            device_name="GPU",
        )
