"""Per-example losses: pure functions that return `[batch]`, so that callers weight replicas."""

from keras import KerasTensor as Tensor
from keras import ops

_EXCLUDED = -1e9
# Lower bound of the cosines' standard deviation in a correlation: the gradient is inversely
# proportional to the deviation, and would be unbounded if all cosines of a batch were equal.
_MIN_SPREAD = 1e-4


def in_batch_softmax(
    scores: Tensor, positives: Tensor, excluded: Tensor | bool, *, margin: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Negative log-likelihood of each query's correct candidate (Chidambaram et al. 2019, eq. 2).

    Args:
        scores: `[batch, candidates]` float32 score of each query with each candidate; the paper
            uses dot products.
        positives: `[batch]` int32 column of each query's correct candidate.
        excluded: `[batch, candidates]` bool, true for candidates that must not count as wrong, such
            as duplicates of the correct one; the correct one is never excluded. False to exclude
            none.
        margin: Subtracted from the correct candidate's score (Yang et al. 2019, sec. 2.1, "additive
            margin softmax").

    Returns:
        `[batch]` losses, and `[batch]` float32 hits, 1 where every wrong candidate has a lower
        score.

    Examples:
        >>> import numpy as np
        >>> losses, _ = in_batch_softmax(np.eye(2), np.array([0, 1]), np.zeros((2, 2), bool))
        >>> print(losses.numpy().round(4))  # log(e + 1) - 1
        [0.3133 0.3133]
    """
    scores = ops.cast(scores, "float32")
    is_positive = ops.one_hot(positives, ops.shape(scores)[1], dtype="bool")
    # Masking by addition is cheaper than by `where`, whose gradient would pass over all scores once
    # more.
    addends = ops.where(is_positive, -margin, ops.where(excluded, _EXCLUDED, 0.0))
    losses = ops.sparse_categorical_crossentropy(positives, scores + addends, from_logits=True)
    correct = ops.sum(ops.where(is_positive, scores, 0.0), axis=1)
    hits = correct > ops.max(ops.where(is_positive, _EXCLUDED, scores + addends), axis=1)
    return losses, ops.cast(hits, "float32")


def correlation_distance(similarities: Tensor, scores: Tensor) -> Tensor:
    """1 - Pearson's correlation of the model's similarities and people's scores.

    Args:
        similarities: `[pairs]` float32.
        scores: `[pairs]`, on any linear scale.

    Returns:
        The distance, between 0 and 2; 1 if all similarities or all scores are equal.

    Examples:
        >>> import numpy as np
        >>> similarities = np.array([0.0, 0.5, 1.0], "float32")
        >>> print(correlation_distance(similarities, np.array([1, 3, 2])).numpy())
        0.5
    """
    centred, centred_scores = (x - ops.mean(x) for x in (similarities, ops.cast(scores, "float32")))
    spread = ops.sqrt(ops.maximum(ops.mean(ops.square(centred)), _MIN_SPREAD**2))
    score_spread = ops.sqrt(ops.maximum(ops.mean(ops.square(centred_scores)), 1e-24))
    return 1 - ops.mean(centred * centred_scores) / (spread * score_spread)


def cosine_distance(vectors: Tensor, others: Tensor) -> Tensor:
    """1 - the cosine of corresponding rows.

    Args:
        vectors: `[batch, dim]` float32.
        others: `[batch, dim]` float32.

    Returns:
        `[batch]` distances between 0 and 2; 1 where a row is zero.

    Examples:
        >>> import numpy as np
        >>> a, b = np.array([[3.0, 4.0]]), np.array([[10.0, 0.0]])
        >>> print(cosine_distance(a, b).numpy().round(4))  # 1 - 3 / 5
        [0.4]
    """
    products = ops.sum(ops.square(vectors), axis=1) * ops.sum(ops.square(others), axis=1)
    return 1 - ops.sum(vectors * others, axis=1) * ops.rsqrt(ops.maximum(products, 1e-24))


def score_divergence(
    vectors: Tensor,
    candidates: Tensor,
    teacher: Tensor,
    teacher_candidates: Tensor,
    positions: Tensor,
    *,
    scale: float,
) -> Tensor:
    """Kullback-Leibler divergence of the student's softmax over the candidates from the teacher's.

    This is distillation (Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", sec.
    2) of similarities in place of classes. The teacher's vectors may have another width than the
    student's.

    Args:
        vectors: `[batch, dim]` float32 vectors of the student, of unit length.
        candidates: `[candidates, dim]` float32 vectors of the student, of unit length.
        teacher: `[batch, teacher dim]` float32 vectors of the teacher for the same texts, of unit
            length.
        teacher_candidates: `[candidates, teacher dim]` float32.
        positions: `[batch]` int32 index of each text among the candidates, which is left out.
        scale: Multiplies all cosines (an inverse temperature).

    Returns:
        `[batch]` divergences, 0 where all similarities agree.

    Examples:
        >>> import numpy as np
        >>> a, b = np.eye(3, dtype="float32"), np.array([[1, 0], [1, 0], [0, 1]], "float32")
        >>> print(score_divergence(a, a, b, b, np.arange(3), scale=1.0).numpy().round(4))
        [0.1109 0.1109 0.    ]
    """
    excluded = _EXCLUDED * ops.one_hot(positions, ops.shape(candidates)[0])
    scores = ops.matmul(scale * vectors, ops.transpose(candidates)) + excluded
    teacher_scores = ops.matmul(scale * teacher, ops.transpose(teacher_candidates)) + excluded
    log_shares = ops.log_softmax(teacher_scores, axis=1)
    shares = ops.exp(log_shares)
    cross_entropy = ops.categorical_crossentropy(shares, scores, from_logits=True)
    return cross_entropy + ops.sum(shares * log_shares, axis=1)
