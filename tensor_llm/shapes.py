"""Checks of tensor shapes at public borders. Knows nothing of what the tensors mean.

Letters used in this package: B rows of a batch, T tokens of this call, S positions a query can
see (past and present), H query heads, K key/value heads, G = H / K, D head size, E residual
width, F inner width of the MLP, V vocabulary, L layers."""

from torch import Tensor


def check_shape(name: str, tensor: Tensor, *sizes: int | None) -> None:
    """Raises ValueError unless `tensor` has these sizes; None allows any."""
    shape = tuple(tensor.shape)
    fits = len(shape) == len(sizes) and all(
        wanted is None or wanted == size for wanted, size in zip(sizes, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in sizes)
        raise ValueError(f"{name} has shape {shape}: allowed is ({wanted})")
