"""Every error that minipaged raises on purpose.

All derive from `MinipagedError`. Errors caused by a bad argument are also `ValueError`s, so that code which
knows nothing of minipaged can catch them. A message says what was asked, what is possible, and what to do.
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
    """A request that is too large to fit even if it runs alone. The message shows the arithmetic."""


class RequestIdError(MinipagedError, ValueError):
    """A request id that is already in use."""


class EngineBusyError(MinipagedError):
    """Another thread is using the engine, or it has unfinished requests and the call does not allow any."""


class ForkedProcessError(MinipagedError):
    """The process was forked, and the fork lost the threads that an engine computes with."""


class ModelNotFoundError(MinipagedError, ValueError):
    """There is no model of that name: it is not built in, not a folder or file, and not on the hub."""


class UnsupportedModelError(MinipagedError, ValueError):
    """A model with an architecture or a feature that the decoder does not have."""


class WeightsError(MinipagedError, ValueError):
    """A weight file whose tensors are missing, superfluous, misshapen or unreadable."""


class OutOfBlocksError(MinipagedError):
    """The block pool was asked for more blocks than are free."""


class InvariantError(MinipagedError):
    """The engine's bookkeeping contradicts itself. This is always a bug, never a user's mistake."""


class TraceError(MinipagedError, ValueError):
    """A trace file that cannot be read, or a trace that breaks the rules of the engine's bookkeeping."""


class CourseError(MinipagedError, ValueError):
    """A chapter or an exercise does not exist, or a file of the course is missing or damaged."""
