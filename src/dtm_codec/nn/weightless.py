"""Networks without weights: names, shapes and types of all tensors, and no memory for them.

`torch.device("meta")` does the same. But random numbers and norms of such tensors make torch load its compiler, which
takes seconds, and a model's shapes are asked for whenever one is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_MAKERS = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn}


class Weightless(TorchFunctionMode):
    """Modules made within this context have tensors of the device "meta"; small constants are still computed."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        is_constant = options.get("device") is not None or options.get("generator") is not None
        if func in _MAKERS and not is_constant:
            sizes = args[:1] if func is torch.full else args
            return torch.empty(*sizes, dtype=options.get("dtype"), device="meta")
        if args and isinstance(args[0], Tensor) and args[0].is_meta and _only_sets_values(func):
            return args[0]
        return func(*args, **options)


def _only_sets_values(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return func is F.normalize or (name.endswith("_") and not name.endswith("__"))
