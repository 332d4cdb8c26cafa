"""What vectors are like, whatever is encoded beside them."""

import numpy as np

from xling_tf.conformance.outcome import Measured, require
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.texts import HOSTILE, SENTENCES, mixed_texts

# Of a component of a unit vector. Sums of float32 in another order, as of other paddings and batch
# sizes, differ by some 1e-7; 1e-5 turns a vector by less than a hundredth of a degree.
TOLERANCE = 1e-5


def largest_difference(vectors: np.ndarray, others: np.ndarray) -> float:
    """The largest difference of two components; infinite where shapes differ or one is no number.

    Example:
        >>> largest_difference(np.array([[1.0, 0.0]]), np.array([[0.5, 0.25]]))
        0.5
        >>> largest_difference(np.ones([1, 2]), np.ones([2, 2]))
        inf
    """
    if vectors.shape != others.shape:
        return float("inf")
    largest = float(np.max(np.abs(vectors - others), initial=0))
    return largest if np.isfinite(largest) else float("inf")


def vectors_have_unit_length(subject: Subject) -> Measured:
    """Vectors are float32 of length 1, of every kind of text.

    Source: the published modules' pages ("approximately normalized"); ours are exactly, which
    searches by inner product rely on.
    """
    vectors = subject.encode([*SENTENCES, *mixed_texts(8), "", "x" * 10_000])
    require(vectors.dtype == np.float32, "float32", f"vectors are {vectors.dtype}")
    error = float(np.max(np.abs(np.linalg.norm(vectors, axis=1) - 1)))
    require(error <= TOLERANCE, f"length 1 within {TOLERANCE}", f"one is off by {error:.2g}")
    return {"largest_error": error, "tolerance": TOLERANCE}


def vectors_tell_texts_apart(subject: Subject) -> Measured:
    """Different sentences have different vectors: without that, all else would be kept by a constant.

    Source: what a sentence encoder is for.
    """
    vectors = subject.encode(SENTENCES)
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))
    largest = float(np.max(cosines))
    require(
        largest < 1 - TOLERANCE,
        f"no two of {len(SENTENCES)} different sentences in the same place",
        f"two have a cosine of {largest:.6f}",
    )
    return {"largest_cosine": largest}


def a_batch_changes_no_vector(subject: Subject) -> Measured:
    """A text has the same vector alone, in a batch of longer and shorter ones, and in any order.

    Source: the Hub's common signature for text (tensorflow.org/hub/common_saved_model_apis/text): a
    batch of sentences is encoded each by itself.
    """
    texts = [*SENTENCES, "", *mixed_texts(8)]
    together = subject.encode(texts)
    alone = np.concatenate([subject.encode([text]) for text in texts])
    order = np.random.default_rng(0).permutation(len(texts))
    shuffled = np.empty_like(together)
    shuffled[order] = subject.encode([texts[place] for place in order])
    in_batch = largest_difference(together, alone)
    in_order = largest_difference(together, shuffled)
    require(
        max(in_batch, in_order) <= TOLERANCE,
        f"the same vectors within {TOLERANCE}",
        f"they differ by {in_batch:.2g} alone and by {in_order:.2g} in another order",
    )
    return {
        "largest_difference_alone": in_batch,
        "largest_difference_in_another_order": in_order,
        "tolerance": TOLERANCE,
    }


def any_string_gives_a_finite_vector(subject: Subject) -> Measured:
    """Empty, hostile and very long strings give finite vectors, and leave those beside them alone.

    Source: a string tensor may hold any bytes (tensorflow.org/text/guide/unicode), and servers pass
    on what they are sent.
    """
    expected = subject.encode(SENTENCES[:1])
    largest = 0.0
    for name, text in HOSTILE.items():
        vectors = subject.encode([SENTENCES[0], text])
        require(
            bool(np.isfinite(vectors).all()),
            "finite vectors of any string",
            f"that of the text {name!r} is not",
        )
        largest = max(largest, largest_difference(vectors[:1], expected))
    require(
        largest <= TOLERANCE,
        f"a text beside them to keep its vector within {TOLERANCE}",
        f"it changes by {largest:.2g}",
    )
    return {"strings": len(HOSTILE), "largest_difference": largest, "tolerance": TOLERANCE}
