"""A module whose buffers stay float32 when the model around it is cast."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from loaders.errors import NormalizeError

OUTPUT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


class ExactModule(nn.Module):
    """Computes in float32 with constants that a cast of the model must not round.

    Such a cast (`model.half()`, `.to(torch.bfloat16)`, `.double()`) chooses the output's dtype
    instead.

    Args:
        dtype: The output's dtype, whatever happens to the model. None: float32, or what the module
            was last cast to.

    Raises:
        NormalizeError: dtype is not a float.
    """

    exact: ClassVar[tuple[str, ...]]
    """Names of the float32 buffers."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__()
        if dtype is not None:
            _check_dtype(dtype)
        self.dtype = dtype
        self._cast_dtype = torch.float32

    @property
    def output_dtype(self) -> torch.dtype:
        """What `forward` returns."""
        return self._cast_dtype if self.dtype is None else self.dtype

    def _apply(
        self,
        fn: Callable[[Tensor], Tensor],
        recurse: bool = True,  # noqa: FBT001, FBT002 - torch's signature
    ) -> Self:
        # Every cast and move of a module ends here. A probe in the present output dtype tells a
        # cast from a move: `.float()` after `.half()` changes it, `.to("cuda")` does not.
        exact = self._exact()
        device = next(iter(exact.values())).device
        cast_dtype = fn(torch.zeros(1, dtype=self._cast_dtype, device=device)).dtype
        _check_dtype(cast_dtype)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._keep_float32(exact)
        self._cast_dtype = cast_dtype
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *args: object
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        # load_state_dict(assign=True) takes the file's tensors as they are, also from a file that
        # was cast.
        self._keep_float32(self._exact())

    def _exact(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.exact}

    def _keep_float32(self, exact: Mapping[str, Tensor]) -> None:
        for name, tensor in exact.items():
            now = getattr(self, name)
            if now.dtype != torch.float32:
                setattr(self, name, tensor.to(device=now.device, dtype=torch.float32))


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in OUTPUT_DTYPES:
        raise NormalizeError(
            f"dtype is {dtype}; the output is one of "
            f"{', '.join(str(allowed) for allowed in OUTPUT_DTYPES)}"
        )
