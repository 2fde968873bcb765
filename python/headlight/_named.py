"""Arrays with named axes, and tables: numpy arrays that pandas and xarray objects can be made from."""
from __future__ import annotations

import dataclasses
import html
import importlib
from typing import Any, Dict, List, Tuple

import numpy as np


def optional(module: str, wanted_for: str) -> Any:
    """Imports a module that only one function needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{wanted_for} needs {module}, which is not installed; headlight itself "
                          "needs numpy only") from error


class NamedArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Numbers with named axes: `values`, a numpy array, and `dims`.

        profile.entropy.dims                  ("layer", "head")
        profile.entropy[3, 1]                 as numpy
        profile.entropy.sel(layer=3)          a NamedArray over heads
        numpy.asarray(profile.entropy)        the values
        after.entropy - before.entropy > 0.1  arithmetic, by numpy's rules

    NaN stands for values that were not measured, and for heads that a layer lacks.

    >>> heads = NamedArray([[1.0, 2.0], [3.0, 5.0]], ("layer", "head"), "entropy")
    >>> heads.sel(layer=1).values.tolist(), heads.mean("head").values.tolist()
    ([3.0, 5.0], [1.5, 4.0])
    >>> (heads - 1.0 > 1.0).values.sum().item()
    2
    """

    def __init__(self, values: Any, dims: Tuple[str, ...], name: str = ""):
        self.values = np.asarray(values)
        self.dims = tuple(dims)
        self.name = name
        if self.values.ndim != len(self.dims):
            raise ValueError(f"{self.values.ndim} axes, but {len(self.dims)} names: {self.dims}")

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def sel(self, **where: int) -> "NamedArray":
        """The values at these indices of these axes."""
        for dim in where:
            if dim not in self.dims:
                raise KeyError(f"there is no axis {dim!r}; there are {', '.join(self.dims)}")
        index = tuple(where.get(dim, slice(None)) for dim in self.dims)
        return NamedArray(self.values[index], tuple(d for d in self.dims if d not in where),
                          self.name)

    def mean(self, *dims: str) -> "NamedArray":
        """The mean over these axes, or over all; NaN values are skipped."""
        over = dims or self.dims
        for dim in over:
            if dim not in self.dims:
                raise KeyError(f"there is no axis {dim!r}; there are {', '.join(self.dims)}")
        axes = tuple(self.dims.index(dim) for dim in over)
        there = ~np.isnan(self.values)
        with np.errstate(invalid="ignore"):
            mean = np.where(there, self.values, 0.0).sum(axis=axes) / there.sum(axis=axes)
        return NamedArray(mean, tuple(d for d in self.dims if d not in over), self.name)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [one.values if isinstance(one, NamedArray) else one for one in inputs]
        if any(isinstance(one, NamedArray) for one in options.get("out", ())):
            return NotImplemented
        found = getattr(ufunc, method)(*plain, **options)
        named = [one for one in inputs if isinstance(one, NamedArray)]
        for one in named:
            if isinstance(found, np.ndarray) and found.shape == one.shape:
                return NamedArray(found, one.dims, one.name)
        return found

    def _over(self, function: Any, dims: Tuple[str, ...]) -> "NamedArray":
        for dim in dims:
            if dim not in self.dims:
                raise KeyError(f"there is no axis {dim!r}; there are {', '.join(self.dims)}")
        axes = tuple(self.dims.index(dim) for dim in dims or self.dims)
        return NamedArray(function(self.values, axis=axes),
                          tuple(dim for dim in self.dims if dims and dim not in dims), self.name)

    def max(self, *dims: str) -> "NamedArray":
        """The largest value over these axes, or over all; NaN values are skipped."""
        return self._over(np.nanmax, dims)

    def min(self, *dims: str) -> "NamedArray":
        return self._over(np.nanmin, dims)

    def sum(self, *dims: str) -> "NamedArray":
        return self._over(np.nansum, dims)

    def std(self, *dims: str) -> "NamedArray":
        return self._over(np.nanstd, dims)

    @property
    def T(self) -> "NamedArray":
        return NamedArray(self.values.T, self.dims[::-1], self.name)

    def to_xarray(self) -> Any:
        """An xarray.DataArray, if xarray is installed."""
        return optional("xarray", "to_xarray").DataArray(self.values, dims=self.dims,
                                                         name=self.name or None)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values if dtype is None else self.values.astype(dtype)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __float__(self) -> float:
        return float(self.values)

    def __repr__(self) -> str:
        shape = ", ".join(f"{dim}: {n}" for dim, n in zip(self.dims, self.shape))
        return f"NamedArray {self.name} ({shape})\n{self.values!r}"


@dataclasses.dataclass
class Table:
    """Columns of equal length, by name: numpy arrays, or lists of texts."""
    name: str
    title: str
    columns: Dict[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, column: str) -> Any:
        return self.columns[column]

    def rows(self) -> List[Dict[str, Any]]:
        names = list(self.columns)
        return [dict(zip(names, values)) for values in zip(*self.columns.values())]

    def to_pandas(self) -> Any:
        """A pandas.DataFrame, if pandas is installed."""
        return optional("pandas", "to_pandas").DataFrame(self.columns)

    def _repr_html_(self) -> str:
        """The first 200 rows, for notebooks."""
        def cell(value: Any) -> str:
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            return f"<td>{html.escape(shown)}</td>"

        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        body = "".join("<tr>" + "".join(map(cell, row.values())) + "</tr>" for row in self.rows()[:200])
        more = f"<p>{len(self) - 200} more rows</p>" if len(self) > 200 else ""
        return f"<p>{html.escape(self.title)}</p><table><tr>{head}</tr>{body}</table>{more}"
