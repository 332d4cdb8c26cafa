"""The suites there are: a table of the papers each."""

from collections.abc import Mapping

from xling_tf.evaluators import (
    bitext_mining,
    cross_lingual,
    documents,
    eigen_similarity,
    inference,
    reqa,
    retrieval,
    semantic_retrieval,
    sts,
    transfer,
)
from xling_tf.evaluators.data import Suite

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        sts.SUITE,
        transfer.SUITE,
        *retrieval.SUITES,
        bitext_mining.SUITE,
        inference.SUITE,
        cross_lingual.CLASSIFICATION,
        semantic_retrieval.SUITE,
        reqa.SUITE,
        documents.SUITE,
        cross_lingual.ARGUMENT,
        eigen_similarity.SUITE,
    )
}
