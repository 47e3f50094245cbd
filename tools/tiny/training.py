"""A training run of the embedded model: settings, model, optimiser, and the training step."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from minipaged.errors import ConfigError
from tools.tiny.rows import IGNORED, DrawDocument, evaluation_rows, training_rows
from tools.tiny.tokenizer import VOCAB_SIZE

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

MAX_POSITIONS = 1024


@dataclass(frozen=True)
class Settings:
    """The settings that, together with the corpus, determine the trained model.

    Attributes:
        steps: number of optimiser steps.
        step_tokens: tokens of one step.
        context: tokens in a row. In the last `long_share` of the steps, rows have all 1024 positions.
        peak_lr: largest learning rate. It is reached after `warmup` steps. In the last `decay_share` of the
            steps, the rate falls linearly to 0.
        dropout: dropout rate for the outputs of attention and MLP during training.
    """

    seed: int = 20230917
    steps: int = 4000
    step_tokens: int = 4096
    context: int = 512
    long_share: float = 0.1
    peak_lr: float = 3e-3
    warmup: int = 100
    decay_share: float = 0.3
    weight_decay: float = 0.3
    dropout: float = 0.1
    clip_norm: float = 1.0
    vocab_size: int = VOCAB_SIZE
    hidden_size: int = 192
    intermediate_size: int = 512
    num_layers: int = 6
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 32

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step. Steps count from 0."""
        rise = (step + 1) / self.warmup if self.warmup else 1.0
        fall = (self.steps - step) / max(1.0, self.decay_share * self.steps)
        return self.peak_lr * min(1.0, rise, fall)

    def context_of(self, step: int) -> int:
        """Length of a step's rows."""
        return MAX_POSITIONS if step >= (1 - self.long_share) * self.steps else self.context

    def course(self, step: int) -> tuple[float, int]:
        """The settings of a step that depend on the length of the run: learning rate and context."""
        return self.learning_rate(step), self.context_of(step)


def new_model(settings: Settings, vocab_size: int) -> LlamaForCausalLM:
    """A new model with random float32 weights, in Hugging Face's implementation."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(settings.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=settings.hidden_size,
            intermediate_size=settings.intermediate_size,
            num_hidden_layers=settings.num_layers,
            num_attention_heads=settings.num_heads,
            num_key_value_heads=settings.num_kv_heads,
            head_dim=settings.head_dim,
            max_position_embeddings=MAX_POSITIONS,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    # transformers applies dropout only to a Llama's attention weights.
    for name, module in model.named_modules():
        if name.endswith(".mlp"):
            module.register_forward_hook(lambda mlp, _, out: F.dropout(out, settings.dropout, mlp.training))
        if name.endswith(".self_attn"):
            module.register_forward_hook(
                lambda attention, _, out: (F.dropout(out[0], settings.dropout, attention.training), *out[1:])
            )
    return model


def new_optimiser(model: LlamaForCausalLM, settings: Settings) -> torch.optim.AdamW:
    """AdamW without weight decay for the norms' weights."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": settings.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.peak_lr, betas=(0.9, 0.95), fused=True)


def loss_of(model: LlamaForCausalLM, inputs: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Cross entropy in nats. `inputs` and `labels` are int64 `[B, T]`."""
    logits = model(inputs, use_cache=False).logits  # [B, T, V]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction=reduction)


@torch.inference_mode()
def held_out_loss(model: LlamaForCausalLM, documents: Sequence[Sequence[int]]) -> float:
    """Mean loss in nats over all tokens, except for the first token of each document."""
    total, count = 0.0, 0
    model.eval()
    for inputs, labels in evaluation_rows(documents, rows=32):
        total += loss_of(model, inputs, labels, reduction="sum").item()
        count += int((labels != IGNORED).sum())
    model.train()
    return total / count if count else math.nan


class Training:
    """One training run, step by step.

    Args:
        settings: seeds and sizes.
        draw: draws a story.
        vocab_size: number of the tokenizer's tokens.

    Attributes:
        step: number of finished steps.
        lengthened_at: steps at which the run's length was changed. A change is recorded only if the new
            length would have given earlier steps other learning rates or contexts.
    """

    def __init__(self, settings: Settings, draw: DrawDocument, vocab_size: int) -> None:
        self.settings = settings
        self.model = new_model(settings, vocab_size)
        self.step = 0
        self.lengthened_at: list[int] = []
        self._draw = draw
        self._optimiser = new_optimiser(self.model, settings)

    def advance(self) -> float:
        """Do one training step.

        Returns:
            The loss of the step.
        """
        settings = self.settings
        context = settings.context_of(self.step)
        rows = training_rows(
            self._draw,
            max(1, settings.step_tokens // context),
            context + 1,
            f"{settings.seed}/{self.step}",
        )
        for group in self._optimiser.param_groups:
            group["lr"] = settings.learning_rate(self.step)
        torch.manual_seed(settings.seed + self.step)  # seeds the dropout
        loss = loss_of(self.model, rows[:, :-1], rows[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
        self._optimiser.step()
        self._optimiser.zero_grad()
        self.step += 1
        return loss.item()

    def save(self, path: Path) -> None:
        """Write a checkpoint. An interrupt leaves the old file, never an incomplete one."""
        state = {
            "settings": asdict(self.settings),
            "step": self.step,
            "lengthened_at": self.lengthened_at,
            "model": self.model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        torch.save(state, path.with_suffix(".new"))
        os.replace(path.with_suffix(".new"), path)

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint. Only the number of steps may differ from the checkpoint's settings.

        Raises:
            ConfigError: the checkpoint is from a run with other settings.
        """
        state = torch.load(path, weights_only=True)
        if {**state["settings"], "steps": self.settings.steps} != asdict(self.settings):
            raise ConfigError(
                f"{path} was made with other settings: {state['settings']}. Delete it, or use them."
            )
        self.step = state["step"]
        self.lengthened_at = state["lengthened_at"]
        before = Settings(**state["settings"])
        if any(before.course(step) != self.settings.course(step) for step in range(self.step)):
            self.lengthened_at = [*self.lengthened_at, self.step]
        self.model.load_state_dict(state["model"])
        self._optimiser.load_state_dict(state["optimiser"])
