"""Every error that minipaged raises on purpose.

All derive from `MinipagedError`. Those caused by a bad argument are also `ValueError`s, so that
code which does not know us still catches them. A message says what was asked, what is possible,
and what to do.
"""


class MinipagedError(Exception):
    """The base of all errors raised on purpose."""


class ConfigError(MinipagedError, ValueError):
    """An engine setting that is invalid, or that contradicts another one."""


class SamplingParamsError(MinipagedError, ValueError):
    """A sampling parameter out of its range, or two that contradict each other."""


class PromptError(MinipagedError, ValueError):
    """A prompt that cannot be served: empty, not encodable, or with token ids out of the vocabulary."""


class RequestTooLargeError(PromptError):
    """A request that could never fit, whatever else runs. The message holds the arithmetic."""


class RequestIdError(MinipagedError, ValueError):
    """A request id that is already in use."""


class EngineBusyError(MinipagedError):
    """Another thread is using the engine; or it has unfinished requests, and what was asked for needs it to
    itself."""


class ForkedProcessError(MinipagedError):
    """An engine cannot compute in this process: the threads that it counts on were lost in a fork."""


class ModelNotFoundError(MinipagedError, ValueError):
    """No model by that name: not built in, not a folder, not a file, not in the hub."""


class UnsupportedModelError(MinipagedError, ValueError):
    """A model with an architecture or a feature that the decoder does not have."""


class WeightsError(MinipagedError, ValueError):
    """A weight file whose tensors are missing, superfluous, misshapen or unreadable."""


class OutOfBlocksError(MinipagedError):
    """The block pool was asked for more blocks than are free."""


class InvariantError(MinipagedError):
    """The engine's bookkeeping contradicts itself: a bug, never a user's mistake."""


class CourseError(MinipagedError, ValueError):
    """A chapter or an exercise that does not exist, or files of the course that are not as they should be."""
