"""The suites there are: a table of the papers each, and pictures of the vectors."""

from collections.abc import Mapping

from xling_tf.evaluators.bitext import (
    corpus_retrieval,
    eigen_similarity,
    mining,
    retrieval,
    similarity_search,
)
from xling_tf.evaluators.classification import (
    argument_files,
    document_files,
    inference,
    sentiment_files,
    transfer_files,
)
from xling_tf.evaluators.data import Suite
from xling_tf.evaluators.pictures import illustrations
from xling_tf.evaluators.ranking import reqa, semantic_retrieval
from xling_tf.evaluators.similarity import sts_suite

SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        sts_suite.SUITE,
        transfer_files.SUITE,
        retrieval.SUITE,
        corpus_retrieval.SUITE,
        similarity_search.SUITE,
        mining.SUITE,
        inference.SUITE,
        sentiment_files.SUITE,
        semantic_retrieval.SUITE,
        reqa.SUITE,
        document_files.SUITE,
        argument_files.SUITE,
        eigen_similarity.SUITE,
        *illustrations.SUITES,
    )
}
