"""Per-example losses: pure functions that return `[batch]`, so that replicas can be weighed."""

import keras
from keras import ops

_EXCLUDED = -1e9
# The least standard deviation of cosines in a correlation: its gradient grows with one over the deviation,
# without bound if all cosines of a batch are the same.
_LEAST_SPREAD = 1e-4


def in_batch_softmax(
    scores: keras.KerasTensor,
    positives: keras.KerasTensor,
    excluded: keras.KerasTensor | bool,
    *,
    margin: float = 0.0,
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Negative log-likelihood of each query's own candidate (Chidambaram et al. 2019, eq. 2).

    Args:
        scores: `[batch, candidates]` float32, of each query and candidate: dot products in the paper.
        positives: `[batch]` int32, where each query's own candidate stands.
        excluded: `[batch, candidates]` bool, true where a candidate is not a wrong answer: the same
            text as the right one, say. The right one itself is never excluded.
        margin: Taken off the right candidate's score (Yang et al. 2019, sec. 2.1, "additive margin
            softmax").

    Returns:
        `[batch]` losses, and `[batch]` float32, 1 where every wrong candidate has a lower score.

    Example:
        >>> import numpy as np
        >>> losses, _ = in_batch_softmax(np.eye(2), np.array([0, 1]), np.zeros((2, 2), bool))
        >>> print(losses.numpy().round(4))  # log(e + 1) - 1
        [0.3133 0.3133]
    """
    scores = ops.cast(scores, "float32")
    is_positive = ops.equal(ops.arange(ops.shape(scores)[1])[None, :], positives[:, None])
    # Added, not chosen by: the gradient of a sum takes no pass over all scores.
    addends = ops.where(is_positive, -margin, ops.where(excluded, _EXCLUDED, 0.0))
    losses = ops.sparse_categorical_crossentropy(positives, scores + addends, from_logits=True)
    right = ops.sum(ops.where(is_positive, scores, 0.0), axis=1)
    hits = right > ops.max(ops.where(is_positive, _EXCLUDED, scores + addends), axis=1)
    return losses, ops.cast(hits, "float32")


def softmax_cross_entropy(
    logits: keras.KerasTensor, labels: keras.KerasTensor
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Negative log-likelihood of the labelled class.

    Args:
        logits: `[batch, classes]` float32.
        labels: `[batch]` int32.

    Returns:
        `[batch]` losses, and `[batch]` float32, 1 where every other class has a lower logit.
    """
    return in_batch_softmax(logits, labels, excluded=False)


def token_likelihood(
    scores: keras.KerasTensor,
    right: keras.KerasTensor,
    counted: keras.KerasTensor,
    log_chances: keras.KerasTensor,
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """Mean negative log-likelihood of the tokens of each sequence (Yu et al. 2018, sec. 2.2).

    The candidates are a sample of the vocabulary: what is seldom among them counts for those that are missing
    (Jean et al. 2015, "On Using Very Large Target Vocabulary", sec. 3.1, eq. 8).

    Args:
        scores: `[batch, length, candidates]` float32.
        right: `[batch, length]` int32, the candidate that is right.
        counted: `[batch, length]` bool, false behind the end.
        log_chances: `[candidates]`, of the chance of each to be a candidate.

    Returns:
        `[batch]` losses, and `[batch]`, the share of tokens whose right candidate has the highest score.

    Example:
        >>> import numpy as np
        >>> scores = np.array([[[0.0, 0.0], [9.0, 0.0]]], "float32")
        >>> right, counted = np.array([[0, 1]]), np.array([[True, False]])
        >>> losses, _ = token_likelihood(scores, right, counted, np.zeros(2, "float32"))
        >>> print(losses.numpy().round(4))  # log 2
        [0.6931]
    """
    weights = ops.cast(counted, "float32")
    weights /= ops.sum(weights, axis=1, keepdims=True)
    losses = ops.sparse_categorical_crossentropy(right, scores - log_chances, from_logits=True)
    hits = ops.cast(ops.equal(ops.cast(ops.argmax(scores, axis=2), "int32"), right), "float32")
    return ops.sum(weights * losses, axis=1), ops.sum(weights * hits, axis=1)


def correlation_distance(similarities: keras.KerasTensor, scores: keras.KerasTensor) -> keras.KerasTensor:
    """1 - the correlation (Pearson's) of similarities and people's scores; any linear scale of them will do.

    Args:
        similarities: `[pairs]` float32.
        scores: `[pairs]`.

    Returns:
        The distance, between 0 and 2; 1 if all similarities or all scores are the same, as of one pair.

    Example:
        >>> import numpy as np
        >>> print(correlation_distance(np.array([0.0, 0.5, 1.0], "float32"), np.array([1, 3, 2])).numpy())
        0.5
    """
    deviations, wanted = (x - ops.mean(x) for x in (similarities, ops.cast(scores, "float32")))
    spread = ops.sqrt(ops.maximum(ops.mean(ops.square(deviations)), _LEAST_SPREAD**2))
    wanted_spread = ops.sqrt(ops.maximum(ops.mean(ops.square(wanted)), 1e-24))
    return 1 - ops.mean(deviations * wanted) / (spread * wanted_spread)


def cosine_distance(vectors: keras.KerasTensor, others: keras.KerasTensor) -> keras.KerasTensor:
    """1 - cos of the rows of two `[batch, dim]`: `[batch]`; 1 where a row is zero.

    Example:
        >>> import numpy as np
        >>> a, b = np.array([[3.0, 4.0]]), np.array([[10.0, 0.0]])
        >>> print(cosine_distance(a, b).numpy().round(4))  # 1 - 3 / 5
        [0.4]
    """
    products = ops.sum(ops.square(vectors), axis=1) * ops.sum(ops.square(others), axis=1)
    return 1 - ops.sum(vectors * others, axis=1) * ops.rsqrt(ops.maximum(products, 1e-24))


def score_divergence(
    vectors: keras.KerasTensor,
    candidates: keras.KerasTensor,
    teacher: keras.KerasTensor,
    teacher_candidates: keras.KerasTensor,
    positions: keras.KerasTensor | None = None,
    *,
    scale: float,
    teacher_scale: float | None = None,
) -> keras.KerasTensor:
    """How much the similarities of a batch's texts differ from those that a teacher finds in them.

    The Kullback-Leibler divergence of the student's softmax over the candidates from the
    teacher's (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", sec. 2, of scores in
    place of classes). The teacher's vectors may have another width.

    Args:
        vectors: `[batch, dim]` float32, of unit length.
        candidates: `[candidates, dim]` float32.
        teacher: `[batch, teacher dim]` float32, of unit length, of the same texts.
        teacher_candidates: `[candidates, teacher dim]` float32.
        positions: `[batch]` int32, where each text stands among the candidates, which does not count;
            None: they are other texts.
        scale: Multiplies the cosines (an inverse temperature).
        teacher_scale: The same for the teacher's; None: as the student's.

    Returns:
        `[batch]` divergences, 0 where all similarities agree.

    Example:
        >>> import numpy as np
        >>> a, b = np.eye(3, dtype="float32"), np.array([[1, 0], [1, 0], [0, 1]], "float32")
        >>> print(score_divergence(a, a, b, b, np.arange(3), scale=1.0).numpy().round(4))
        [0.1109 0.1109 0.    ]
    """

    def scores(rows: keras.KerasTensor, columns: keras.KerasTensor, scale: float) -> keras.KerasTensor:
        products = ops.matmul(scale * rows, ops.transpose(columns))
        if positions is None:
            return products
        is_self = ops.equal(ops.arange(ops.shape(candidates)[0])[None, :], positions[:, None])
        return products + ops.where(is_self, _EXCLUDED, 0.0)

    wanted = scores(teacher, teacher_candidates, scale if teacher_scale is None else teacher_scale)
    log_shares = ops.log_softmax(wanted, axis=1)
    shares = ops.exp(log_shares)
    cross_entropy = ops.categorical_crossentropy(shares, scores(vectors, candidates, scale), from_logits=True)
    return cross_entropy + ops.sum(shares * log_shares, axis=1)
