"""What a model is called with."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.conformance.outcome import Measured, NotApplicable, require
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.texts import SENTENCES
from xling_tf.conformance.vector_checks import TOLERANCE, largest_difference

# By name: the same sentences, and how many of them.
_Form = tuple[Callable[[], Any], int]
_ALL = list(SENTENCES)
_FORMS: dict[str, _Form] = {
    "str": (lambda: _ALL[0], 1),
    "list": (lambda: _ALL, len(_ALL)),
    "tuple": (lambda: tuple(_ALL), len(_ALL)),
    "ndarray of objects": (lambda: np.array(_ALL, object), len(_ALL)),
    "ndarray of <U": (lambda: np.array(_ALL), len(_ALL)),
    "ndarray of bytes": (lambda: np.array([text.encode() for text in _ALL]), len(_ALL)),
    "tensor of rank 0": (lambda: tf.constant(_ALL[0]), 1),
    "tensor of rank 1": (lambda: tf.constant(_ALL), len(_ALL)),
    "tensor of rank 2": (lambda: tf.reshape(tf.constant(_ALL), [-1, 2]), len(_ALL)),
    "empty list": (lambda: [], 0),
    "empty tensor": (lambda: tf.constant([], tf.string), 0),
}


def every_form_of_call_is_taken(subject: Subject) -> Measured:
    """A string, list, tuple, array or tensor of rank 0 to 2 gives the same float32 `[sentences, dim]`.

    Source: the page of universal-sentence-encoder-multilingual/3 and its notebook, which pass strings,
    lists, arrays and columns of data frames; "text of any rank" is flattened. Nothing gives `[0, dim]`.
    """
    return _called_with(subject, _FORMS)


def a_pandas_series_is_taken(subject: Subject) -> Measured:
    """A column of a data frame is a list of texts.

    Source: the notebook of universal-sentence-encoder-multilingual/3.
    """
    if find_spec("pandas") is None:
        raise NotApplicable("pandas is not installed")
    import pandas

    return _called_with(subject, {"Series": (lambda: pandas.Series(_ALL), len(_ALL))})


def _called_with(subject: Subject, forms: dict[str, _Form]) -> Measured:
    call, expected = subject.called, subject.encode(_ALL)
    broken, largest = [], 0.0
    for name, (make, count) in forms.items():
        try:
            result = call(make())
        except (TypeError, ValueError, tf.errors.OpError) as error:
            broken.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:100]}")
            continue
        if result.dtype != tf.float32 or result.shape != (count, expected.shape[1]):
            broken.append(f"{name}: {result.dtype.name} {result.shape.as_list()}")
            continue
        largest = max(largest, largest_difference(result.numpy(), expected[:count]))
        if largest > TOLERANCE:
            broken.append(f"{name}: vectors differ by {largest:.2g}")
    require(
        not broken,
        f"the same float32 vectors within {TOLERANCE} of every form of call",
        "; ".join(broken),
    )
    return {"forms": len(forms), "largest_difference": largest, "tolerance": TOLERANCE}
